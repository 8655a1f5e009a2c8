/*
 * writer_memory.c
 *	  Who gets how much of a writer's memory_limit; see writer.c.
 */
#include "writer.h"

/* Offsets in the row buffer are 32 bits of 8-byte units. */
#define MAX_REGION_BYTES (UINT64_C(32) << 30)

/* A row buffer below this makes runs of a few rows. */
#define MIN_REGION_BYTES ((uint64_t) 64 << 10)

/* A smaller index makes segments of a few runs. */
#define MIN_INDEX_BYTES ((uint64_t) 256 << 10)

/* The row buffer of few partitions; more would be memory for nothing. */
#define USEFUL_REGION_BYTES ((uint64_t) 32 << 20)

uint64_t
shf_run_index_memory(const ShfRowLayout *layout, const ShfWriterOptions *options,
					 uint64_t region_bytes)
{
	uint64_t rows = region_bytes / (layout->fixed_bytes + SHF_ROW_OVERHEAD);
	uint64_t partitions = rows < options->partitions ? rows : options->partitions;
	uint64_t segments = region_bytes / SHF_SEGMENT_ROLL_BYTES + 2;
	uint64_t extents = partitions + 1;
	uint64_t blocks;

	/*
	 * Blocks that are not the last of their partition are full in rows, or end because
	 * the next row did not fit, so that two neighbours are larger than block_bytes
	 * together, or hold as many average rows as block_bytes does, see emit_rows().
	 */
	blocks = partitions + rows / options->block_rows + 3 * region_bytes / options->block_bytes + 2;

	/* Units of a pool end with their own rest. */
	if (options->threads > 1)
		blocks += 2 * region_bytes / options->block_bytes;
	if (blocks > rows + 1)
		blocks = rows + 1;

	/* Partition files get all their extents at once, when the segment ends. */
	if (options->layout == SHF_LAYOUT_PARTITION_FILES)
		extents = options->partitions;
	return extents * SHF_EXTENT_COST + blocks * SHF_BLOCK_COST + segments * SHF_SEGMENT_COST;
}

/*
 * The smallest region: half of it, which retained rows leave free, takes any row that is
 * not a large one.
 */
static uint64_t
min_region(const ShfRowLayout *layout, const ShfWriterOptions *options)
{
	uint64_t row = layout->fixed_bytes + SHF_ROW_OVERHEAD;
	uint64_t bytes =
		2 * (options->block_bytes > row ? options->block_bytes : row) + 2 * SHF_MEMORY_SLACK;

	return shf_pad8(bytes > MIN_REGION_BYTES ? bytes : MIN_REGION_BYTES);
}

/* The largest region that, with the index of a run, takes at most so many bytes. */
static uint64_t
fit_region(const ShfRowLayout *layout, const ShfWriterOptions *options, uint64_t bytes)
{
	uint64_t low = 0;
	uint64_t high = bytes < MAX_REGION_BYTES ? bytes : MAX_REGION_BYTES;

	while (low < high)
	{
		uint64_t middle = low + (high - low + 1) / 2;

		if (middle + shf_run_index_memory(layout, options, middle) <= bytes)
			low = middle;
		else
			high = middle - 1;
	}
	return low & ~UINT64_C(7);
}

uint64_t
shf_writer_fixed_memory(const ShfSchema *schema, const ShfRowLayout *layout,
						const ShfWriterOptions *options)
{
	uint64_t max_message = shf_arrow_max_message(schema, options);

	return sizeof(ShfWriter) + (uint64_t) layout->nvar * (sizeof(ShfBytes) + sizeof(uint32_t)) +
		(uint64_t) layout->nfields * (sizeof(uint32_t) + sizeof(int)) +
		shf_rowbuf_fixed_memory(layout, options->partitions) + shf_arrow_encoder_memory(schema) +
		shf_arrow_growing_memory(schema, options) +
		shf_output_fixed_memory(schema, options, max_message);
}

/* The smallest region and the index of a run from it. */
static uint64_t
min_run(const ShfRowLayout *layout, const ShfWriterOptions *options)
{
	uint64_t region = min_region(layout, options);

	return region + shf_run_index_memory(layout, options, region);
}

uint64_t
shf_writer_shared_minimum(const ShfRowLayout *layout, const ShfWriterOptions *options)
{
	return min_run(layout, options) + (options->layout != SHF_LAYOUT_STREAM ? MIN_INDEX_BYTES : 0);
}

/*
 * What of the index may stay in memory between runs: an eighth, so that runs do not get
 * much smaller with the size of the data.  More of it for partition files, of which every
 * segment has a set of its own.
 */
uint64_t
shf_writer_index_limit(const ShfWriter *w)
{
	uint64_t spare = w->shared_memory - min_run(&w->layout, &w->options);
	uint64_t limit = w->shared_memory / (w->options.layout == SHF_LAYOUT_LOG ? 8 : 2);

	return limit < spare ? limit : spare;
}

/* What each row buffer gets when the index leaves so many bytes. */
static uint64_t
arena_region(const ShfWriter *w, uint64_t bytes)
{
	if (w->arenas > 1)
	{
		uint64_t second = shf_rowbuf_fixed_memory(&w->layout, w->options.partitions);

		bytes = bytes > second ? (bytes - second) / 2 : 0;
	}
	return fit_region(&w->layout, &w->options, bytes);
}

/*
 * The least that each of two row buffers must have.  When it does not hold the rows of a
 * worthwhile block for every partition, larger runs are worth more than a thread.
 */
static uint64_t
min_shared_region(const ShfWriter *w)
{
	uint64_t least = 2 * min_region(&w->layout, &w->options);
	uint64_t blocks = (uint64_t) w->options.partitions * w->options.block_min_rows *
		(w->layout.fixed_bytes + SHF_ROW_OVERHEAD);

	return blocks > least ? blocks : least;
}

/* Takes the pool's memory out of the row buffers' if that leaves enough. */
static void
plan_pool(ShfWriter *w)
{
	uint64_t shared = w->shared_memory;

	if (w->options.codec.kind == SHF_CODEC_NONE)
		return;
	for (w->helpers = w->options.threads - 1; w->helpers > 0; w->helpers--)
	{
		uint64_t bytes = shf_pool_memory(&w->schema, &w->options, w->helpers);

		if (bytes > shared / 4)
			continue;
		w->shared_memory = shared - bytes;
		if (arena_region(w, w->shared_memory) >= min_shared_region(w))
			return;
		w->shared_memory = shared;
	}
	w->helpers = 0;
}

/*
 * Decides on one row buffer or, with a thread to come, two.  A run that gives every
 * partition a block of a quarter of the largest size gains little from being larger (1 % of
 * the stored bytes), while memory touched for the first time costs more than writing to it,
 * rows far apart are slow to gather, and at the end processes wait for the one that emits
 * its last run.
 */
uint64_t
shf_writer_plan_memory(ShfWriter *w)
{
	const ShfWriterOptions *options = &w->options;
	uint64_t				least = min_region(&w->layout, options);
	uint64_t				useful = (uint64_t) options->partitions * options->block_bytes / 4;
	uint64_t				region;

	w->arenas = 1;
	region = arena_region(w, w->shared_memory);
	if (useful < USEFUL_REGION_BYTES)
		useful = USEFUL_REGION_BYTES;
	if (useful < least)
		useful = least;
	if (region > useful)
		region = useful;
	w->allowed = region & ~UINT64_C(7);

	if (options->start_thread != NULL && options->layout != SHF_LAYOUT_STREAM)
	{
		uint64_t shared;

		w->arenas = 2;
		shared = arena_region(w, w->shared_memory);
		if (shared < min_shared_region(w))
			w->arenas = 1;
		else
		{
			plan_pool(w);
			shared = arena_region(w, w->shared_memory);
			if (shared < w->allowed)
				w->allowed = shared;
		}
	}
	return region;
}

void
shf_writer_account(ShfWriter *w)
{
	uint64_t touched = w->rowbuf.touched + w->drain.touched;

	shf_account(&w->account, w->rowbuf_accounted, touched);
	w->rowbuf_accounted = touched;
}

ShfCode
shf_list_too_large(const ShfWriter *w, ShfError *err)
{
	return shf_error(err, SHF_ERR_LIMIT,
					 "memory_limit of %llu bytes is too small for a list of %d segments",
					 (unsigned long long) w->options.memory_limit, w->output->nsegments);
}

/*
 * Two row buffers end where the index leaves less than both of them need.  Not before it
 * comes to half of that: the thread has proved itself useful.
 */
static uint64_t
current_region(ShfWriter *w)
{
	uint64_t index = shf_output_index_memory(w->output);
	uint64_t left = index < w->shared_memory ? w->shared_memory - index : 0;
	uint64_t region = arena_region(w, left);

	if (w->arenas > 1 && region < min_shared_region(w) / 2)
	{
		shf_writer_end_thread(w);
		w->arenas = 1;
		if (w->helpers > 0)
			w->shared_memory += shf_pool_memory(&w->schema, &w->options, w->helpers);
		w->helpers = 0;
		left = index < w->shared_memory ? w->shared_memory - index : 0;
		region = arena_region(w, left);
	}
	return region < w->rowbuf.region_bytes ? region : w->rowbuf.region_bytes;
}

ShfCode
shf_writer_share(ShfWriter *w, ShfRowBuf *rb, ShfError *err)
{
	uint64_t region = current_region(w);

	if (region > w->allowed || w->allowed - region >= SHF_MEMORY_SLACK)
	{
		if (region < min_region(&w->layout, &w->options))
			return shf_list_too_large(w, err);
		w->allowed = region;
	}
	if (rb->usable > w->allowed && !shf_rowbuf_resize(rb, w->allowed))
		return shf_list_too_large(w, err);
	shf_writer_account(w);
	return SHF_OK;
}

bool
shf_writer_grow(ShfWriter *w)
{
	uint64_t usable = (uint64_t) w->rowbuf.usable * 4;

	if (usable > w->allowed)
		usable = w->allowed;
	return usable > w->rowbuf.usable && shf_rowbuf_resize(&w->rowbuf, usable);
}
