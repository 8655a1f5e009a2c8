/*
 * bounds_estimate.c
 *	  Cut points of range partitioning from statistics or from a sample.
 *
 * Statistics of a column serve when the query reads one whole table, its one key is a
 * plain column, the caller may read all rows of it and they are fresh and fine enough.
 * (Statistics of several columns say nothing about their joint order.)  Else the query
 * runs once more for its key columns only, with the caller's rights, and a reservoir keeps
 * a uniform sample.  The sample is drawn with a fixed seed: the same rows in the same
 * order give the same bounds.
 */
#include "postgres.h"

#include <math.h>

#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_statistic.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "pgstat.h"
#include "rewrite/rewriteHandler.h"
#include "storage/bufmgr.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "route.h"

/* As ANALYZE: 300 sampled rows per partition keep most partitions within 10 % or so. */
#define SAMPLE_ROWS_PER_PARTITION 300
#define SAMPLE_MIN_ROWS			  30000
#define SAMPLE_MAX_ROWS			  1000000

/* Statistics are fine enough with so many histogram buckets per partition. */
#define BUCKETS_PER_PARTITION 4

/* ... and fresh enough when less than this part of the table has changed since. */
#define STATS_MAX_CHANGE 0.1

/*
 * Sample: rows of keys with weights
 */

typedef struct SampleRow
{
	double weight;
	Datum *values;
	bool  *nulls;
} SampleRow;

typedef struct Sample
{
	ShuffleKey *keys;
	int			nkeys;
	SampleRow  *rows;
	int			nrows;
	int			capacity;
	double		null_weight; /* rows whose first key is NULL */

	/* while the reservoir is being filled */
	MemoryContext cxt;
	double		  seen;
	Size		  bytes;
	Size		  max_bytes;
	pg_prng_state prng;
} Sample;

static int
compare_rows(const void *a, const void *b, void *arg)
{
	const SampleRow *ra = a;
	const SampleRow *rb = b;
	Sample			*sample = arg;

	CHECK_FOR_INTERRUPTS();
	return shuffle_keys_compare(sample->keys, sample->nkeys, ra->values, ra->nulls, rb->values,
								rb->nulls);
}

/* Sorts and merges equal rows. */
static void
sort_sample(Sample *sample)
{
	int n = 0;

	qsort_arg(sample->rows, sample->nrows, sizeof(SampleRow), compare_rows, sample);
	for (int i = 0; i < sample->nrows; i++)
	{
		if (n > 0 && compare_rows(&sample->rows[n - 1], &sample->rows[i], sample) == 0)
			sample->rows[n - 1].weight += sample->rows[i].weight;
		else
			sample->rows[n++] = sample->rows[i];
	}
	sample->nrows = n;
}

/*
 * Cuts a sorted sample so that partitions weigh about the same: each one is closed where
 * it comes nearest to an equal share of what is left, so that a heavy value takes one
 * partition of its own instead of the share of several.  With no more distinct rows than
 * partitions each row gets its own.  NULLs count towards the last partition; when they
 * fill it, it is left to them.
 */
static void
cut_sample(const Sample *sample, int partitions, ShuffleBounds *bounds)
{
	int	   nkeys = sample->nkeys;
	double left = 0;
	double open = 0; /* weight of the partition that is being filled */

	for (int i = 0; i < sample->nrows; i++)
		left += sample->rows[i].weight;
	if (partitions > 2 && sample->null_weight * (partitions - 1) >= left)
		partitions--;
	else
		left += sample->null_weight;

	bounds->n = 0;
	bounds->nkeys = nkeys;
	bounds->values = palloc_extended(sizeof(Datum) * partitions * nkeys, MCXT_ALLOC_HUGE);
	bounds->nulls = palloc_extended(sizeof(bool) * partitions * nkeys, MCXT_ALLOC_HUGE);
	for (int i = 0; i < sample->nrows && bounds->n < partitions - 1; i++)
	{
		const SampleRow *row = &sample->rows[i];
		double			 share = left / (partitions - bounds->n);

		if (i > 0 && (open + row->weight / 2 > share || sample->nrows - i < partitions - bounds->n))
		{
			memcpy(&bounds->values[(size_t) bounds->n * nkeys], row->values, sizeof(Datum) * nkeys);
			memcpy(&bounds->nulls[(size_t) bounds->n * nkeys], row->nulls, sizeof(bool) * nkeys);
			bounds->n++;
			left -= open;
			open = 0;
		}
		open += row->weight;
	}
}

static void
append_row(Sample *sample, Datum value, double weight)
{
	SampleRow *row = &sample->rows[sample->nrows++];

	row->weight = weight;
	row->values = palloc(sizeof(Datum));
	row->values[0] = value;
	row->nulls = palloc0(sizeof(bool));
}

/*
 * Statistics
 */

/* The table that the query reads completely and as it is, or NULL. */
static RangeTblEntry *
whole_table(Query *query)
{
	RangeTblRef	  *ref;
	RangeTblEntry *rte;

	if (query->commandType != CMD_SELECT || query->setOperations || query->groupClause ||
		query->groupingSets || query->havingQual || query->hasAggs || query->distinctClause ||
		query->hasTargetSRFs || query->limitOffset || query->limitCount)
		return NULL;
	if (query->jointree->quals || list_length(query->jointree->fromlist) != 1)
		return NULL;
	ref = linitial(query->jointree->fromlist);
	if (!IsA(ref, RangeTblRef))
		return NULL;
	rte = rt_fetch(ref->rtindex, query->rtable);
	if (rte->rtekind != RTE_RELATION || rte->tablesample ||
		(rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_MATVIEW))
		return NULL;
	/* Children have statistics of their own. */
	if (rte->inh && has_subclass(rte->relid))
		return NULL;
	return rte;
}

static bool
may_read_all(Oid relid, AttrNumber attnum)
{
	if (check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
		return false;
	return pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK ||
		pg_attribute_aclcheck(relid, attnum, GetUserId(), ACL_SELECT) == ACLCHECK_OK;
}

/* Has the table about the size and the rows that ANALYZE saw? */
static bool
stats_are_fresh(Oid relid)
{
	Relation			 rel = table_open(relid, NoLock);
	BlockNumber			 pages = RelationGetNumberOfBlocks(rel);
	double				 old_pages = rel->rd_rel->relpages;
	double				 tuples = rel->rd_rel->reltuples;
	PgStat_StatTabEntry *activity;
	bool				 fresh;

	fresh = tuples > 0 && fabs(pages - old_pages) <= STATS_MAX_CHANGE * old_pages;
	activity = pgstat_fetch_stat_tabentry(relid);
	if (activity && activity->mod_since_analyze > STATS_MAX_CHANGE * tuples)
		fresh = false;
	table_close(rel, NoLock);
	return fresh;
}

static bool
get_slot(AttStatsSlot *slot, HeapTuple stats, int kind, Oid op, const ShuffleKey *key, int flags)
{
	if (!get_attstatsslot(slot, stats, kind, op, flags))
		return false;
	if (slot->stacoll == key->collation && getBaseType(slot->valuetype) == key->type)
		return true;
	free_attstatsslot(slot);
	return false;
}

/*
 * A bucket of the histogram counts as a row at its lower end, a common value as itself:
 * cutting before a row then leaves on the low side what is below it.
 */
static bool
sample_stats_tuple(Sample *sample, HeapTuple stats, int partitions)
{
	ShuffleKey	   *key = &sample->keys[0];
	TypeCacheEntry *type = lookup_type_cache(key->type, TYPECACHE_LT_OPR);
	double			null_fraction = ((Form_pg_statistic) GETSTRUCT(stats))->stanullfrac;
	double			common = 0;
	AttStatsSlot	mcv;
	AttStatsSlot	histogram;
	bool			have_mcv;
	bool			have_histogram;
	bool			usable;

	/* Values stay allocated: the sample points into them. */
	have_mcv = get_slot(&mcv, stats, STATISTIC_KIND_MCV, InvalidOid, key,
						ATTSTATSSLOT_VALUES | ATTSTATSSLOT_NUMBERS);
	have_histogram = get_slot(&histogram, stats, STATISTIC_KIND_HISTOGRAM, type->lt_opr, key,
							  ATTSTATSSLOT_VALUES);

	sample->capacity = (have_mcv ? mcv.nvalues : 0) + (have_histogram ? histogram.nvalues : 0);
	sample->rows = palloc(sizeof(SampleRow) * Max(sample->capacity, 1));
	sample->null_weight = null_fraction;
	if (have_mcv)
	{
		for (int i = 0; i < mcv.nvalues; i++)
		{
			common += mcv.numbers[i];
			append_row(sample, mcv.values[i], mcv.numbers[i]);
		}
	}
	if (have_histogram && histogram.nvalues >= 2)
	{
		double bucket = Max(1.0 - null_fraction - common, 0) / (histogram.nvalues - 1);

		for (int i = 0; i < histogram.nvalues - 1; i++)
			append_row(sample, histogram.values[i], bucket);
		usable = histogram.nvalues - 1 >= BUCKETS_PER_PARTITION * partitions;
	}
	else
		/* Without histogram the common values must be all there are. */
		usable = have_mcv && common + null_fraction > 0.9999;
	return usable;
}

static bool
sample_statistics(Sample *sample, Query *query, int partitions)
{
	RangeTblEntry *rte = whole_table(query);
	TargetEntry	  *tle;
	Var			  *var;
	HeapTuple	   stats;
	bool		   usable;

	if (rte == NULL || sample->nkeys != 1)
		return false;
	tle = get_tle_by_resno(query->targetList, sample->keys[0].attnum);
	if (tle == NULL || !IsA(tle->expr, Var))
		return false;
	var = (Var *) tle->expr;
	if (var->varlevelsup != 0 || var->varattno <= 0 || !may_read_all(rte->relid, var->varattno) ||
		!stats_are_fresh(rte->relid))
		return false;

	stats = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(rte->relid),
							Int16GetDatum(var->varattno), BoolGetDatum(false));
	if (!HeapTupleIsValid(stats))
		return false;
	usable = sample_stats_tuple(sample, stats, partitions);
	ReleaseSysCache(stats);
	return usable;
}

/*
 * Reservoir
 */

static void
free_row(Sample *sample, SampleRow *row)
{
	for (int k = 0; k < sample->nkeys; k++)
	{
		if (row->nulls[k] || sample->keys[k].typbyval)
			continue;
		sample->bytes -= datumGetSize(row->values[k], false, sample->keys[k].typlen);
		pfree(DatumGetPointer(row->values[k]));
	}
}

/* Keys too large for memory: a random half of a uniform sample is a uniform sample. */
static void
halve_reservoir(Sample *sample)
{
	int keep = sample->nrows / 2;

	for (int i = 0; i < keep; i++)
	{
		int		  j = (int) pg_prng_uint64_range(&sample->prng, i, sample->nrows - 1);
		SampleRow row = sample->rows[i];

		sample->rows[i] = sample->rows[j];
		sample->rows[j] = row;
	}
	for (int i = keep; i < sample->nrows; i++)
		free_row(sample, &sample->rows[i]);
	sample->nrows = sample->capacity = keep;
}

static void
sample_row(TupleTableSlot *slot, void *arg)
{
	Sample		 *sample = arg;
	SampleRow	 *row;
	MemoryContext old;

	slot_getallattrs(slot);
	if (slot->tts_isnull[0])
	{
		sample->null_weight++;
		return;
	}

	/* Algorithm R: after n rows each is in the reservoir with the same probability. */
	sample->seen++;
	old = MemoryContextSwitchTo(sample->cxt);
	if (sample->nrows < sample->capacity)
	{
		row = &sample->rows[sample->nrows++];
		if (row->values == NULL)
		{
			row->values = palloc(sizeof(Datum) * sample->nkeys);
			row->nulls = palloc(sizeof(bool) * sample->nkeys);
		}
	}
	else
	{
		uint64 i = pg_prng_uint64_range(&sample->prng, 0, (uint64) sample->seen - 1);

		if (i >= (uint64) sample->capacity)
		{
			MemoryContextSwitchTo(old);
			return;
		}
		row = &sample->rows[i];
		free_row(sample, row);
	}
	row->weight = 1;
	for (int k = 0; k < sample->nkeys; k++)
	{
		ShuffleKey *key = &sample->keys[k];
		Datum		value = slot->tts_values[k];

		row->nulls[k] = slot->tts_isnull[k];
		row->values[k] = (Datum) 0;
		if (row->nulls[k])
			continue;
		if (key->typlen == -1)
			row->values[k] = PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
		else
			row->values[k] = datumCopy(value, key->typbyval, key->typlen);
		if (!key->typbyval)
			sample->bytes += datumGetSize(row->values[k], false, key->typlen);
	}
	while (sample->bytes > sample->max_bytes && sample->nrows > 1)
		halve_reservoir(sample);
	MemoryContextSwitchTo(old);
}

/* SELECT the keys FROM the query: the planner leaves out what they do not need. */
static Query *
keys_query(const Sample *sample, Query *query)
{
	Query		  *inner = copyObject(query);
	Query		  *outer = makeNode(Query);
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	RangeTblRef	  *ref = makeNode(RangeTblRef);
	List		  *colnames = NIL;
	ListCell	  *lc;

	/* Order does not matter to a sample unless it decides which rows there are. */
	if (!inner->limitCount && !inner->limitOffset && !inner->hasDistinctOn)
		inner->sortClause = NIL;

	foreach(lc, inner->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (!tle->resjunk)
			colnames = lappend(colnames, makeString(pstrdup(tle->resname)));
	}
	rte->rtekind = RTE_SUBQUERY;
	rte->subquery = inner;
	rte->eref = makeAlias("q", colnames);
	rte->inFromCl = true;
	ref->rtindex = 1;

	outer->commandType = CMD_SELECT;
	outer->querySource = QSRC_ORIGINAL;
	outer->canSetTag = true;
	outer->rtable = list_make1(rte);
	outer->jointree = makeFromExpr(list_make1(ref), NULL);
	for (int k = 0; k < sample->nkeys; k++)
	{
		TargetEntry *tle = get_tle_by_resno(inner->targetList, sample->keys[k].attnum);

		if (tle == NULL || tle->resjunk)
			elog(ERROR, "query has no output column %d", sample->keys[k].attnum);
		outer->targetList =
			lappend(outer->targetList,
					makeTargetEntry((Expr *) makeVarFromTargetEntry(1, tle), (AttrNumber) (k + 1),
									pstrdup(tle->resname), false));
	}
	return outer;
}

static void
sample_query(Sample *sample, Query *query, int partitions)
{
	List		*rewritten;
	PlannedStmt *plan;

	sample->capacity = (int) Min(
		Max((int64) partitions * SAMPLE_ROWS_PER_PARTITION, SAMPLE_MIN_ROWS), SAMPLE_MAX_ROWS);
	sample->rows = palloc0(sizeof(SampleRow) * sample->capacity);
	sample->nrows = 0;
	sample->null_weight = 0;
	sample->cxt = CurrentMemoryContext;
	sample->max_bytes = (Size) shuffle_setting_memory_limit_kb * 1024 / 2;
	pg_prng_seed(&sample->prng, 0);

	rewritten = QueryRewrite(keys_query(sample, query));
	if (list_length(rewritten) != 1)
		elog(ERROR, "query was rewritten into %d queries", list_length(rewritten));
	plan = pg_plan_query(linitial_node(Query, rewritten), "", CURSOR_OPT_PARALLEL_OK, NULL);

	PushCopiedSnapshot(GetActiveSnapshot());
	UpdateActiveSnapshotCommandId();
	shuffle_execute(plan, "", sample_row, sample);
	PopActiveSnapshot();
}

void
shuffle_bounds_estimate(ShuffleOptions *options, Query *query, TupleDesc desc)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext cxt = AllocSetContextCreate(caller, "shuffle bounds", ALLOCSET_DEFAULT_SIZES);
	Sample		  sample = {0};
	ShuffleBounds bounds;

	options->nbounds = 0;
	options->bounds = NULL;
	MemoryContextSwitchTo(cxt);
	sample.nkeys = options->nkeys;
	sample.keys = shuffle_keys_create(options, desc);
	if (options->partitions > 1)
	{
		if (!sample_statistics(&sample, query, options->partitions))
			sample_query(&sample, query, options->partitions);
		sort_sample(&sample);
		cut_sample(&sample, options->partitions, &bounds);
		MemoryContextSwitchTo(caller);
		shuffle_bounds_format(options, sample.keys, &bounds);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(cxt);
}
