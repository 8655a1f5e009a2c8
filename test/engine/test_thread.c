/*
 * test_thread.c
 *	  A writer with a thread of its own: the same rows in the same order, errors that come
 *	  out, and every way to leave early.
 */
#include "harness.h"

#include "../../src/engine/writer.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#define ROWS	   400000
#define PARTITIONS 300

static uint64_t memory_limit = 8 << 20;
static uint32_t block_rows = 8192;
static int		threads;
static size_t	row_bytes; /* of rows of partition 7, if not 0 */

static int	   asked;
static int	   waits;
static bool	   allow = true;
static jmp_buf out_of_wait;
static bool	   jump;
static bool	   jump_from_poll;

/* Every number of threads has files of its own. */
static const char *
path_of(const char *name)
{
	static char numbered[100];

	snprintf(numbered, sizeof(numbered), "%s-%d", name, threads);
	return test_path(numbered);
}

static bool
start_thread(void *arg)
{
	asked++;
	return allow;
}

static void
wait_for(void *arg, int fd)
{
	waits++;
	if (jump)
		longjmp(out_of_wait, 1);
}

static void
poll_once(void *arg)
{
	if (jump_from_poll)
		longjmp(out_of_wait, 1);
}

/* The small partitions' rows have to wait for later runs. */
static uint32_t
partition_of(uint64_t row)
{
	uint64_t mixed = row * UINT64_C(0x9E3779B97F4A7C15) >> 40;

	return mixed % 10 < 7 ? (uint32_t) (mixed % 20) : (uint32_t) (mixed % PARTITIONS);
}

static ShfWriter *
open_writer(const char *name, ShfCodecKind codec, ShfLayoutKind layout)
{
	static ShfField fields[] = {
		{.name = "n", .kind = SHF_INT64},
		{.name = "t", .kind = SHF_UTF8, .nullable = true},
	};
	ShfSchema		 schema = {.nfields = 2, .fields = fields};
	ShfWriterOptions options = {
		.partitions = PARTITIONS,
		.layout = layout,
		.codec = {codec, 1},
		.memory_limit = memory_limit,
		.block_rows = block_rows,
		.block_bytes = 64 << 10,
		.block_min_rows = 64,
		.write_buffer_size = 64 << 10,
		.path = path_of(name),
		.file_mode = 0600,
		.dir_mode = 0700,
		.max_open_files = 20,
		.start_thread = start_thread,
		.threads = threads,
		.wait = wait_for,
		.poll = poll_once,
	};
	ShfWriter *w;

	asked = waits = 0;
	CHECK_OK(shf_writer_open(&w, &schema, &options, &err));
	return w;
}

/* Rows from first on; the number of the row that failed, or -1. */
static int64_t
append_rows(ShfWriter *w, uint64_t first, uint64_t n, ShfCode *code)
{
	const ShfRowLayout *layout = shf_writer_layout(w);
	ShfRow			   *row = shf_writer_row(w);
	char				large[100000];

	memset(large, 'x', sizeof(large));
	for (uint64_t i = first; i < first + n; i++)
	{
		char text[32];

		shf_row_clear(layout, row);
		memcpy(row->fixed + layout->slot[0], &i, sizeof(i));
		if (i % 5 == 0)
			shf_row_set_null(layout, row, 1);
		else
			row->var[0] = (ShfBytes){
				text, (size_t) snprintf(text, sizeof(text), "row %lu", (unsigned long) i)};
		if (row_bytes > 0 && partition_of(i) == 7)
			row->var[0] = (ShfBytes){large, row_bytes};
		if (i % 150000 == 149999)
			row->var[0] = (ShfBytes){large, sizeof(large)};
		*code = shf_writer_append(w, partition_of(i), &err);
		if (*code != SHF_OK)
			return (int64_t) i;
	}
	return -1;
}

/* All rows of all segments, each partition in order. */
static void
check_rows(const char *path, const ShfSegment *segments, int nsegments, uint64_t rows)
{
	uint64_t *last = calloc(PARTITIONS, sizeof(*last));
	uint64_t  total = 0;

	for (int s = 0; s < nsegments; s++)
	{
		ShfExtent *extents = segments[s].extents;
		ShfReader *r;
		ShfBatch  *batch;
		char	   name[400];

		if (extents == NULL)
		{
			extents = malloc(sizeof(ShfExtent) * segments[s].nextents);
			CHECK_OK(shf_segment_load_extents(&segments[s], path, extents, &err));
		}
		snprintf(name, sizeof(name), "%s-%u.arrow", path, segments[s].number);
		CHECK_OK(shf_reader_open(&r, name, &err));
		CHECK_OK(shf_batch_create(&batch, shf_reader_schema(r), &err));
		for (uint32_t e = 0; e < segments[s].nextents; e++)
		{
			const ShfExtent *extent = &extents[e];
			uint64_t		 at = extent->offset;

			while (at < extent->offset + extent->bytes)
			{
				const ShfColumn *column;

				CHECK_OK(shf_reader_block(r, batch, at, extent->offset + extent->bytes,
										  extent->partition, &err));
				CHECK_OK(shf_batch_column(batch, 0, &column, &err));
				for (int64_t i = 0; i < column->length; i++)
				{
					uint64_t n;

					memcpy(&n, column->data + 8 * i, sizeof(n));
					CHECK_INT(partition_of(n), extent->partition);
					CHECK(n + 1 > last[extent->partition]);
					last[extent->partition] = n + 1;
					total++;
				}
				at += shf_batch_message(batch).len;
			}
		}
		shf_batch_free(batch);
		shf_reader_close(r);
		if (extents != segments[s].extents)
			free(extents);
	}
	CHECK_INT(total, rows);
	free(last);
}

static int
count_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	int	 n = 0;

	CHECK(dir != NULL);
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

static void
test_order_and_metrics(void)
{
	int before = count_threads();

	/* A quarter of it is enough for the other threads. */
	memory_limit = 14 << 20;
	for (int round = 0; round < 3; round++)
	{
		static const char *const names[] = {"plain", "lz4", "inline"};
		ShfWriter				*w;
		const ShfSegment		*segments;
		int						 nsegments;
		ShfCode					 code;

		allow = round < 2;
		w = open_writer(names[round], round == 0 ? SHF_CODEC_NONE : SHF_CODEC_LZ4, SHF_LAYOUT_LOG);
		CHECK(append_rows(w, 0, ROWS, &code) == -1);
		CHECK_INT(count_threads(), before + (round == 0 ? 1 : round == 1 ? threads : 0));
		CHECK_OK(shf_writer_finish(w, &segments, &nsegments, &err));
		CHECK_INT(asked, 1);
		CHECK_INT(shf_writer_metrics(w)->rows, ROWS);
		CHECK(shf_writer_metrics(w)->runs > 2);
		CHECK(shf_writer_metrics(w)->memory_peak <= memory_limit);
		check_rows(path_of(names[round]), segments, nsegments, ROWS);
		shf_writer_close(w);
	}
	allow = true;
	memory_limit = 8 << 20;
}

/* What a unit of rows of average size holds is many times what is foreseen for it. */
static void
test_rows_of_very_different_sizes(void)
{
	ShfWriter		 *w;
	const ShfSegment *segments;
	int				  nsegments;
	ShfCode			  code;

	row_bytes = 30000;
	w = open_writer("different", SHF_CODEC_LZ4, SHF_LAYOUT_LOG);
	CHECK(append_rows(w, 0, ROWS / 20, &code) == -1);
	CHECK_OK(shf_writer_finish(w, &segments, &nsegments, &err));
	CHECK(shf_writer_metrics(w)->memory_peak <= memory_limit);
	check_rows(path_of("different"), segments, nsegments, ROWS / 20);
	shf_writer_close(w);
	row_bytes = 0;
}

/* The thread is given up and comes back. */
static void
test_drain_and_rest(void)
{
	ShfWriter		 *w = open_writer("drained", SHF_CODEC_LZ4, SHF_LAYOUT_LOG);
	const ShfSegment *segments;
	int				  nsegments;
	ShfCode			  code;

	CHECK(append_rows(w, 0, ROWS / 2, &code) == -1);
	CHECK_OK(shf_writer_drain(w, &err));
	CHECK(shf_writer_memory(w) < 4 << 20);
	CHECK(append_rows(w, ROWS / 2, ROWS / 4, &code) == -1);
	CHECK_OK(shf_writer_rest(w, &err));
	CHECK(append_rows(w, ROWS * 3 / 4, ROWS / 4, &code) == -1);
	CHECK_OK(shf_writer_finish(w, &segments, &nsegments, &err));
	CHECK_INT(asked, 3);
	check_rows(path_of("drained"), segments, nsegments, ROWS);
	shf_writer_close(w);
}

/* The index leaves memory, so that it holds both row buffers to the end. */
static void
test_index_leaves_memory(void)
{
	int				  before = count_threads();
	ShfWriter		 *w;
	const ShfSegment *segments;
	int				  nsegments;
	ShfCode			  code;

	memory_limit = 5 << 20;
	block_rows = 5;
	w = open_writer("index_file", SHF_CODEC_NONE, SHF_LAYOUT_LOG);
	CHECK(append_rows(w, 0, ROWS, &code) == -1);
	CHECK_INT(count_threads(), before + 1);
	CHECK_OK(shf_writer_finish(w, &segments, &nsegments, &err));
	CHECK(nsegments > 1);
	CHECK(segments[0].extents == NULL);
	CHECK(shf_writer_metrics(w)->memory_peak <= memory_limit);
	check_rows(path_of("index_file"), segments, nsegments, ROWS);
	shf_writer_close(w);
	memory_limit = 8 << 20;
	block_rows = 8192;
}

/*
 * Two row buffers as long as the index leaves enough for them, then one and no thread.  It
 * takes a very long list of segments, or an index that must stay in memory.
 */
static void
test_index_ends_the_thread(void)
{
	int				  before = count_threads();
	ShfWriter		 *w;
	const ShfSegment *segments;
	int				  nsegments;
	ShfCode			  code;

	memory_limit = 5 << 20;
	block_rows = 5;
	w = open_writer("many_blocks", SHF_CODEC_NONE, SHF_LAYOUT_LOG);
	w->output->index_limit = UINT64_MAX;
	CHECK(append_rows(w, 0, ROWS / 4, &code) == -1);
	CHECK_INT(count_threads(), before + 1);
	CHECK(append_rows(w, ROWS / 4, ROWS * 3 / 4, &code) == -1);
	CHECK_INT(count_threads(), before);
	CHECK(shf_writer_memory(w) <= memory_limit);
	CHECK_OK(shf_writer_finish(w, &segments, &nsegments, &err));
	CHECK(shf_writer_metrics(w)->memory_peak <= memory_limit);
	check_rows(path_of("many_blocks"), segments, nsegments, ROWS);
	shf_writer_close(w);
	memory_limit = 8 << 20;
	block_rows = 8192;
}

/* Runs that would make tiny blocks only are not halved for the sake of a thread. */
static void
test_many_partitions_need_the_memory(void)
{
	ShfWriter *w;
	ShfCode	   code;

	memory_limit = 1 << 20;
	w = open_writer("one_buffer", SHF_CODEC_NONE, SHF_LAYOUT_LOG);
	CHECK(append_rows(w, 0, ROWS / 4, &code) == -1);
	CHECK(shf_writer_metrics(w)->runs > 2);
	CHECK_INT(asked, 0);
	shf_writer_close(w);
	memory_limit = 8 << 20;
}

static void
test_partition_files(void)
{
	ShfWriter		 *w = open_writer("parts", SHF_CODEC_LZ4, SHF_LAYOUT_PARTITION_FILES);
	const ShfSegment *segments;
	int				  nsegments;
	ShfCode			  code;

	CHECK(append_rows(w, 0, ROWS, &code) == -1);
	CHECK_OK(shf_writer_finish(w, &segments, &nsegments, &err));
	CHECK_INT(nsegments, 1);
	CHECK_INT(segments[0].rows, ROWS);
	shf_writer_close(w);
}

/* An error of the thread is that of a later call, with path and reason. */
static void
test_errors_come_out(void)
{
	struct rlimit	  old;
	struct rlimit	  small;
	ShfWriter		 *w;
	ShfCode			  code = SHF_OK;
	const ShfSegment *segments;
	int				  nsegments;

	signal(SIGXFSZ, SIG_IGN);
	CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
	small = old;
	small.rlim_cur = 500000;
	CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
	w = open_writer("full", threads > 1 ? SHF_CODEC_LZ4 : SHF_CODEC_NONE, SHF_LAYOUT_LOG);
	CHECK(append_rows(w, 0, ROWS, &code) > 0);
	CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
	CHECK_INT(code, SHF_ERR_IO);
	CHECK_INT(err.sys_errno, EFBIG);
	CHECK(strstr(err.message, path_of("full")) != NULL);
	CHECK_ERR(shf_writer_finish(w, &segments, &nsegments, &err), SHF_ERR_INVALID, "");
	shf_writer_close(w);
}

/* Jumps out of the wait, and a close in the middle of a run. */
static void
test_left_early(void)
{
	for (volatile int round = 0; round < 20; round++)
	{
		ShfWriter *volatile w =
			open_writer(round % 2 ? "left1" : "left0", SHF_CODEC_ZSTD, SHF_LAYOUT_LOG);
		ShfCode code;
		char	name[400];

		jump = round < 10;
		if (setjmp(out_of_wait) == 0)
			append_rows(w, 0, ROWS / (uint64_t) (1 + round % 10), &code);
		jump = false;
		if (round % 3 == 0)
			shf_writer_stop(w);
		shf_writer_close(w);
		snprintf(name, sizeof(name), "%s-0.arrow", path_of(round % 2 ? "left1" : "left0"));
		unlink(name);
	}
}

/* Overwrites what a jump has left behind on the stack. */
static __attribute__((noinline)) void
scribble(void)
{
	volatile uint8_t bytes[16384];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = 0xA5;
	usleep(2000);
}

/* Jumps out of the last run, which other threads are still working at. */
static void
test_last_run_left(void)
{
	memory_limit = 14 << 20; /* with room for a pool */
	for (volatile int round = 0; round < 20; round++)
	{
		ShfWriter *volatile w = open_writer("last", SHF_CODEC_LZ4, SHF_LAYOUT_LOG);
		const ShfSegment *segments;
		int				  nsegments;
		ShfCode			  code;
		char			  name[400];

		CHECK(append_rows(w, 0, ROWS * 3 / 4, &code) == -1);
		CHECK(threads == 1 || w->pool != NULL);
		jump_from_poll = true;
		if (setjmp(out_of_wait) == 0)
		{
			(void) shf_writer_finish(w, &segments, &nsegments, &err);
			CHECK(false);
		}
		jump_from_poll = false;
		scribble();
		shf_writer_close(w);
		snprintf(name, sizeof(name), "%s-0.arrow", path_of("last"));
		unlink(name);
	}
	memory_limit = 8 << 20;
}

static void *
do_nothing(void *arg)
{
	return arg;
}

int
main(void)
{
	pthread_t thread;

	/* A sanitizer may have a thread of its own from the first one on. */
	if (pthread_create(&thread, NULL, do_nothing, NULL) == 0)
		pthread_join(thread, NULL);
	for (threads = 1; threads <= 3; threads += 2)
	{
		printf("# threads: %d\n", threads);
		RUN(test_order_and_metrics);
		RUN(test_rows_of_very_different_sizes);
		RUN(test_drain_and_rest);
		RUN(test_index_leaves_memory);
		RUN(test_index_ends_the_thread);
		RUN(test_many_partitions_need_the_memory);
		RUN(test_partition_files);
		RUN(test_errors_come_out);
		RUN(test_left_early);
		RUN(test_last_run_left);
	}
	return test_summary();
}
