/*
 * gather.c
 *	  From packed rows to Arrow buffers: the loops that touch every row.
 *
 * Everything here goes through the rows of a block in sub-batches, column by column, so
 * that the rows of one stay in cache while all columns pass over them.  Partition order is
 * random access, which no hardware foresees: the rows of the next sub-batch are asked for
 * before this one is copied.
 */
#include "encode.h"

#include "bytes.h"

/* Rows per column pass: a multiple of 8 (bitmaps).  Two of them should fit the L1 cache. */
#define SUB_BATCH 64

/* Lines asked for per row at most: longer rows are worth the hardware's prefetcher. */
#define PREFETCH_LINES 4

/* Values up to either length are copied as so many bytes, whatever their length. */
#define SHORT_COPY 16
#define LONG_COPY  48

/* ---------------------------------------------------------------- rows */

/*
 * Asks for the rows before "until" in the order, as far as they are known and not asked
 * for already.
 */
static inline void
prefetch_rows(ShfArrowEncoder *e, const ShfRows *rows, const uint32_t *until)
{
	const uint32_t *known = rows->order + rows->n + rows->ahead;
	const uint32_t *from = e->prefetched;
	uint32_t		last = rows->row_bytes - 1;

	/* What is left from another run or partition lies outside. */
	if (from < rows->order || from > known)
		from = rows->order;
	if (until > known)
		until = known;
	if (last > 64 * PREFETCH_LINES - 1)
		last = 64 * PREFETCH_LINES - 1;
	for (; from < until; from++)
	{
		const uint8_t *row = shf_row_at(rows->arena, *from);

		for (uint32_t at = 0; at < last; at += 64)
			__builtin_prefetch(row + at);
		__builtin_prefetch(row + last);
	}
	e->prefetched = from;
}

/*
 * Asks once more for those lines of the next sub-batch that begin at byte "from" of a row
 * or later: a pass over a block's rows may find that what the last one read is gone.
 */
static inline void
prefetch_again(const ShfRows *rows, uint32_t base, uint32_t n, uint32_t from)
{
	uint32_t end = base + 2 * SUB_BATCH < n ? base + 2 * SUB_BATCH : n;
	uint32_t last = rows->row_bytes + 16;

	if (last > from + 64 * PREFETCH_LINES)
		last = from + 64 * PREFETCH_LINES;
	for (uint32_t i = base + SUB_BATCH; i < end; i++)
	{
		const uint8_t *row = shf_row_at(rows->arena, rows->order[i]);

		for (uint32_t at = from; at < last; at += 64)
			__builtin_prefetch(row + at);
		__builtin_prefetch(row + last);
	}
}

/* Where the value of a variable-width column begins and ends in a row. */
static inline uint32_t
value_start(const ShfArrowEncoder *e, const ShfEncodeColumn *col, const uint8_t *row)
{
	return col->var > 0 ? shf_load32(row + col->slot - sizeof(uint32_t)) : e->layout->fixed_bytes;
}

static inline uint32_t
value_end(const ShfEncodeColumn *col, const uint8_t *row)
{
	return shf_load32(row + col->slot);
}

static inline bool
may_be_null(const ShfEncodeColumn *col, const ShfRows *rows)
{
	return rows->nulls[col->field / 32] >> (col->field % 32) & 1;
}

/* ---------------------------------------------------------------- which rows */

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
		prefetch_rows(e, rows, rows->order + i + SUB_BATCH);

		for (int c = 0; c < e->ncolumns; c++)
		{
			ShfEncodeColumn *col = &e->columns[c];
			ShfCode			 code;

			if (col->gather != SHF_GATHER_NESTED)
				continue;
			if (row[col->null_byte] >> col->null_bit & 1)
				code = shf_builder_append_null(col->nested, err);
			else
			{
				uint32_t start = value_start(e, col, row);

				code =
					shf_builder_append(col->nested, row + start, value_end(col, row) - start, err);
			}
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

/* Makes *n as small as block_bytes asks for, but not less than one. */
void
shf_arrow_fit(ShfArrowEncoder *e, const ShfRows *rows, uint32_t *n)
{
	uint64_t left = e->options->block_bytes;
	uint32_t i = 0;

	if ((uint64_t) *n * rows->max_row_bytes <= left)
		return;
	if (e->layout->nvar == 0)
	{
		uint32_t most = (uint32_t) left / e->layout->fixed_bytes;

		*n = most == 0 ? 1 : *n < most ? *n : most;
		return;
	}
	for (; i < *n; i++)
	{
		uint32_t bytes;

		prefetch_rows(e, rows, rows->order + i + SUB_BATCH);
		bytes = shf_row_bytes(shf_row_at(rows->arena, rows->order[i]));
		if (bytes > left)
			break;
		left -= bytes;
	}
	*n = i > 0 ? i : 1;
}

/* Counts NULLs and variable-width bytes of n rows. */
void
shf_arrow_count(ShfArrowEncoder *e, const ShfRows *rows, uint32_t n)
{
	const uint8_t *arena = rows->arena;

	for (int c = 0; c < e->ncolumns; c++)
	{
		e->columns[c].null_count = 0;
		e->columns[c].var_bytes = 0;
	}
	for (uint32_t base = 0; base < n; base += SUB_BATCH)
	{
		const uint32_t *order = rows->order + base;
		uint32_t		count = n - base < SUB_BATCH ? n - base : SUB_BATCH;

		prefetch_rows(e, rows, order + count + SUB_BATCH);
		for (int c = 0; c < e->ncolumns; c++)
		{
			ShfEncodeColumn *col = &e->columns[c];

			if (may_be_null(col, rows))
			{
				for (uint32_t i = 0; i < count; i++)
					col->null_count +=
						shf_row_at(arena, order[i])[col->null_byte] >> col->null_bit & 1;
			}
			if (col->gather == SHF_GATHER_VAR)
			{
				for (uint32_t i = 0; i < count; i++)
				{
					const uint8_t *row = shf_row_at(arena, order[i]);

					col->var_bytes += value_end(col, row) - value_start(e, col, row);
				}
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

void
shf_arrow_place(ShfArrowEncoder *e, uint8_t *body)
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
			col->data = body + span[2].offset;
		}
		else
			col->data = body + span[1].offset;
	}
}

/*
 * Variable-width values come last: their bytes are known when the offsets have been made.
 * shf_arrow_gather_variable() finds their place behind all else.
 */
void
shf_arrow_place_scratch(ShfArrowEncoder *e, const ShfRows *rows, uint32_t n)
{
	uint8_t *at = e->scratch;

	for (int c = 0; c < e->ncolumns; c++)
	{
		ShfEncodeColumn *col = &e->columns[c];
		const uint8_t  **source = e->sources + col->buffer;

		if (col->gather == SHF_GATHER_NESTED)
			continue;
		col->validity = NULL;
		if (may_be_null(col, rows))
		{
			*source = col->validity = at;
			at += shf_pad8((n + 7) / 8);
		}
		source++;
		if (col->gather == SHF_GATHER_VAR)
		{
			*source = at;
			col->offsets = (int32_t *) at;
			at += shf_pad8(4 * ((uint64_t) n + 1));
			col->data = NULL;
			continue;
		}
		*source = col->data = at;
		at += shf_pad8(col->gather == SHF_GATHER_BOOL ? (n + 7) / 8 : (uint64_t) n * col->width);
	}
	e->scratch_used = (size_t) (at - e->scratch);
}

/* ---------------------------------------------------------------- gather */

/*
 * Bits of n rows: row byte at "at", bit number "bit", inverted or not.  Returns how many
 * are set.
 */
static uint32_t
gather_bits(uint8_t *dst, const uint8_t *at, unsigned bit, unsigned flip, const uint32_t *order,
			uint32_t n)
{
	uint32_t set = 0;

	for (uint32_t i = 0; i < n; i += 8)
	{
		uint32_t left = n - i < 8 ? n - i : 8;
		unsigned byte = 0;

		for (unsigned b = 0; b < left; b++)
			byte |= ((unsigned) (at[(size_t) order[i + b] * 8] >> bit & 1) ^ flip) << b;
		*dst++ = (uint8_t) byte;
		set += (uint32_t) __builtin_popcount(byte);
	}
	return set;
}

/* One loop per width, so that the copy is a load and a store. */
#define GATHER_FIXED(width) \
	do \
	{ \
		for (uint32_t i = 0; i < n; i++) \
			memcpy(dst + (size_t) i * (width), at + (size_t) order[i] * 8, (width)); \
	} while (0)

static void
gather_values(const ShfEncodeColumn *col, uint8_t *dst, const uint8_t *at, const uint32_t *order,
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
		case SHF_GATHER_NARROW:
			for (uint32_t i = 0; i < n; i++)
			{
				int64_t wide[2];

				memcpy(&wide[0], at + (size_t) order[i] * 8, sizeof(wide[0]));
				wide[1] = wide[0] >> 63;
				memcpy(dst + (size_t) i * sizeof(wide), wide, sizeof(wide));
			}
			break;
		default:
			GATHER_FIXED(col->width);
	}
}

/* Offsets behind the one at offsets[0], which is known. */
static void
gather_offsets(const ShfArrowEncoder *e, const ShfEncodeColumn *col, int32_t *offsets,
			   const uint8_t *arena, const uint32_t *order, uint32_t n)
{
	int32_t filled = offsets[0];

	for (uint32_t i = 0; i < n; i++)
	{
		const uint8_t *row = shf_row_at(arena, order[i]);

		filled += (int32_t) (value_end(col, row) - value_start(e, col, row));
		offsets[i + 1] = filled;
	}
}

void
shf_arrow_gather_fixed(ShfArrowEncoder *e, const ShfRows *rows, uint32_t n)
{
	for (int c = 0; c < e->ncolumns; c++)
	{
		ShfEncodeColumn *col = &e->columns[c];

		if (col->gather == SHF_GATHER_VAR)
			col->offsets[0] = 0;
		col->null_count = 0;
	}
	for (uint32_t base = 0; base < n; base += SUB_BATCH)
	{
		const uint32_t *order = rows->order + base;
		uint32_t		count = n - base < SUB_BATCH ? n - base : SUB_BATCH;

		prefetch_rows(e, rows, order + count + SUB_BATCH);
		for (int c = 0; c < e->ncolumns; c++)
		{
			ShfEncodeColumn *col = &e->columns[c];
			const uint8_t	*at = rows->arena + col->slot;

			if (col->gather == SHF_GATHER_NESTED)
				continue;
			if (col->validity != NULL)
				col->null_count += count -
					gather_bits(col->validity + base / 8, rows->arena + col->null_byte,
								col->null_bit, 1, order, count);
			if (col->gather == SHF_GATHER_VAR)
				gather_offsets(e, col, col->offsets + base, rows->arena, order, count);
			else if (col->gather == SHF_GATHER_BOOL)
				(void) gather_bits(col->data + base / 8, at, 0, 0, order, count);
			else
				gather_values(col, col->data + (size_t) base * col->width, at, order, count);
		}
	}
	for (int c = 0; c < e->ncolumns; c++)
	{
		if (e->columns[c].gather == SHF_GATHER_VAR)
			e->columns[c].var_bytes = (uint64_t) e->columns[c].offsets[n];
	}
}

/*
 * Bytes of rows base .. base + n - 1, whose offsets are known.  Where the buffer goes on
 * behind a value, more bytes than it has are copied, so that no branch depends on its exact
 * length: the next value overwrites them.  (Behind the last row of the arena there is room
 * to read, see SHF_ROWBUF_SLACK.)
 */
static void
gather_var(const ShfArrowEncoder *e, const ShfEncodeColumn *col, uint32_t base,
		   const uint8_t *arena, const uint32_t *order, uint32_t n)
{
	const int32_t *offsets = col->offsets + base;
	uint8_t		  *data = col->data;
	int32_t		   end = (int32_t) col->var_bytes;

	for (uint32_t i = 0; i < n; i++)
	{
		const uint8_t *row = shf_row_at(arena, order[i]);
		const uint8_t *src = row + value_start(e, col, row);
		uint8_t		  *dst = data + offsets[i];
		int32_t		   len = offsets[i + 1] - offsets[i];
		int32_t		   room = end - offsets[i];

		if (len <= SHORT_COPY && room >= SHORT_COPY)
			memcpy(dst, src, SHORT_COPY);
		else if (len <= LONG_COPY && room >= LONG_COPY)
			memcpy(dst, src, LONG_COPY);
		else if (len > 0)
			memcpy(dst, src, (size_t) len);
	}
}

void
shf_arrow_gather_variable(ShfArrowEncoder *e, const ShfRows *rows, uint32_t n)
{
	if (e->layout->nvar == 0)
		return;
	for (int c = 0; c < e->ncolumns; c++)
	{
		ShfEncodeColumn *col = &e->columns[c];

		if (col->gather == SHF_GATHER_VAR && col->data == NULL)
		{
			e->sources[col->buffer + 2] = col->data = e->scratch + e->scratch_used;
			e->scratch_used += shf_pad8(col->var_bytes);
		}
	}
	for (uint32_t base = 0; base < n; base += SUB_BATCH)
	{
		uint32_t count = n - base < SUB_BATCH ? n - base : SUB_BATCH;

		prefetch_again(rows, base, n, e->layout->fixed_bytes);
		for (int c = 0; c < e->ncolumns; c++)
		{
			if (e->columns[c].gather == SHF_GATHER_VAR)
				gather_var(e, &e->columns[c], base, rows->arena, rows->order + base, count);
		}
	}
}
