/*
 * batch.c
 *	  A block in memory: its buffers, and the checks of its structure.
 *
 * The checks here need the header only; what is behind it waits for decode.c, until
 * somebody asks for the column.
 */
#include "reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define RAW_LENGTH	 INT64_C(-1) /* "not compressed" in a buffer's prefix */
#define PREFIX_BYTES 8

ShfCode
shf_batch_corrupt(const ShfBatch *batch, ShfError *err, const char *fmt, ...)
{
	char	detail[400];
	va_list args;

	va_start(args, fmt);
	vsnprintf(detail, sizeof(detail), fmt, args);
	va_end(args);
	return shf_error(err, SHF_ERR_CORRUPT, "block at byte %llu of file \"%.300s\" is damaged: %s",
					 (unsigned long long) batch->offset, batch->name, detail);
}

ShfCode
shf_batch_nomem(ShfError *err, size_t bytes)
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
		int		 self = (*next_node)++;

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
	ShfCode	  code = shf_schema_check(schema, err);
	size_t	  nfields = (size_t) schema->nfields;
	size_t	  nnodes;
	int		  next_node = 0;
	int		  next_buffer = 0;
	int		  next_column = schema->nfields;

	*batch = NULL;
	if (code != SHF_OK)
		return code;
	b = calloc(1, sizeof(ShfBatch));
	if (b == NULL)
		return shf_batch_nomem(err, sizeof(ShfBatch));
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
	b->used = calloc(nfields + 1, sizeof(bool));
	b->slabs = calloc(nfields + 1, sizeof(ShfSlab));
	b->fixed_memory = sizeof(ShfBatch) + (nnodes + 1) * (sizeof(ShfNode) + sizeof(ShfColumn)) +
		(nfields + 1) * (sizeof(int) + 2 * sizeof(bool) + sizeof(ShfSlab));
	if (b->nodes == NULL || b->columns == NULL || b->first_node == NULL || b->decoded == NULL ||
		b->used == NULL || b->slabs == NULL)
	{
		code = shf_batch_nomem(err, b->fixed_memory);
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
	free(b->used);
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
shf_batch_reserve(ShfBatch *b, size_t need, ShfError *err)
{
	size_t cap;

	if (need <= b->buffer_cap)
		return SHF_OK;
	cap = SHF_ALIGN_UP(need + need / 8, SHF_BUFFER_ALIGN);
	free(b->buffer);
	b->buffer_cap = 0;
	b->buffer = aligned_alloc(SHF_BUFFER_ALIGN, cap);
	if (b->buffer == NULL)
		return shf_batch_nomem(err, cap);
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
	memset(b->used, 0, sizeof(bool) * (size_t) b->schema.nfields);
}

/* ---------------------------------------------------------------- structure */

void
shf_batch_buffer(const ShfBatch *b, int i, uint64_t *offset, uint64_t *len)
{
	*offset = shf_load64(b->header.buffers + 16 * (size_t) i);
	*len = shf_load64(b->header.buffers + 16 * (size_t) i + 8);
}

ShfCode
shf_batch_check(ShfBatch *b, ShfError *err)
{
	const ShfBatchHeader *h = &b->header;
	uint64_t			  end = 0;

	if (h->nnodes != b->nnodes || h->nbuffers != b->nbuffers)
		return shf_batch_corrupt(b, err, "it has %d nodes and %d buffers, the schema has %d and %d",
								 h->nnodes, h->nbuffers, b->nnodes, b->nbuffers);
	for (int i = 0; i < b->nnodes; i++)
	{
		const ShfNode *node = &b->nodes[i];
		int64_t		   length = shf_node_length(b, i);
		int64_t		   nulls = shf_node_nulls(b, i);

		if (length < 0 || length > INT32_MAX || nulls < 0 || nulls > length)
			return shf_batch_corrupt(b, err, "column \"%.100s\" has %lld values and %lld NULLs",
									 node->field->name, (long long) length, (long long) nulls);
		if (nulls > 0 && !node->field->nullable &&
			(node->parent < 0 || b->nodes[node->parent].field->kind != SHF_STRUCT))
			return shf_batch_corrupt(b, err, "column \"%.100s\" has %lld NULLs but must have none",
									 node->field->name, (long long) nulls);
		if (node->parent < 0 && length != h->rows)
			return shf_batch_corrupt(b, err,
									 "column \"%.100s\" has %lld values, the block %lld rows",
									 node->field->name, (long long) length, (long long) h->rows);
		if (node->parent >= 0 && b->nodes[node->parent].field->kind == SHF_STRUCT &&
			length != shf_node_length(b, node->parent))
			return shf_batch_corrupt(b, err, "column \"%.100s\" has %lld values, its struct %lld",
									 node->field->name, (long long) length,
									 (long long) shf_node_length(b, node->parent));
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
									 "%llu in a body of %lld bytes",
									 i, (long long) offset, (long long) len,
									 (unsigned long long) end, (long long) h->body_bytes);
		end = SHF_ALIGN_UP(offset + len, (uint64_t) 8);
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

ShfCode
shf_batch_stored(const ShfBatch *b, int i, const uint8_t **data, uint64_t *stored, int64_t *raw,
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
	*raw = (int64_t) shf_load64(*data);
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
		uint64_t	   stored;
		int64_t		   raw;
		bool		   compressed;

		/* A prefix that makes no sense is reported when its column is decoded. */
		if (shf_batch_stored(b, i, &data, &stored, &raw, &compressed, NULL) == SHF_OK)
			total += SHF_ALIGN_UP((uint64_t) raw, (uint64_t) 8);
	}
	return total;
}
