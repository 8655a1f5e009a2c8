/*
 * engine.c
 *	  Benchmark of the engine's write side, no server needed:
 *
 *		  make -C test/engine bench; or build/bench [repetitions [partitions [rows]]]
 *
 * Rows of four columns (int32, utf8 of 4 to 17 bytes with every 10th NULL, date32,
 * decimal128(11,2)) in random partition order go through the whole writer, without
 * codec, into a stream that throws the bytes away.  The memory limit is chosen so that
 * a run has as many rows as a repetition; the first, which touches the memory, does not
 * count.  Prints the median time per row, its ratio to a memcpy of the same raw bytes,
 * and the time in units of that of 200 partitions.
 */
#include "../../src/engine/shf.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct Row
{
	int32_t	 id;
	int32_t	 date;
	int64_t	 amount;
	uint32_t text;	   /* offset */
	uint32_t text_len; /* 0: NULL */
} Row;

static char *text; /* the texts of all rows, one behind the other */

static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double) ts.tv_sec + (double) ts.tv_nsec * 1e-9;
}

static uint64_t random_state = 88172645463325252u;

static uint32_t
next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t) (random_state >> 16);
}

static ShfCode
discard(void *arg, const void *data, size_t len, ShfError *err)
{
	(void) data;
	(void) err;
	*(uint64_t *) arg += len;
	return SHF_OK;
}

static int
compare(const void *a, const void *b)
{
	double x = *(const double *) a;
	double y = *(const double *) b;

	return (x > y) - (x < y);
}

static double
median(double *values, int n)
{
	qsort(values, (size_t) n, sizeof(double), compare);
	return values[n / 2];
}

static ShfWriter *
open_writer(uint32_t partitions, uint64_t memory_limit, uint32_t min_rows)
{
	static ShfField fields[4] = {
		{.name = "id", .kind = SHF_INT32},
		{.name = "text", .kind = SHF_UTF8, .nullable = true},
		{.name = "date", .kind = SHF_DATE32},
		{.name = "amount", .kind = SHF_DECIMAL128, .precision = 11, .scale = 2},
	};
	static uint64_t	 bytes;
	ShfSchema		 schema = {.nfields = 4, .fields = fields};
	ShfWriterOptions options = {
		.partitions = partitions,
		.layout = SHF_LAYOUT_STREAM,
		.memory_limit = memory_limit,
		.block_rows = 8192,
		.block_bytes = 1 << 20,
		.block_min_rows = min_rows,
		.write_buffer_size = 1 << 20,
		.write_stream = discard,
		.write_arg = &bytes,
	};
	ShfWriter *w;
	ShfError   err;

	if (shf_writer_open(&w, &schema, &options, &err) != SHF_OK)
	{
		fprintf(stderr, "%s\n", err.message);
		exit(1);
	}
	return w;
}

static void
append_rows(ShfWriter *w, const Row *rows, const uint32_t *partition, uint32_t nrows)
{
	const ShfRowLayout *layout = shf_writer_layout(w);
	ShfRow			   *row = shf_writer_row(w);

	for (uint32_t i = 0; i < nrows; i++)
	{
		const Row *r = &rows[i];
		ShfError   err;

		shf_row_begin(layout, row);
		memcpy(row->fixed + layout->slot[0], &r->id, sizeof(r->id));
		memcpy(row->fixed + layout->slot[2], &r->date, sizeof(r->date));
		memcpy(row->fixed + layout->slot[3], &r->amount, sizeof(r->amount));
		if (r->text_len == 0)
			shf_row_set_null(layout, row, 1);
		row->var[0] = (ShfBytes){text + r->text, r->text_len};
		if (shf_writer_append(w, partition[i], &err) != SHF_OK)
		{
			fprintf(stderr, "%s\n", err.message);
			exit(1);
		}
	}
}

static void
finish(ShfWriter *w)
{
	const ShfSegment *segments;
	int				  nsegments;
	ShfError		  err;

	if (shf_writer_finish(w, &segments, &nsegments, &err) != SHF_OK)
	{
		fprintf(stderr, "%s\n", err.message);
		exit(1);
	}
}

/* A memory limit with which a run has about nrows rows. */
static uint64_t
limit_for_runs_of(const Row *rows, const uint32_t *partition, uint32_t nrows, uint32_t partitions)
{
	uint64_t limit = (uint64_t) 16 << 20;

	for (int i = 0; i < 10; i++)
	{
		ShfWriter *w = open_writer(partitions, limit, 1);
		int64_t	   taken = 0;

		while (shf_writer_metrics(w)->runs == 0)
		{
			uint32_t at = (uint32_t) (taken % nrows);

			append_rows(w, rows + at, partition + at, 1);
			taken++;
		}
		shf_writer_close(w);
		/* A row takes more: the limit comes near from one side. */
		limit = (uint64_t) ((int64_t) limit + ((int64_t) nrows + 1 - taken) * 32);
	}
	return limit;
}

static void
bench(uint32_t nrows, uint32_t only, int repetitions)
{
	static const uint32_t counts[] = {1, 16, 200, 2000, 8000};
	Row					 *rows = malloc(sizeof(Row) * nrows);
	uint32_t			 *partition = malloc(sizeof(uint32_t) * nrows);
	double				 *times = malloc(sizeof(double) * (size_t) repetitions);
	uint64_t			  raw = 0;
	uint32_t			  text_bytes = 0;
	char				 *from;
	char				 *to;
	double				  copy;
	double				  at_200 = 0;

	text = malloc((size_t) nrows * 18);
	if (rows == NULL || partition == NULL || times == NULL || text == NULL)
		exit(1);
	for (uint32_t i = 0; i < nrows; i++)
	{
		uint32_t x = next_random();

		rows[i].id = (int32_t) i;
		rows[i].date = (int32_t) (8000 + x % 2500);
		rows[i].amount = next_random() % 10000000;
		rows[i].text_len = i % 10 == 0 ? 0 : 4 + next_random() % 14;
		rows[i].text = text_bytes;
		for (uint32_t j = 0; j < rows[i].text_len; j++)
			text[text_bytes++] = (char) ('a' + next_random() % 26);
		raw += 4 + 4 + 16 + 4 + rows[i].text_len;
	}

	/* The same bytes, copied once. */
	from = malloc(raw);
	to = malloc(raw);
	if (from == NULL || to == NULL)
		exit(1);
	memset(from, 1, raw);
	memset(to, 2, raw);
	for (int i = 0; i < repetitions; i++)
	{
		double start = now();

		memcpy(to, from, raw);
		times[i] = now() - start;
		__asm__ volatile("" : : "r"(to) : "memory");
	}
	copy = median(times, repetitions);
	printf("runs of %u rows, %.1f raw bytes each, memcpy %.2f ns/row\n", nrows,
		   (double) raw / nrows, copy * 1e9 / nrows);

	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
	{
		ShfWriter *w;
		double	   blocks;
		double	   t;

		if (only != 0 && counts[c] != only)
			continue;
		for (uint32_t i = 0; i < nrows; i++)
			partition[i] = next_random() % counts[c];
		w = open_writer(counts[c], limit_for_runs_of(rows, partition, nrows, counts[c]), 1);
		append_rows(w, rows, partition, nrows);
		for (int i = 0; i < repetitions; i++)
		{
			double start = now();

			append_rows(w, rows, partition, nrows);
			times[i] = now() - start;
		}
		finish(w);
		t = median(times, repetitions);
		blocks = (double) shf_writer_metrics(w)->blocks / (repetitions + 1);
		shf_writer_close(w);
		if (counts[c] == 200)
			at_200 = t;
		printf("%6u partitions: %6.2f ns/row, %5.2f x memcpy, %7.3f us/block of %.0f rows",
			   counts[c], t * 1e9 / nrows, t / copy, t * 1e6 / blocks, (double) nrows / blocks);
		if (at_200 > 0)
			printf(", %.2f x 200 partitions", t / at_200);
		printf("\n");
		fflush(stdout);
	}
	free(from);
	free(to);
	free(rows);
	free(partition);
	free(text);
	free(times);
}

int
main(int argc, char **argv)
{
	int		 repetitions = argc > 1 ? atoi(argv[1]) : 21;
	uint32_t only = argc > 2 ? (uint32_t) atoi(argv[2]) : 0;

	if (argc > 3)
		bench((uint32_t) atoi(argv[3]), only, repetitions);
	else
	{
		bench(81920, only, repetitions);
		bench(2000000, only, repetitions < 5 ? repetitions : 5);
	}
	return 0;
}
