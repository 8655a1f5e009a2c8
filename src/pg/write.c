/*
 * write.c
 *	  shuffle_write(): one pass over a query into the partitions of a shuffle table.
 *
 * See write.h for the steps.  The files belong to the current subtransaction from before
 * the first one is created; the segments become rows of the catalog after the plan has
 * ended, when no parallel worker is left, and are visible when the caller's transaction
 * commits.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "write.h"
#include "../engine/clock.h"

PG_FUNCTION_INFO_V1(shuffle_write);

/* A block with fewer rows costs more than its rows do. */
#define SMALL_BLOCK_ROWS 64

typedef struct PartitionTotals
{
	int64 rows;
	int64 bytes;
	int64 raw_bytes;
	int32 blocks;
	int32 segments;
} PartitionTotals;

/* What has been written, over all segments. */
typedef struct WriteTotals
{
	int				 npartitions;
	PartitionTotals *partitions;
	uint64			 rows;
	uint64			 blocks;
	uint64			 raw_bytes;
	int				 nwriters; /* that wrote anything */
} WriteTotals;

/* Bounds by the query's data where none are known; keys count query columns there. */
static void
estimate_bounds(ShuffleOptions *options, const ShuffleQuery *query, const ShuffleTarget *target)
{
	ShuffleOptions estimate = *options;

	if (options->method != SHUFFLE_RANGE || options->nbounds > 0 || options->partitions == 1 ||
		(target->exists && target->args->if_exists == SHUFFLE_IF_EXISTS_APPEND))
		return;

	if (target->attnums != NULL)
	{
		estimate.keys = palloc(sizeof(AttrNumber) * options->nkeys);
		for (int k = 0; k < options->nkeys; k++)
		{
			for (int i = 0; i < query->desc->natts; i++)
			{
				if (target->attnums[i] == options->keys[k])
					estimate.keys[k] = i + 1;
			}
		}
	}
	shuffle_bounds_estimate(&estimate, copyObject(query->analysed), query->desc);
	options->nbounds = estimate.nbounds;
	options->bounds = estimate.bounds;
}

/* Lets the sinks write the query's rows; returns their summary or NULL. */
static bytea *
run_job(ShuffleQuery *query, const ShuffleTarget *target, const ShuffleOptions *options,
		const ShufflePlace *place, uint64 begun, int progress)
{
	TupleDesc		  desc = RelationGetDescr(target->dest);
	TupleDesc		  table = RelationGetDescr(target->rel);
	int				  nargs = query->desc->natts;
	ShuffleJob		  job = {0};
	int				  workers = target->args->workers;
	ShuffleJobHandle *handle;
	bytea			 *result;

	if (!shuffle_columns_parallel_safe(options, desc))
		workers = 0;

	job.spec.desc = desc;
	job.spec.options = options;
	job.spec.path = psprintf("%s/%s", place->dir, place->prefix);
	shuffle_write_spec_settings(&job.spec);
	job.spec.sync = place->sync;
	job.relname = RelationGetRelationName(target->rel);
	job.nargs = nargs;
	job.attnums = palloc(sizeof(AttrNumber) * Max(nargs, 1));
	job.notnull = palloc(sizeof(bool) * Max(nargs, 1));
	for (int i = 0; i < nargs; i++)
	{
		job.attnums[i] = target->attnums != NULL ? target->attnums[i] : i + 1;
		job.notnull[i] = TupleDescAttr(table, job.attnums[i] - 1)->attnotnull;
	}
	if (target->exists)
		shuffle_query_coerce(query, table, job.attnums);

	job.spec.relid = RelationGetRelid(target->rel);
	job.spec.leader = MyProcPid;
	job.spec.progress = progress;
	job.spec.begun = begun;
	handle = shuffle_job_create(&job);
	result = shuffle_query_run(query, shuffle_job_argument(handle), workers, progress);
	shuffle_job_destroy(handle);

	if (result != NULL && place->sync)
		shuffle_fsync_dir(place->dir);
	return result;
}

static void
add_segment(WriteTotals *totals, const ShfSegment *segment)
{
	int64 last = -1;

	for (uint32 i = 0; i < segment->nextents; i++)
	{
		const ShfExtent *extent = &segment->extents[i];
		PartitionTotals *partition;

		if (extent->partition >= totals->npartitions)
			elog(ERROR, "segment has an extent of partition %u of %d", extent->partition,
				 totals->npartitions);
		partition = &totals->partitions[extent->partition];
		partition->rows += extent->rows;
		partition->bytes += extent->bytes;
		partition->raw_bytes += extent->raw_bytes;
		partition->blocks += extent->blocks;
		if (last != extent->partition)
			partition->segments++;
		last = extent->partition;
	}
	totals->rows += segment->rows;
	totals->blocks += segment->blocks;
	totals->raw_bytes += segment->raw_bytes;
}

/* One catalog row for each segment, in the caller's transaction. */
static void
publish_segments(bytea *result, const ShuffleTarget *target, const ShuffleOptions *options,
				 const ShufflePlace *place, WriteTotals *totals)
{
	char		 *routing = shuffle_options_format(options, true);
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "shuffle segment", ALLOCSET_DEFAULT_SIZES);
	ShuffleSummary summary;
	Size		   position = 0;
	int64		   last_writer = -1;
	bool		   spilled = false;

	if (result == NULL)
		return;
	for (;;)
	{
		ShfSegment	 *segment = &summary.segment;
		MemoryContext old = MemoryContextSwitchTo(context);
		bool		  more = shuffle_summary_next(result, &position, &summary);

		/* A writer's segments come one after the other. */
		if (last_writer >= 0 && (!more || last_writer != summary.writer) && spilled)
		{
			shuffle_place_drop_index(place, (uint32) last_writer);
			spilled = false;
		}
		if (!more)
		{
			MemoryContextSwitchTo(old);
			break;
		}
		if (segment->extents == NULL)
		{
			segment->extents = shuffle_place_extents(place, summary.writer, segment);
			spilled = true;
		}
		shuffle_publish(place, options, routing, summary.writer, segment, -1,
						GetCurrentCommandId(true));
		add_segment(totals, segment);
		if (last_writer != summary.writer)
			totals->nwriters++;
		last_writer = summary.writer;

		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	CommandCounterIncrement();
	MemoryContextDelete(context);
}

/*
 * Small blocks are what users get wrong without noticing: say which setting helps.
 * Silent where nothing would: one block of each writer in one partition.
 */
static void
advise(const WriteTotals *totals)
{
	uint64 needed = 0; /* blocks if every writer made one for each partition */

	if (totals->blocks == 0 || totals->rows / totals->blocks >= SMALL_BLOCK_ROWS)
		return;
	for (int i = 0; i < totals->npartitions; i++)
		needed += totals->partitions[i].segments;
	if (totals->blocks == 1 || (totals->npartitions == 1 && totals->blocks <= needed))
		return;

	ereport(NOTICE,
			(errmsg("blocks have %.1f rows on average",
					(double) totals->rows / (double) totals->blocks),
			 shuffle_setting_block_rows < SMALL_BLOCK_ROWS ?
				 errhint("Raise \"%s\", now %d.", "shuffle_ext.block_rows",
						 shuffle_setting_block_rows) :
				 totals->raw_bytes / totals->blocks >= shuffle_setting_block_bytes / 2 ?
				 errhint("The rows are wide: raise \"%s\", now %d bytes.",
						 "shuffle_ext.block_bytes", shuffle_setting_block_bytes) :
				 totals->rows / needed < SMALL_BLOCK_ROWS ?
				 errhint("There are few rows for so many partitions: use fewer than %d%s.",
						 totals->npartitions, totals->nwriters > 1 ? ", or fewer workers" : "") :
				 errhint("Raise \"%s\", now %d kB, or use fewer partitions.",
						 "shuffle_ext.memory_limit", shuffle_setting_memory_limit_kb)));
}

static void
return_rows(ReturnSetInfo *rsinfo, const WriteTotals *totals)
{
	for (int i = 0; i < totals->npartitions; i++)
	{
		const PartitionTotals *p = &totals->partitions[i];
		Datum				   values[6];
		bool				   nulls[6] = {0};

		CHECK_FOR_INTERRUPTS();
		values[0] = Int32GetDatum(i);
		values[1] = Int64GetDatum(p->rows);
		values[2] = Int64GetDatum(p->bytes);
		values[3] = Int64GetDatum(p->raw_bytes);
		values[4] = Int32GetDatum(p->blocks);
		values[5] = Int32GetDatum(p->segments);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/*
 * shuffle_write(query text, target text, partitions int, keys text[], method text,
 *				 bounds text[], hash text, layout text, codec text, types text,
 *				 unrepresentable text, if_exists text, workers int)
 */
Datum
shuffle_write(PG_FUNCTION_ARGS)
{
	MemoryContext	  context;
	MemoryContext	  old;
	ShuffleWriteArgs *args;
	ShuffleQuery	 *query;
	ShuffleTarget	 *target;
	ShuffleOptions	 *options;
	TupleDesc		  desc;
	ShufflePlace	  place;
	ShuffleStorage	  storage;
	WriteTotals		  totals = {0};
	bytea			 *result;
	uint64			  begun;
	int				  progress;

	PreventCommandDuringRecovery("shuffle_write()");
	PreventCommandIfReadOnly("shuffle_write()");
	PreventCommandIfParallelMode("shuffle_write()");
	InitMaterializedSRF(fcinfo, 0);

	context = AllocSetContextCreate(CurrentMemoryContext, "shuffle_write", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);

	args = shuffle_write_args(fcinfo);
	target = shuffle_target_begin(args);
	query = shuffle_query_parse(args->query, get_func_namespace(fcinfo->flinfo->fn_oid));
	shuffle_target_find(target, query->desc);
	options = shuffle_write_options(args, query->desc, target);
	begun = shf_clock();
	estimate_bounds(options, query, target);

	/*
	 * Key types, bounds and column types are checked by making a router and a type map,
	 * before anything is created: writers make theirs when the first row comes.
	 */
	desc = target->exists ? RelationGetDescr(target->rel) : query->desc;
	(void) shuffle_router_create(options, desc, 0);
	(void) shuffle_typemap_create(desc, options->types, options->null_unrepresentable);

	shuffle_target_prepare(target, query->desc, options);
	storage = shuffle_storage_of(target->dest);
	shuffle_place_prepare(&place, &storage);
	progress =
		shuffle_progress_begin(SHUFFLE_OPERATION_WRITE, RelationGetRelid(target->rel), MyProcPid);
	result = run_job(query, target, options, &place, begun, progress);

	shuffle_progress_phase(progress, SHUFFLE_PHASE_PUBLISH);
	totals.npartitions = options->partitions;
	totals.partitions = palloc0(sizeof(PartitionTotals) * (Size) totals.npartitions);
	publish_segments(result, target, options, &place, &totals);
	shuffle_target_finish(target, options, totals.rows);
	shuffle_progress_end(progress);

	advise(&totals);
	return_rows((ReturnSetInfo *) fcinfo->resultinfo, &totals);

	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return (Datum) 0;
}
