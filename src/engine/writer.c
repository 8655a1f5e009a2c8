/*
 * writer.c
 *	  The writer: row buffer, block encoder and output tied together.
 *
 * Rows are appended to the row buffer.  When it is full a run is emitted: partition by
 * partition, blocks of at most block_rows rows and block_bytes packed bytes.  Partitions
 * with fewer than block_min_rows rows wait for the next run as long as they leave half
 * of the buffer free.
 *
 * Memory: what has a fixed size is subtracted from memory_limit when the writer opens.
 * The rest is shared by the row buffer and the index (extents and block positions),
 * which grows with the data: before each run there is always room for the index
 * entries that the run can add, and after it the row buffer is made smaller by what
 * they took.  The row buffer's share, "allowed", is taken in steps as rows come, and the
 * buffers of encoder and output when the first block is made: a writer of a few rows is
 * small, and so is one that rests.
 *
 * poll may longjmp out of append and finish.  The writer is "busy" then, as after an
 * error, and only good for shf_writer_close().
 */
#include "account.h"
#include "encode.h"
#include "output.h"
#include "rowbuf.h"

#include <stdlib.h>

/* Ranges of the options. */
#define MAX_BLOCK_ROWS	 (1u << 20)
#define MAX_BLOCK_BYTES	 (1u << 30)
#define MAX_WRITE_BUFFER (1u << 30)

/* Offsets in the row buffer are 32 bits of 8-byte units. */
#define MAX_REGION_BYTES (UINT64_C(32) << 30)

/* A row buffer below this makes runs of a few rows. */
#define MIN_REGION_BYTES ((uint64_t) 64 << 10)

/* The row buffer of few partitions; more would be memory for nothing. */
#define USEFUL_REGION_BYTES ((uint64_t) 32 << 20)

/* The row buffer is not made smaller for less than this. */
#define MEMORY_SLACK 4096

struct ShfWriter
{
	ShfSchema		 schema;
	ShfWriterOptions options;
	char			*path;
	ShfRowLayout	 layout;
	ShfRow			 row;
	ShfRowBuf		 rowbuf;
	ShfEncoder		*encoder;
	ShfOutput		*output;
	ShfAccount		 account;
	ShfMetrics		 metrics;
	uint64_t		 least_memory;	/* that it works with */
	uint64_t		 shared_memory; /* for row buffer and index together */
	uint64_t		 allowed;		/* the row buffer's share */
	uint64_t		 rowbuf_accounted;
	uint64_t		 rows;
	uint64_t		 block_ns; /* gathering and encoding, on the work clock */
	bool			 busy;	   /* inside a call, or left by an error or a jump */
	bool			 finished;
};

/* ---------------------------------------------------------------- memory */

/* Most index memory that one run out of region_bytes can add. */
static uint64_t
run_index_memory(const ShfRowLayout *layout, const ShfWriterOptions *options, uint64_t region_bytes)
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
		2 * (options->block_bytes > row ? options->block_bytes : row) + 2 * MEMORY_SLACK;

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

		if (middle + run_index_memory(layout, options, middle) <= bytes)
			low = middle;
		else
			high = middle - 1;
	}
	return low & ~UINT64_C(7);
}

/*
 * A run that gives every partition a block of half the largest size gains nothing from
 * being larger, while memory touched for the first time costs more than writing to it.
 */
static uint64_t
useful_region(const ShfWriter *w)
{
	uint64_t useful = (uint64_t) w->options.partitions * w->options.block_bytes / 2;
	uint64_t region = fit_region(&w->layout, &w->options, w->shared_memory);

	if (useful < USEFUL_REGION_BYTES)
		useful = USEFUL_REGION_BYTES;
	if (useful < min_region(&w->layout, &w->options))
		useful = min_region(&w->layout, &w->options);
	return region < useful ? region : useful;
}

/* Everything but row buffer and index. */
static uint64_t
fixed_memory(const ShfSchema *schema, const ShfRowLayout *layout, const ShfWriterOptions *options)
{
	uint64_t max_message = shf_arrow_max_message(schema, options);

	return sizeof(ShfWriter) + (uint64_t) layout->nvar * (sizeof(ShfBytes) + sizeof(uint32_t)) +
		(uint64_t) layout->nfields * (sizeof(uint32_t) + sizeof(int)) +
		shf_rowbuf_fixed_memory(layout, options->partitions) + shf_arrow_encoder_memory(schema) +
		shf_arrow_growing_memory(schema, options) +
		shf_output_fixed_memory(schema, options, max_message);
}

/* What row buffer and index need at least. */
static uint64_t
min_shared_memory(const ShfRowLayout *layout, const ShfWriterOptions *options)
{
	uint64_t region = min_region(layout, options);

	return region + run_index_memory(layout, options, region);
}

/* What the row buffer has touched so far, for the metrics. */
static void
account_rowbuf(ShfWriter *w)
{
	shf_account(&w->account, w->rowbuf_accounted, w->rowbuf.touched);
	w->rowbuf_accounted = w->rowbuf.touched;
}

static ShfCode
index_too_large(const ShfWriter *w, ShfError *err)
{
	return shf_error(err, SHF_ERR_LIMIT,
					 "memory_limit of %llu bytes is too small for the offset index "
					 "of %llu extents in %u partitions",
					 (unsigned long long) w->options.memory_limit,
					 (unsigned long long) w->output->extents, w->options.partitions);
}

/* Gives the row buffer what the index leaves; its rows must fit. */
static ShfCode
share_memory(ShfWriter *w, ShfError *err)
{
	uint64_t index = shf_output_index_memory(w->output);
	uint64_t region = 0;

	if (index < w->shared_memory)
		region = fit_region(&w->layout, &w->options, w->shared_memory - index);
	if (region > w->rowbuf.region_bytes)
		region = w->rowbuf.region_bytes;

	if (region <= w->allowed && w->allowed - region < MEMORY_SLACK)
		return SHF_OK;
	if (region < min_region(&w->layout, &w->options) ||
		(region < w->rowbuf.usable && !shf_rowbuf_resize(&w->rowbuf, region)))
		return index_too_large(w, err);
	w->allowed = region;
	account_rowbuf(w);
	return SHF_OK;
}

/* Takes more of the row buffer's share; false if it has all. */
static bool
grow_rowbuf(ShfWriter *w)
{
	uint64_t usable = (uint64_t) w->rowbuf.usable * 4;

	if (usable > w->allowed)
		usable = w->allowed;
	return usable > w->rowbuf.usable && shf_rowbuf_resize(&w->rowbuf, usable);
}

/* ---------------------------------------------------------------- time */

static uint64_t
time_of_blocks(const ShfWriter *w)
{
	return w->block_ns + w->account.write_ns + w->account.sync_ns;
}

/*
 * The time of a call that did more than to pack a row: what was not spent on blocks and
 * files was spent on the row buffer.
 */
static void
count_call(ShfWriter *w, uint64_t begun, uint64_t blocks_before)
{
	uint64_t spent = shf_clock() - begun;

	w->metrics.caller_ns += spent;
	w->metrics.sort_ns += spent - (time_of_blocks(w) - blocks_before);
}

/* ---------------------------------------------------------------- runs */

/* Emits the rows of one partition as blocks; the encoder cuts them by size. */
static ShfCode
emit_rows(ShfWriter *w, uint32_t partition, ShfRows rows, ShfError *err)
{
	const uint32_t behind = rows.ahead;
	uint32_t	   left = rows.n;

	while (left > 0)
	{
		/* Blocks of equal size compress better than full ones and a small rest. */
		uint64_t blocks = (uint64_t) left * rows.row_bytes / w->options.block_bytes + 1;
		uint32_t taken;
		ShfCode	 code;

		rows.n = (uint32_t) ((left + blocks - 1) / blocks);
		if (rows.n > w->options.block_rows)
			rows.n = w->options.block_rows;
		rows.ahead = left - rows.n + behind;
		code = w->encoder->ops->block(w->encoder, w->output, partition, &rows, &taken, err);
		if (code != SHF_OK)
			return code;
		rows.order += taken;
		left -= taken;
		if (w->options.poll != NULL)
			w->options.poll(w->options.poll_arg);
	}
	return SHF_OK;
}

/* Emits a run: all rows, or, when more are to come, those of partitions with enough. */
static ShfCode
emit_run(ShfWriter *w, bool last, ShfError *err)
{
	ShfRowBuf	   *rb = &w->rowbuf;
	ShfRetain		retain = {0, 0};
	const uint32_t *order;
	uint32_t		total;
	uint32_t		start = 0;
	uint64_t		headroom;
	uint64_t		sorted;
	ShfCode			code;

	if (rb->nrows == 0)
		return SHF_OK;

	/* The index entries of this run will make the buffer smaller by up to headroom. */
	headroom = run_index_memory(&w->layout, &w->options, rb->usable);
	if (!last && rb->usable > headroom)
		retain = shf_rowbuf_plan_retain(rb, w->options.block_min_rows, (rb->usable - headroom) / 2);
	order = shf_rowbuf_sort(rb);
	account_rowbuf(w);
	total = rb->counts[rb->partitions - 1];
	sorted = shf_work_clock(&w->account);

	for (uint32_t p = 0; p < rb->partitions; p++)
	{
		uint32_t end = rb->counts[p];
		ShfRows	 rows = {
			 .arena = rb->region,
			 .order = order + start,
			 .n = end - start,
			 .ahead = total - end,
			 .row_bytes = (uint32_t) (rb->used / rb->nrows),
			 .max_row_bytes = rb->max_row_bytes,
			 .nulls = rb->nulls,
		 };

		start = end;
		if (rows.n == 0 || shf_retained(&retain, p, rows.n))
			continue;
		code = emit_rows(w, p, rows, err);
		if (code != SHF_OK)
			return code;
	}
	code = shf_output_end_run(w->output, err);
	if (code != SHF_OK)
		return code;
	w->block_ns += shf_work_clock(&w->account) - sorted;
	shf_rowbuf_compact(rb, &retain);
	w->metrics.runs++;
	return SHF_OK;
}

/* A row above block_bytes: what its partition has in the buffer goes first. */
static ShfCode
emit_large_row(ShfWriter *w, uint32_t partition, ShfError *err)
{
	uint64_t begun = shf_work_clock(&w->account);
	ShfRows	 pending = shf_rowbuf_take(&w->rowbuf, partition);
	ShfCode	 code = emit_rows(w, partition, pending, err);

	if (code == SHF_OK)
		code = w->encoder->ops->large_row(w->encoder, w->output, partition, &w->row, err);
	if (code != SHF_OK)
		return code;
	w->block_ns += shf_work_clock(&w->account) - begun;
	if (w->options.poll != NULL)
		w->options.poll(w->options.poll_arg);

	/* Index entries outside of runs: room for those of the next run must remain. */
	if (shf_output_index_memory(w->output) + w->allowed +
			run_index_memory(&w->layout, &w->options, w->allowed) <=
		w->shared_memory)
		return SHF_OK;
	code = emit_run(w, true, err);
	return code == SHF_OK ? share_memory(w, err) : code;
}

/* ---------------------------------------------------------------- interface */

static ShfCode
check_range(ShfError *err, const char *what, uint64_t value, uint64_t low, uint64_t high)
{
	if (value >= low && value <= high)
		return SHF_OK;
	return shf_error(err, SHF_ERR_INVALID, "%s is %llu, but must be between %llu and %llu", what,
					 (unsigned long long) value, (unsigned long long) low,
					 (unsigned long long) high);
}

static ShfCode
check_options(const ShfWriterOptions *options, ShfError *err)
{
	uint64_t max_partitions = SHF_MAX_PARTITIONS;
	ShfCode	 code;

	if ((unsigned) options->layout > SHF_LAYOUT_STREAM)
		return shf_error(err, SHF_ERR_INVALID, "unknown layout %d", (int) options->layout);
	if (options->layout == SHF_LAYOUT_PARTITION_FILES)
		max_partitions = SHF_MAX_PARTITION_FILES;
	code = check_range(err, "number of partitions", options->partitions, 1, max_partitions);
	if (code == SHF_OK)
		code = check_range(err, "block_rows", options->block_rows, 1, MAX_BLOCK_ROWS);
	if (code == SHF_OK)
		code = check_range(err, "block_bytes", options->block_bytes, 1, MAX_BLOCK_BYTES);
	if (code == SHF_OK)
		code =
			check_range(err, "write_buffer_size", options->write_buffer_size, 1, MAX_WRITE_BUFFER);
	if (code != SHF_OK)
		return code;
	if (options->inline_max > options->write_buffer_size)
		return shf_error(err, SHF_ERR_INVALID,
						 "inline_max is %u, but must not be above write_buffer_size, %u",
						 options->inline_max, options->write_buffer_size);
	if (options->layout == SHF_LAYOUT_STREAM)
	{
		if (options->write_stream == NULL)
			return shf_error(err, SHF_ERR_INVALID, "a stream needs a function that takes it");
	}
	else
	{
		if (options->path == NULL || options->path[0] == '\0')
			return shf_error(err, SHF_ERR_INVALID, "a segment needs a path");
		if (options->max_open_files < 1)
			return shf_error(err, SHF_ERR_INVALID, "max_open_files is %d, but must be at least 1",
							 options->max_open_files);
	}
	return options->codec.kind == SHF_CODEC_NONE ? SHF_OK : shf_codec_check(options->codec, err);
}

uint64_t
shf_writer_min_memory(const ShfSchema *schema, const ShfWriterOptions *options)
{
	ShfRowLayout layout;
	uint64_t	 bytes;

	if (check_options(options, NULL) != SHF_OK || shf_schema_check(schema, NULL) != SHF_OK ||
		shf_row_layout_init(&layout, schema, NULL) != SHF_OK)
		return 0;
	bytes = fixed_memory(schema, &layout, options) + min_shared_memory(&layout, options);
	shf_row_layout_release(&layout);
	return bytes;
}

static ShfCode
open_parts(ShfWriter *w, const ShfSchema *schema, const ShfWriterOptions *options, ShfError *err)
{
	uint64_t fixed;
	ShfCode	 code;

	w->options = *options;
	w->options.path = NULL;
	code = shf_schema_copy(&w->schema, schema, err);
	if (code == SHF_OK)
		code = shf_row_layout_init(&w->layout, &w->schema, err);
	if (code != SHF_OK)
		return code;

	fixed = fixed_memory(&w->schema, &w->layout, &w->options);
	w->least_memory = fixed + min_shared_memory(&w->layout, &w->options);
	if (options->memory_limit < w->least_memory)
		return shf_error(
			err, SHF_ERR_LIMIT, "memory_limit of %llu bytes is too small: %llu bytes are needed",
			(unsigned long long) options->memory_limit, (unsigned long long) w->least_memory);
	w->shared_memory = options->memory_limit - fixed;
	w->account.used = w->account.peak = fixed - options->write_buffer_size -
		shf_arrow_max_message(&w->schema, &w->options) -
		shf_arrow_growing_memory(&w->schema, &w->options);

	if (options->path != NULL)
	{
		w->path = strdup(options->path);
		if (w->path == NULL)
			return shf_error(err, SHF_ERR_NOMEM, "out of memory for a writer");
		w->options.path = w->path;
	}
	w->row.var = calloc((size_t) w->layout.nvar + 1, sizeof(ShfBytes));
	if (w->row.var == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a writer");

	code = shf_rowbuf_init(&w->rowbuf, &w->layout, w->options.partitions, options->block_bytes,
						   useful_region(w), err);
	if (code != SHF_OK)
		return code;
	w->allowed = w->rowbuf.region_bytes & ~(uint64_t) 7;
	w->row.fixed = shf_rowbuf_next(&w->rowbuf);
	code = shf_arrow_encoder_create(&w->encoder, &w->schema, &w->layout, &w->options, &w->account,
									err);
	if (code == SHF_OK)
		code = shf_output_create(&w->output, &w->schema, &w->options,
								 shf_arrow_max_message(&w->schema, &w->options), &w->account, err);
	return code;
}

ShfCode
shf_writer_open(ShfWriter **writer, const ShfSchema *schema, const ShfWriterOptions *options,
				ShfError *err)
{
	ShfWriter *w;
	ShfCode	   code;

	*writer = NULL;
	code = check_options(options, err);
	if (code == SHF_OK)
		code = shf_schema_check(schema, err);
	if (code != SHF_OK)
		return code;
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a writer");
	code = open_parts(w, schema, options, err);
	if (code != SHF_OK)
	{
		shf_writer_close(w);
		return code;
	}
	*writer = w;
	return SHF_OK;
}

const ShfRowLayout *
shf_writer_layout(const ShfWriter *w)
{
	return &w->layout;
}

ShfRow *
shf_writer_row(ShfWriter *w)
{
	return &w->row;
}

static ShfCode
not_usable(const ShfWriter *w, ShfError *err)
{
	return shf_error(err, SHF_ERR_INVALID,
					 w->finished ? "writer is finished already" :
								   "writer cannot be used after an error");
}

/* The slow part of append: a run, or a block of its own. */
static ShfCode
append_slowly(ShfWriter *w, uint32_t partition, ShfAppend outcome, ShfError *err)
{
	ShfCode code;

	/* The row may lie in the arena, which is about to be used for other things. */
	if (w->row.fixed != w->rowbuf.staging)
		memcpy(w->rowbuf.staging, w->row.fixed, w->layout.fixed_bytes);
	w->row.fixed = w->rowbuf.staging;
	if (outcome == SHF_APPEND_LARGE)
	{
		code = emit_large_row(w, partition, err);
		w->row.fixed = shf_rowbuf_next(&w->rowbuf);
		return code;
	}

	while (grow_rowbuf(w))
	{
		if (shf_rowbuf_append(&w->rowbuf, partition, &w->row) == SHF_APPENDED)
			return SHF_OK;
	}
	code = emit_run(w, false, err);
	if (code == SHF_OK)
		code = share_memory(w, err);

	/* Half of the buffer is free now, and a row takes less. */
	if (code == SHF_OK && shf_rowbuf_append(&w->rowbuf, partition, &w->row) != SHF_APPENDED)
		code = index_too_large(w, err);
	return code;
}

ShfCode
shf_writer_append(ShfWriter *w, uint32_t partition, ShfError *err)
{
	ShfAppend outcome;
	uint64_t  begun;
	uint64_t  blocks;
	ShfCode	  code;

	if (w->busy || w->finished)
		return not_usable(w, err);
	if (partition >= w->options.partitions)
		return shf_error(err, SHF_ERR_INVALID,
						 "partition %u is not below the number of partitions, %u", partition,
						 w->options.partitions);
	w->rows++;
	outcome = shf_rowbuf_append(&w->rowbuf, partition, &w->row);
	if (outcome == SHF_APPENDED)
		return SHF_OK;
	w->busy = true;
	begun = shf_clock();
	blocks = time_of_blocks(w);
	code = append_slowly(w, partition, outcome, err);
	count_call(w, begun, blocks);
	if (code == SHF_OK)
		w->busy = false;
	return code;
}

uint64_t
shf_writer_least_memory(const ShfWriter *w)
{
	return w->least_memory;
}

uint64_t
shf_writer_memory(const ShfWriter *w)
{
	uint64_t in_use = w->rowbuf.used + SHF_ROW_OVERHEAD * (uint64_t) w->rowbuf.nrows;

	return w->account.used - w->rowbuf_accounted +
		(in_use > w->rowbuf.touched ? in_use : w->rowbuf.touched);
}

ShfCode
shf_writer_rest(ShfWriter *w, ShfError *err)
{
	ShfCode code;

	if (w->busy || w->finished)
		return not_usable(w, err);
	w->busy = true;
	code = shf_output_rest(w->output, err);
	if (code != SHF_OK)
		return code;
	w->encoder->ops->rest(w->encoder);
	w->busy = false;
	return SHF_OK;
}

ShfCode
shf_writer_drain(ShfWriter *w, ShfError *err)
{
	uint64_t begun = shf_clock();
	uint64_t blocks = time_of_blocks(w);
	ShfCode	 code;

	if (w->busy || w->finished)
		return not_usable(w, err);
	w->busy = true;
	code = emit_run(w, true, err);
	if (code == SHF_OK)
		code = share_memory(w, err);
	if (code != SHF_OK)
		return code;
	shf_rowbuf_shrink(&w->rowbuf);
	account_rowbuf(w);
	w->row.fixed = shf_rowbuf_next(&w->rowbuf);
	w->busy = false;
	code = shf_writer_rest(w, err);
	count_call(w, begun, blocks);
	return code;
}

/* Partition files of a few rows each would be many files for nothing. */
static ShfCode
prefer_image(ShfWriter *w, ShfError *err)
{
	if (w->options.layout != SHF_LAYOUT_PARTITION_FILES || w->output->nsegments > 0 ||
		w->rowbuf.nrows == 0 || w->rowbuf.used > w->options.inline_max / 2)
		return SHF_OK;
	shf_output_close(w->output);
	w->output = NULL;
	w->options.layout = SHF_LAYOUT_LOG;
	return shf_output_create(&w->output, &w->schema, &w->options,
							 shf_arrow_max_message(&w->schema, &w->options), &w->account, err);
}

ShfCode
shf_writer_finish(ShfWriter *w, const ShfSegment **segments, int *nsegments, ShfError *err)
{
	uint64_t   begun = shf_clock();
	uint64_t   blocks = time_of_blocks(w);
	uint64_t   emitted;
	ShfOutput *out;
	ShfCode	   code;

	if (w->busy || w->finished)
		return not_usable(w, err);
	w->busy = true;
	code = prefer_image(w, err);
	if (code == SHF_OK)
		code = emit_run(w, true, err);
	emitted = shf_work_clock(&w->account);
	out = w->output;
	if (code == SHF_OK)
		code = shf_output_finish(out, err);
	if (code != SHF_OK)
		return code;
	w->account.write_ns += shf_work_clock(&w->account) - emitted;
	count_call(w, begun, blocks);
	w->busy = false;
	w->finished = true;
	if (out->nsegments > 0)
		out->segments[out->nsegments - 1].metrics = shf_writer_metrics(w);
	*segments = out->segments;
	*nsegments = out->nsegments;
	return SHF_OK;
}

void
shf_writer_outside(ShfWriter *w, uint64_t input_ns, uint64_t pack_ns)
{
	w->metrics.input_ns = input_ns;
	w->metrics.pack_ns = pack_ns;
}

const ShfMetrics *
shf_writer_metrics(const ShfWriter *writer)
{
	ShfWriter		 *w = (ShfWriter *) writer;
	const ShfAccount *account = &w->account;
	double			  sampled = account->gather_sample + account->encode_sample;

	w->metrics.rows = w->rows;
	w->metrics.raw_bytes = w->output->raw_bytes;
	w->metrics.stored_bytes = w->output->bytes_written;
	w->metrics.blocks = w->output->blocks;
	w->metrics.memory_peak = account->peak;
	w->metrics.write_ns = account->write_ns;
	w->metrics.sync_ns = account->sync_ns;
	w->metrics.gather_ns = 0;
	if (sampled > 0)
		w->metrics.gather_ns = (uint64_t) ((double) w->block_ns * account->gather_sample / sampled);
	w->metrics.encode_ns = w->block_ns - w->metrics.gather_ns;
	return &w->metrics;
}

void
shf_writer_close(ShfWriter *w)
{
	if (w == NULL)
		return;
	shf_output_close(w->output);
	if (w->encoder != NULL)
		w->encoder->ops->free(w->encoder);
	shf_rowbuf_release(&w->rowbuf);
	free(w->row.var);
	shf_row_layout_release(&w->layout);
	shf_schema_release(&w->schema);
	free(w->path);
	free(w);
}
