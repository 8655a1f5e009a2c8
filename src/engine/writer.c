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
 * they took, until that is an eighth and the index goes to a file.  The row buffer's
 * share, "allowed", is taken in steps as rows come, and the buffers of encoder and output
 * when the first block is made: a writer of a few rows is small, and so is one that rests.
 *
 * poll may longjmp out of append and finish.  The writer is "busy" then, as after an
 * error, and only good for shf_writer_close().
 */
#include "writer.h"

#include <stdlib.h>

/* Ranges of the options. */
#define MAX_BLOCK_ROWS	 (1u << 20)
#define MAX_BLOCK_BYTES	 (1u << 30)
#define MAX_WRITE_BUFFER (1u << 30)

/* ---------------------------------------------------------------- time */

/*
 * The time of a call that did more than to pack a row: what was not spent on blocks and
 * files was spent on the row buffer.
 */
static void
count_call(ShfWriter *w, uint64_t begun, uint64_t blocks_before)
{
	uint64_t spent = shf_clock() - begun;

	w->metrics.caller_ns += spent;
	if (w->in_thread)
		w->move_ns += spent; /* a run was handed over, nothing else */
	else
		w->sort_ns += spent - (shf_writer_block_time(w) - blocks_before);
}

/* ---------------------------------------------------------------- opening */

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
	bytes = shf_writer_fixed_memory(schema, &layout, options) +
		shf_writer_shared_minimum(&layout, options);
	shf_row_layout_release(&layout);
	return bytes;
}

/* The output's question, which in the thread has been answered before. */
static int
granted_files(void *arg, int wanted)
{
	ShfWriter *w = arg;

	return w->in_thread ? w->granted : w->open_files(w->open_files_arg, wanted);
}

static ShfCode
create_output(ShfWriter *w, ShfError *err)
{
	ShfCode code =
		shf_output_create(&w->output, &w->schema, &w->options,
						  shf_arrow_max_message(&w->schema, &w->options), &w->account, err);

	if (code == SHF_OK)
		w->output->index_limit = shf_writer_index_limit(w);
	return code;
}

static ShfCode
open_parts(ShfWriter *w, const ShfSchema *schema, const ShfWriterOptions *options, ShfError *err)
{
	uint64_t fixed;
	ShfCode	 code;

	w->options = *options;
	w->options.path = NULL;
	if (options->open_files != NULL)
	{
		w->open_files = options->open_files;
		w->open_files_arg = options->open_files_arg;
		w->options.open_files = granted_files;
		w->options.open_files_arg = w;
	}
	code = shf_schema_copy(&w->schema, schema, err);
	if (code == SHF_OK)
		code = shf_row_layout_init(&w->layout, &w->schema, err);
	if (code != SHF_OK)
		return code;

	fixed = shf_writer_fixed_memory(&w->schema, &w->layout, &w->options);
	w->least_memory = fixed + shf_writer_shared_minimum(&w->layout, &w->options);
	if (options->memory_limit < w->least_memory)
		return shf_error(
			err, SHF_ERR_LIMIT, "memory_limit of %llu bytes is too small: %llu bytes are needed",
			(unsigned long long) options->memory_limit, (unsigned long long) w->least_memory);
	w->shared_memory = options->memory_limit - fixed;
	w->account.output_limit = options->output_limit > 0 ? options->output_limit : UINT64_MAX;
	w->account.used = w->account.peak = fixed - SHF_INDEX_SLACK - options->write_buffer_size -
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
						   shf_writer_plan_memory(w), err);
	if (code != SHF_OK)
		return code;
	w->row.fixed = shf_rowbuf_next(&w->rowbuf);
	code = shf_arrow_encoder_create(&w->encoder, &w->schema, &w->layout, &w->options, &w->account,
									err);
	return code == SHF_OK ? create_output(w, err) : code;
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

/* Begins a call that needs the thread to be idle; it sets busy to false when all went well. */
static ShfCode
enter(ShfWriter *w, ShfError *err)
{
	if (w->busy || w->finished)
		return not_usable(w, err);
	w->busy = true;
	return shf_writer_idle(w, err);
}

/* The slow part of append: a run, or a block of its own.  The thread is idle. */
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
		code = shf_writer_large_row(w, partition, err);
		w->row.fixed = shf_rowbuf_next(&w->rowbuf);
		return code;
	}

	code = shf_writer_make_room(w, err);

	/* Half of the buffer is free now, and a row takes less. */
	if (code == SHF_OK && shf_rowbuf_append(&w->rowbuf, partition, &w->row) != SHF_APPENDED)
		code = shf_list_too_large(w, err);
	return code;
}

/* Takes more of the row buffer's share; false if it has all. */
static bool
grow(ShfWriter *w)
{
	/* The row may have been made where the buffer will have its rows' tags. */
	if (w->row.fixed != w->rowbuf.staging)
		memcpy(w->rowbuf.staging, w->row.fixed, w->layout.fixed_bytes);
	w->row.fixed = w->rowbuf.staging;
	return shf_writer_grow(w);
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
	if (__atomic_load_n(&w->failed, __ATOMIC_RELAXED))
	{
		w->busy = true;
		return shf_writer_idle(w, err);
	}
	w->rows++;
	outcome = shf_rowbuf_append(&w->rowbuf, partition, &w->row);
	while (outcome == SHF_APPEND_FULL && grow(w))
		outcome = shf_rowbuf_append(&w->rowbuf, partition, &w->row);
	if (outcome == SHF_APPENDED)
		return SHF_OK;
	w->busy = true;
	code = shf_writer_idle(w, err);
	if (code != SHF_OK)
		return code;
	begun = shf_clock();
	blocks = shf_writer_block_time(w);
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
shf_writer_written(const ShfWriter *w)
{
	return __atomic_load_n(&w->account.written, __ATOMIC_RELAXED);
}

void
shf_writer_limit_output(ShfWriter *w, uint64_t bytes)
{
	__atomic_store_n(&w->account.output_limit, bytes, __ATOMIC_RELAXED);
}

uint64_t
shf_writer_memory(const ShfWriter *w)
{
	uint64_t in_use = w->rowbuf.used + SHF_ROW_OVERHEAD * (uint64_t) w->rowbuf.nrows;

	return __atomic_load_n(&w->account.used, __ATOMIC_RELAXED) - w->rowbuf_accounted +
		(in_use > w->rowbuf.touched ? in_use : w->rowbuf.touched) +
		(w->in_thread ? w->drain_held : w->drain.touched);
}

ShfCode
shf_writer_rest(ShfWriter *w, ShfError *err)
{
	ShfCode code;

	code = enter(w, err);
	if (code != SHF_OK)
		return code;
	shf_writer_end_thread(w);
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
	uint64_t begun;
	uint64_t blocks;
	ShfCode	 code;

	code = enter(w, err);
	if (code != SHF_OK)
		return code;
	begun = shf_clock();
	blocks = shf_writer_block_time(w);
	code = shf_writer_run(w, true, err);
	if (code == SHF_OK)
		code = shf_writer_share(w, &w->rowbuf, err);
	if (code != SHF_OK)
		return code;
	shf_rowbuf_shrink(&w->rowbuf);
	shf_writer_account(w);
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
	return create_output(w, err);
}

ShfCode
shf_writer_finish(ShfWriter *w, const ShfSegment **segments, int *nsegments, ShfError *err)
{
	uint64_t   begun;
	uint64_t   blocks;
	uint64_t   emitted;
	ShfOutput *out;
	ShfCode	   code;

	code = enter(w, err);
	if (code != SHF_OK)
		return code;
	begun = shf_clock();
	blocks = shf_writer_block_time(w);
	code = prefer_image(w, err);
	if (code == SHF_OK)
		code = shf_writer_run(w, true, err);
	shf_writer_end_thread(w);
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
	double			  sampled;

	/* The rest of what the thread works on is known when it has been waited for. */
	w->metrics.rows = w->rows;
	w->metrics.stored_bytes = __atomic_load_n(&w->output->bytes_written, __ATOMIC_RELAXED);
	if (w->in_thread)
		return &w->metrics;
	sampled = account->gather_sample + account->encode_sample;
	w->metrics.runs = w->runs;
	w->metrics.sort_ns = w->sort_ns + w->move_ns;
	w->metrics.raw_bytes = w->output->raw_bytes;
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
shf_writer_stop(ShfWriter *w)
{
	w->busy = true;
	if (w->thread != NULL)
		shf_writer_end_thread(w);
	w->in_thread = false;
}

void
shf_writer_close(ShfWriter *w)
{
	if (w == NULL)
		return;
	shf_writer_stop(w);
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
