/*
 * gather.c
 *	  From packed rows to Arrow buffers: the loops that touch every row.
 *
 * Everything here goes through the rows of a block in sub-batches, column by column,
 * so that the rows of one stay in cache while all columns pass over them.
 */
#include "encode.h"

/* Rows per column pass: a multiple of 8 (bitmaps); they should stay in L2 at least. */
#define SUB_BATCH 256

/* So many rows behind those being worked on are asked for. */
#define PREFETCH_ROWS 128

/* Lines asked for per row at most: longer rows are worth the hardware's prefetcher. */
#define PREFETCH_LINES 4

/* Short values are copied as one or two chunks, whatever their length. */
#define VAR_CHUNK 16

/* ---------------------------------------------------------------- plan */

/*
 * Asks for the rows up to PREFETCH_ROWS behind these, as far as they are known and not
 * asked for already: partition order is random access, which no hardware foresees.
 */
static inline void
prefetch_rows(ShfArrowEncoder *e, const ShfRows *rows, const uint32_t *order)
{
	const uint32_t *known = rows->order + rows->n + rows->ahead;
	const uint32_t *wanted = order + PREFETCH_ROWS < known ? order + PREFETCH_ROWS : known;
	const uint32_t *from = e->prefetched;
	uint32_t		last = rows->row_bytes - 1;

	/* What is left from another run or partition lies outside. */
	if (from < rows->order || from > known)
		from = rows->order;
	if (last > 64 * PREFETCH_LINES - 1)
		last = 64 * PREFETCH_LINES - 1;
	for (; from < wanted; from++)
	{
		const uint8_t *row = shf_row_at(rows->arena, *from);

		for (uint32_t at = 0; at < last; at += 64)
			__builtin_prefetch(row + at);
		__builtin_prefetch(row + last);
	}
	e->prefetched = from;
}

/*
 * Nested columns are built row by row, before anything else: their Arrow form may be
 * much larger than the packed one (a NULL struct is one byte), so the block ends when
 * they, or the packed rows, have reached block_bytes.
 */
ShfCode
shf_arrow_build_nested(ShfArrowEncoder *e, const ShfRows *rows, uint32_t *n, ShfError *err)
{
	uint64_t packed = 0;
	uint64_t total = 0;
	uint32_t i = 0;

	for (int c = 0; c < e->nnested; c++)
		shf_builder_reset(&e->builders[c]);
	while (i < rows->n && total < e->options->block_bytes)
	{
		const uint8_t *row = shf_row_at(rows->arena, rows->order[i]);

		packed += shf_row_bytes(row);
		if (packed > e->options->block_bytes && i > 0)
			break;
		prefetch_rows(e, rows, rows->order + i);

		for (int c = 0; c < e->ncolumns; c++)
		{
			ShfEncodeColumn *col = &e->columns[c];
			uint32_t		 slot[2];
			ShfCode			 code;

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

/* How many of n rows fit into what is left of block_bytes. */
static uint32_t
count_fitting(const uint8_t *arena, const uint32_t *order, uint32_t n, uint64_t *left)
{
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t bytes = shf_row_bytes(shf_row_at(arena, order[i]));

		if (bytes > *left)
			return i;
		*left -= bytes;
	}
	return n;
}

/*
 * Counts NULLs and variable-width bytes of the first *n rows, or of fewer: as many as
 * block_bytes holds, at least one.
 */
void
shf_arrow_plan(ShfArrowEncoder *e, const ShfRows *rows, uint32_t *n)
{
	const uint32_t *order = rows->order;
	uint64_t		left = e->options->block_bytes;
	bool			cut = (uint64_t) *n * rows->max_row_bytes > left;
	uint32_t		planned = 0;
	uint32_t		count;

	if (cut && e->layout->nvar == 0)
	{
		uint32_t most = (uint32_t) left / e->layout->fixed_bytes;

		*n = *n < most ? *n : most;
		cut = false;
	}
	for (int c = 0; c < e->ncolumns; c++)
	{
		e->columns[c].null_count = 0;
		e->columns[c].var_bytes = 0;
	}
	for (; planned < *n; planned += count, order += count)
	{
		count = *n - planned < SUB_BATCH ? *n - planned : SUB_BATCH;
		prefetch_rows(e, rows, order + count);
		if (cut)
		{
			uint32_t fitting = count_fitting(rows->arena, order, count, &left);

			if (fitting < count)
			{
				count = planned + fitting > 0 ? fitting : 1;
				*n = planned + count;
			}
		}
		for (int c = 0; c < e->ncolumns; c++)
		{
			ShfEncodeColumn *col = &e->columns[c];

			if (rows->nulls[col->field / 32] >> (col->field % 32) & 1)
			{
				const uint8_t *at = rows->arena + col->null_byte;
				uint32_t	   nulls = 0;

				for (uint32_t i = 0; i < count; i++)
					nulls += at[(size_t) order[i] * 8] >> col->null_bit & 1;
				col->null_count += nulls;
			}
			if (col->gather == SHF_GATHER_VAR)
			{
				const uint8_t *at = rows->arena + col->slot + 4;
				uint64_t	   bytes = 0;

				for (uint32_t i = 0; i < count; i++)
				{
					uint32_t len;

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
uint64_t
shf_arrow_layout(ShfArrowEncoder *e, uint32_t n)
{
	uint64_t at = 0;

	for (int c = 0; c < e->ncolumns; c++)
	{
		ShfEncodeColumn *col = &e->columns[c];
		int64_t			*node = e->nodes + 2 * col->node;
		ShfSpan			*span = e->spans + col->buffer;

		if (col->gather == SHF_GATHER_NESTED)
		{
			const uint8_t **source = e->sources + col->buffer;
			ShfSpan		   *end = span;

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
gather_bits(uint8_t *dst, const uint8_t *at, unsigned bit, unsigned flip, const uint32_t *order,
			uint32_t n)
{
	uint32_t i = 0;

	for (; i + 8 <= n; i += 8)
	{
		unsigned byte = 0;

		for (unsigned b = 0; b < 8; b++)
			byte |= ((unsigned) (at[(size_t) order[i + b] * 8] >> bit & 1) ^ flip) << b;
		*dst++ = (uint8_t) byte;
	}
	if (i < n)
	{
		unsigned byte = 0;

		for (unsigned b = 0; i + b < n; b++)
			byte |= ((unsigned) (at[(size_t) order[i + b] * 8] >> bit & 1) ^ flip) << b;
		*dst = (uint8_t) byte;
	}
}

/* One loop per width, so that the copy is a load and a store. */
#define GATHER_FIXED(width) \
	do \
	{ \
		for (uint32_t i = 0; i < n; i++) \
			memcpy(dst + (size_t) i * (width), at + (size_t) order[i] * 8, (width)); \
	} while (0)

static void
gather_fixed(const ShfEncodeColumn *col, uint8_t *dst, const uint8_t *at, const uint32_t *order,
			 uint32_t n)
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
 * Offsets and bytes of rows base .. base + n - 1.  A short value is copied in whole
 * chunks where the buffer goes on behind it: what is copied too much is overwritten by
 * the next value.  (Behind the last row of the arena there is room to read, see
 * SHF_ROWBUF_SLACK.)
 */
static void
gather_var(ShfEncodeColumn *col, uint32_t base, const uint8_t *arena, const uint32_t *order,
		   uint32_t n)
{
	int32_t *offsets = col->offsets + base;
	uint8_t *data = col->data;
	uint32_t filled = col->filled;
	uint32_t end = (uint32_t) col->var_bytes;

	for (uint32_t i = 0; i < n; i++)
	{
		const uint8_t *row = shf_row_at(arena, order[i]);
		uint32_t	   slot[2];

		memcpy(slot, row + col->slot, sizeof(slot));
		if (slot[1] <= 2 * VAR_CHUNK && end - filled >= 2 * VAR_CHUNK)
		{
			memcpy(data + filled, row + slot[0], VAR_CHUNK);
			if (slot[1] > VAR_CHUNK)
				memcpy(data + filled + VAR_CHUNK, row + slot[0] + VAR_CHUNK, VAR_CHUNK);
		}
		else if (slot[1] > 0)
			memcpy(data + filled, row + slot[0], slot[1]);
		filled += slot[1];
		offsets[i + 1] = (int32_t) filled;
	}
	col->filled = filled;
}

/* Fills the body, which layout() has measured. */
void
shf_arrow_gather(ShfArrowEncoder *e, const ShfRows *rows, uint32_t n, uint8_t *body)
{
	int nbuffers = e->template.nbuffers;

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
		const ShfSpan	*span = e->spans + col->buffer;

		if (col->gather == SHF_GATHER_NESTED)
		{
			int next = c + 1 < e->ncolumns ? e->columns[c + 1].buffer : nbuffers;

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
		uint32_t		count = n - base < SUB_BATCH ? n - base : SUB_BATCH;

		prefetch_rows(e, rows, order + count);
		for (int c = 0; c < e->ncolumns; c++)
		{
			ShfEncodeColumn *col = &e->columns[c];
			const uint8_t	*at = rows->arena + col->slot;

			if (col->gather == SHF_GATHER_NESTED)
				continue;
			if (col->validity != NULL)
				gather_bits(col->validity + base / 8, rows->arena + col->null_byte, col->null_bit,
							1, order, count);
			if (col->gather == SHF_GATHER_VAR)
				gather_var(col, base, rows->arena, order, count);
			else if (col->gather == SHF_GATHER_BOOL)
				gather_bits(col->data + base / 8, at, 0, 0, order, count);
			else
				gather_fixed(col, col->data + (size_t) base * col->width, at, order, count);
		}
	}
}
