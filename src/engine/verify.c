/*
 * verify.c
 *	  Verification of a whole segment file.
 *
 * Nothing in a file is left unread.  Schema message and footer are rebuilt from what
 * was read and compared byte by byte; record batches are covered by their CRC; what
 * remains is constant.  So is every bit of a file, and a test flips them one by one.
 */
#include "reader.h"

#include <stdio.h>
#include <stdlib.h>

#define MICROSECONDS_PER_DAY INT64_C(86400000000)

typedef struct ShfVerifier
{
	ShfReader	*reader;
	ShfBatch	*batch;
	ShfBuffer	 expected; /* bytes built again */
	ShfBlockPos *blocks;
	size_t		 nblocks;
	size_t		 blocks_cap;

	/* Extents by offset, and how far the current one has come. */
	ShfExtent *extents;
	uint32_t   nextents;
	uint32_t   current;
	uint64_t   extent_bytes;
	uint64_t   extent_raw_bytes;
	uint64_t   extent_rows;
	uint32_t   extent_blocks;

	bool (*stop)(void *arg); /* or NULL */
	void	 *stop_arg;
	ShfError *err;
} ShfVerifier;

/* ---------------------------------------------------------------- contents */

static ShfCode
verify_values(const ShfVerifier *v, const ShfColumn *c)
{
	ShfCode code = SHF_OK;

	if (c->validity != NULL && (c->length & 7) != 0 &&
		c->validity[c->length >> 3] >> (c->length & 7) != 0)
		return shf_batch_corrupt(v->batch, v->err,
								 "column \"%.100s\" has validity bits behind its last value",
								 c->field->name);
	if (c->field->kind == SHF_UTF8)
	{
		bool valid = shf_utf8_valid(c->data, (size_t) c->data_bytes);

		/* All of it may be valid while an offset splits a character. */
		for (int64_t i = 0; valid && i < c->length; i++)
		{
			if (c->offsets[i] < c->data_bytes && (c->data[c->offsets[i]] & 0xC0) == 0x80)
				valid = false;
		}
		if (!valid)
			return shf_batch_corrupt(v->batch, v->err,
									 "column \"%.100s\" has a value that is not valid UTF-8",
									 c->field->name);
	}
	if (c->field->kind == SHF_TIME64_US)
	{
		for (int64_t i = 0; i < c->length; i++)
		{
			int64_t t = (int64_t) shf_load64(c->data + 8 * i);

			if (t < 0 || t >= MICROSECONDS_PER_DAY)
				return shf_batch_corrupt(v->batch, v->err,
										 "column \"%.100s\" has a time outside the day: %lld us",
										 c->field->name, (long long) t);
		}
	}
	for (int i = 0; code == SHF_OK && i < c->field->nchildren; i++)
		code = verify_values(v, &c->children[i]);
	return code;
}

static ShfCode
verify_padding(const ShfVerifier *v)
{
	const ShfBatch *b = v->batch;
	const uint8_t  *body = b->message + b->metadata_bytes;

	for (int i = 0; i < b->nbuffers; i++)
	{
		uint64_t offset;
		uint64_t len;

		shf_batch_buffer(b, i, &offset, &len);
		for (uint64_t at = offset + len; (at & 7) != 0; at++)
		{
			if (body[at] != 0)
				return shf_batch_corrupt(b, v->err, "padding behind buffer %d is not zero", i);
		}
	}
	return SHF_OK;
}

/* Do bytes built again stand at offset? */
static ShfCode
verify_bytes(ShfVerifier *v, uint64_t offset, const uint8_t *expected, size_t len, const char *what)
{
	const uint8_t *data;
	ShfCode		   code = shf_reader_bytes(v->reader, offset, len, what, &data, v->err);

	if (code != SHF_OK)
		return code;
	if (memcmp(data, expected, len) != 0)
	{
		size_t i = 0;

		while (data[i] == expected[i])
			i++;
		return shf_error(v->err, SHF_ERR_CORRUPT,
						 "file \"%.300s\" is damaged: byte %llu, in %s, is %02X, expected %02X",
						 v->reader->name, (unsigned long long) (offset + i), what, data[i],
						 expected[i]);
	}
	return SHF_OK;
}

/* ---------------------------------------------------------------- extents */

static int
by_offset(const void *a, const void *b)
{
	uint64_t x = ((const ShfExtent *) a)->offset;
	uint64_t y = ((const ShfExtent *) b)->offset;

	return (x > y) - (x < y);
}

static ShfCode
extent_error(const ShfVerifier *v, const ShfExtent *e, const char *what, uint64_t found,
			 uint64_t expected)
{
	return shf_error(v->err, SHF_ERR_CORRUPT,
					 "file \"%.300s\" does not match its index: extent of partition %u at byte "
					 "%llu: %s %llu, the index says %llu",
					 v->reader->name, e->partition, (unsigned long long) e->offset, what,
					 (unsigned long long) found, (unsigned long long) expected);
}

/* Counts the block just read for its extent. */
static ShfCode
verify_extent_block(ShfVerifier *v)
{
	const ShfBatch	*b = v->batch;
	const ShfExtent *e;

	if (v->current == v->nextents)
		return shf_batch_corrupt(b, v->err, "it is in no extent of the index");
	e = &v->extents[v->current];
	if (b->offset != e->offset + v->extent_bytes)
		return extent_error(v, e, "a block begins at byte", b->offset, e->offset + v->extent_bytes);
	if (b->header.partition != e->partition)
		return extent_error(v, e, "a block is of partition", b->header.partition, e->partition);
	v->extent_bytes += b->message_bytes;
	v->extent_raw_bytes += shf_batch_raw_bytes(b);
	v->extent_rows += shf_batch_rows(b);
	v->extent_blocks++;
	if (v->extent_blocks < e->blocks)
		return SHF_OK;

	if (v->extent_blocks != e->blocks)
		return extent_error(v, e, "blocks", v->extent_blocks, e->blocks);
	if (v->extent_bytes != e->bytes)
		return extent_error(v, e, "bytes", v->extent_bytes, e->bytes);
	if (v->extent_raw_bytes != e->raw_bytes)
		return extent_error(v, e, "raw bytes", v->extent_raw_bytes, e->raw_bytes);
	if (v->extent_rows != e->rows)
		return extent_error(v, e, "rows", v->extent_rows, e->rows);
	if (v->current > 0 && e->first_row != e[-1].first_row + e[-1].rows)
		return extent_error(v, e, "first row", e[-1].first_row + e[-1].rows, e->first_row);
	v->current++;
	v->extent_bytes = 0;
	v->extent_raw_bytes = 0;
	v->extent_rows = 0;
	v->extent_blocks = 0;
	return SHF_OK;
}

/* ---------------------------------------------------------------- the file */

static ShfCode
verify_id(const ShfVerifier *v, const uint8_t *id)
{
	const ShfSchema *schema = &v->reader->schema;
	const char		*found = shf_meta_get(schema->meta, schema->nmeta, SHF_META_SEGMENT_ID);
	char			 expected[33];

	shf_segment_id_text(id, expected);
	if (found == NULL || strcmp(found, expected) != 0)
		return shf_error(v->err, SHF_ERR_CORRUPT,
						 "file \"%.300s\" is another one: its segment id is %.40s, expected %s",
						 v->reader->name, found != NULL ? found : "missing", expected);
	return SHF_OK;
}

static ShfCode
verify_block(ShfVerifier *v, uint64_t offset)
{
	ShfBatch	*b = v->batch;
	ShfBlockPos *pos;
	ShfCode		 code = shf_reader_any_block(v->reader, b, offset, v->reader->size, v->err);

	if (code != SHF_OK)
		return code;
	for (int i = 0; code == SHF_OK && i < b->schema.nfields; i++)
	{
		const ShfColumn *column;

		code = shf_batch_column(b, i, &column, v->err);
		if (code == SHF_OK)
			code = verify_values(v, column);
	}
	if (code == SHF_OK)
		code = verify_padding(v);
	if (code == SHF_OK && v->extents != NULL)
		code = verify_extent_block(v);
	if (code != SHF_OK)
		return code;

	if (v->nblocks == v->blocks_cap)
	{
		size_t		 cap = v->blocks_cap > 0 ? 2 * v->blocks_cap : 256;
		ShfBlockPos *blocks = realloc(v->blocks, cap * sizeof(ShfBlockPos));

		if (blocks == NULL)
			return shf_error(v->err, SHF_ERR_NOMEM, "out of memory while verifying file \"%.300s\"",
							 v->reader->name);
		v->blocks = blocks;
		v->blocks_cap = cap;
	}
	pos = &v->blocks[v->nblocks++];
	pos->offset = (int64_t) offset;
	pos->metadata_bytes = (int32_t) b->metadata_bytes;
	pos->zero = 0;
	pos->body_bytes = b->header.body_bytes;
	return SHF_OK;
}

static ShfCode
verify_file(ShfVerifier *v)
{
	ShfReader *r = v->reader;
	uint64_t   at = SHF_FILE_HEADER_BYTES;
	ShfCode	   code = shf_schema_message(&v->expected, &r->schema, v->err);

	/* The magic before it was compared on opening. */
	if (code == SHF_OK)
		code = verify_bytes(v, at, v->expected.data, v->expected.len, "the schema message");
	at += v->expected.len;

	while (code == SHF_OK)
	{
		const uint8_t *data;

		code =
			shf_reader_bytes(r, at, sizeof(shf_stream_end), "the end of the stream", &data, v->err);
		if (code != SHF_OK || memcmp(data, shf_stream_end, sizeof(shf_stream_end)) == 0)
			break;
		if (v->stop != NULL && v->stop(v->stop_arg))
			return shf_error(v->err, SHF_ERR_STOPPED, "stopped verifying file \"%.300s\"", r->name);
		code = verify_block(v, at);
		at += v->batch->message_bytes;
	}
	if (code != SHF_OK)
		return code;
	at += sizeof(shf_stream_end);

	if (v->extents != NULL && v->current < v->nextents)
		return extent_error(v, &v->extents[v->current], "blocks", v->extent_blocks,
							v->extents[v->current].blocks);

	v->expected.len = 0;
	code = shf_footer(&v->expected, &r->schema, v->blocks, v->nblocks, v->err);
	if (code == SHF_OK)
		code = verify_bytes(v, at, v->expected.data, v->expected.len, "the footer");
	if (code != SHF_OK)
		return code;
	at += v->expected.len;
	if (at != r->size)
		return shf_error(v->err, SHF_ERR_CORRUPT,
						 "file \"%.300s\" has %llu bytes behind its end at byte %llu", r->name,
						 (unsigned long long) (r->size - at), (unsigned long long) at);
	return SHF_OK;
}

static ShfCode
verify_reader(ShfReader *reader, const uint8_t *id, const ShfExtent *extents, uint32_t nextents,
			  bool (*stop)(void *arg), void *stop_arg, ShfError *err)
{
	ShfVerifier v = {
		.reader = reader,
		.nextents = nextents,
		.stop = stop,
		.stop_arg = stop_arg,
		.err = err,
	};
	ShfCode code = SHF_OK;

	if (extents != NULL)
	{
		v.extents = malloc(sizeof(ShfExtent) * ((size_t) nextents + 1));
		if (v.extents == NULL)
			return shf_error(err, SHF_ERR_NOMEM, "out of memory for %u extents", nextents);
		memcpy(v.extents, extents, sizeof(ShfExtent) * (size_t) nextents);
		qsort(v.extents, nextents, sizeof(ShfExtent), by_offset);
	}
	if (id != NULL)
		code = verify_id(&v, id);
	if (code == SHF_OK)
		code = shf_batch_create(&v.batch, &reader->schema, err);
	if (code == SHF_OK)
		code = verify_file(&v);
	shf_batch_free(v.batch);
	free(v.expected.data);
	free(v.blocks);
	free(v.extents);
	return code;
}

ShfCode
shf_verify_reader(ShfReader *reader, const uint8_t *id, const ShfExtent *extents, uint32_t nextents,
				  ShfError *err)
{
	return verify_reader(reader, id, extents, nextents, NULL, NULL, err);
}

ShfCode
shf_verify_file_until(const char *path, const uint8_t *id, const ShfExtent *extents,
					  uint32_t nextents, bool (*stop)(void *arg), void *arg, ShfError *err)
{
	ShfReader *reader;
	ShfCode	   code = shf_reader_open(&reader, path, err);

	if (code == SHF_OK)
		code = verify_reader(reader, id, extents, nextents, stop, arg, err);
	shf_reader_close(reader);
	return code;
}

ShfCode
shf_verify_file(const char *path, const uint8_t *id, const ShfExtent *extents, uint32_t nextents,
				ShfError *err)
{
	return shf_verify_file_until(path, id, extents, nextents, NULL, NULL, err);
}

ShfCode
shf_verify_memory(const void *data, size_t len, const char *name, const uint8_t *id,
				  const ShfExtent *extents, uint32_t nextents, ShfError *err)
{
	ShfReader *reader;
	ShfCode	   code = shf_reader_open_memory(&reader, data, len, name, err);

	if (code == SHF_OK)
		code = shf_verify_reader(reader, id, extents, nextents, err);
	shf_reader_close(reader);
	return code;
}
