/*
 * writer.c
 *	  ShuffleWriter: routing, type conversion and the engine's writer as one thing that
 *	  lives in a memory context.
 *
 * The engine holds malloc memory and raw file descriptors.  Both are given back by a
 * reset callback of the writer's memory context, which runs on error too, and earlier
 * than any transaction callback.  The descriptors are accounted with AcquireExternalFD();
 * the files themselves belong to the leader's transaction (xact.c).
 *
 * Where one process writes by itself, the engine has a thread that makes and writes the
 * blocks.  It knows nothing of PostgreSQL and is joined by the same reset callback; a
 * process that exits some other way joins it in before_shmem_exit.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "common/file_perm.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "../engine/clock.h"
#include "typemap.h"

/* Partition files held open at once: enough for a run in partition order. */
#define WRITER_MAX_OPEN_FILES 256

/* Descriptors left to others when there are not enough. */
#define WRITER_SPARE_FILES 8

/*
 * The clock is read for one row in about SAMPLE_ROWS, or more often when rows come
 * slowly: once in SAMPLE_NS then.
 */
#define SAMPLE_ROWS		128
#define SAMPLE_NS		1000000
#define SAMPLE_SLACK_NS 20000

#define REPORT_NS		50000000 /* progress is reported every so often */
#define REPORT_POLLS	16		 /* blocks between looks at the clock */

struct ShuffleWriter
{
	ShfWriter		   *engine;
	ShuffleRouter	   *router;
	ShuffleTypeMap	   *map;
	const ShfRowLayout *layout;
	int					nfds;	   /* descriptors accounted for, files only */
	bool				thread_fd; /* and the thread's */
	dlist_node			threaded;  /* in threaded_writers while thread_fd */
	void (*opening)(void *arg);
	void				 *opening_arg;
	MemoryContext		  context;
	MemoryContextCallback callback;

	/* see output_limit.c */
	int				  output_limit_kb;
	pg_atomic_uint64 *output;
	uint64			  written; /* of the engine, as counted there */

	/* time spent on rows, see put_timed() */
	uint64 begun;
	uint64 sampled_at;
	uint32 sample_rows; /* from the last sampled row to the next one */
	uint32 sample_left;
	uint32 random;
	double pack_ns;
	double pack_mean; /* of the latest samples */

	int					 progress;	   /* token, or 0 */
	bool				 own_progress; /* to be ended with the writer */
	ShuffleProgressDone *done;
	uint32				 polls;
	uint64				 reported_at;
};

/* Writers whose engine may have a thread. */
static dlist_head threaded_writers = DLIST_STATIC_INIT(threaded_writers);

/* The engine has closed them, its thread's included. */
static void
release_descriptors(ShuffleWriter *writer)
{
	if (writer->thread_fd)
	{
		dlist_delete(&writer->threaded);
		writer->thread_fd = false;
		ReleaseExternalFD();
	}
	for (; writer->nfds > 0; writer->nfds--)
		ReleaseExternalFD();
}

static void
writer_release(void *arg)
{
	ShuffleWriter *writer = arg;

	if (writer->engine != NULL)
		shf_writer_close(writer->engine);
	writer->engine = NULL;
	if (writer->own_progress)
		shuffle_progress_end(writer->progress);
	release_descriptors(writer);
}

static void
report(ShuffleWriter *writer, ShufflePhase phase)
{
	const ShfMetrics *metrics = shf_writer_metrics(writer->engine);

	shuffle_progress_report(writer->progress, phase, metrics->rows, metrics->stored_bytes);
	writer->reported_at = shf_clock();
}

static pg_noinline void
count_more_output(ShuffleWriter *writer, uint64 written)
{
	uint64 more = written - writer->written;
	uint64 left;

	writer->written = written;
	left = shuffle_output_add(writer->output, more, writer->output_limit_kb);
	shf_writer_limit_output(writer->engine,
							left < PG_UINT64_MAX - written ? written + left : PG_UINT64_MAX);
}

static inline void
count_output(ShuffleWriter *writer)
{
	uint64 written = shf_writer_written(writer->engine);

	if (unlikely(written != writer->written))
		count_more_output(writer, written);
}

/* If the engine has failed because of the limit, counting will tell. */
static pg_noinline void
raise_error(ShuffleWriter *writer, const ShfError *err)
{
	count_output(writer);
	shuffle_raise(err);
}

#define CHECK_ENGINE(call, writer, err) \
	do \
	{ \
		if (unlikely((call) != SHF_OK)) \
			raise_error(writer, err); \
	} while (0)

static void
writer_poll(void *arg)
{
	ShuffleWriter *writer = arg;

	CHECK_FOR_INTERRUPTS();
	count_output(writer);
	if (writer->progress != 0 && ++writer->polls % REPORT_POLLS == 0 &&
		shf_clock() - writer->reported_at > REPORT_NS)
		report(writer, SHUFFLE_PHASE_RUN);
}

static void
stop_threads(int code, Datum arg)
{
	dlist_iter iter;

	dlist_foreach(iter, &threaded_writers)
		shf_writer_stop(dlist_container(ShuffleWriter, threaded, iter.cur)->engine);
}

/*
 * Is the engine to have a thread?  Parallel writers fill the cores already: there only
 * less work would help.  Without a leader this is the only writer, however many processes
 * read for it.
 */
static bool
wants_thread(const ShuffleWriteSpec *spec)
{
	if (shuffle_setting_writer_threads >= 0)
		return shuffle_setting_writer_threads > 0;
	return spec->leader == 0 || !(IsInParallelMode() || IsParallelWorker());
}

/* The engine is about to start its thread, which holds a descriptor. */
static bool
writer_start_thread(void *arg)
{
	static bool	   registered = false;
	ShuffleWriter *writer = arg;

	if (!registered)
	{
		before_shmem_exit(stop_threads, (Datum) 0);
		registered = true;
	}
	if (!writer->thread_fd)
	{
		if (!AcquireExternalFD())
			return false;
		writer->thread_fd = true;
		dlist_push_head(&threaded_writers, &writer->threaded);
	}
	return true;
}

/* The backend waits for its thread, and can be interrupted. */
static void
writer_wait(void *arg, int fd)
{
	ShuffleWriter *writer = arg;
	int			   events = WL_LATCH_SET | WL_SOCKET_READABLE | WL_EXIT_ON_PM_DEATH;

	if (writer->progress != 0)
		events |= WL_TIMEOUT;
	(void) WaitLatchOrSocket(MyLatch, events, fd, REPORT_NS / 1000000, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	count_output(writer);
	if (writer->progress != 0 && shf_clock() - writer->reported_at > REPORT_NS)
		report(writer, SHUFFLE_PHASE_RUN);
}

void
shuffle_write_spec_settings(ShuffleWriteSpec *spec)
{
	spec->memory_limit_kb = shuffle_setting_memory_limit_kb;
	spec->block_rows = shuffle_setting_block_rows;
	spec->block_bytes = shuffle_setting_block_bytes;
	spec->block_min_rows = shuffle_setting_block_min_rows;
	spec->write_buffer_kb = shuffle_setting_write_buffer_kb;
	spec->sync = shuffle_setting_sync;
	spec->output_limit_kb = shuffle_setting_output_limit_kb;
}

/* Accounts for up to wanted descriptors, at least one. */
static void
acquire_descriptors(ShuffleWriter *writer, int wanted)
{
	while (writer->nfds < wanted && AcquireExternalFD())
		writer->nfds++;

	/* When these were the last ones: the query may have shuffle tables to read. */
	for (int i = 0; writer->nfds < wanted && writer->nfds > 1 && i < WRITER_SPARE_FILES; i++)
	{
		ReleaseExternalFD();
		writer->nfds--;
	}
	if (writer->nfds == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES), errmsg("out of file descriptors"),
				 errhint("Raise max_files_per_process.")));
}

/* The engine's question for descriptors. */
static int
writer_open_files(void *arg, int wanted)
{
	ShuffleWriter *writer = arg;

	if (writer->nfds == 0)
	{
		writer->opening(writer->opening_arg);
		acquire_descriptors(writer, wanted);
	}
	return writer->nfds;
}

/* Joins what the leader reports if this is the leader, else reports by itself. */
static void
begin_progress(ShuffleWriter *writer, const ShuffleWriteSpec *spec)
{
	if (!OidIsValid(spec->relid))
		return;
	writer->done = spec->done;
	if (spec->leader == MyProcPid)
		writer->progress = spec->progress;
	else
	{
		writer->progress = shuffle_progress_begin(SHUFFLE_OPERATION_WRITE, spec->relid,
												  spec->leader != 0 ? spec->leader : MyProcPid);
		writer->own_progress = true;
	}
}

/* A limit below what the engine needs is the user's to raise. */
static void
raise_open_error(const ShuffleWriteSpec *spec, const ShfSchema *schema,
				 const ShfWriterOptions *engine, const ShfError *err)
{
	uint64 needed = shf_writer_min_memory(schema, engine);

	if (needed > engine->memory_limit)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("\"%s\" is too small for this table", "shuffle_ext.memory_limit"),
				 errdetail("It is %d kB; the table's columns (%d) and partitions (%d) need "
						   "at least " UINT64_FORMAT " kB.",
						   spec->memory_limit_kb, schema->nfields, spec->options->partitions,
						   (needed + 1023) / 1024),
				 errhint("Raise \"%s\", or lower \"%s\" or the number of partitions.",
						 "shuffle_ext.memory_limit", "shuffle_ext.block_bytes")));
	shuffle_raise(err);
}

ShuffleWriter *
shuffle_writer_begin(const ShuffleWriteSpec *spec, MemoryContext cxt)
{
	const ShuffleOptions *options = spec->options;
	MemoryContext	 context = AllocSetContextCreate(cxt, "shuffle writer", ALLOCSET_SMALL_SIZES);
	MemoryContext	 old = MemoryContextSwitchTo(context);
	ShuffleWriter	*writer = palloc0(sizeof(ShuffleWriter));
	ShfWriterOptions engine = {0};
	const ShfSchema *schema;
	int				 files =
		 options->layout == SHF_LAYOUT_LOG ? 1 : Min(options->partitions, WRITER_MAX_OPEN_FILES);
	ShfError err;

	writer->context = context;
	writer->callback.func = writer_release;
	writer->callback.arg = writer;
	MemoryContextRegisterResetCallback(context, &writer->callback);

	writer->router = shuffle_router_create(options, spec->desc, spec->writer);
	writer->map = spec->map;
	if (writer->map == NULL)
		writer->map =
			shuffle_typemap_create(spec->desc, options->types, options->null_unrepresentable);
	schema = shuffle_typemap_schema(writer->map);

	if (spec->opening != NULL)
	{
		writer->opening = spec->opening;
		writer->opening_arg = spec->opening_arg;
		engine.open_files = writer_open_files;
		engine.open_files_arg = writer;
	}
	else
	{
		acquire_descriptors(writer, files);
		files = writer->nfds;
	}

	engine.partitions = options->partitions;
	engine.layout = options->layout;
	engine.codec = options->codec;
	engine.memory_limit = (uint64) spec->memory_limit_kb * 1024;
	engine.block_rows = spec->block_rows;
	engine.block_bytes = spec->block_bytes;
	engine.block_min_rows = spec->block_min_rows;
	engine.write_buffer_size = (uint32) spec->write_buffer_kb * 1024;
	engine.sync = spec->sync;
	engine.path = spec->path;
	engine.file_mode = pg_file_create_mode;
	engine.dir_mode = pg_dir_create_mode;
	engine.max_open_files = files;
	engine.inline_max = Min(spec->inline_max, engine.write_buffer_size);
	engine.poll = writer_poll;
	engine.poll_arg = writer;
	engine.start_thread = wants_thread(spec) ? writer_start_thread : NULL;
	engine.threads = Max(shuffle_setting_writer_threads, 1);
	engine.wait = writer_wait;

	if (shf_writer_open(&writer->engine, schema, &engine, &err) != SHF_OK)
		raise_open_error(spec, schema, &engine, &err);
	writer->output = spec->output;
	writer->output_limit_kb = spec->output_limit_kb;
	count_more_output(writer, 0);
	writer->layout = shf_writer_layout(writer->engine);

	writer->sampled_at = shf_clock();
	writer->begun = spec->begun != 0 ? spec->begun : writer->sampled_at;
	writer->random = 1;
	writer->sample_rows = writer->sample_left = 1;
	begin_progress(writer, spec);

	MemoryContextSwitchTo(old);
	return writer;
}

/* partition is that of the row, or -1: to be found. */
static inline void
put_row(ShuffleWriter *writer, int64 partition, const Datum *values, const bool *isnull)
{
	ShuffleTypeMap *map = writer->map;
	bool			route = partition < 0;
	ShfError		err;

	if (route)
		partition = shuffle_route(writer->router, values, isnull);
	shuffle_pack_row(map, writer->layout, shf_writer_row(writer->engine), values, isnull);
	if (unlikely(map->nulled_whole != NULL || map->nulled_inside != NULL) && route)
		partition = shuffle_route_nulled(writer->router, (uint32) partition, values, isnull,
										 map->nulled_whole, map->nulled_inside);
	CHECK_ENGINE(shf_writer_append(writer->engine, (uint32) partition, &err), writer, &err);
}

/*
 * Puts a row that stands for all since the last sampled one in the time that packing
 * takes; the rest of the time between rows is the wait for them.
 */
static pg_noinline void
put_timed(ShuffleWriter *writer, int64 partition, const Datum *values, const bool *isnull)
{
	const ShfMetrics *metrics = shf_writer_metrics(writer->engine);
	uint64			  before = metrics->caller_ns;
	uint64			  first = shf_clock();
	uint64			  start = shf_clock();
	uint64			  end;
	uint64			  row_ns;
	double			  spent;

	put_row(writer, partition, values, isnull);

	/* Less the clock itself, and a run if the row caused one. */
	end = shf_clock();
	count_output(writer);
	spent = (double) (end - start) - (double) (start - first) -
		(double) (shf_writer_metrics(writer->engine)->caller_ns - before);

	/* A process that was not running just then must not count a hundredfold. */
	if (writer->pack_mean > 0)
		spent = Min(spent, 8 * writer->pack_mean + SAMPLE_SLACK_NS);
	if (spent > 0)
	{
		writer->pack_ns += spent * writer->sample_rows;
		writer->pack_mean += (spent - writer->pack_mean) / (writer->pack_mean > 0 ? 8 : 1);
	}

	/* Not in step with anything periodic: an interval at random. */
	row_ns = (first - writer->sampled_at) / writer->sample_rows + 1;
	writer->random = writer->random * 1664525 + 1013904223;
	writer->sample_rows = SAMPLE_ROWS / 2 + (writer->random >> 16) % SAMPLE_ROWS;
	writer->sample_rows = (uint32) Max(Min(writer->sample_rows, SAMPLE_NS / row_ns), 1);
	writer->sample_left = writer->sample_rows;
	writer->sampled_at = end;
	if (writer->progress != 0 && end - writer->reported_at > REPORT_NS)
		report(writer, SHUFFLE_PHASE_INPUT);
}

void
shuffle_writer_put(ShuffleWriter *writer, const Datum *values, const bool *isnull)
{
	if (unlikely(--writer->sample_left == 0))
		put_timed(writer, -1, values, isnull);
	else
		put_row(writer, -1, values, isnull);
}

void
shuffle_writer_put_into(ShuffleWriter *writer, uint32 partition, const Datum *values,
						const bool *isnull)
{
	if (unlikely(--writer->sample_left == 0))
		put_timed(writer, partition, values, isnull);
	else
		put_row(writer, partition, values, isnull);
}

/* Divides what the engine did not see of the writer's life. */
static void
account_outside(ShuffleWriter *writer)
{
	uint64 life = shf_clock() - writer->begun;
	uint64 caller = shf_writer_metrics(writer->engine)->caller_ns;
	uint64 outside = life > caller ? life - caller : 0;
	uint64 pack = (uint64) Min(writer->pack_ns, (double) outside);

	shf_writer_outside(writer->engine, outside - pack, pack);
}

const ShfSegment *
shuffle_writer_end(ShuffleWriter *writer, int *nsegments)
{
	const ShfMetrics *metrics = shf_writer_metrics(writer->engine);
	const ShfSegment *segments;
	ShfError		  err;

	report(writer, SHUFFLE_PHASE_FINISH);
	CHECK_ENGINE(shf_writer_finish(writer->engine, &segments, nsegments, &err), writer, &err);
	count_output(writer);
	report(writer, SHUFFLE_PHASE_WAIT);
	if (writer->done != NULL)
		shuffle_progress_done(writer->progress, writer->done, metrics->rows, metrics->stored_bytes);
	release_descriptors(writer);
	account_outside(writer);
	return segments;
}

uint64
shuffle_writer_memory(const ShuffleWriter *writer)
{
	return shf_writer_memory(writer->engine);
}

uint64
shuffle_writer_least_memory(const ShuffleWriter *writer)
{
	return shf_writer_least_memory(writer->engine);
}

int
shuffle_writer_descriptors(const ShuffleWriter *writer)
{
	return writer->nfds;
}

void
shuffle_writer_drain(ShuffleWriter *writer)
{
	ShfError err;

	CHECK_ENGINE(shf_writer_drain(writer->engine, &err), writer, &err);
	release_descriptors(writer);
}

void
shuffle_writer_rest(ShuffleWriter *writer)
{
	ShfError err;

	CHECK_ENGINE(shf_writer_rest(writer->engine, &err), writer, &err);
	release_descriptors(writer);
}

void
shuffle_writer_free(ShuffleWriter *writer)
{
	MemoryContextDelete(writer->context);
}
