/*
 * sample.h
 *	  Schemas and rows for tests: every value is a function of its column and row, so
 *	  what is read can be compared without keeping what was written.
 */
#ifndef SAMPLE_H
#define SAMPLE_H

#include "harness.h"

#include "../../src/engine/flatbuf.h"

static inline uint64_t
sample_mix(uint64_t a, uint64_t b)
{
	uint64_t h = a * UINT64_C(0x9E3779B97F4A7C15) + b;

	h ^= h >> 32;
	h *= UINT64_C(0xD6E8FEB86659FD93);
	h ^= h >> 29;
	return h;
}

/* ---------------------------------------------------------------- schemas */

static ShfMeta sample_meta[] = {{"shuffle:attnum", "3"}, {"pg:type", "numeric"}};
static ShfMeta sample_schema_meta[] = {{"shuffle:format", "1"}};

static ShfField sample_flat_fields[] = {
	{.name = "flag", .kind = SHF_BOOL, .nullable = true},
	{.name = "i8", .kind = SHF_INT8, .nullable = true},
	{.name = "i16", .kind = SHF_INT16, .nullable = true},
	{.name = "i32", .kind = SHF_INT32},
	{.name = "i64", .kind = SHF_INT64, .nullable = true},
	{.name = "oid", .kind = SHF_UINT32, .nullable = true},
	{.name = "f4", .kind = SHF_FLOAT32, .nullable = true},
	{.name = "f8", .kind = SHF_FLOAT64, .nullable = true},
	{.name = "price",
	 .kind = SHF_DECIMAL128,
	 .nullable = true,
	 .precision = 15,
	 .scale = 2,
	 .nmeta = 2,
	 .meta = sample_meta},
	{.name = "wide", .kind = SHF_DECIMAL128, .nullable = true, .precision = 38, .scale = 10},
	{.name = "day", .kind = SHF_DATE32, .nullable = true},
	{.name = "time", .kind = SHF_TIME64_US, .nullable = true},
	{.name = "ts", .kind = SHF_TIMESTAMP_US, .nullable = true},
	{.name = "tstz", .kind = SHF_TIMESTAMPTZ_US, .nullable = true},
	{.name = "span", .kind = SHF_INTERVAL_MDN, .nullable = true},
	{.name = "name", .kind = SHF_UTF8, .nullable = true},
	{.name = "code", .kind = SHF_UTF8},
	{.name = "bytes", .kind = SHF_BINARY, .nullable = true},
	{.name = "uuid", .kind = SHF_FIXED_BINARY, .nullable = true, .width = 16},
};

static ShfField sample_point[] = {
	{.name = "label", .kind = SHF_UTF8, .nullable = true},
	{.name = "x", .kind = SHF_DECIMAL128, .nullable = true, .precision = 9, .scale = 3},
	{.name = "ok", .kind = SHF_BOOL, .nullable = true},
};

static ShfField sample_i32_item = {.name = "item", .kind = SHF_INT32, .nullable = true};
static ShfField sample_text_item = {.name = "item", .kind = SHF_UTF8, .nullable = true};
static ShfField sample_point_item = {
	.name = "item", .kind = SHF_STRUCT, .nullable = true, .nchildren = 3, .children = sample_point};
static ShfField sample_texts_item = {.name = "item",
									 .kind = SHF_LIST,
									 .nullable = true,
									 .nchildren = 1,
									 .children = &sample_text_item};
static ShfField sample_pair[] = {
	{.name = "id", .kind = SHF_INT64},
	{.name = "tags",
	 .kind = SHF_LIST,
	 .nullable = true,
	 .nchildren = 1,
	 .children = &sample_text_item},
};

static ShfField sample_nested_fields[] = {
	{.name = "numbers",
	 .kind = SHF_LIST,
	 .nullable = true,
	 .nchildren = 1,
	 .children = &sample_i32_item},
	{.name = "points", .kind = SHF_LIST, .nchildren = 1, .children = &sample_point_item},
	{.name = "pair", .kind = SHF_STRUCT, .nullable = true, .nchildren = 2, .children = sample_pair},
	{.name = "deep",
	 .kind = SHF_LIST,
	 .nullable = true,
	 .nchildren = 1,
	 .children = &sample_texts_item},
	{.name = "nothing", .kind = SHF_STRUCT, .nullable = true},
	{.name = "key", .kind = SHF_INT64},
};

static ShfField sample_key_field = {.name = "key", .kind = SHF_INT64};

static ShfField sample_small_fields[] = {
	{.name = "k", .kind = SHF_INT32, .nullable = true},
	{.name = "v", .kind = SHF_UTF8, .nullable = true},
	{.name = "d", .kind = SHF_DECIMAL128, .nullable = true, .precision = 12, .scale = 2},
};

static const ShfSchema sample_flat = {sizeof(sample_flat_fields) / sizeof(sample_flat_fields[0]),
									  sample_flat_fields, 1, sample_schema_meta};
static const ShfSchema sample_nested = {
	sizeof(sample_nested_fields) / sizeof(sample_nested_fields[0]), sample_nested_fields, 0, NULL};
static const ShfSchema sample_key = {1, &sample_key_field, 0, NULL};
static const ShfSchema sample_small = {3, sample_small_fields, 0, NULL};
static const ShfSchema sample_empty = {0, NULL, 0, NULL};

/* ---------------------------------------------------------------- values */

static inline bool
sample_is_null(const ShfField *field, uint64_t h)
{
	return field->nullable && h % 7 == 3;
}

/* The slot of a fixed-width value; returns its bytes. */
static inline size_t
sample_fixed(const ShfField *field, uint64_t h, uint8_t *slot)
{
	size_t	 width = field->kind == SHF_FIXED_BINARY ? (size_t) field->width :
													   (size_t) shf_kinds[field->kind].width;
	__int128 limit = 1;
	__int128 decimal;
	int64_t	 number;

	switch (field->kind)
	{
		case SHF_BOOL:
			slot[0] = (uint8_t) (h >> 8 & 1);
			break;
		case SHF_DECIMAL128:
			for (int i = 0; i < field->precision; i++)
				limit *= 10;
			decimal = (__int128) (((unsigned __int128) h << 64 | sample_mix(h, 1)) %
								  (unsigned __int128) limit);
			if (h & 256)
				decimal = -decimal;
			memcpy(slot, &decimal, 16);
			break;
		case SHF_TIME64_US:
			number = (int64_t) (h % UINT64_C(86400000000));
			memcpy(slot, &number, 8);
			break;
		default:
			/* Few distinct values, so that blocks compress. */
			for (size_t i = 0; i < width; i++)
				slot[i] = i % 8 < 2 ? (uint8_t) (h >> (8 * (i % 8))) : 0;
			break;
	}
	return width;
}

static inline size_t
sample_text(uint64_t h, char *text)
{
	static const char *const words[] = {
		"",
		"a",
		"na\xC3\xAFve",
		"\xE2\x82\xAC 12",
		"carefully final",
		"deposits sleep quickly across the \xF0\x9F\x90\x98 ironic packages"};
	const char *word = words[h / 7 % 6];

	strcpy(text, word);
	return strlen(word);
}

static inline void
sample_put(ShfBuffer *out, const void *data, size_t len)
{
	CHECK_OK(shf_buffer_reserve(out, len, &err));
	if (len > 0)
		memcpy(out->data + out->len, data, len);
	out->len += len;
}

static inline uint32_t
sample_list_length(uint64_t h)
{
	return (uint32_t) (h / 11 % 5);
}

/* Appends the packed form of a variable-width value; nested is true below the top. */
static inline void
sample_variable(const ShfField *field, uint64_t h, bool nested, ShfBuffer *out)
{
	if (field->kind == SHF_UTF8 || field->kind == SHF_BINARY)
	{
		char	 text[128];
		uint32_t len = (uint32_t) sample_text(h, text);

		if (nested)
			sample_put(out, &len, 4);
		sample_put(out, text, len);
	}
	else
	{
		uint32_t count =
			field->kind == SHF_LIST ? sample_list_length(h) : (uint32_t) field->nchildren;

		if (field->kind == SHF_LIST)
			sample_put(out, &count, 4);
		for (uint32_t i = 0; i < count; i++)
		{
			const ShfField *child = &field->children[field->kind == SHF_LIST ? 0 : i];
			uint64_t		hc = sample_mix(h, i + 1);
			uint8_t			null = sample_is_null(child, hc);
			uint8_t			slot[64];

			sample_put(out, &null, 1);
			if (null)
				continue;
			if (shf_kinds[child->kind].width < 0)
				sample_variable(child, hc, true, out);
			else
				sample_put(out, slot, sample_fixed(child, hc, slot));
		}
	}
}

/* Fills the writer's row with row number n; scratch keeps what var points to. */
static inline void
sample_row(const ShfSchema *schema, const ShfRowLayout *layout, ShfRow *row, uint64_t n,
		   ShfBuffer *scratch)
{
	size_t starts[64];

	shf_row_clear(layout, row);
	scratch->len = 0;
	for (int i = 0; i < schema->nfields; i++)
	{
		const ShfField *field = &schema->fields[i];
		uint64_t		h = sample_mix((uint64_t) i, n);

		starts[i] = scratch->len;
		if (sample_is_null(field, h))
			shf_row_set_null(layout, row, i);
		else if (layout->var[i] >= 0)
			sample_variable(field, h, false, scratch);
		else
		{
			uint8_t slot[64];

			sample_fixed(field, h, slot);
			memcpy(row->fixed + layout->slot[i], slot, layout->width[i]);
		}
		if (layout->var[i] >= 0)
			row->var[layout->var[i]].len = scratch->len - starts[i];
	}
	for (int i = 0; i < schema->nfields; i++)
	{
		if (layout->var[i] >= 0)
			row->var[layout->var[i]].data = scratch->data + starts[i];
	}
}

/* Is element i of the column the value that h stands for? */
static inline void
sample_check(const ShfColumn *c, int64_t i, uint64_t h)
{
	const ShfField *field = c->field;
	bool			present = c->validity == NULL || (c->validity[i >> 3] >> (i & 7) & 1);

	CHECK(i < c->length);
	if (sample_is_null(field, h))
	{
		CHECK(!present);
		return;
	}
	CHECK(present);
	if (field->kind == SHF_BOOL)
		CHECK_INT(c->data[i >> 3] >> (i & 7) & 1, h >> 8 & 1);
	else if (shf_kinds[field->kind].width >= 0)
	{
		uint8_t slot[64];
		size_t	width = sample_fixed(field, h, slot);

		CHECK((i + 1) * (int64_t) width <= c->data_bytes);
		CHECK_MEM(c->data + i * (int64_t) width, slot, width);
	}
	else if (field->kind == SHF_UTF8 || field->kind == SHF_BINARY)
	{
		char   text[128];
		size_t len = sample_text(h, text);

		CHECK_INT(c->offsets[i + 1] - c->offsets[i], len);
		CHECK_MEM(c->data + c->offsets[i], text, len);
	}
	else if (field->kind == SHF_LIST)
	{
		CHECK_INT(c->offsets[i + 1] - c->offsets[i], sample_list_length(h));
		for (int32_t k = 0; k < c->offsets[i + 1] - c->offsets[i]; k++)
			sample_check(&c->children[0], c->offsets[i] + k, sample_mix(h, (uint64_t) k + 1));
	}
	else
	{
		for (int k = 0; k < field->nchildren; k++)
			sample_check(&c->children[k], i, sample_mix(h, (uint64_t) k + 1));
	}
}

/* ---------------------------------------------------------------- files */

/* Rows go to partition number modulo partitions, so a partition's rows are known. */
static inline ShfWriter *
sample_write(const ShfSchema *schema, const char *path, ShfCodec codec, uint32_t partitions,
			 uint64_t rows, uint32_t block_rows, const ShfSegment **segments, int *nsegments)
{
	ShfWriterOptions options = {
		.partitions = partitions,
		.layout = SHF_LAYOUT_LOG,
		.codec = codec,
		.memory_limit = 64 << 20,
		.block_rows = block_rows,
		.block_bytes = 1 << 20,
		.block_min_rows = 1,
		.write_buffer_size = 64 << 10,
		.path = path,
		.file_mode = 0600,
		.dir_mode = 0700,
		.max_open_files = 16,
	};
	ShfWriter *w;
	ShfBuffer  scratch = {0};

	CHECK_OK(shf_writer_open(&w, schema, &options, &err));
	for (uint64_t n = 0; n < rows; n++)
	{
		sample_row(schema, shf_writer_layout(w), shf_writer_row(w), n, &scratch);
		CHECK_OK(shf_writer_append(w, (uint32_t) (n % partitions), &err));
	}
	CHECK_OK(shf_writer_finish(w, segments, nsegments, &err));
	free(scratch.data);
	return w;
}

#endif /* SAMPLE_H */
