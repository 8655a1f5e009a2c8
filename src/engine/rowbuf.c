/*
 * rowbuf.c
 *	  Packing, sorting and retaining of rows; see rowbuf.h.
 */
#include "rowbuf.h"

#include <stdlib.h>
#include <sys/mman.h>

#define TAG_UNITS(tag)	   ((tag) & ((1u << SHF_TAG_UNIT_BITS) - 1))
#define TAG_PARTITION(tag) ((tag) >> SHF_TAG_UNIT_BITS)

/* Huge pages begin here: a small write must not pay for zeroing one. */
#define SMALL_PAGES_BYTES ((size_t) 4 << 20)

/* Partition numbers and the one for taken rows must fit into a tag. */
_Static_assert(SHF_MAX_PARTITIONS < 1 << (32 - SHF_TAG_UNIT_BITS), "partition does not fit a tag");

uint64_t
shf_rowbuf_fixed_memory(const ShfRowLayout *layout, uint32_t partitions)
{
	return ((uint64_t) partitions + 1) * sizeof(uint32_t) + (uint64_t) layout->nfields / 8 + 8 +
		layout->fixed_bytes;
}

/* Makes the first bytes of the mapping, and the slack behind them, accessible. */
static bool
commit(ShfRowBuf *rb, size_t bytes)
{
	if (bytes <= rb->committed)
		return true;
	if (mprotect(rb->region, bytes + SHF_ROWBUF_SLACK, PROT_READ | PROT_WRITE) != 0)
		return false;
	rb->committed = bytes;
	return true;
}

/* Moves the rows from the small region that all begin in to a mapping. */
static bool
map_region(ShfRowBuf *rb)
{
	uint8_t *first = rb->region;
	uint8_t *region;
	size_t	 tag_bytes = (size_t) rb->nrows * sizeof(uint32_t);

	region = mmap(NULL, rb->region_bytes + SHF_ROWBUF_SLACK, PROT_NONE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (region == MAP_FAILED)
		return false;
	rb->region = region;
	if (!commit(rb, rb->usable))
	{
		munmap(region, rb->region_bytes + SHF_ROWBUF_SLACK);
		rb->region = first;
		return false;
	}

	/*
	 * Rows are gathered in partition order, which is random access: with small pages
	 * nearly every row of a large arena misses the TLB.  Advice only.
	 */
	if (rb->region_bytes > 2 * SMALL_PAGES_BYTES)
		madvise(region + SMALL_PAGES_BYTES, rb->region_bytes - SMALL_PAGES_BYTES, MADV_HUGEPAGE);

	memcpy(region, first, rb->used);
	memcpy(region + rb->usable - tag_bytes, first + rb->usable - tag_bytes, tag_bytes);
	rb->tags = (uint32_t *) (region + rb->usable);
	rb->mapped = true;
	free(first);
	return true;
}

ShfCode
shf_rowbuf_init(ShfRowBuf *rb, const ShfRowLayout *layout, uint32_t partitions, uint32_t max_row,
				size_t region_bytes, ShfError *err)
{
	memset(rb, 0, sizeof(*rb));
	rb->layout = layout;
	rb->partitions = partitions;
	rb->max_row = max_row;
	rb->staging = calloc(1, layout->fixed_bytes);
	rb->null_words = (layout->nfields + 31) / 32;
	rb->nulls = calloc((size_t) rb->null_words + 1, sizeof(*rb->nulls));
	rb->counts = calloc((size_t) partitions + 1, sizeof(*rb->counts));
	rb->usable = (region_bytes < SHF_ROWBUF_FIRST ? region_bytes : SHF_ROWBUF_FIRST) & ~(size_t) 7;
	rb->region = malloc(rb->usable + SHF_ROWBUF_SLACK);
	rb->region_bytes = region_bytes;
	if (rb->staging == NULL || rb->nulls == NULL || rb->counts == NULL || rb->region == NULL)
	{
		shf_rowbuf_release(rb);
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a row buffer of %llu bytes",
						 (unsigned long long) region_bytes);
	}

	rb->tags = (uint32_t *) (rb->region + rb->usable);
	return SHF_OK;
}

void
shf_rowbuf_release(ShfRowBuf *rb)
{
	free(rb->staging);
	free(rb->nulls);
	free(rb->counts);
	if (rb->mapped)
		munmap(rb->region, rb->region_bytes + SHF_ROWBUF_SLACK);
	else
		free(rb->region);
	memset(rb, 0, sizeof(*rb));
}

/*
 * memcpy for values that are mostly a few bytes long and whose lengths no branch
 * predictor can guess: all from 4 to 16 bytes take the same path, four overlapping
 * pieces of which some coincide.
 */
static inline void
copy_short(uint8_t *dst, const uint8_t *src, size_t len)
{
	if (len - 4 <= 12)
	{
		size_t	 inner = len / 8 * 4;
		uint32_t piece[4];

		memcpy(&piece[0], src, 4);
		memcpy(&piece[1], src + inner, 4);
		memcpy(&piece[2], src + len - 4 - inner, 4);
		memcpy(&piece[3], src + len - 4, 4);
		memcpy(dst, &piece[0], 4);
		memcpy(dst + inner, &piece[1], 4);
		memcpy(dst + len - 4 - inner, &piece[2], 4);
		memcpy(dst + len - 4, &piece[3], 4);
	}
	else if (len > 32)
		memcpy(dst, src, len);
	else if (len > 16)
	{
		memcpy(dst, src, 16);
		memcpy(dst + len - 16, src + len - 16, 16);
	}
	else if (len > 0)
	{
		dst[0] = src[0];
		dst[len / 2] = src[len / 2];
		dst[len - 1] = src[len - 1];
	}
}

/*
 * Everything is read before anything is written: stores through byte pointers may
 * alias the structs, and what was not kept in a variable would be read again.
 */
ShfAppend
shf_rowbuf_append(ShfRowBuf *rb, uint32_t partition, ShfRow *row)
{
	const ShfRowLayout *layout = rb->layout;
	const uint32_t		var_ends = layout->var_ends;
	const ShfBytes	   *var = row->var;
	const int			nvar = layout->nvar;
	const int			null_words = rb->null_words;
	const uint32_t		fixed_bytes = layout->fixed_bytes;
	const uint32_t		null_offset = layout->null_offset;
	const size_t		used = rb->used;
	const size_t		usable = rb->usable;
	const uint32_t		nrows = rb->nrows;
	uint32_t		   *nulls = rb->nulls;
	uint32_t		   *tag = rb->tags - 1 - (size_t) nrows;
	uint32_t		   *count = rb->counts + partition;
	uint8_t			   *region = rb->region;
	uint8_t			   *dst = region + used;
	size_t				free_after; /* without this row's bytes, with the overhead of the next */
	uint64_t			total = fixed_bytes;
	uint32_t			bytes;
	uint32_t			at = fixed_bytes;

	for (int i = 0; i < nvar; i++)
		total += var[i].len;
	total = shf_pad8(total);
	if (total > rb->max_row)
		return SHF_APPEND_LARGE;
	if (used + total + SHF_ROW_OVERHEAD * ((uint64_t) nrows + 1) > usable)
		return SHF_APPEND_FULL;
	free_after = usable - used - SHF_ROW_OVERHEAD * ((size_t) nrows + 1);
	bytes = (uint32_t) total;

	rb->used = used + bytes;
	rb->nrows = nrows + 1;
	if (bytes > rb->max_row_bytes)
		rb->max_row_bytes = bytes;
	(*count)++;
	*tag = partition << SHF_TAG_UNIT_BITS | (bytes / 8 < 1u << SHF_TAG_UNIT_BITS ? bytes / 8 : 0);

	/* As shf_rowbuf_next() would say. */
	if (row->fixed != dst)
		memcpy(dst, row->fixed, fixed_bytes);
	row->fixed = free_after >= bytes + fixed_bytes + SHF_ROW_OVERHEAD ? dst + bytes : rb->staging;

	memcpy(dst, &bytes, sizeof(bytes));
	for (int i = 0; i < null_words; i++)
		nulls[i] |= shf_load32(dst + null_offset + 4 * i);
	for (int i = 0; i < nvar; i++)
	{
		const uint8_t *src = var[i].data;
		const size_t   len = var[i].len;

		copy_short(dst + at, src, len);
		at += (uint32_t) len;
		memcpy(dst + var_ends + 4 * (size_t) i, &at, sizeof(at));
	}
	return SHF_APPENDED;
}

bool
shf_rowbuf_resize(ShfRowBuf *rb, size_t usable)
{
	size_t	  tag_bytes = (size_t) rb->nrows * sizeof(uint32_t);
	uint32_t *top;

	usable &= ~(size_t) 7;
	if (usable == rb->usable)
		return true;
	if (usable > rb->region_bytes || rb->used + SHF_ROW_OVERHEAD * (uint64_t) rb->nrows > usable)
		return false;
	if (usable > rb->usable && !((rb->mapped || map_region(rb)) && commit(rb, usable)))
		return false;
	top = (uint32_t *) (rb->region + usable);
	memmove(top - rb->nrows, rb->tags - rb->nrows, tag_bytes);
	if (usable < rb->usable)
	{
		/* What lies above now belongs to someone else's share of the limit. */
		size_t page = 4096;
		size_t from = (usable + page - 1) & ~(page - 1);
		size_t to = rb->usable & ~(page - 1);

		if (from < to && rb->mapped)
			madvise(rb->region + from, to - from, MADV_DONTNEED);
		if (rb->touched > usable)
			rb->touched = usable;
	}
	rb->tags = top;
	rb->usable = usable;
	return true;
}

void
shf_rowbuf_shrink(ShfRowBuf *rb)
{
	if (rb->mapped)
		madvise(rb->region, rb->usable + SHF_ROWBUF_SLACK, MADV_DONTNEED);
	else if (!map_region(rb))
		return;
	rb->touched = 0;
	if (rb->usable > SHF_ROWBUF_FIRST)
		rb->usable = SHF_ROWBUF_FIRST;
	rb->tags = (uint32_t *) (rb->region + rb->usable);
}

/* Bytes of the row with this tag, which lies at "at". */
static inline uint32_t
tagged_bytes(const ShfRowBuf *rb, uint32_t tag, size_t at)
{
	return TAG_UNITS(tag) != 0 ? TAG_UNITS(tag) * 8 : shf_row_bytes(rb->region + at);
}

/* Bytes of the rows that retain keeps, overhead included. */
static uint64_t
retained_bytes(const ShfRowBuf *rb, const ShfRetain *retain)
{
	uint64_t total = 0;
	size_t	 at = 0;

	for (uint32_t i = 0; i < rb->nrows; i++)
	{
		uint32_t tag = rb->tags[-1 - (int64_t) i];
		uint32_t p = TAG_PARTITION(tag);
		uint32_t bytes = tagged_bytes(rb, tag, at);

		if (p != rb->partitions && shf_retained(retain, p, rb->counts[p]))
			total += bytes + SHF_ROW_OVERHEAD;
		at += bytes;
	}
	return total;
}

/*
 * The partitions with most rows leave first: they make the largest blocks, and those
 * left behind grow over several runs.  Where to cut is estimated with rows of average
 * size and then checked.
 */
ShfRetain
shf_rowbuf_plan_retain(const ShfRowBuf *rb, uint32_t min_rows, size_t max_bytes)
{
	ShfRetain retain = {0, 0};
	uint64_t  average;
	uint64_t  max_rows;

	if (rb->nrows == 0 || min_rows <= 1)
		return retain;
	average = rb->used / rb->nrows + SHF_ROW_OVERHEAD;
	max_rows = max_bytes / average;

	while (max_rows > 0)
	{
		uint64_t histogram[256] = {0}; /* rows of partitions with so many rows */
		uint64_t kept = 0;
		uint32_t top = min_rows < 256 ? min_rows : 256;

		for (uint32_t p = 0; p < rb->partitions; p++)
		{
			uint32_t n = rb->counts[p];

			if (n < top)
				histogram[n] += n;
		}
		retain.below = 1;
		retain.upto = 0;
		while (retain.below < top && kept + histogram[retain.below] <= max_rows)
			kept += histogram[retain.below++];
		if (retain.below < top)
		{
			/* Only some of the partitions with this many rows can stay. */
			for (uint32_t p = 0; p < rb->partitions && kept + retain.below <= max_rows; p++)
			{
				if (rb->counts[p] == retain.below)
					kept += retain.below;
				retain.upto = p + 1;
			}
		}
		if (kept == 0)
			break;
		if (retained_bytes(rb, &retain) <= max_bytes)
			return retain;
		max_rows = kept / 2;
	}
	retain.below = retain.upto = 0;
	return retain;
}

const uint32_t *
shf_rowbuf_sort(ShfRowBuf *rb)
{
	uint32_t	   *order = rb->tags - 2 * (size_t) rb->nrows;
	uint32_t	   *next = rb->counts;
	const uint32_t *tags = rb->tags;
	uint32_t		at = 0;
	uint32_t		sum = 0;
	size_t			in_use;

	for (uint32_t p = 0; p <= rb->partitions; p++)
	{
		uint32_t n = next[p];

		next[p] = sum;
		sum += n;
	}
	for (uint32_t i = 0; i < rb->nrows; i++)
	{
		uint32_t tag = *--tags;

		order[next[TAG_PARTITION(tag)]++] = at;
		at += tagged_bytes(rb, tag, (size_t) at * 8) / 8;
	}

	in_use = rb->used + SHF_ROW_OVERHEAD * (size_t) rb->nrows;
	if (in_use > rb->touched)
		rb->touched = in_use;
	return order;
}

void
shf_rowbuf_compact(ShfRowBuf *rb, const ShfRetain *retain)
{
	size_t	 from = 0;
	size_t	 to = 0;
	uint32_t kept = 0;

	if (retain->below == 0)
	{
		memset(rb->counts, 0, ((size_t) rb->partitions + 1) * sizeof(*rb->counts));
		memset(rb->nulls, 0, (size_t) rb->null_words * sizeof(*rb->nulls));
		rb->nrows = 0;
		rb->used = 0;
		rb->max_row_bytes = 0;
		return;
	}

	/* Ends back to counts. */
	for (uint32_t p = rb->partitions; p > 0; p--)
		rb->counts[p] -= rb->counts[p - 1];
	rb->counts[rb->partitions] = 0;

	for (uint32_t i = 0; i < rb->nrows; i++)
	{
		uint32_t tag = rb->tags[-1 - (int64_t) i];
		uint32_t p = TAG_PARTITION(tag);
		uint32_t bytes = tagged_bytes(rb, tag, from);

		if (p != rb->partitions && shf_retained(retain, p, rb->counts[p]))
		{
			if (to != from)
				memmove(rb->region + to, rb->region + from, bytes);
			rb->tags[-1 - (int64_t) kept] = tag;
			kept++;
			to += bytes;
		}
		from += bytes;
	}
	for (uint32_t p = 0; p < rb->partitions; p++)
	{
		if (!shf_retained(retain, p, rb->counts[p]))
			rb->counts[p] = 0;
	}
	rb->nrows = kept;
	rb->used = to;
}

ShfRows
shf_rowbuf_take(ShfRowBuf *rb, uint32_t partition)
{
	uint32_t *order = rb->tags - 2 * (size_t) rb->nrows;
	size_t	  at = 0;

	ShfRows rows = {
		.arena = rb->region,
		.order = order,
		.row_bytes = rb->max_row_bytes,
		.max_row_bytes = rb->max_row_bytes,
		.nulls = rb->nulls,
	};

	if (rb->counts[partition] == 0)
		return rows;
	for (uint32_t i = 0; i < rb->nrows; i++)
	{
		uint32_t *tag = &rb->tags[-1 - (int64_t) i];
		uint32_t  bytes = tagged_bytes(rb, *tag, at);

		if (TAG_PARTITION(*tag) == partition)
		{
			order[rows.n++] = (uint32_t) (at / 8);
			*tag = rb->partitions << SHF_TAG_UNIT_BITS | TAG_UNITS(*tag);
		}
		at += bytes;
	}
	rb->counts[partition] = 0;
	rb->counts[rb->partitions] += rows.n;
	return rows;
}

bool
shf_rowbuf_move(ShfRowBuf *to, ShfRowBuf *from, const ShfRetain *retain)
{
	size_t at = 0;

	if (retain->below == 0)
		return true;
	for (uint32_t i = 0; i < from->nrows; i++)
	{
		uint32_t *tag = &from->tags[-1 - (int64_t) i];
		uint32_t  p = TAG_PARTITION(*tag);
		uint32_t  bytes = tagged_bytes(from, *tag, at);

		if (p != from->partitions && shf_retained(retain, p, from->counts[p]))
		{
			if (to->used + bytes + SHF_ROW_OVERHEAD * ((uint64_t) to->nrows + 1) > to->usable)
				return false;
			memcpy(to->region + to->used, from->region + at, bytes);
			to->tags[-1 - (int64_t) to->nrows] = *tag;
			to->used += bytes;
			to->nrows++;
			to->counts[p]++;
			*tag = from->partitions << SHF_TAG_UNIT_BITS | TAG_UNITS(*tag);
		}
		at += bytes;
	}
	for (uint32_t p = 0; p < from->partitions; p++)
	{
		if (to->counts[p] > 0)
		{
			from->counts[from->partitions] += from->counts[p];
			from->counts[p] = 0;
		}
	}
	if (from->max_row_bytes > to->max_row_bytes)
		to->max_row_bytes = from->max_row_bytes;
	for (int i = 0; i < from->null_words; i++)
		to->nulls[i] |= from->nulls[i];
	return true;
}
