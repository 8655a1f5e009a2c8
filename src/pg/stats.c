/*
 * stats.c
 *	  Metrics of writes: as they are stored with a segment, and those of the last write of
 *	  this session.
 *
 * A process that writes counts for itself; its metrics are stored with its last segment
 * and travel with it.  What all processes of a write have in common is the beginning of
 * the names of their segments.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "shuffle.h"

PG_FUNCTION_INFO_V1(shuffle_write_stats);

/* One process of the last write. */
typedef struct ProcessStats
{
	uint32	   process;
	int64	   segments;
	uint64	   rows;
	uint64	   raw_bytes;
	uint64	   stored_bytes;
	uint64	   blocks;
	ShfMetrics metrics; /* zero until its last segment comes */
} ProcessStats;

static struct
{
	MemoryContext context;
	char		 *write; /* beginning of its segments' names; NULL: none yet */
	int			  nprocesses;
	int			  size;
	ProcessStats *processes; /* by number */
} last;

/* Entries of a metrics array, from 1 in SQL; new ones go to the end. */
enum
{
	METRIC_RUNS,
	METRIC_MEMORY_PEAK,
	METRIC_ELAPSED,
	METRIC_INPUT,
	METRIC_REPARTITION,
	METRIC_INTERLEAVE,
	METRIC_ENCODE,
	METRIC_WRITE,
	METRIC_SYNC,
	METRIC_QUEUE,
	NMETRICS
};

/* Of what is stored, before the metrics: segments, rows, raw_bytes, stored_bytes, blocks. */
#define NCOUNTS	 5
#define NCOLUMNS (1 + NCOUNTS + NMETRICS)

static void
fill_metrics(int64 *entries, const ShfMetrics *m)
{
	entries[METRIC_RUNS] = m->runs;
	entries[METRIC_MEMORY_PEAK] = m->memory_peak;
	entries[METRIC_ELAPSED] = m->input_ns + m->pack_ns + m->caller_ns;
	entries[METRIC_INPUT] = m->input_ns;
	entries[METRIC_REPARTITION] = m->pack_ns + m->sort_ns;
	entries[METRIC_INTERLEAVE] = m->gather_ns;
	entries[METRIC_ENCODE] = m->encode_ns;
	entries[METRIC_WRITE] = m->write_ns;
	entries[METRIC_SYNC] = m->sync_ns;
	entries[METRIC_QUEUE] = m->queue_ns;
}

Datum
shuffle_metrics_datum(const ShfMetrics *metrics)
{
	int64 entries[NMETRICS];
	Datum datums[NMETRICS];

	fill_metrics(entries, metrics);
	for (int i = 0; i < NMETRICS; i++)
		datums[i] = Int64GetDatum(entries[i]);
	return PointerGetDatum(construct_array(datums, NMETRICS, INT8OID, sizeof(int64),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* The entry of a process of the last write. */
static ProcessStats *
find_process(uint32 process)
{
	int at = last.nprocesses;

	while (at > 0 && last.processes[at - 1].process > process)
		at--;
	if (at > 0 && last.processes[at - 1].process == process)
		return &last.processes[at - 1];

	if (last.nprocesses == last.size)
	{
		int size = Max(8, 2 * last.size);

		if (last.processes == NULL)
			last.processes = MemoryContextAlloc(last.context, size * sizeof(ProcessStats));
		else
			last.processes = repalloc(last.processes, size * sizeof(ProcessStats));
		last.size = size;
	}
	memmove(&last.processes[at + 1], &last.processes[at],
			(last.nprocesses - at) * sizeof(ProcessStats));
	last.nprocesses++;
	memset(&last.processes[at], 0, sizeof(ProcessStats));
	last.processes[at].process = process;
	return &last.processes[at];
}

void
shuffle_stats_published(const char *write, uint32 process, const ShfSegment *segment)
{
	ProcessStats *stats;

	if (last.context == NULL)
		last.context =
			AllocSetContextCreate(TopMemoryContext, "shuffle last write", ALLOCSET_SMALL_SIZES);
	if (last.write == NULL || strcmp(last.write, write) != 0)
	{
		last.write = NULL;
		last.processes = NULL;
		last.nprocesses = last.size = 0;
		MemoryContextReset(last.context);
		last.write = MemoryContextStrdup(last.context, write);
	}
	stats = find_process(process);

	/* Rows lent to a subtransaction that aborted are published once more. */
	if (segment->number == 0)
		memset(stats, 0, sizeof(*stats));
	stats->process = process;
	stats->segments++;
	stats->rows += segment->rows;
	stats->raw_bytes += segment->raw_bytes;
	stats->stored_bytes += segment->bytes;
	stats->blocks += segment->blocks;
	if (segment->metrics != NULL)
		stats->metrics = *segment->metrics;
}

/*
 * shuffle_write_stats() returns setof (process int, segments bigint, rows bigint, ...)
 *
 * One row per process of the last write of this session, and their sum.
 */
Datum
shuffle_write_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		   sum[NCOUNTS] = {0};
	int64		   sum_metrics[NMETRICS] = {0};

	shuffle_require_signature(fcinfo, 0, NCOLUMNS);
	InitMaterializedSRF(fcinfo, 0);
	for (int p = 0; p <= last.nprocesses && last.write != NULL; p++)
	{
		Datum values[NCOLUMNS];
		bool  isnull[NCOLUMNS] = {false};
		int64 counts[NCOUNTS];
		int64 metrics[NMETRICS];

		if (p < last.nprocesses)
		{
			const ProcessStats *stats = &last.processes[p];

			values[0] = Int32GetDatum((int32) stats->process);
			counts[0] = stats->segments;
			counts[1] = stats->rows;
			counts[2] = stats->raw_bytes;
			counts[3] = stats->stored_bytes;
			counts[4] = stats->blocks;
			fill_metrics(metrics, &stats->metrics);
			for (int i = 0; i < NCOUNTS; i++)
				sum[i] += counts[i];
			for (int i = 0; i < NMETRICS; i++)
				sum_metrics[i] = i == METRIC_ELAPSED ? Max(sum_metrics[i], metrics[i]) :
													   sum_metrics[i] + metrics[i];
		}
		else
		{
			values[0] = (Datum) 0;
			isnull[0] = true;
			memcpy(counts, sum, sizeof(counts));
			memcpy(metrics, sum_metrics, sizeof(metrics));
		}
		for (int i = 0; i < NCOUNTS; i++)
			values[1 + i] = Int64GetDatum(counts[i]);
		for (int i = 0; i < NMETRICS; i++)
			values[1 + NCOUNTS + i] = i < METRIC_ELAPSED ?
				Int64GetDatum(metrics[i]) :
				Float8GetDatum((double) metrics[i] / 1e6);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
	}
	return (Datum) 0;
}
