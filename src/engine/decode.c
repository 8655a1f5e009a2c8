/*
 * decode.c
 *	  Lazy decompression and decoding of the columns of a block.
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

#include <stdlib.h>

/* Empty buffers point here, so that nobody meets a NULL with length 0. */
static const uint64_t nothing[8];

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
	return length * (field->kind == SHF_FIXED_BINARY ? field->width : shf_kinds[field->kind].width);
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
	size_t	 need = 0;

	for (int n = b->first_node[column]; n < b->first_node[column + 1]; n++)
	{
		const ShfNode *node = &b->nodes[n];

		for (int j = 0; j < node->nbuffers; j++)
		{
			const uint8_t *data;
			uint64_t	   stored;
			int64_t		   raw;
			bool		   compressed;
			int64_t		   expected =
				expected_bytes(node->field, j, shf_node_length(b, n), shf_node_nulls(b, n));
			ShfCode code =
				shf_batch_stored(b, node->first_buffer + j, &data, &stored, &raw, &compressed, err);

			if (code != SHF_OK)
				return code;
			if (expected >= 0 && raw != expected)
				return shf_batch_corrupt(b, err,
										 "column \"%.100s\": buffer %d holds %lld bytes, "
										 "expected %lld",
										 node->field->name, j, (long long) raw,
										 (long long) expected);
			if (!compressed)
				continue;
			if (!plausible(b->header.codec, stored, raw))
				return shf_batch_corrupt(b, err,
										 "column \"%.100s\": buffer %d of %llu bytes claims to "
										 "hold %lld",
										 node->field->name, j, (unsigned long long) stored,
										 (long long) raw);
			need += SHF_ALIGN_UP((size_t) raw, SHF_BUFFER_ALIGN);
		}
	}
	if (need > slab->cap)
	{
		size_t cap = SHF_ALIGN_UP(need + need / 8, SHF_BUFFER_ALIGN);

		free(slab->data);
		slab->cap = 0;
		slab->data = aligned_alloc(SHF_BUFFER_ALIGN, cap);
		if (slab->data == NULL)
			return shf_batch_nomem(err, cap);
		slab->cap = cap;
	}
	return SHF_OK;
}

/* Buffer j of a node, decompressed into the slab at *used where it must be. */
static ShfCode
load_buffer(ShfBatch *b, int column, const ShfNode *node, int j, size_t *used, const uint8_t **data,
			int64_t *bytes, ShfError *err)
{
	uint64_t stored;
	bool	 compressed;
	uint8_t *target;
	ShfError detail;
	ShfCode	 code =
		shf_batch_stored(b, node->first_buffer + j, data, &stored, bytes, &compressed, err);

	if (code != SHF_OK)
		return code;
	if (*bytes == 0)
		*data = (const uint8_t *) nothing;
	if (!compressed)
		return SHF_OK;
	target = b->slabs[column].data + *used;
	*used += SHF_ALIGN_UP((size_t) *bytes, SHF_BUFFER_ALIGN);
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
	int64_t		   whole = c->length / 64;
	int64_t		   rest = c->length % 64;
	int64_t		   present = 0;

	for (int64_t i = 0; i < whole; i++)
		present += __builtin_popcountll(shf_load64(bits + 8 * i));
	if (rest > 0)
	{
		uint64_t word = 0;

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
	int32_t		   falls = 0;

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

	if (c->field->precision <= SHF_NARROW_DIGITS)
	{
		uint64_t limit = 1;
		uint64_t wrong = 0;

		for (int i = 0; i < c->field->precision; i++)
			limit *= 10;
		for (int64_t i = 0; i < c->length; i++)
		{
			int64_t lo = (int64_t) shf_load64(c->data + 16 * i);
			int64_t hi = (int64_t) shf_load64(c->data + 16 * i + 8);

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
	ShfColumn	  *c = node->column;
	const uint8_t *data;
	int64_t		   bytes;
	int64_t		   last;
	ShfCode		   code;

	c->length = shf_node_length(b, n);
	c->null_count = shf_node_nulls(b, n);
	c->offsets = NULL;
	c->data = NULL;
	c->data_bytes = 0;
	if (node->parent >= 0 && b->nodes[node->parent].field->kind == SHF_LIST)
	{
		const ShfColumn *list = b->nodes[node->parent].column;

		if (c->length != list->offsets[list->length])
			return shf_batch_corrupt(b, err, "lists of column \"%.100s\" end at element %d of %lld",
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
shf_batch_decode(ShfBatch *b, int i, ShfError *err)
{
	size_t	used = 0;
	ShfCode code;

	if (b->decoded[i])
		return SHF_OK;
	code = prepare_slab(b, i, err);
	for (int n = b->first_node[i]; code == SHF_OK && n < b->first_node[i + 1]; n++)
		code = decode_node(b, i, n, &used, err);
	b->decoded[i] = code == SHF_OK;
	return code;
}

ShfCode
shf_batch_column(ShfBatch *b, int i, const ShfColumn **column, ShfError *err)
{
	ShfCode code;

	if (i < 0 || i >= b->schema.nfields || b->message == NULL)
		return shf_error(err, SHF_ERR_INVALID, "there is no column %d of a block to decode", i);
	code = shf_batch_decode(b, i, err);
	if (code != SHF_OK)
		return code;
	b->used[i] = true;
	*column = &b->columns[i];
	return SHF_OK;
}
