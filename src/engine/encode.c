/*
 * encode.c
 *	  The Arrow block encoder.
 *
 * A block is made in four steps:
 *	  plan		NULLs and variable-width bytes of each column are counted
 *	  layout	every buffer gets its place in the body, whose size is then known
 *	  gather	column by column, values are copied from the packed rows to their buffers
 *	  finish	compression if it pays, header, checksum
 * Plan and gather go through the rows in sub-batches, so that the rows of one stay in
 * cache while all columns pass over them.  Without a codec values are gathered where
 * the output will write them from; with one, into a scratch body.
 *
 * Nothing is allocated per block, unless nested columns or a large row outgrow what
 * earlier blocks needed.
 */
#include "encode.h"

#include "crc32c.h"

#include <stdlib.h>

/* Rows per column pass: a multiple of 8 (bitmaps); a few hundred rows fit in L2 at least. */
#define SUB_BATCH		256

/* How many rows ahead memory is asked for. */
#define PREFETCH_ROWS	32

/* Copied without looking at the length when there is room for it. */
#define VAR_CHUNK		16

/* ---------------------------------------------------------------- plan */

static inline void
prefetch_row(const ShfArrowEncoder *e, const uint8_t *row)
{
	__builtin_prefetch(row);
	for (uint32_t at = 64; at < e->layout->fixed_bytes + 32 && at < 256; at += 64)
		__builtin_prefetch(row + at);
}

/*
 * Nested columns are built row by row, before anything else: their Arrow form may be
 * much larger than the packed one (a NULL struct is one byte), so the block ends when
 * they have reached block_bytes.  Returns how many rows the block takes.
 */
static ShfCode
build_nested(ShfArrowEncoder *e, const ShfRows *rows, uint32_t *n, ShfError *err)
{
	uint64_t	total = 0;
	uint32_t	i = 0;

	for (int c = 0; c < e->nnested; c++)
		shf_builder_reset(&e->builders[c]);
	while (i < rows->n && (i == 0 || total < e->options->block_bytes))
	{
		const uint8_t *row = shf_row_at(rows->arena, rows->order[i]);

		for (int c = 0; c < e->ncolumns; c++)
		{
			ShfEncodeColumn *col = &e->columns[c];
			uint32_t	slot[2];
			ShfCode		code;

			if (col->gather != SHF_GATHER_NESTED)
				continue;
			memcpy(slot, row + col->slot, sizeof(slot));
			if (row[col->null_byte] >> col->null_bit & 1)
				code = shf_builder_append_null(col->nested, err);
			else
				code = shf_builder_append(col->nested, row + slot[0], slot[1], err);
			if (code != SHF_OK)
				return code;
		}
		i++;

		/* Adding up all buffers of all builders costs: not after every row. */
		if ((i & 15) == 0 || shf_row_bytes(row) > 256)
		{
			total = 0;
			for (int c = 0; c < e->nnested; c++)
				total += shf_builder_bytes(&e->builders[c]);
		}
	}
	*n = i;
	return SHF_OK;
}

/* Counts NULLs and variable-width bytes of the first n rows. */
static void
plan(ShfArrowEncoder *e, const ShfRows *rows, uint32_t n)
{
	for (int c = 0; c < e->ncolumns; c++)
	{
		e->columns[c].null_count = 0;
		e->columns[c].var_bytes = 0;
	}
	for (uint32_t base = 0; base < n; base += SUB_BATCH)
	{
		const uint32_t *order = rows->order + base;
		uint32_t	count = n - base < SUB_BATCH ? n - base : SUB_BATCH;
		uint32_t	known = n - base + rows->ahead;	/* valid entries from here on */

		for (uint32_t i = 0; i < count && i + PREFETCH_ROWS < known; i++)
			prefetch_row(e, shf_row_at(rows->arena, order[i + PREFETCH_ROWS]));

		for (int c = 0; c < e->ncolumns; c++)
		{
			ShfEncodeColumn *col = &e->columns[c];

			if (rows->nulls[col->field / 32] >> (col->field % 32) & 1)
			{
				const uint8_t *at = rows->arena + col->null_byte;
				uint32_t	nulls = 0;

				for (uint32_t i = 0; i < count; i++)
					nulls += at[(size_t) order[i] * 8] >> col->null_bit & 1;
				col->null_count += nulls;
			}
			if (col->gather == SHF_GATHER_VAR)
			{
				const uint8_t *at = rows->arena + col->slot + 4;
				uint64_t	bytes = 0;

				for (uint32_t i = 0; i < count; i++)
				{
					uint32_t	len;

					memcpy(&len, at + (size_t) order[i] * 8, sizeof(len));
					bytes += len;
				}
				col->var_bytes += bytes;
			}
		}
	}
}

/* ---------------------------------------------------------------- layout */

static inline void
place(ShfSpan *span, uint64_t *at, uint64_t length)
{
	span->offset = (int64_t) *at;
	span->length = (int64_t) length;
	*at += shf_pad8(length);
}

/* Fills nodes and spans for n rows; returns the bytes of the body. */
static uint64_t
layout(ShfArrowEncoder *e, uint32_t n)
{
	uint64_t	at = 0;

	for (int c = 0; c < e->ncolumns; c++)
	{
		ShfEncodeColumn *col = &e->columns[c];
		int64_t    *node = e->nodes + 2 * col->node;
		ShfSpan    *span = e->spans + col->buffer;

		if (col->gather == SHF_GATHER_NESTED)
		{
			const uint8_t **source = e->sources + col->buffer;
			ShfSpan    *end = span;

			shf_builder_list(col->nested, &node, &end, &source);
			for (; span < end; span++)
				place(span, &at, (uint64_t) span->length);
			continue;
		}
		node[0] = n;
		node[1] = col->null_count;
		place(span++, &at, col->null_count > 0 ? (n + 7) / 8 : 0);
		switch (col->gather)
		{
			case SHF_GATHER_VAR:
				place(span++, &at, 4 * ((uint64_t) n + 1));
				place(span, &at, col->var_bytes);
				break;
			case SHF_GATHER_BOOL:
				place(span, &at, (n + 7) / 8);
				break;
			default:
				place(span, &at, (uint64_t) n * col->width);
		}
	}
	return at;
}

/* ---------------------------------------------------------------- gather */

/* Bits of n rows: row byte at "at", bit number "bit", inverted or not. */
static void
gather_bits(uint8_t *dst, const uint8_t *at, unsigned bit, unsigned flip,
			const uint32_t *order, uint32_t n)
{
	uint32_t	i = 0;

	for (; i + 8 <= n; i += 8)
	{
		unsigned	byte = 0;

		for (unsigned b = 0; b < 8; b++)
			byte |= ((unsigned) (at[(size_t) order[i + b] * 8] >> bit & 1) ^ flip) << b;
		*dst++ = (uint8_t) byte;
	}
	if (i < n)
	{
		unsigned	byte = 0;

		for (unsigned b = 0; i + b < n; b++)
			byte |= ((unsigned) (at[(size_t) order[i + b] * 8] >> bit & 1) ^ flip) << b;
		*dst = (uint8_t) byte;
	}
}

/* One loop per width, so that the copy is a load and a store. */
#define GATHER_FIXED(width) \
	do { \
		for (uint32_t i = 0; i < n; i++) \
			memcpy(dst + (size_t) i * (width), at + (size_t) order[i] * 8, (width)); \
	} while (0)

static void
gather_fixed(const ShfEncodeColumn *col, uint8_t *dst, const uint8_t *at,
			 const uint32_t *order, uint32_t n)
{
	switch (col->gather)
	{
		case SHF_GATHER_1:
			GATHER_FIXED(1);
			break;
		case SHF_GATHER_2:
			GATHER_FIXED(2);
			break;
		case SHF_GATHER_4:
			GATHER_FIXED(4);
			break;
		case SHF_GATHER_8:
			GATHER_FIXED(8);
			break;
		case SHF_GATHER_16:
			GATHER_FIXED(16);
			break;
		default:
			GATHER_FIXED(col->width);
	}
}

/*
 * Offsets and bytes of rows base .. base + n - 1.  A value of up to VAR_CHUNK bytes is
 * copied as a whole chunk where the buffer goes on behind it: what is copied too much
 * is overwritten by the next value.  (Behind the last row of the arena there is room
 * to read, see SHF_ROWBUF_SLACK.)
 */
static void
gather_var(ShfEncodeColumn *col, uint32_t base, const uint8_t *arena,
		   const uint32_t *order, uint32_t n)
{
	int32_t    *offsets = col->offsets + base;
	uint8_t    *data = col->data;
	uint32_t	filled = col->filled;
	uint32_t	end = (uint32_t) col->var_bytes;

	for (uint32_t i = 0; i < n; i++)
	{
		const uint8_t *row = shf_row_at(arena, order[i]);
		uint32_t	slot[2];

		memcpy(slot, row + col->slot, sizeof(slot));
		if (slot[1] <= VAR_CHUNK && end - filled >= VAR_CHUNK)
			memcpy(data + filled, row + slot[0], VAR_CHUNK);
		else if (slot[1] > 0)
			memcpy(data + filled, row + slot[0], slot[1]);
		filled += slot[1];
		offsets[i + 1] = (int32_t) filled;
	}
	col->filled = filled;
}

/* Fills the body, which layout() has measured. */
static void
gather(ShfArrowEncoder *e, const ShfRows *rows, uint32_t n, uint8_t *body)
{
	int			nbuffers = e->template.nbuffers;

	/* Padding, and the tails of bitmaps: the last word of each buffer starts as zero. */
	for (int b = 0; b < nbuffers; b++)
	{
		const ShfSpan *span = &e->spans[b];

		if (span->length > 0)
			memset(body + span->offset + ((span->length - 1) & ~INT64_C(7)), 0, 8);
	}
	for (int c = 0; c < e->ncolumns; c++)
	{
		ShfEncodeColumn *col = &e->columns[c];
		const ShfSpan *span = e->spans + col->buffer;

		if (col->gather == SHF_GATHER_NESTED)
		{
			int			next = c + 1 < e->ncolumns ? e->columns[c + 1].buffer : nbuffers;

			for (int b = col->buffer; b < next; b++)
			{
				if (e->spans[b].length > 0)
					memcpy(body + e->spans[b].offset, e->sources[b], (size_t) e->spans[b].length);
			}
			continue;
		}
		col->validity = span[0].length > 0 ? body + span[0].offset : NULL;
		if (col->gather == SHF_GATHER_VAR)
		{
			col->offsets = (int32_t *) (body + span[1].offset);
			col->offsets[0] = 0;
			col->filled = 0;
			col->data = body + span[2].offset;
		}
		else
			col->data = body + span[1].offset;
	}

	for (uint32_t base = 0; base < n; base += SUB_BATCH)
	{
		const uint32_t *order = rows->order + base;
		uint32_t	count = n - base < SUB_BATCH ? n - base : SUB_BATCH;

		for (int c = 0; c < e->ncolumns; c++)
		{
			ShfEncodeColumn *col = &e->columns[c];
			const uint8_t *at = rows->arena + col->slot;

			if (col->gather == SHF_GATHER_NESTED)
				continue;
			if (col->validity != NULL)
				gather_bits(col->validity + base / 8, rows->arena + col->null_byte, col->null_bit, 1,
							order, count);
			if (col->gather == SHF_GATHER_VAR)
				gather_var(col, base, rows->arena, order, count);
			else if (col->gather == SHF_GATHER_BOOL)
				gather_bits(col->data + base / 8, at, 0, 0, order, count);
			else
				gather_fixed(col, col->data + (size_t) base * col->width, at, order, count);
		}
	}
}

/* ---------------------------------------------------------------- finish */

/* Completes a message whose body lies behind its header. */
static ShfCode
finish_message(ShfArrowEncoder *e, ShfOutput *out, uint32_t partition, uint32_t n,
			   uint8_t *message, const ShfSpan *spans, uint64_t body_bytes, uint64_t raw_bytes,
			   bool compressed, ShfError *err)
{
	const ShfTemplate *t = &e->template;
	ShfBlock	block = {
		.partition = partition,
		.rows = n,
		.raw_bytes = raw_bytes,
		.body_bytes = body_bytes,
		.message_bytes = t->bytes + body_bytes,
	};

	memcpy(message, t->data, t->nodes);
	memcpy(message + t->nodes, e->nodes, 16 * (size_t) t->nnodes);
	memcpy(message + t->nodes + 16 * (size_t) t->nnodes, t->data + t->nodes + 16 * (size_t) t->nnodes,
		   t->buffers - t->nodes - 16 * (size_t) t->nnodes);
	memcpy(message + t->buffers, spans, sizeof(ShfSpan) * (size_t) t->nbuffers);
	shf_template_patch(message, partition, n, body_bytes, compressed);
	shf_template_set_crc(message, shf_crc32c(0, message + 8, t->bytes - 8 + body_bytes));
	return shf_output_put(out, &block, err);
}

/*
 * Compresses the scratch body buffer by buffer to dst and fills e->stored.
 * *stored_bytes: size of the new body.
 */
static ShfCode
compress_body(ShfArrowEncoder *e, uint8_t *dst, uint64_t *stored_bytes, ShfError *err)
{
	ShfCodecKind kind = e->options->codec.kind;
	uint64_t	at = 0;

	for (int b = 0; b < e->template.nbuffers; b++)
	{
		const uint8_t *src = e->scratch + e->spans[b].offset;
		size_t		len = (size_t) e->spans[b].length;
		int64_t		prefix = (int64_t) len;
		size_t		written = 0;
		uint64_t	end;

		e->stored[b].offset = (int64_t) at;
		e->stored[b].length = 0;
		if (len == 0)
			continue;
		if (len >= SHF_MIN_FRAME_INPUT)
		{
			ShfCode		code = shf_compress_frame(e->compressor, src, len, dst + at + 8,
												  shf_frame_bound(kind, len), &written, err);

			if (code != SHF_OK)
				return code;
		}
		if (written == 0 && e->raw_forbidden[b])
			written = shf_store_frame(kind, src, len, dst + at + 8);
		if (written == 0)
		{
			prefix = -1;
			memcpy(dst + at + 8, src, len);
			written = len;
		}
		memcpy(dst + at, &prefix, sizeof(prefix));
		e->stored[b].length = (int64_t) (8 + written);
		end = at + 8 + written;
		at += shf_pad8(8 + written);
		memset(dst + end, 0, at - end);
	}
	*stored_bytes = at;
	return SHF_OK;
}

/* Room for the uncompressed body; above the normal size for one block only. */
static ShfCode
reserve_scratch(ShfArrowEncoder *e, uint64_t bytes, ShfError *err)
{
	size_t		want = bytes > e->scratch_normal ? bytes : e->scratch_normal;

	if (e->scratch_cap == want || (e->scratch_cap >= bytes && e->scratch_cap == e->scratch_normal))
		return SHF_OK;
	free(e->scratch);
	shf_account(e->account, e->scratch_cap, 0);
	e->scratch_cap = 0;
	e->scratch = malloc(want);
	if (e->scratch == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a block of %zu bytes", want);
	e->scratch_cap = want;
	shf_account(e->account, 0, want);
	return SHF_OK;
}

static uint64_t
compressed_bound(const ShfArrowEncoder *e)
{
	uint64_t	bound = e->template.bytes;

	for (int b = 0; b < e->template.nbuffers; b++)
	{
		if (e->spans[b].length > 0)
			bound += 16 + shf_frame_bound(e->options->codec.kind, (size_t) e->spans[b].length);
	}
	return bound;
}

/* Accounts for what grows inside: builders and compressor. */
void
shf_arrow_account(ShfArrowEncoder *e)
{
	if (e->nnested > 0)
	{
		uint64_t	held = 0;

		for (int c = 0; c < e->nnested; c++)
			held += shf_builder_held(&e->builders[c]);
		shf_account(e->account, e->builders_held, held);
		e->builders_held = held;

		/* One oversized row must not keep its memory. */
		if (held > 4 * (uint64_t) e->options->block_bytes)
		{
			held = 0;
			for (int c = 0; c < e->nnested; c++)
			{
				shf_builder_trim(&e->builders[c]);
				held += shf_builder_held(&e->builders[c]);
			}
			shf_account(e->account, e->builders_held, held);
			e->builders_held = held;
		}
	}
	if (e->compressor != NULL)
	{
		uint64_t	held = shf_compressor_held(e->compressor);

		shf_account(e->account, e->compressor_held, held);
		e->compressor_held = held;
	}
}

static ShfCode
encode_block(ShfEncoder *base, ShfOutput *out, uint32_t partition, const ShfRows *rows,
			 uint32_t *taken, ShfError *err)
{
	ShfArrowEncoder *e = (ShfArrowEncoder *) base;
	uint32_t	n = rows->n;
	uint64_t	body_bytes;
	uint64_t	stored_bytes;
	uint8_t    *message;
	ShfCode		code;

	if (e->nnested > 0)
	{
		code = build_nested(e, rows, &n, err);
		if (code != SHF_OK)
			return code;
	}
	*taken = n;
	plan(e, rows, n);
	body_bytes = layout(e, n);

	if (e->compressor == NULL || body_bytes < SHF_MIN_COMPRESSED_BODY)
	{
		code = shf_output_reserve(out, partition, n, e->template.bytes + body_bytes, &message, err);
		if (code != SHF_OK)
			return code;
		gather(e, rows, n, message + e->template.bytes);
		if (e->nnested > 0)
			shf_arrow_account(e);
		return finish_message(e, out, partition, n, message, e->spans, body_bytes, body_bytes,
							  false, err);
	}

	code = reserve_scratch(e, body_bytes, err);
	if (code != SHF_OK)
		return code;
	gather(e, rows, n, e->scratch);
	code = shf_output_reserve(out, partition, n, compressed_bound(e), &message, err);
	if (code == SHF_OK)
		code = compress_body(e, message + e->template.bytes, &stored_bytes, err);
	if (code != SHF_OK)
		return code;
	shf_arrow_account(e);
	if (stored_bytes < body_bytes)
		return finish_message(e, out, partition, n, message, e->stored, stored_bytes, body_bytes,
							  true, err);
	memcpy(message + e->template.bytes, e->scratch, body_bytes);
	return finish_message(e, out, partition, n, message, e->spans, body_bytes, body_bytes,
						  false, err);
}

/* ---------------------------------------------------------------- life of an encoder */

static int
count_variable(const ShfSchema *schema, bool nested_only)
{
	int			n = 0;

	for (int i = 0; i < schema->nfields; i++)
	{
		ShfKind		kind = schema->fields[i].kind;

		if (nested_only ? (kind == SHF_LIST || kind == SHF_STRUCT) : shf_kinds[kind].width < 0)
			n++;
	}
	return n;
}

/*
 * The body of a block of flat columns is no larger than its packed rows but for the
 * padding of each buffer and one offset per column.  Nested columns may add as much
 * again before the block is cut.
 */
static uint64_t
max_body(const ShfSchema *schema, const ShfWriterOptions *options, int nbuffers)
{
	uint64_t	bytes = (uint64_t) options->block_bytes + 16 * (uint64_t) nbuffers;

	if (count_variable(schema, true) > 0)
		bytes += options->block_bytes;
	return bytes < SHF_MIN_COMPRESSED_BODY ? SHF_MIN_COMPRESSED_BODY : bytes;
}

uint64_t
shf_arrow_max_message(const ShfSchema *schema, const ShfWriterOptions *options)
{
	ShfCodecKind kind = options->codec.kind;
	int			nnodes;
	int			nbuffers;
	uint64_t	body;

	shf_schema_count(schema, &nnodes, &nbuffers);
	body = max_body(schema, options, nbuffers);

	/* A frame's bound is its input and a part that does not grow faster. */
	if (kind != SHF_CODEC_NONE)
		body = shf_frame_bound(kind, body) +
			(uint64_t) nbuffers * (16 + shf_frame_bound(kind, 1));
	return shf_template_bytes(nnodes, nbuffers) + body;
}

uint64_t
shf_arrow_encoder_memory(const ShfSchema *schema)
{
	int			nnodes;
	int			nbuffers;

	shf_schema_count(schema, &nnodes, &nbuffers);
	return sizeof(ShfArrowEncoder) + 2 * shf_template_bytes(nnodes, nbuffers) +
		(uint64_t) schema->nfields * sizeof(ShfEncodeColumn) +
		(uint64_t) nnodes * (16 + sizeof(ShfBuilder)) +
		(uint64_t) nbuffers * (2 * sizeof(ShfSpan) + sizeof(uint8_t *) + sizeof(bool)) +
		(uint64_t) count_variable(schema, false) * 8;
}

uint64_t
shf_arrow_growing_memory(const ShfSchema *schema, const ShfWriterOptions *options)
{
	uint64_t	bytes = 0;
	int			nnodes;
	int			nbuffers;

	shf_schema_count(schema, &nnodes, &nbuffers);
	if (count_variable(schema, true) > 0)
		bytes += 4 * (uint64_t) options->block_bytes;
	if (options->codec.kind != SHF_CODEC_NONE)
		bytes += max_body(schema, options, nbuffers) + shf_compressor_memory(options->codec);
	return bytes;
}

static void
encoder_free(ShfEncoder *base)
{
	ShfArrowEncoder *e = (ShfArrowEncoder *) base;

	if (e == NULL)
		return;
	for (int c = 0; c < e->nnested; c++)
		shf_builder_release(&e->builders[c]);
	shf_template_release(&e->template);
	if (e->compressor != NULL)
		shf_compressor_free(e->compressor);
	free(e->columns);
	free(e->raw_forbidden);
	free(e->builders);
	free(e->nodes);
	free(e->spans);
	free(e->sources);
	free(e->stored);
	free(e->scratch);
	free(e->large_offsets);
	free(e->large_header);
	free(e);
}

static const ShfEncoderOps arrow_ops = {
	.block = encode_block,
	.large_row = shf_arrow_large_row,
	.free = encoder_free,
};

static ShfGather
gather_of(const ShfField *field)
{
	switch (field->kind)
	{
		case SHF_BOOL:
			return SHF_GATHER_BOOL;
		case SHF_UTF8:
		case SHF_BINARY:
			return SHF_GATHER_VAR;
		case SHF_LIST:
		case SHF_STRUCT:
			return SHF_GATHER_NESTED;
		default:
			break;
	}
	switch (field->kind == SHF_FIXED_BINARY ? field->width : shf_kinds[field->kind].width)
	{
		case 1:
			return SHF_GATHER_1;
		case 2:
			return SHF_GATHER_2;
		case 4:
			return SHF_GATHER_4;
		case 8:
			return SHF_GATHER_8;
		case 16:
			return SHF_GATHER_16;
		default:
			return SHF_GATHER_N;
	}
}

/* Marks the data buffers that must not be stored raw, depth first. */
static void
mark_raw_forbidden(const ShfField *field, bool **mark)
{
	const ShfKindInfo *kind = &shf_kinds[field->kind];

	for (int i = 0; i < kind->nbuffers; i++)
		*(*mark)++ = kind->raw_forbidden && i == kind->nbuffers - 1;
	for (int i = 0; i < field->nchildren; i++)
		mark_raw_forbidden(&field->children[i], mark);
}

static void
count_one(const ShfField *field, int *nnodes, int *nbuffers)
{
	ShfSchema	one = {.nfields = 1, .fields = (ShfField *) field};

	shf_schema_count(&one, nnodes, nbuffers);
}

static ShfCode
init_columns(ShfArrowEncoder *e, ShfError *err)
{
	bool	   *mark = e->raw_forbidden;
	int			node = 0;
	int			buffer = 0;

	for (int i = 0; i < e->ncolumns; i++)
	{
		const ShfField *field = &e->schema->fields[i];
		ShfEncodeColumn *col = &e->columns[i];
		int			nnodes;
		int			nbuffers;

		col->gather = gather_of(field);
		col->field = i;
		col->slot = e->layout->slot[i];
		col->var = e->layout->var[i];
		col->null_byte = e->layout->null_offset + (uint32_t) i / 8;
		col->null_bit = (uint8_t) (i % 8);
		col->node = node;
		col->buffer = buffer;
		if (shf_kinds[field->kind].width >= 0)
			col->width = (uint32_t) (field->kind == SHF_FIXED_BINARY ? field->width :
									 shf_kinds[field->kind].width);
		if (col->gather == SHF_GATHER_NESTED)
		{
			ShfCode		code;

			col->nested = &e->builders[e->nnested++];
			code = shf_builder_init(col->nested, field, err);
			if (code != SHF_OK)
				return code;
		}
		mark_raw_forbidden(field, &mark);
		count_one(field, &nnodes, &nbuffers);
		node += nnodes;
		buffer += nbuffers;
	}
	return SHF_OK;
}

ShfCode
shf_arrow_encoder_create(ShfEncoder **encoder, const ShfSchema *schema,
						 const ShfRowLayout *row_layout, const ShfWriterOptions *options,
						 ShfAccount *account, ShfError *err)
{
	ShfArrowEncoder *e = calloc(1, sizeof(*e));
	size_t		nnodes;
	size_t		nbuffers;
	ShfCode		code;

	*encoder = (ShfEncoder *) e;
	if (e == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a block encoder");
	e->base.ops = &arrow_ops;
	e->schema = schema;
	e->layout = row_layout;
	e->options = options;
	e->account = account;
	e->ncolumns = schema->nfields;
	code = shf_template_init(&e->template, schema, options->codec.kind, err);
	if (code == SHF_OK && options->codec.kind != SHF_CODEC_NONE)
		code = shf_compressor_create(&e->compressor, options->codec, err);
	if (code != SHF_OK)
		return code;

	/* One more than needed: no allocation of zero bytes. */
	nnodes = (size_t) e->template.nnodes + 1;
	nbuffers = (size_t) e->template.nbuffers + 1;
	e->columns = calloc((size_t) schema->nfields + 1, sizeof(*e->columns));
	e->builders = calloc((size_t) count_variable(schema, true) + 1, sizeof(*e->builders));
	e->raw_forbidden = calloc(nbuffers, sizeof(*e->raw_forbidden));
	e->nodes = calloc(2 * nnodes, sizeof(*e->nodes));
	e->spans = calloc(nbuffers, sizeof(*e->spans));
	e->sources = calloc(nbuffers, sizeof(*e->sources));
	e->stored = calloc(nbuffers, sizeof(*e->stored));
	e->large_offsets = calloc(2 * ((size_t) row_layout->nvar + 1), sizeof(*e->large_offsets));
	e->large_header = malloc(e->template.bytes);
	if (e->columns == NULL || e->builders == NULL || e->raw_forbidden == NULL ||
		e->nodes == NULL || e->spans == NULL || e->sources == NULL || e->stored == NULL ||
		e->large_offsets == NULL || e->large_header == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a block encoder");
	if (e->compressor != NULL)
		e->scratch_normal = max_body(schema, options, e->template.nbuffers);
	return init_columns(e, err);
}
