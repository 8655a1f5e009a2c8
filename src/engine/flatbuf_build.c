/*
 * flatbuf_build.c
 *	  Builds the flatbuffers of Schema messages and file footers.
 *
 * Written front to back: a table first, then what it points to, because offsets in
 * flatbuffers must be positive.  Positions are relative to the flatbuffer's start,
 * which lies at a multiple of 8 in the file.  Every verifier wants a scalar or a
 * struct element at a multiple of its size, so tables start at 4 mod 8 with their
 * 8-byte fields first, and vectors of structs have their length at 4 mod 8.
 *
 * Vtables come last, each shape once.  A vtable in front of its table would be just as
 * valid, but not shared: Polars sees only what lies behind a table's parent.
 *
 * Nothing but the input decides the bytes: verification builds them again.
 */
#include "flatbuf.h"

#include <stdlib.h>

#include "flatbuf_tables.h"

#define FB_MAX_SLOTS   8
#define FB_MAX_VTABLES 32

typedef struct FbBuilder
{
	ShfBuffer *out;
	size_t	   base; /* where the flatbuffer starts in out */
	ShfCode	   code; /* first failure; from then on nothing is written */
	ShfError  *err;

	/*
	 * Shapes of tables so far.  Until their vtables are written, the tables of a shape
	 * are chained through their vtable offsets, the last one first; 0 ends the chain.
	 */
	int nvtables;
	struct
	{
		uint32_t last_table;
		int		 nslots;
		uint16_t words[2 + FB_MAX_SLOTS];
	} vtables[FB_MAX_VTABLES];
} FbBuilder;

/* A table on its way: slots by number, absent while size is 0. */
typedef struct FbTable
{
	int nslots;
	struct
	{
		uint8_t	 size;
		uint64_t value;
		size_t	 pos; /* of the field, once the table is written */
	} slot[FB_MAX_SLOTS];
} FbTable;

ShfCode
shf_buffer_reserve(ShfBuffer *buf, size_t more, ShfError *err)
{
	size_t	 cap = buf->cap > 0 ? buf->cap : 1024;
	uint8_t *data;

	if (more <= buf->cap - buf->len)
		return SHF_OK;
	if (more > SIZE_MAX / 2 - buf->len)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a buffer of %zu bytes", more);
	while (cap - buf->len < more)
		cap *= 2;
	data = realloc(buf->data, cap);
	if (data == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a buffer of %zu bytes", cap);
	buf->data = data;
	buf->cap = cap;
	return SHF_OK;
}

/* ---------------------------------------------------------------- primitives */

static size_t
fb_pos(const FbBuilder *b)
{
	return b->out->len - b->base;
}

static inline void
fb_append(FbBuilder *b, const void *data, size_t len)
{
	ShfBuffer *out = b->out;

	if (b->code == SHF_OK && len > out->cap - out->len)
		b->code = shf_buffer_reserve(out, len, b->err);
	if (b->code != SHF_OK || len == 0)
		return;
	memcpy(out->data + out->len, data, len);
	out->len += len;
}

static inline void
fb_append_u32(FbBuilder *b, uint32_t v)
{
	fb_append(b, &v, 4);
}

/* Zero bytes until the position is `residue` modulo `align` (a power of two). */
static inline void
fb_pad(FbBuilder *b, size_t align, size_t residue)
{
	static const uint8_t zeros[8];

	fb_append(b, zeros, (residue - fb_pos(b)) & (align - 1));
}

static inline void
fb_set(FbTable *t, int slot, int size, uint64_t value)
{
	t->slot[slot].size = (uint8_t) size;
	t->slot[slot].value = value;
	if (t->nslots <= slot)
		t->nslots = slot + 1;
}

/* An offset field: to be patched with fb_point() when its target is about to be written. */
static void
fb_set_offset(FbTable *t, int slot)
{
	fb_set(t, slot, 4, 0);
}

/* Makes the offset at pos point here. */
static void
fb_point(FbBuilder *b, size_t pos)
{
	uint32_t offset = (uint32_t) (fb_pos(b) - pos);

	if (b->code == SHF_OK)
		memcpy(b->out->data + b->base + pos, &offset, 4);
}

/* Chains the table about to be written here to those of its shape. */
static void
fb_chain(FbBuilder *b, const uint16_t *words, int nslots)
{
	size_t	 bytes = sizeof(uint16_t) * (size_t) (2 + nslots);
	uint32_t pos = (uint32_t) fb_pos(b);
	int		 i = 0;

	while (i < b->nvtables &&
		   (b->vtables[i].nslots != nslots || memcmp(b->vtables[i].words, words, bytes) != 0))
		i++;
	if (i == b->nvtables)
	{
		if (i == FB_MAX_VTABLES)
		{
			if (b->code == SHF_OK)
				b->code = shf_error(b->err, SHF_ERR_LIMIT, "too many shapes of Arrow metadata");
			return;
		}
		b->vtables[i].last_table = 0;
		b->vtables[i].nslots = nslots;
		memcpy(b->vtables[i].words, words, bytes);
		b->nvtables++;
	}
	fb_append_u32(b, b->vtables[i].last_table);
	b->vtables[i].last_table = pos;
}

/* Writes the vtables and points the tables at them. */
static void
fb_vtables(FbBuilder *b)
{
	for (int i = 0; i < b->nvtables && b->code == SHF_OK; i++)
	{
		size_t	 vtable;
		uint32_t table = b->vtables[i].last_table;

		fb_pad(b, 2, 0);
		vtable = fb_pos(b);
		fb_append(b, b->vtables[i].words, sizeof(uint16_t) * (size_t) (2 + b->vtables[i].nslots));
		while (table != 0 && b->code == SHF_OK)
		{
			uint8_t *at = b->out->data + b->base + table;
			int32_t	 back = (int32_t) ((int64_t) table - (int64_t) vtable);

			memcpy(&table, at, 4);
			memcpy(at, &back, 4);
		}
	}
}

/*
 * Writes the table, pointing the offset at ref here, and notes where its fields are.
 * Fields go by size, largest first, which aligns them without gaps.
 */
static void
fb_table(FbBuilder *b, size_t ref, FbTable *t)
{
	uint16_t words[2 + FB_MAX_SLOTS] = {0};
	uint8_t	 fields[8 * FB_MAX_SLOTS];
	uint16_t bytes[9] = {0}; /* of all fields of a size */
	uint16_t at[9];			 /* where the next field of a size goes */
	size_t	 pos;

	for (int i = 0; i < t->nslots; i++)
		bytes[t->slot[i].size] += t->slot[i].size;
	at[8] = 4;
	at[4] = at[8] + bytes[8];
	at[2] = at[4] + bytes[4];
	at[1] = at[2] + bytes[2];
	words[0] = (uint16_t) (sizeof(uint16_t) * (size_t) (2 + t->nslots));
	words[1] = at[1] + bytes[1];
	for (int i = 0; i < t->nslots; i++)
	{
		const uint8_t size = t->slot[i].size;

		if (size == 0)
			continue;
		words[2 + i] = at[size];
		memcpy(fields + at[size] - 4, &t->slot[i].value, size);
		at[size] += size;
	}

	fb_pad(b, 8, 4);
	pos = fb_pos(b);
	fb_point(b, ref);
	fb_chain(b, words, t->nslots);
	fb_append(b, fields, words[1] - 4);
	for (int i = 0; i < t->nslots; i++)
		t->slot[i].pos = pos + words[2 + i];
}

static void
fb_string(FbBuilder *b, size_t ref, const char *s)
{
	size_t len = strlen(s);

	fb_pad(b, 4, 0);
	fb_point(b, ref);
	fb_append_u32(b, (uint32_t) len);
	fb_append(b, s, len + 1);
}

/* A vector of n offsets, all to be patched; returns the position of the first. */
static size_t
fb_offsets(FbBuilder *b, size_t ref, size_t n)
{
	size_t first;

	fb_pad(b, 4, 0);
	fb_point(b, ref);
	fb_append_u32(b, (uint32_t) n);
	first = fb_pos(b);
	for (size_t i = 0; i < n; i++)
		fb_append_u32(b, 0);
	return first;
}

/* A root offset, to be patched. */
static size_t
fb_root(FbBuilder *b)
{
	size_t pos = fb_pos(b);

	fb_append_u32(b, 0);
	return pos;
}

static ShfCode
fb_finish(FbBuilder *b)
{
	fb_vtables(b);
	fb_pad(b, 8, 0);
	if (b->code == SHF_OK && fb_pos(b) > INT32_MAX - 64)
		return shf_error(b->err, SHF_ERR_LIMIT,
						 "schema or footer of %zu bytes is larger than Arrow files allow",
						 fb_pos(b));
	return b->code;
}

/* ---------------------------------------------------------------- schema */

static void
build_meta(FbBuilder *b, size_t ref, const ShfMeta *meta, int nmeta)
{
	size_t first = fb_offsets(b, ref, (size_t) nmeta);

	for (int i = 0; i < nmeta; i++)
	{
		FbTable t = {0};

		fb_set_offset(&t, FB_KEYVALUE_KEY);
		fb_set_offset(&t, FB_KEYVALUE_VALUE);
		fb_table(b, first + 4 * (size_t) i, &t);
		fb_string(b, t.slot[FB_KEYVALUE_KEY].pos, meta[i].key);
		fb_string(b, t.slot[FB_KEYVALUE_VALUE].pos, meta[i].value);
	}
}

static void
set_int(FbTable *t, int bits, bool is_signed)
{
	fb_set(t, FB_INT_BITWIDTH, 4, (uint64_t) bits);
	if (is_signed)
		fb_set(t, FB_INT_SIGNED, 1, 1);
}

/* The type table of a field: its union member and its fields as in Schema.fbs. */
static uint8_t
type_table(const ShfField *f, FbTable *t)
{
	switch (f->kind)
	{
		case SHF_BOOL:
			return FB_TYPE_BOOL;
		case SHF_INT8:
			set_int(t, 8, true);
			return FB_TYPE_INT;
		case SHF_INT16:
			set_int(t, 16, true);
			return FB_TYPE_INT;
		case SHF_INT32:
			set_int(t, 32, true);
			return FB_TYPE_INT;
		case SHF_INT64:
			set_int(t, 64, true);
			return FB_TYPE_INT;
		case SHF_UINT32:
			set_int(t, 32, false);
			return FB_TYPE_INT;
		case SHF_FLOAT32:
			fb_set(t, FB_FLOAT_PRECISION, 2, FB_FLOAT_SINGLE);
			return FB_TYPE_FLOAT;
		case SHF_FLOAT64:
			fb_set(t, FB_FLOAT_PRECISION, 2, FB_FLOAT_DOUBLE);
			return FB_TYPE_FLOAT;
		case SHF_DECIMAL128:
			fb_set(t, FB_DECIMAL_PRECISION, 4, (uint64_t) f->precision);
			fb_set(t, FB_DECIMAL_SCALE, 4, (uint64_t) f->scale);
			fb_set(t, FB_DECIMAL_BITWIDTH, 4, 128);
			return FB_TYPE_DECIMAL;
		case SHF_DATE32:
			fb_set(t, FB_DATE_UNIT, 2, FB_DATE_DAY);
			return FB_TYPE_DATE;
		case SHF_TIME64_US:
			fb_set(t, FB_TIME_UNIT, 2, FB_UNIT_MICROSECOND);
			fb_set(t, FB_TIME_BITWIDTH, 4, 64);
			return FB_TYPE_TIME;
		case SHF_TIMESTAMP_US:
		case SHF_TIMESTAMPTZ_US:
			fb_set(t, FB_TIMESTAMP_UNIT, 2, FB_UNIT_MICROSECOND);
			if (f->kind == SHF_TIMESTAMPTZ_US)
				fb_set_offset(t, FB_TIMESTAMP_ZONE);
			return FB_TYPE_TIMESTAMP;
		case SHF_INTERVAL_MDN:
			fb_set(t, FB_INTERVAL_UNIT, 2, FB_INTERVAL_MONTH_DAY_NANO);
			return FB_TYPE_INTERVAL;
		case SHF_UTF8:
			return FB_TYPE_UTF8;
		case SHF_BINARY:
			return FB_TYPE_BINARY;
		case SHF_FIXED_BINARY:
			fb_set(t, FB_FIXED_WIDTH, 4, (uint64_t) f->width);
			return FB_TYPE_FIXED_BINARY;
		case SHF_LIST:
			return FB_TYPE_LIST;
		case SHF_STRUCT:
			return FB_TYPE_STRUCT;
		case SHF_NKINDS:
			break;
	}
	return FB_TYPE_NONE; /* shf_schema_check() lets none through */
}

/* A vector of Field tables; depth is bounded by shf_schema_check(). */
static void
build_fields(FbBuilder *b, size_t ref, const ShfField *fields, int nfields)
{
	size_t first = fb_offsets(b, ref, (size_t) nfields);

	for (int i = 0; i < nfields; i++)
	{
		const ShfField *f = &fields[i];
		FbTable			field = {0};
		FbTable			type = {0};
		uint8_t			member = type_table(f, &type);

		fb_set_offset(&field, FB_FIELD_NAME);
		if (f->nullable)
			fb_set(&field, FB_FIELD_NULLABLE, 1, 1);
		fb_set(&field, FB_FIELD_TYPE_TYPE, 1, member);
		fb_set_offset(&field, FB_FIELD_TYPE);

		/* Older readers insist on a children vector, also on an empty one. */
		fb_set_offset(&field, FB_FIELD_CHILDREN);
		if (f->nmeta > 0)
			fb_set_offset(&field, FB_FIELD_METADATA);

		fb_table(b, first + 4 * (size_t) i, &field);
		fb_string(b, field.slot[FB_FIELD_NAME].pos, f->name);
		fb_table(b, field.slot[FB_FIELD_TYPE].pos, &type);
		if (f->kind == SHF_TIMESTAMPTZ_US)
			fb_string(b, type.slot[FB_TIMESTAMP_ZONE].pos, FB_ZONE_UTC);
		build_fields(b, field.slot[FB_FIELD_CHILDREN].pos, f->children, f->nchildren);
		if (f->nmeta > 0)
			build_meta(b, field.slot[FB_FIELD_METADATA].pos, f->meta, f->nmeta);
	}
}

static void
build_schema(FbBuilder *b, size_t ref, const ShfSchema *schema)
{
	FbTable t = {0};

	fb_set_offset(&t, FB_SCHEMA_FIELDS);
	if (schema->nmeta > 0)
		fb_set_offset(&t, FB_SCHEMA_METADATA);
	fb_table(b, ref, &t);
	build_fields(b, t.slot[FB_SCHEMA_FIELDS].pos, schema->fields, schema->nfields);
	if (schema->nmeta > 0)
		build_meta(b, t.slot[FB_SCHEMA_METADATA].pos, schema->meta, schema->nmeta);
}

/* ---------------------------------------------------------------- size */

/* Strings have a length, a terminator and padding; tables and vectors are padded, too. */
static size_t
string_bound(const char *s)
{
	return 4 + strlen(s) + 1 + 3;
}

/* A vector of key-value tables, each an offset, and a vtable offset and two offsets. */
static size_t
meta_bound(const ShfMeta *meta, int nmeta)
{
	size_t bytes = 4 + 3;

	for (int i = 0; i < nmeta; i++)
		bytes += 4 + 12 + 7 + string_bound(meta[i].key) + string_bound(meta[i].value);
	return bytes;
}

static size_t
fields_bound(const ShfField *fields, int nfields)
{
	/* Field has four offsets and two bytes; no type has more than three words. */
	const size_t tables = (4 + 16 + 2 + 7) + (4 + 12 + 7) + sizeof(FB_ZONE_UTC) + 7;
	size_t		 bytes = 4 + 3;

	for (int i = 0; i < nfields; i++)
		bytes += 4 + tables + string_bound(fields[i].name) +
			meta_bound(fields[i].meta, fields[i].nmeta) +
			fields_bound(fields[i].children, fields[i].nchildren);
	return bytes;
}

size_t
shf_schema_message_bound(const ShfSchema *schema)
{
	const size_t vtables = FB_MAX_VTABLES * (sizeof(uint16_t) * (2 + FB_MAX_SLOTS) + 1);

	return 64 + vtables + meta_bound(schema->meta, schema->nmeta) +
		fields_bound(schema->fields, schema->nfields);
}

/* ---------------------------------------------------------------- interface */

ShfCode
shf_schema_message(ShfBuffer *out, const ShfSchema *schema, ShfError *err)
{
	static const uint8_t prefix[8] = {0xFF, 0xFF, 0xFF, 0xFF};
	FbBuilder			 b = {.out = out, .err = err};
	FbTable				 t = {0};
	size_t				 root;
	int32_t				 len;
	ShfCode				 code = shf_schema_check(schema, err);

	if (code != SHF_OK)
		return code;
	fb_append(&b, prefix, sizeof(prefix));
	b.base = out->len;
	root = fb_root(&b);

	/* bodyLength is 0, its default, and left out. */
	fb_set(&t, FB_MESSAGE_VERSION, 2, FB_VERSION_V5);
	fb_set(&t, FB_MESSAGE_HEADER_TYPE, 1, FB_HEADER_SCHEMA);
	fb_set_offset(&t, FB_MESSAGE_HEADER);
	fb_table(&b, root, &t);
	build_schema(&b, t.slot[FB_MESSAGE_HEADER].pos, schema);

	code = fb_finish(&b);
	if (code != SHF_OK)
		return code;
	len = (int32_t) fb_pos(&b);
	memcpy(out->data + b.base - 4, &len, 4);
	return SHF_OK;
}

ShfCode
shf_footer(ShfBuffer *out, const ShfSchema *schema, const ShfBlockPos *blocks, size_t nblocks,
		   ShfError *err)
{
	FbBuilder b = {.out = out, .base = out->len, .err = err};
	FbTable	  t = {0};
	size_t	  root;
	int32_t	  len;
	ShfCode	  code;

	if (nblocks > INT32_MAX / sizeof(ShfBlockPos))
		return shf_error(err, SHF_ERR_LIMIT, "%zu blocks are more than an Arrow file can hold",
						 nblocks);
	root = fb_root(&b);
	fb_set(&t, FB_FOOTER_VERSION, 2, FB_VERSION_V5);
	fb_set_offset(&t, FB_FOOTER_SCHEMA);
	fb_set_offset(&t, FB_FOOTER_DICTIONARIES);
	fb_set_offset(&t, FB_FOOTER_BATCHES);
	fb_table(&b, root, &t);

	/* No dictionaries, but readers expect the vector. */
	fb_pad(&b, 8, 4);
	fb_point(&b, t.slot[FB_FOOTER_DICTIONARIES].pos);
	fb_append_u32(&b, 0);

	fb_pad(&b, 8, 4);
	fb_point(&b, t.slot[FB_FOOTER_BATCHES].pos);
	fb_append_u32(&b, (uint32_t) nblocks);
	fb_append(&b, blocks, nblocks * sizeof(ShfBlockPos));

	build_schema(&b, t.slot[FB_FOOTER_SCHEMA].pos, schema);
	code = fb_finish(&b);
	if (code != SHF_OK)
		return code;
	len = (int32_t) fb_pos(&b);
	fb_append(&b, &len, 4);
	fb_append(&b, SHF_MAGIC, SHF_MAGIC_BYTES);
	return b.code;
}

const uint8_t shf_stream_end[8] = {0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0};

ShfCode
shf_stream_schema(const ShfSchema *schema, void **message, size_t *len, ShfError *err)
{
	ShfBuffer buf = {0};
	ShfCode	  code = shf_schema_message(&buf, schema, err);

	if (code != SHF_OK)
	{
		free(buf.data);
		return code;
	}
	*message = buf.data;
	*len = buf.len;
	return SHF_OK;
}
