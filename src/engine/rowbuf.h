/*
 * rowbuf.h
 *	  The row buffer: packed rows of all partitions in one arena, sorted by partition
 *	  when it is full.
 *
 * One region holds everything that grows with the rows:
 *
 *	  | rows, in order of arrival ->      ... free ...      <- order | <- tags |
 *	  0                             used                                    usable
 *
 * A row is packed as ShfRowLayout says and padded to 8 bytes.  Its tag, a uint32,
 * holds its partition and its length, so that the counting sort reads 4 bytes per row
 * instead of a cache line.  The order array, one uint32 per row (offset in units of 8
 * bytes), is filled by the sort; append keeps its room free.
 *
 * The region is an anonymous mapping, address space only; "usable" says how much of it is
 * memory.  It begins small and is enlarged by shf_rowbuf_resize(), so that a few rows touch a
 * few pages.  Before it is enlarged for the first time it is malloc memory: for a single row,
 * to make a mapping, to fault its pages in and to unmap it would cost more than all else.
 *
 * A row buffer belongs to one thread at a time; a second one can be filled while this
 * one is drained.
 */
#ifndef SHF_ROWBUF_H
#define SHF_ROWBUF_H

#include "bytes.h"
#include "shf.h"

#define SHF_TAG_UNIT_BITS 12 /* 8-byte units of the row; 0: see the row itself */
#define SHF_ROW_OVERHEAD  8	 /* tag and order entry */

/* Bytes a reader of the last value may look at behind it (see gather.c). */
#define SHF_ROWBUF_SLACK 64

typedef struct ShfRowBuf
{
	const ShfRowLayout *layout;
	uint32_t			partitions;
	uint32_t			max_row; /* larger rows are not taken */
	uint8_t			   *staging; /* fixed part of a row that has no place yet */
	int					null_words;
	uint32_t		   *nulls; /* OR of the null bitmaps of all rows */

	uint8_t	 *region;
	bool	  mapped;		/* else malloc memory of "usable" bytes */
	size_t	  region_bytes; /* of the mapping, SHF_ROWBUF_SLACK apart */
	size_t	  committed;	/* accessible part of it */
	size_t	  usable;		/* a multiple of 8 */
	size_t	  used;
	size_t	  touched; /* most bytes in use by a sort so far, at most usable */
	uint32_t  nrows;
	uint32_t  max_row_bytes;
	uint32_t *tags; /* tag of row i is tags[-1 - i] */

	/*
	 * Rows per partition; after shf_rowbuf_sort() the end of each partition in the
	 * order array.  Entry [partitions] collects rows that were taken out early.
	 */
	uint32_t *counts;
} ShfRowBuf;

/* Consecutive entries of a sorted order array. */
typedef struct ShfRows
{
	const uint8_t  *arena;
	const uint32_t *order; /* offsets from arena in units of 8 bytes */
	uint32_t		n;
	uint32_t		ahead;		   /* valid entries behind them, for prefetching */
	uint32_t		row_bytes;	   /* of an average row */
	uint32_t		max_row_bytes; /* no row is larger */
	const uint32_t *nulls;		   /* a clear bit: no row has a NULL in this column */
} ShfRows;

/*
 * Which partitions keep their rows for the next run: those with fewer than "below" rows, and
 * those with exactly that many whose number is under "upto".
 */
typedef struct ShfRetain
{
	uint32_t below;
	uint32_t upto;
} ShfRetain;

static inline bool
shf_retained(const ShfRetain *retain, uint32_t partition, uint32_t rows)
{
	return rows < retain->below || (rows == retain->below && partition < retain->upto);
}

static inline const uint8_t *
shf_row_at(const uint8_t *arena, uint32_t order)
{
	return arena + (size_t) order * 8;
}

static inline uint32_t
shf_row_bytes(const uint8_t *row)
{
	return shf_load32(row);
}

/* Usable bytes in the beginning. */
#define SHF_ROWBUF_FIRST ((size_t) 32 << 10)

/*
 * layout must outlive the buffer; max_row: the largest packed row it takes;
 * region_bytes: most bytes for rows and SHF_ROW_OVERHEAD for each.
 */
extern ShfCode shf_rowbuf_init(ShfRowBuf *rb, const ShfRowLayout *layout, uint32_t partitions,
							   uint32_t max_row, size_t region_bytes, ShfError *err);
extern void	   shf_rowbuf_release(ShfRowBuf *rb);

/* Memory beside the region: counts and bitmap. */
extern uint64_t shf_rowbuf_fixed_memory(const ShfRowLayout *layout, uint32_t partitions);

/*
 * Where the fixed part of the next row should be made: in the arena, so that it need
 * not be copied, or in staging if there is no room.  Only append may follow.
 */
static inline uint8_t *
shf_rowbuf_next(const ShfRowBuf *rb)
{
	uint64_t overhead = SHF_ROW_OVERHEAD * ((uint64_t) rb->nrows + 1);

	if (rb->used + rb->layout->fixed_bytes + overhead <= rb->usable)
		return rb->region + rb->used;
	return rb->staging;
}

typedef enum ShfAppend
{
	SHF_APPENDED,
	SHF_APPEND_FULL, /* no room now */
	SHF_APPEND_LARGE /* larger than max_row */
} ShfAppend;

/*
 * Appends the row and sets row->fixed to where the next one should be made.  If it
 * was not appended nothing has changed.
 */
extern ShfAppend shf_rowbuf_append(ShfRowBuf *rb, uint32_t partition, ShfRow *row);

/*
 * Changes how much of the region may be used; false when the rows do not fit, or there is
 * no memory for more.  What was in use above is given back.
 */
extern bool shf_rowbuf_resize(ShfRowBuf *rb, size_t usable);

/* Gives back what memory of an empty buffer can be given back; it begins small again. */
extern void shf_rowbuf_shrink(ShfRowBuf *rb);

/*
 * Chooses the partitions with fewer than min_rows rows that may stay, so that rows
 * and their overhead take at most max_bytes.  Those with fewest rows stay first.
 */
extern ShfRetain shf_rowbuf_plan_retain(const ShfRowBuf *rb, uint32_t min_rows, size_t max_bytes);

/* Stable counting sort.  Afterwards counts[p] is the end of partition p in the result. */
extern const uint32_t *shf_rowbuf_sort(ShfRowBuf *rb);

/* Undoes a sort: drops all rows that retain does not keep and moves the others together. */
extern void shf_rowbuf_compact(ShfRowBuf *rb, const ShfRetain *retain);

/*
 * Lists the rows of one partition and takes them out of the buffer: their bytes stay
 * until the next compaction, the list until the next append.
 */
extern ShfRows shf_rowbuf_take(ShfRowBuf *rb, uint32_t partition);

/*
 * Appends the rows that retain keeps to "to", in order, and takes them out of the unsorted
 * buffer "from".  False, and nothing useful, if they do not fit.
 */
extern bool shf_rowbuf_move(ShfRowBuf *to, ShfRowBuf *from, const ShfRetain *retain);

#endif
