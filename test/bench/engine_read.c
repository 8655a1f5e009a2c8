/*
 * engine_read.c
 *	  Benchmark of the engine's read side, no server needed:
 *
 *		  make -C test/engine bench; or build/bench_engine_read [rows [repetitions]]
 *
 * Writes a segment of 16 lineitem-like columns (168 bytes a row as Arrow values) with
 * each codec, then reads it back from the page cache.  Prints the median CPU time per
 * row of: headers only; reading blocks with their checksums; that and decoding the first
 * four or all columns; verifying the whole file.
 */
#include "../../src/engine/shf.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define COLUMNS	   16
#define PARTITIONS 16

static const char path[] = "/tmp/shuffle_bench";

typedef enum Task
{
	PEEK,
	READ,
	DECODE_4,
	DECODE_ALL,
	VERIFY,
	NTASKS
} Task;

static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double) ts.tv_sec + (double) ts.tv_nsec * 1e-9;
}

static uint64_t random_state = 88172645463325252u;

static uint32_t
below(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t) (random_state >> 16) % n;
}

static int
compare(const void *a, const void *b)
{
	double x = *(const double *) a;
	double y = *(const double *) b;

	return (x > y) - (x < y);
}

static void
must(ShfCode code, const ShfError *err)
{
	if (code != SHF_OK)
	{
		fprintf(stderr, "%s\n", err->message);
		exit(1);
	}
}

static ShfField fields[COLUMNS] = {
	{.name = "l_orderkey", .kind = SHF_INT64, .nullable = true},
	{.name = "l_partkey", .kind = SHF_INT64, .nullable = true},
	{.name = "l_suppkey", .kind = SHF_INT64, .nullable = true},
	{.name = "l_linenumber", .kind = SHF_INT32, .nullable = true},
	{.name = "l_quantity", .kind = SHF_DECIMAL128, .nullable = true, .precision = 15, .scale = 2},
	{.name = "l_extendedprice",
	 .kind = SHF_DECIMAL128,
	 .nullable = true,
	 .precision = 15,
	 .scale = 2},
	{.name = "l_discount", .kind = SHF_DECIMAL128, .nullable = true, .precision = 15, .scale = 2},
	{.name = "l_tax", .kind = SHF_DECIMAL128, .nullable = true, .precision = 15, .scale = 2},
	{.name = "l_returnflag", .kind = SHF_UTF8, .nullable = true},
	{.name = "l_linestatus", .kind = SHF_UTF8, .nullable = true},
	{.name = "l_shipdate", .kind = SHF_DATE32, .nullable = true},
	{.name = "l_commitdate", .kind = SHF_DATE32, .nullable = true},
	{.name = "l_receiptdate", .kind = SHF_DATE32, .nullable = true},
	{.name = "l_shipinstruct", .kind = SHF_UTF8, .nullable = true},
	{.name = "l_shipmode", .kind = SHF_UTF8, .nullable = true},
	{.name = "l_comment", .kind = SHF_UTF8, .nullable = true},
};

static void
fill_row(const ShfRowLayout *layout, ShfRow *row, uint32_t n, char *comment)
{
	static const char *const instructions[] = {"DELIVER IN PERSON", "COLLECT COD", "NONE",
											   "TAKE BACK RETURN"};
	static const char *const modes[] = {"AIR", "TRUCK", "MAIL", "REG AIR", "FOB", "RAIL", "SHIP"};
	static const char *const words[] = {"carefully ", "final ",	 "deposits ", "sleep ",
										"quickly ",	  "ironic ", "requests ", "bold "};
	int64_t					 keys[3] = {n / 4, below(200000), below(10000)};
	__int128	amounts[4] = {(below(50) + 1) * 100, below(10000000), below(11), below(9)};
	int32_t		line = (int32_t) (n % 7);
	const char *texts[4] = {&"NAR"[below(3)], &"OF"[below(2)], instructions[below(4)],
							modes[below(7)]};

	shf_row_clear(layout, row);
	for (int i = 0; i < 3; i++)
		memcpy(row->fixed + layout->slot[i], &keys[i], 8);
	memcpy(row->fixed + layout->slot[3], &line, 4);
	for (int i = 0; i < 4; i++)
		memcpy(row->fixed + layout->slot[4 + i], &amounts[i], layout->width[4 + i]);
	for (int i = 10; i < 13; i++)
	{
		int32_t date = (int32_t) (8000 + below(2500));

		memcpy(row->fixed + layout->slot[i], &date, 4);
	}
	for (int i = 0; i < 4; i++)
		row->var[i] = (ShfBytes){texts[i], i < 2 ? 1 : strlen(texts[i])};
	comment[0] = '\0';
	for (uint32_t k = 2 + below(4); k > 0 && strlen(comment) < 34; k--)
		strcat(comment, words[below(8)]);
	row->var[4] = (ShfBytes){comment, strlen(comment)};
}

static uint64_t
read_once(Task task, ShfReader *r, ShfBatch *b, const ShfSegment *segment)
{
	uint64_t rows = 0;
	ShfError err;

	for (uint32_t i = 0; i < segment->nextents; i++)
	{
		const ShfExtent *e = &segment->extents[i];
		uint64_t		 end = e->offset + e->bytes;
		uint64_t		 at = e->offset;

		while (at < end)
		{
			int		 ncolumns = task == DECODE_4 ? 4 : task == DECODE_ALL ? COLUMNS : 0;
			uint32_t n;
			uint64_t bytes;

			if (task == PEEK)
				must(shf_reader_peek(r, at, end, &n, &bytes, &err), &err);
			else
			{
				must(shf_reader_block(r, b, at, end, e->partition, &err), &err);
				n = shf_batch_rows(b);
				bytes = shf_batch_message(b).len;
			}
			for (int c = 0; c < ncolumns; c++)
			{
				const ShfColumn *column;

				must(shf_batch_column(b, c, &column, &err), &err);
			}
			rows += n;
			at += bytes;
		}
	}
	return rows;
}

static void
bench(const char *name, ShfCodec codec, uint32_t nrows, int repetitions)
{
	static const char *const tasks[NTASKS] = {"headers", "read", "4 columns", "all columns",
											  "verify"};
	ShfSchema				 schema = {.nfields = COLUMNS, .fields = fields};
	ShfWriterOptions		 options = {
				.partitions = PARTITIONS,
				.layout = SHF_LAYOUT_LOG,
				.codec = codec,
				.memory_limit = 256 << 20,
				.block_rows = 8192,
				.block_bytes = 1 << 20,
				.block_min_rows = 64,
				.write_buffer_size = 1 << 20,
				.path = path,
				.file_mode = 0600,
				.dir_mode = 0700,
				.max_open_files = 1,
	};
	ShfWriter		 *w;
	ShfReader		 *r;
	ShfBatch		 *b;
	ShfError		  err;
	const ShfSegment *segment;
	int				  nsegments;
	char			  file[64];
	char			  comment[64];
	double			 *times = malloc(sizeof(double) * (size_t) repetitions);

	if (times == NULL)
		exit(1);
	must(shf_writer_open(&w, &schema, &options, &err), &err);
	for (uint32_t i = 0; i < nrows; i++)
	{
		fill_row(shf_writer_layout(w), shf_writer_row(w), i, comment);
		must(shf_writer_append(w, below(PARTITIONS), &err), &err);
	}
	must(shf_writer_finish(w, &segment, &nsegments, &err), &err);
	snprintf(file, sizeof(file), "%s-%u.arrow", path, segment->number);
	printf("%-6s %5.1f of %.1f bytes/row, %.0f rows/block:", name, (double) segment->bytes / nrows,
		   (double) segment->raw_bytes / nrows, (double) nrows / (double) segment->blocks);

	must(shf_reader_open(&r, file, &err), &err);
	must(shf_batch_create(&b, shf_reader_schema(r), &err), &err);
	for (Task task = 0; task < NTASKS; task++)
	{
		for (int i = 0; i < repetitions; i++)
		{
			double start = now();

			if (task == VERIFY)
				must(shf_verify_file(file, segment->id, segment->extents, segment->nextents, &err),
					 &err);
			else if (read_once(task, r, b, segment) != nrows)
				exit(1);
			times[i] = now() - start;
		}
		qsort(times, (size_t) repetitions, sizeof(double), compare);
		printf(" %s %.2f", tasks[task], times[repetitions / 2] * 1e9 / nrows);
	}
	printf(" ns/row; batch %zu kB\n", shf_batch_memory(b) / 1024);
	fflush(stdout);
	shf_batch_free(b);
	shf_reader_close(r);
	shf_writer_close(w);
	unlink(file);
	free(times);
}

int
main(int argc, char **argv)
{
	uint32_t nrows = argc > 1 ? (uint32_t) atol(argv[1]) : 1000000;
	int		 repetitions = argc > 2 ? atoi(argv[2]) : 5;

	bench("none", (ShfCodec){SHF_CODEC_NONE, 0}, nrows, repetitions);
	bench("lz4", (ShfCodec){SHF_CODEC_LZ4, 1}, nrows, repetitions);
	bench("zstd:1", (ShfCodec){SHF_CODEC_ZSTD, 1}, nrows, repetitions);
	return 0;
}
