/*
 * writer_run.c
 *	  Runs: what leaves a full row buffer, on the caller's thread or on one of its own.
 *
 * With a thread there are two row buffers.  When the one that is being filled is full, the
 * caller waits until the thread is done with the other, moves the rows of partitions that
 * are too small into that, in order, and the two change roles: the thread emits all rows
 * it was given while the caller appends behind those that were kept.  At most one run
 * waits, and the order inside a partition is that of the rows.
 *
 * While in_thread, the thread owns drain, encoder, output and account, and nobody else
 * looks at them but for account.used and output.bytes_written, which are atomic.  The
 * caller's functions (poll, wait, open_files) are called on the caller's thread only:
 * descriptors are asked for before a run is handed over.
 *
 * With a pool (pool.h) whoever emits a run, thread or caller, is helped by other threads.
 * They may be in the middle of a block when an error or a jump leaves the run: what they
 * look at lives in the writer, not on the stack.
 *
 * An error of the thread is kept until the next row or call.  The caller may jump out of
 * wait: shf_writer_close() then tells the thread to give up, which it does after the
 * block at hand, and joins it.
 */
#include "writer.h"

/* Who makes blocks, and where they go. */
typedef struct Lane
{
	ShfEncoder *encoder;
	ShfOutput  *output;
	bool		helper; /* a thread of the pool */
} Lane;

static inline ShfCode
between_blocks(ShfWriter *w, const Lane *lane, ShfError *err)
{
	if (lane->helper || w->in_thread)
	{
		if (__atomic_load_n(&w->stop, __ATOMIC_RELAXED))
			return shf_error(err, SHF_ERR_STOPPED, "writer is being closed");
	}
	else if (w->options.poll != NULL)
		w->options.poll(w->options.poll_arg);
	return SHF_OK;
}

/* Blocks of equal size compress better than full ones and a small rest. */
static inline uint32_t
block_rows(const ShfWriter *w, uint32_t left, uint32_t row_bytes)
{
	uint64_t blocks = (uint64_t) left * row_bytes / w->options.block_bytes + 1;
	uint32_t n = (uint32_t) ((left + blocks - 1) / blocks);

	return n < w->options.block_rows ? n : w->options.block_rows;
}

/* Emits the rows of one partition as blocks; the encoder cuts them by size. */
static ShfCode
emit_rows(ShfWriter *w, const Lane *lane, uint32_t partition, ShfRows rows, ShfError *err)
{
	const uint32_t behind = rows.ahead;
	uint32_t	   left = rows.n;

	while (left > 0)
	{
		uint32_t taken;
		ShfCode	 code;

		rows.n = block_rows(w, left, rows.row_bytes);
		rows.ahead = left - rows.n + behind;
		code =
			lane->encoder->ops->block(lane->encoder, lane->output, partition, &rows, &taken, err);
		if (code != SHF_OK)
			return code;
		rows.order += taken;
		left -= taken;
		code = between_blocks(w, lane, err);
		if (code != SHF_OK)
			return code;
	}
	return SHF_OK;
}

/*
 * Which partitions may keep their rows for the next run.  The index entries of this one
 * will make the buffer smaller by up to headroom.
 */
static ShfRetain
plan_retain(const ShfWriter *w)
{
	const ShfRowBuf *rb = &w->rowbuf;
	uint64_t		 headroom = shf_run_index_memory(&w->layout, &w->options, rb->usable);
	ShfRetain		 retain = {0, 0};

	if (rb->usable > headroom)
		retain = shf_rowbuf_plan_retain(rb, w->options.block_min_rows, (rb->usable - headroom) / 2);
	return retain;
}

static inline uint32_t
partition_begin(const ShfRowBuf *rb, uint32_t partition)
{
	return partition > 0 ? rb->counts[partition - 1] : 0;
}

/* Emits a unit but for the rows that retain keeps. */
static ShfCode
emit_unit(const ShfRun *run, const Lane *lane, const ShfUnit *unit, ShfError *err)
{
	const ShfRowBuf *rb = run->rb;
	const uint32_t	 total = rb->counts[rb->partitions - 1];
	uint32_t		 at = unit->first;

	for (uint32_t p = unit->partition; at < unit->end; p++)
	{
		uint32_t end = rb->counts[p];
		uint32_t stop = end < unit->end ? end : unit->end;
		ShfCode	 code;

		ShfRows rows = {
			.arena = rb->region,
			.order = run->order + at,
			.n = stop - at,
			.ahead = total - stop,
			.row_bytes = run->row_bytes,
			.max_row_bytes = rb->max_row_bytes,
			.nulls = rb->nulls,
		};

		at = stop;
		if (rows.n == 0 || shf_retained(&run->retain, p, end - partition_begin(rb, p)))
			continue;
		code = emit_rows(run->w, lane, p, rows, err);
		if (code != SHF_OK)
			return code;
	}
	return SHF_OK;
}

/*
 * Small partitions make a unit together, of block_bytes with the headers of their blocks; a
 * large one makes a unit of each block.
 */
static bool
next_unit(void *arg, ShfUnit *unit)
{
	ShfRun			*run = arg;
	const ShfWriter *w = run->w;
	const ShfRowBuf *rb = run->rb;
	uint64_t		 bytes = 0;

	while (run->partition < rb->partitions && rb->counts[run->partition] == run->at)
		run->partition++;
	if (run->partition == rb->partitions)
		return false;
	unit->partition = run->partition;
	unit->first = run->at;
	do
	{
		uint32_t left = rb->counts[run->partition] - run->at;
		uint32_t n = block_rows(w, left, run->row_bytes);

		if (n < left && run->at > unit->first)
			break;
		run->at += n;
		if (n < left)
			break;
		if (n > 0)
			bytes += (uint64_t) n * run->row_bytes + run->block_overhead;
		run->partition++;
	} while (run->partition < rb->partitions && bytes < w->options.block_bytes);
	unit->end = run->at;
	return true;
}

static ShfCode
encode_unit(void *arg, bool driver, ShfEncoder *encoder, ShfOutput *output, const ShfUnit *unit,
			ShfError *err)
{
	const Lane lane = {.encoder = encoder, .output = output, .helper = !driver};

	return emit_unit(arg, &lane, unit, err);
}

/* Emits the rows of all partitions but those that retain keeps. */
static ShfCode
emit_run(ShfWriter *w, ShfRowBuf *rb, const ShfRetain *retain, ShfError *err)
{
	ShfRun	*run = &w->run;
	uint64_t sorted;
	ShfCode	 code;

	*run = (ShfRun){
		.w = w,
		.rb = rb,
		.order = shf_rowbuf_sort(rb),
		.retain = *retain,
		.row_bytes = (uint32_t) (rb->used / rb->nrows),
	};
	sorted = shf_work_clock(&w->account);

	if (w->pool != NULL)
	{
		const ShfPoolWork work = {.next = next_unit, .encode = encode_unit, .arg = run};
		int				  nnodes;
		int				  nbuffers;

		shf_schema_count(&w->schema, &nnodes, &nbuffers);
		run->block_overhead = (uint32_t) shf_template_bytes(nnodes, nbuffers);
		code = shf_pool_run(w->pool, &work, w->encoder, w->output, &w->account, err);
	}
	else
	{
		const Lane	  lane = {.encoder = w->encoder, .output = w->output};
		const ShfUnit all = {.end = rb->counts[rb->partitions - 1]};

		code = emit_unit(run, &lane, &all, err);
	}
	if (code == SHF_OK)
		code = shf_output_end_run(w->output, err);
	if (code != SHF_OK)
		return code;
	w->block_ns += shf_work_clock(&w->account) - sorted;
	shf_rowbuf_compact(rb, retain);
	w->runs++;
	return SHF_OK;
}

ShfCode
shf_writer_run(ShfWriter *w, bool last, ShfError *err)
{
	ShfRetain retain = {0, 0};
	ShfCode	  code;

	if (w->rowbuf.nrows == 0)
		return SHF_OK;
	if (!last)
		retain = plan_retain(w);
	code = emit_run(w, &w->rowbuf, &retain, err);
	shf_writer_account(w);
	return code;
}

/* What its partition has in the buffer goes first. */
ShfCode
shf_writer_large_row(ShfWriter *w, uint32_t partition, ShfError *err)
{
	const Lane lane = {.encoder = w->encoder, .output = w->output};
	uint64_t   begun = shf_work_clock(&w->account);
	ShfRows	   pending = shf_rowbuf_take(&w->rowbuf, partition);
	ShfCode	   code = emit_rows(w, &lane, partition, pending, err);

	if (code == SHF_OK)
		code = w->encoder->ops->large_row(w->encoder, w->output, partition, &w->row, err);
	if (code == SHF_OK)
		code = shf_output_end_run(w->output, err);
	if (code != SHF_OK)
		return code;
	w->block_ns += shf_work_clock(&w->account) - begun;
	if (w->options.poll != NULL)
		w->options.poll(w->options.poll_arg);

	/* Index entries outside of runs: room for those of the next run must remain. */
	if (shf_writer_share(w, &w->rowbuf, NULL) == SHF_OK)
		return SHF_OK;
	code = shf_writer_run(w, true, err);
	return code == SHF_OK ? shf_writer_share(w, &w->rowbuf, err) : code;
}

/* ---------------------------------------------------------------- thread */

/* The thread's work: all of drain. */
static void
drain_in_thread(void *arg)
{
	ShfWriter	   *w = arg;
	const ShfRetain none = {0, 0};
	uint64_t		begun = shf_clock();
	uint64_t		blocks = shf_writer_block_time(w);

	w->thread_code = emit_run(w, &w->drain, &none, &w->thread_err);
	w->sort_ns += shf_clock() - begun - (shf_writer_block_time(w) - blocks);
	if (w->thread_code != SHF_OK)
		__atomic_store_n(&w->failed, true, __ATOMIC_RELAXED);
}

ShfCode
shf_writer_idle(ShfWriter *w, ShfError *err)
{
	uint64_t begun;
	uint64_t waited;

	if (!w->in_thread)
		return SHF_OK;
	begun = shf_clock();
	if (w->options.wait != NULL)
	{
		while (shf_thread_busy(w->thread))
			w->options.wait(w->options.poll_arg, shf_thread_fd(w->thread));
	}
	else
		shf_thread_wait(w->thread);
	w->in_thread = false;
	waited = shf_clock() - begun;
	w->metrics.queue_ns += waited;
	w->metrics.caller_ns += waited;
	shf_writer_account(w);
	if (w->thread_code == SHF_OK)
		return SHF_OK;
	if (err != NULL)
		*err = w->thread_err;
	return w->thread_code;
}

void
shf_writer_end_thread(ShfWriter *w)
{
	__atomic_store_n(&w->stop, true, __ATOMIC_RELAXED);
	shf_thread_end(w->thread);
	w->thread = NULL;
	if (w->pool != NULL)
	{
		shf_pool_end(w->pool);
		w->pool = NULL;
		shf_account(&w->account, shf_pool_memory(&w->schema, &w->options, w->helpers), 0);
	}
	w->no_thread = false;
	if (w->drain.region != NULL)
	{
		shf_rowbuf_release(&w->drain);
		shf_account(&w->account, shf_rowbuf_fixed_memory(&w->layout, w->options.partitions), 0);
		shf_writer_account(w);
	}
	__atomic_store_n(&w->stop, false, __ATOMIC_RELAXED);
}

/* Has the thread been started, or can it be? */
static bool
have_thread(ShfWriter *w)
{
	if (w->thread != NULL)
		return true;
	if (w->arenas < 2 || w->no_thread)
		return false;
	w->no_thread = true;
	if (!w->options.start_thread(w->options.poll_arg))
		return false;
	if (shf_rowbuf_init(&w->drain, &w->layout, w->options.partitions, w->options.block_bytes,
						w->rowbuf.region_bytes, NULL) != SHF_OK)
		return false;
	w->thread = shf_thread_start(drain_in_thread, w);
	if (w->thread == NULL)
	{
		shf_rowbuf_release(&w->drain);
		return false;
	}
	shf_account(&w->account, 0, shf_rowbuf_fixed_memory(&w->layout, w->options.partitions));
	if (w->helpers > 0)
		w->pool = shf_pool_create(&w->schema, &w->layout, &w->options, w->helpers);
	if (w->pool != NULL)
		shf_account(&w->account, 0, shf_pool_memory(&w->schema, &w->options, w->helpers));
	w->no_thread = false;
	return true;
}

/* Gives the full row buffer to the thread, which is idle; drain has room for the kept rows. */
static ShfCode
hand_over(ShfWriter *w, ShfError *err)
{
	ShfRetain retain = plan_retain(w);
	ShfRowBuf full;

	if (!shf_rowbuf_move(&w->drain, &w->rowbuf, &retain))
		return shf_list_too_large(w, err);

	full = w->rowbuf;
	w->rowbuf = w->drain;
	w->drain = full;
	w->drain_held = full.used + SHF_ROW_OVERHEAD * (uint64_t) full.nrows;
	if (w->drain_held < full.touched)
		w->drain_held = full.touched;
	w->in_thread = true;
	shf_thread_run(w->thread);
	return SHF_OK;
}

ShfCode
shf_writer_make_room(ShfWriter *w, ShfError *err)
{
	ShfCode code;

	if (have_thread(w))
	{
		if (w->open_files != NULL)
			w->granted = w->open_files(w->open_files_arg, w->options.max_open_files);

		/* The other row buffer can take this one's rows, but no more than its share is now. */
		if (w->drain.usable < w->rowbuf.usable && !shf_rowbuf_resize(&w->drain, w->rowbuf.usable))
			return shf_error(err, SHF_ERR_NOMEM, "out of memory for a row buffer");
		code = shf_writer_share(w, &w->drain, err);
		if (code != SHF_OK)
			return code;
		if (w->thread != NULL)
			return hand_over(w, err);
	}
	code = shf_writer_run(w, false, err);
	return code == SHF_OK ? shf_writer_share(w, &w->rowbuf, err) : code;
}
