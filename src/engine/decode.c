/*
 * decode.c
 *	  A block in memory: structure checks, lazy decompression and decoding of columns.
 *
 * The schema and the lengths in the header decide how long every buffer must be, save
 * the bytes of Utf8 and Binary.  So a buffer's claimed length is compared before
 * anything is allocated for it; the claim for bytes must be one that the codec can
 * reach, and must equal the last offset in the end.
 *
 * Buffers of a compressed column are decompressed into one slab per column, which
 * grows to the largest block seen and is then reused; raw ones are used in place.
 * What the checks leave to shf_verify_file(): UTF-8, times of day, padding.
 */
#include "reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define ALIGN_UP(n, a)		(((n) + (a) - 1) & ~((a) - 1))
#define BUFFER_ALIGN		((size_t) 64)	/* of decompressed buffers */
#define RAW_LENGTH			INT64_C(-1)		/* "not compressed" in a buffer's prefix */
#define PREFIX_BYTES		8

/* Empty buffers point here, so that nobody meets a NULL with length 0. */
static const uint64_t nothing[8];

static inline int64_t
get64(const uint8_t *p)
{
	int64_t v;

	memcpy(&v, p, 8);
	return v;
}

ShfCode
shf_batch_corrupt(const ShfBatch *batch, ShfError *err, const char *fmt, ...)
{
	char detail[400];
	va_list args;

	va_start(args, fmt);
	vsnprintf(detail, sizeof(detail), fmt, args);
	va_end(args);
	return shf_error(err, SHF_ERR_CORRUPT, "block at byte %llu of file \"%.300s\" is damaged: %s",
					 (unsigned long long) batch->offset, batch->name, detail);
}

static ShfCode
out_of_memory(ShfError *err, size_t bytes)
{
	return shf_error(err, SHF_ERR_NOMEM, "out of memory for %zu bytes of a block", bytes);
}

/* ---------------------------------------------------------------- creation */

static void
plan_fields(ShfBatch *b, const ShfField *fields, int nfields, int parent, ShfColumn *columns,
			int *next_node, int *next_buffer, int *next_column)
{
	for (int i = 0; i < nfields; i++)
	{
		ShfNode *node = &b->nodes[*next_node];
		int self = (*next_node)++;

		if (parent < 0)
			b->first_node[i] = self;
		node->field = &fields[i];
		node->column = &columns[i];
		node->parent = parent;
		node->first_buffer = *next_buffer;
		node->nbuffers = shf_kinds[fields[i].kind].nbuffers;
		*next_buffer += node->nbuffers;
		columns[i].field = &fields[i];
		if (fields[i].nchildren > 0)
		{
			columns[i].children = &b->columns[*next_column];
			*next_column += fields[i].nchildren;
			plan_fields(b, fields[i].children, fields[i].nchildren, self, columns[i].children,
						next_node, next_buffer, next_column);
		}
	}
}

ShfCode
shf_batch_create(ShfBatch **batch, const ShfSchema *schema, ShfError *err)
{
	ShfBatch *b;
	ShfCode code = shf_schema_check(schema, err);
	size_t nfields = (size_t) schema->nfields;
	size_t nnodes;
	int next_node = 0;
	int next_buffer = 0;
	int next_column = schema->nfields;

	*batch = NULL;
	if (code != SHF_OK)
		return code;
	b = calloc(1, sizeof(ShfBatch));
	if (b == NULL)
		return out_of_memory(err, sizeof(ShfBatch));
	code = shf_schema_copy(&b->schema, schema, err);
	if (code == SHF_OK)
		code = shf_decompressor_create(&b->decompressor, err);
	if (code != SHF_OK)
	{
		shf_batch_free(b);
		return code;
	}
	shf_schema_count(schema, &b->nnodes, &b->nbuffers);
	nnodes = (size_t) b->nnodes;
	b->nodes = calloc(nnodes + 1, sizeof(ShfNode));
	b->columns = calloc(nnodes + 1, sizeof(ShfColumn));
	b->first_node = calloc(nfields + 1, sizeof(int));
	b->decoded = calloc(nfields + 1, sizeof(bool));
	b->slabs = calloc(nfields + 1, sizeof(ShfSlab));
	b->fixed_memory = sizeof(ShfBatch) + (nnodes + 1) * (sizeof(ShfNode) + sizeof(ShfColumn)) +
		(nfields + 1) * (sizeof(int) + sizeof(bool) + sizeof(ShfSlab));
	if (b->nodes == NULL || b->columns == NULL || b->first_node == NULL || b->decoded == NULL ||
		b->slabs == NULL)
	{
		code = out_of_memory(err, b->fixed_memory);
		shf_batch_free(b);
		return code;
	}
	plan_fields(b, b->schema.fields, b->schema.nfields, -1, b->columns, &next_node, &next_buffer,
				&next_column);
	b->first_node[nfields] = b->nnodes;
	*batch = b;
	return SHF_OK;
}

void
shf_batch_free(ShfBatch *b)
{
	if (b == NULL)
		return;
	if (b->slabs != NULL)
	{
		for (int i = 0; i < b->schema.nfields; i++)
			free(b->slabs[i].data);
	}
	free(b->slabs);
	free(b->decoded);
	free(b->first_node);
	free(b->columns);
	free(b->nodes);
	free(b->buffer);
	free(b->name);
	shf_decompressor_free(b->decompressor);
	shf_schema_release(&b->schema);
	free(b);
}

ShfCode
shf_batch_reserve(ShfBatch *b, size_t need, size_t keep, ShfError *err)
{
	size_t cap;
	uint8_t *buffer;

	if (need <= b->buffer_cap)
		return SHF_OK;
	cap = ALIGN_UP(need + need / 8, BUFFER_ALIGN);
	if (keep == 0)
	{
		free(b->buffer);
		b->buffer = NULL;
		b->buffer_cap = 0;
	}
	buffer = aligned_alloc(BUFFER_ALIGN, cap);
	if (buffer == NULL)
		return out_of_memory(err, cap);
	if (keep > 0)
		memcpy(buffer, b->buffer, keep);
	free(b->buffer);
	b->buffer = buffer;
	b->buffer_cap = cap;
	return SHF_OK;
}

void
shf_batch_clear(ShfBatch *b)
{
	b->message = NULL;
	b->message_bytes = 0;
	b->metadata_bytes = 0;
	memset(&b->header, 0, sizeof(b->header));
	memset(b->decoded, 0, sizeof(bool) * (size_t) b->schema.nfields);
}

/* ---------------------------------------------------------------- structure */

void
shf_batch_buffer(const ShfBatch *b, int i, uint64_t *offset, uint64_t *len)
{
	*offset = (uint64_t) get64(b->header.buffers + 16 * (size_t) i);
	*len = (uint64_t) get64(b->header.buffers + 16 * (size_t) i + 8);
}

static inline int64_t
node_length(const ShfBatch *b, int node)
{
	return get64(b->header.nodes + 16 * (size_t) node);
}

static inline int64_t
node_nulls(const ShfBatch *b, int node)
{
	return get64(b->header.nodes + 16 * (size_t) node + 8);
}

ShfCode
shf_batch_check(ShfBatch *b, ShfError *err)
{
	const ShfBatchHeader *h = &b->header;
	uint64_t end = 0;

	if (h->nnodes != b->nnodes || h->nbuffers != b->nbuffers)
		return shf_batch_corrupt(b, err, "it has %d nodes and %d buffers, the schema has %d and %d",
								 h->nnodes, h->nbuffers, b->nnodes, b->nbuffers);
	for (int i = 0; i < b->nnodes; i++)
	{
		const ShfNode *node = &b->nodes[i];
		int64_t length = node_length(b, i);
		int64_t nulls = node_nulls(b, i);

		if (length < 0 || length > INT32_MAX || nulls < 0 || nulls > length)
			return shf_batch_corrupt(b, err, "column \"%.100s\" has %lld values and %lld NULLs",
									 node->field->name, (long long) length, (long long) nulls);
		if (nulls > 0 && !node->field->nullable &&
			(node->parent < 0 || b->nodes[node->parent].field->kind != SHF_STRUCT))
			return shf_batch_corrupt(b, err, "column \"%.100s\" has %lld NULLs but must have none",
									 node->field->name, (long long) nulls);
		if (node->parent < 0 && length != h->rows)
			return shf_batch_corrupt(b, err, "column \"%.100s\" has %lld values, the block %lld rows",
									 node->field->name, (long long) length, (long long) h->rows);
		if (node->parent >= 0 && b->nodes[node->parent].field->kind == SHF_STRUCT &&
			length != node_length(b, node->parent))
			return shf_batch_corrupt(b, err, "column \"%.100s\" has %lld values, its struct %lld",
									 node->field->name, (long long) length,
									 (long long) node_length(b, node->parent));
	}

	/* Buffers follow each other at the next multiple of 8 and fill the body. */
	for (int i = 0; i < b->nbuffers; i++)
	{
		uint64_t offset;
		uint64_t len;

		shf_batch_buffer(b, i, &offset, &len);
		if (offset != end || len > (uint64_t) h->body_bytes - end)
			return shf_batch_corrupt(b, err,
									 "buffer %d has offset %lld and %lld bytes, expected offset "
									 "%llu in a body of %lld bytes", i, (long long) offset,
									 (long long) len, (unsigned long long) end,
									 (long long) h->body_bytes);
		end = ALIGN_UP(offset + len, (uint64_t) 8);
	}
	if (end != (uint64_t) h->body_bytes)
		return shf_batch_corrupt(b, err, "its buffers take %llu bytes of a body of %lld",
								 (unsigned long long) end, (long long) h->body_bytes);
	return SHF_OK;
}

uint32_t
shf_batch_rows(const ShfBatch *b)
{
	return (uint32_t) b->header.rows;
}

ShfBytes
shf_batch_message(const ShfBatch *b)
{
	ShfBytes bytes = {b->message, b->message_bytes};

	return bytes;
}

size_t
shf_batch_memory(const ShfBatch *b)
{
	size_t total = b->fixed_memory + b->buffer_cap + shf_decompressor_held(b->decompressor);

	for (int i = 0; i < b->schema.nfields; i++)
		total += b->slabs[i].cap;
	return total;
}

/*
 * Where buffer i is stored and how many bytes it has when decompressed; *compressed
 * tells whether it is a frame.
 */
static ShfCode
buffer_stored(const ShfBatch *b, int i, const uint8_t **data, uint64_t *stored, int64_t *raw,
			  bool *compressed, ShfError *err)
{
	uint64_t offset;
	uint64_t len;

	shf_batch_buffer(b, i, &offset, &len);
	*data = b->message + b->metadata_bytes + offset;
	*stored = len;
	*raw = (int64_t) len;
	*compressed = false;
	if (!b->header.compressed || len == 0)
		return SHF_OK;

	if (len < PREFIX_BYTES)
		return shf_batch_corrupt(b, err, "compressed buffer %d has only %llu bytes", i,
								 (unsigned long long) len);
	*raw = get64(*data);
	*data += PREFIX_BYTES;
	*stored = len - PREFIX_BYTES;
	if (*raw == RAW_LENGTH)
		*raw = (int64_t) *stored;
	else if (*raw <= 0 || *raw > INT32_MAX)
		return shf_batch_corrupt(b, err, "compressed buffer %d claims to hold %lld bytes", i,
								 (long long) *raw);
	else
		*compressed = true;
	return SHF_OK;
}

uint64_t
shf_batch_raw_bytes(const ShfBatch *b)
{
	uint64_t total = 0;

	if (b->message == NULL)
		return 0;
	if (!b->header.compressed)
		return (uint64_t) b->header.body_bytes;
	for (int i = 0; i < b->nbuffers; i++)
	{
		const uint8_t *data;
		uint64_t stored;
		int64_t raw;
		bool compressed;

		/* A prefix that makes no sense is reported when its column is decoded. */
		if (buffer_stored(b, i, &data, &stored, &raw, &compressed, NULL) == SHF_OK)
			total += ALIGN_UP((uint64_t) raw, (uint64_t) 8);
	}
	return total;
}

/* ---------------------------------------------------------------- columns */

/* Bytes that buffer j of a node must have, or -1 when its offsets decide. */
static int64_t
expected_bytes(const ShfField *field, int j, int64_t length, int64_t nulls)
{
	if (j == 0)
		return nulls > 0 ? (length + 7) / 8 : 0;
	if (field->kind == SHF_BOOL)
		return (length + 7) / 8;
	if (shf_kinds[field->kind].width < 0)
		return j == 1 ? (length + 1) * (int64_t) sizeof(int32_t) : -1;
	return length * (field->kind == SHF_FIXED_BINARY ? field->width :
					 shf_kinds[field->kind].width);
}

/* Can a frame of this size hold so much?  Keeps a short lie from a large malloc. */
static bool
plausible(ShfCodecKind codec, uint64_t stored, int64_t raw)
{
	/*
	 * LZ4: one more byte of a match length stands for 255 bytes.  Zstandard: a block
	 * of at least 4 bytes (3 of them header) stands for at most 128 KB.
	 */
	if (codec == SHF_CODEC_LZ4)
		return (uint64_t) raw / 256 <= stored;
	return (uint64_t) raw / (128 * 1024) <= stored / 4;
}

/* Compares the lengths of a column's buffers and makes its slab large enough. */
static ShfCode
prepare_slab(ShfBatch *b, int column, ShfError *err)
{
	ShfSlab *slab = &b->slabs[column];
	size_t need = 0;

	for (int n = b->first_node[column]; n < b->first_node[column + 1]; n++)
	{
		const ShfNode *node = &b->nodes[n];

		for (int j = 0; j < node->nbuffers; j++)
		{
			const uint8_t *data;
			uint64_t stored;
			int64_t raw;
			bool compressed;
			int64_t expected = expected_bytes(node->field, j, node_length(b, n), node_nulls(b, n));
			ShfCode code = buffer_stored(b, node->first_buffer + j, &data, &stored, &raw,
										 &compressed, err);

			if (code != SHF_OK)
				return code;
			if (expected >= 0 && raw != expected)
				return shf_batch_corrupt(b, err,
										 "column \"%.100s\": buffer %d holds %lld bytes, "
										 "expected %lld", node->field->name, j, (long long) raw,
										 (long long) expected);
			if (!compressed)
				continue;
			if (!plausible(b->header.codec, stored, raw))
				return shf_batch_corrupt(b, err,
										 "column \"%.100s\": buffer %d of %llu bytes claims to "
										 "hold %lld", node->field->name, j,
										 (unsigned long long) stored, (long long) raw);
			need += ALIGN_UP((size_t) raw, BUFFER_ALIGN);
		}
	}
	if (need > slab->cap)
	{
		size_t cap = ALIGN_UP(need + need / 8, BUFFER_ALIGN);

		free(slab->data);
		slab->cap = 0;
		slab->data = aligned_alloc(BUFFER_ALIGN, cap);
		if (slab->data == NULL)
			return out_of_memory(err, cap);
		slab->cap = cap;
	}
	return SHF_OK;
}

/* Buffer j of a node, decompressed into the slab at *used where it must be. */
static ShfCode
load_buffer(ShfBatch *b, int column, const ShfNode *node, int j, size_t *used,
			const uint8_t **data, int64_t *bytes, ShfError *err)
{
	uint64_t stored;
	bool compressed;
	uint8_t *target;
	ShfError detail;
	ShfCode code = buffer_stored(b, node->first_buffer + j, data, &stored, bytes, &compressed,
								 err);

	if (code != SHF_OK)
		return code;
	if (*bytes == 0)
		*data = (const uint8_t *) nothing;
	if (!compressed)
		return SHF_OK;
	target = b->slabs[column].data + *used;
	*used += ALIGN_UP((size_t) *bytes, BUFFER_ALIGN);
	code = shf_decompress_frame(b->decompressor, b->header.codec, *data, stored, target,
								(size_t) *bytes, &detail);
	*data = target;
	if (code == SHF_ERR_CORRUPT)
		return shf_batch_corrupt(b, err, "column \"%.100s\": buffer %d: %s", node->field->name, j,
								 detail.message);
	if (code != SHF_OK && err != NULL)
		*err = detail;
	return code;
}

static ShfCode
check_validity(const ShfBatch *b, const ShfColumn *c, ShfError *err)
{
	const uint8_t *bits = c->validity;
	int64_t whole = c->length / 64;
	int64_t rest = c->length % 64;
	int64_t present = 0;
	uint64_t word;

	for (int64_t i = 0; i < whole; i++)
	{
		memcpy(&word, bits + 8 * i, 8);
		present += __builtin_popcountll(word);
	}
	if (rest > 0)
	{
		word = 0;
		memcpy(&word, bits + 8 * whole, (size_t) (rest + 7) / 8);
		present += __builtin_popcountll(word & ((UINT64_C(1) << rest) - 1));
	}
	if (c->length - present != c->null_count)
		return shf_batch_corrupt(b, err, "column \"%.100s\" has %lld NULLs, its header says %lld",
								 c->field->name, (long long) (c->length - present),
								 (long long) c->null_count);
	return SHF_OK;
}

/* A field that is never NULL may still be absent where its struct is NULL. */
static ShfCode
check_not_null(const ShfBatch *b, const ShfColumn *c, const ShfColumn *parent, ShfError *err)
{
	uint8_t wrong = 0;

	for (int64_t i = 0; i < c->length / 8; i++)
		wrong |= ~c->validity[i] & (parent->validity != NULL ? parent->validity[i] : 0xFF);
	for (int64_t i = c->length & ~INT64_C(7); i < c->length; i++)
		wrong |= ~c->validity[i >> 3] >> (i & 7) & 1 &
			(parent->validity != NULL ? parent->validity[i >> 3] >> (i & 7) : 1);
	if (wrong != 0)
		return shf_batch_corrupt(b, err, "column \"%.100s\" has NULLs but must have none",
								 c->field->name);
	return SHF_OK;
}

/* Offsets start at 0 and never fall; what the last one must be is the caller's. */
static ShfCode
check_offsets(const ShfBatch *b, const ShfColumn *c, ShfError *err)
{
	const int32_t *offsets = c->offsets;
	int32_t falls = 0;

	/* No early exit: the loop is free of branches. */
	for (int64_t i = 0; i < c->length; i++)
		falls |= offsets[i + 1] < offsets[i];
	if (offsets[0] != 0 || falls)
		return shf_batch_corrupt(b, err, "offsets of column \"%.100s\" do not ascend from 0",
								 c->field->name);
	return SHF_OK;
}

static ShfCode
check_decimals(const ShfBatch *b, const ShfColumn *c, ShfError *err)
{
	bool beyond = false;

	if (c->field->precision <= 18)
	{
		uint64_t limit = 1;
		uint64_t wrong = 0;

		for (int i = 0; i < c->field->precision; i++)
			limit *= 10;
		for (int64_t i = 0; i < c->length; i++)
		{
			int64_t lo = get64(c->data + 16 * i);
			int64_t hi = get64(c->data + 16 * i + 8);

			/* -limit < lo < limit, and hi is nothing but its sign */
			wrong |= (uint64_t) (hi ^ (lo >> 63));
			wrong |= (uint64_t) lo + limit - 1 > 2 * limit - 2;
		}
		beyond = wrong != 0;
	}
	else
	{
		unsigned __int128 limit = 1;

		for (int i = 0; i < c->field->precision; i++)
			limit *= 10;
		for (int64_t i = 0; i < c->length; i++)
		{
			unsigned __int128 v;

			memcpy(&v, c->data + 16 * i, 16);
			beyond |= v + limit - 1 > 2 * limit - 2;
		}
	}
	if (beyond)
		return shf_batch_corrupt(b, err, "column \"%.100s\" has a value of more than %d digits",
								 c->field->name, (int) c->field->precision);
	return SHF_OK;
}

/* Decodes one node, whose parent is already decoded. */
static ShfCode
decode_node(ShfBatch *b, int column, int n, size_t *used, ShfError *err)
{
	const ShfNode *node = &b->nodes[n];
	ShfColumn *c = node->column;
	const uint8_t *data;
	int64_t bytes;
	int64_t last;
	ShfCode code;

	c->length = node_length(b, n);
	c->null_count = node_nulls(b, n);
	c->offsets = NULL;
	c->data = NULL;
	c->data_bytes = 0;
	if (node->parent >= 0 && b->nodes[node->parent].field->kind == SHF_LIST)
	{
		const ShfColumn *list = b->nodes[node->parent].column;

		if (c->length != list->offsets[list->length])
			return shf_batch_corrupt(b, err,
									 "lists of column \"%.100s\" end at element %d of %lld",
									 list->field->name, (int) list->offsets[list->length],
									 (long long) c->length);
	}

	code = load_buffer(b, column, node, 0, used, &data, &bytes, err);
	if (code != SHF_OK)
		return code;
	c->validity = c->null_count > 0 ? data : NULL;
	if (c->validity != NULL)
	{
		code = check_validity(b, c, err);
		if (code == SHF_OK && !c->field->nullable)
			code = check_not_null(b, c, b->nodes[node->parent].column, err);
		if (code != SHF_OK)
			return code;
	}
	if (node->nbuffers == 1)
		return SHF_OK;

	code = load_buffer(b, column, node, 1, used, &data, &bytes, err);
	if (code != SHF_OK)
		return code;
	if (shf_kinds[c->field->kind].width >= 0)
	{
		c->data = data;
		c->data_bytes = bytes;
		return c->field->kind == SHF_DECIMAL128 ? check_decimals(b, c, err) : SHF_OK;
	}

	c->offsets = (const int32_t *) (const void *) data;
	code = check_offsets(b, c, err);
	if (code != SHF_OK || node->nbuffers == 2)
		return code;
	code = load_buffer(b, column, node, 2, used, &c->data, &c->data_bytes, err);
	if (code != SHF_OK)
		return code;
	last = c->offsets[c->length];
	if (last != c->data_bytes)
		return shf_batch_corrupt(b, err, "values of column \"%.100s\" end at byte %lld of %lld",
								 c->field->name, (long long) last, (long long) c->data_bytes);
	return SHF_OK;
}

ShfCode
shf_batch_column(ShfBatch *b, int i, const ShfColumn **column, ShfError *err)
{
	size_t used = 0;
	ShfCode code = SHF_OK;

	if (i < 0 || i >= b->schema.nfields || b->message == NULL)
		return shf_error(err, SHF_ERR_INVALID, "there is no column %d of a block to decode", i);
	if (!b->decoded[i])
	{
		code = prepare_slab(b, i, err);
		for (int n = b->first_node[i]; code == SHF_OK && n < b->first_node[i + 1]; n++)
			code = decode_node(b, i, n, &used, err);
		if (code != SHF_OK)
			return code;
		b->decoded[i] = true;
	}
	*column = &b->columns[i];
	return SHF_OK;
}
