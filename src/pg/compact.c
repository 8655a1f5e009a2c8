/*
 * compact.c
 *	  shuffle_compact(): merges small segments of a table into few large ones.
 *
 * The rows of the segments to merge are read in the order of their numbers and written
 * into new segments; then the old catalog rows are deleted and new ones inserted, all in
 * one transaction, so that any snapshot sees either the old segments or the new ones.
 * The new segments take over the first numbers of the old ones, which keeps the order of
 * rows inside a partition where no segment in between was left out.
 *
 * ShareUpdateExclusiveLock on the table, kept until the transaction ends, keeps out other
 * compactions, VACUUM and DDL, but neither readers nor writers: these only ever add
 * segments, and nobody else deletes any.  Only segments of committed transactions
 * are merged.  A transaction with a snapshot for all its life (REPEATABLE READ) merges what
 * that snapshot shows; if another compaction has replaced some of it since, it gets a
 * serialization failure.
 *
 * Old files stay for snapshots that may still read them.  Their rows count as dead in the
 * statistics, which brings autovacuum; VACUUM and the next compaction remove them
 * (shuffle_sweep_storage).
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "rewrite.h"
#include "sweep.h"

PG_FUNCTION_INFO_V1(shuffle_compact);

/* Segments above this size are never merged; those below the other one always are. */
#define LARGE_BYTES (64 * INT64CONST(1024) * 1024)
#define TINY_BYTES	(INT64CONST(1024) * 1024)

/* Segments that are open for reading together: bounds memory, not the result. */
#define CHUNK_SEGMENTS 1024
#define CHUNK_BYTES	   (16 * INT64CONST(1024) * 1024)

typedef struct Segment
{
	int32			number;
	int64			bytes;
	int64			rows;
	ItemPointerData tid; /* of the catalog row */
} Segment;

/* Segments of the table that could be merged. */
typedef struct Segments
{
	Segment *segments;
	int		 n;
	int		 size;
	int64	 total; /* of all that are in sight, also others */
	int64	 total_bytes;
} Segments;

/* The privilege that VACUUM asks for. */
static void
check_privilege(Oid relid)
{
	if (!shuffle_may_maintain(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(relid));
}

static void
collect(const ShuffleStorage *storage, Snapshot snapshot, Segments *all)
{
	Relation	rel = table_open(shuffle_catalog_ids()->table, AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	memset(all, 0, sizeof(Segments));
	all->size = 1024;
	all->segments = palloc(sizeof(Segment) * all->size);

	shuffle_catalog_storage_keys(keys, storage);
	scan = systable_beginscan(rel, shuffle_catalog_ids()->pkey, true, snapshot, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Segment *segment;
		bool	 isnull;
		int64	 bytes = DatumGetInt64(heap_getattr(tuple, Anum_segment_bytes, desc, &isnull));

		CHECK_FOR_INTERRUPTS();
		all->total++;
		all->total_bytes += bytes;

		/* Our own ones may be anything yet: lent, rolled back to a savepoint. */
		if (bytes > LARGE_BYTES ||
			TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)))
			continue;
		if (all->n == all->size)
		{
			all->size *= 2;
			all->segments = repalloc(all->segments, sizeof(Segment) * all->size);
		}
		segment = &all->segments[all->n++];
		segment->number = DatumGetInt32(heap_getattr(tuple, Anum_segment_number, desc, &isnull));
		segment->rows = DatumGetInt64(heap_getattr(tuple, Anum_segment_rows, desc, &isnull));
		segment->bytes = bytes;
		segment->tid = tuple->t_self;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

static int
compare_bytes(const void *a, const void *b)
{
	int64 ba = ((const Segment *) a)->bytes;
	int64 bb = ((const Segment *) b)->bytes;

	return (ba > bb) - (ba < bb);
}

static int
compare_number(const void *a, const void *b)
{
	int32 na = ((const Segment *) a)->number;
	int32 nb = ((const Segment *) b)->number;

	return (na > nb) - (na < nb);
}

/*
 * Keeps those that are worth merging: the smallest ones, as many as possible, such that
 * the largest is not larger than all others together.  So a row is written again as often
 * as the table doubles, not with every compaction, and what stays apart gets larger by
 * a factor of two from one segment to the next.
 */
static void
choose(Segments *all)
{
	int64 sum = 0;
	int	  best = 0;

	qsort(all->segments, all->n, sizeof(Segment), compare_bytes);
	for (int i = 0; i < all->n; i++)
	{
		if (all->segments[i].bytes <= Max(sum, TINY_BYTES))
			best = i + 1;
		sum += all->segments[i].bytes;
	}
	all->n = best < 2 ? 0 : best;
	qsort(all->segments, all->n, sizeof(Segment), compare_number);
}

/* Reads all rows of the chosen segments, some segments at a time. */
static void
copy_rows(Relation rel, const Segments *chosen, Snapshot snapshot, ShuffleRewriter *rewriter)
{
	ShuffleStorage storage = shuffle_storage_of(rel);
	MemoryContext  cxt = AllocSetContextCreate(CurrentMemoryContext, "shuffle compact chunk",
											   ALLOCSET_DEFAULT_SIZES);
	int			   i = 0;

	while (i < chosen->n)
	{
		MemoryContext	  old = MemoryContextSwitchTo(cxt);
		ShuffleReadState *reading;
		List			 *rows = NIL;
		int64			  bytes = 0;

		for (; i < chosen->n && list_length(rows) < CHUNK_SEGMENTS && bytes < CHUNK_BYTES; i++)
		{
			ShuffleSegmentRow *row;

			row = shuffle_catalog_segment(&storage, chosen->segments[i].number, snapshot);
			if (row == NULL || row->rows != chosen->segments[i].rows)
				elog(ERROR, "segment %d of table \"%s\" is not what it was",
					 chosen->segments[i].number, RelationGetRelationName(rel));
			rows = lappend(rows, row);
			bytes += row->bytes;
		}
		reading = shuffle_reading_begin_segments(rel, RelationGetDescr(rel), rows);
		shuffle_rewriter_copy(rewriter, reading, NULL);
		shuffle_reading_end(reading);
		MemoryContextSwitchTo(old);
		MemoryContextReset(cxt);
	}
	MemoryContextDelete(cxt);
}

static void
delete_rows(Relation rel, const Segments *chosen)
{
	Relation  table = table_open(shuffle_catalog_ids()->table, RowExclusiveLock);
	CommandId cid = GetCurrentCommandId(true);

	for (int i = 0; i < chosen->n; i++)
	{
		TM_FailureData failure;
		TM_Result	   result;

		CHECK_FOR_INTERRUPTS();
		result = heap_delete(table, &chosen->segments[i].tid, cid, InvalidSnapshot, true, &failure,
							 false);
		if (result == TM_Updated || result == TM_Deleted)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not compact table \"%s\" due to a concurrent compaction",
							RelationGetRelationName(rel)),
					 errhint("Retry the transaction.")));
		if (result != TM_Ok)
			elog(ERROR, "could not delete segment %d of table \"%s\": result %d",
				 chosen->segments[i].number, RelationGetRelationName(rel), (int) result);
	}
	table_close(table, RowExclusiveLock);
}

/* Every row moved has a dead version now, as after UPDATE. */
static void
count_moved(Relation rel, int64 rows)
{
	pgstat_count_heap_insert(rel, 0);
	if (rel->pgstat_info != NULL && rel->pgstat_info->trans != NULL)
		rel->pgstat_info->trans->tuples_updated += rows;
}

/* Returns how many segments the rows are in now, and their size in bytes. */
static int
merge(Relation rel, const Segments *chosen, Snapshot snapshot, int64 *bytes)
{
	ShuffleRewriter *rewriter;
	int32			*numbers = palloc(sizeof(int32) * chosen->n);
	int64			 rows = 0;
	int				 created;
	int				 progress;

	for (int i = 0; i < chosen->n; i++)
	{
		numbers[i] = chosen->segments[i].number;
		rows += chosen->segments[i].rows;
	}
	progress = shuffle_progress_begin(SHUFFLE_OPERATION_COMPACT, RelationGetRelid(rel), MyProcPid);
	shuffle_progress_expect(progress, (double) rows);
	rewriter = shuffle_rewriter_begin(rel, progress);
	copy_rows(rel, chosen, snapshot, rewriter);
	shuffle_progress_phase(progress, SHUFFLE_PHASE_PUBLISH);
	delete_rows(rel, chosen);
	created = shuffle_rewriter_end(rewriter, numbers, chosen->n, bytes);
	CommandCounterIncrement();
	shuffle_progress_end(progress);
	count_moved(rel, rows);
	return created;
}

/*
 * shuffle_compact(relation regclass, OUT segments_before bigint, OUT segments_after bigint,
 *				   OUT rows bigint, OUT bytes_before bigint, OUT bytes_after bigint)
 */
Datum
shuffle_compact(PG_FUNCTION_ARGS)
{
	Oid			   relid = PG_GETARG_OID(0);
	TupleDesc	   desc;
	Relation	   rel;
	ShuffleStorage storage;
	Snapshot	   snapshot;
	Segments	   all;
	int64		   rows = 0;
	int64		   old_bytes = 0;
	int64		   new_bytes = 0;
	int			   created = 0;
	Oid			   user;
	int			   sec_context;
	int			   nestlevel;
	Datum		   values[5];
	bool		   nulls[5] = {0};

	PreventCommandDuringRecovery("shuffle_compact()");
	PreventCommandIfReadOnly("shuffle_compact()");
	PreventCommandIfParallelMode("shuffle_compact()");
	shuffle_require_signature(fcinfo, 1, lengthof(values));
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	check_privilege(relid);
	rel = shuffle_open_relation(relid, ShareUpdateExclusiveLock);
	check_privilege(relid);
	shuffle_require_table(rel);
	storage = shuffle_storage_of(rel);

	/* Functions of types and operator classes run with the rights of the table's owner. */
	GetUserIdAndSecContext(&user, &sec_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner, sec_context | SECURITY_RESTRICTED_OPERATION);
	nestlevel = NewGUCNestLevel();
	RestrictSearchPath();

	(void) shuffle_sweep_storage(&storage);

	snapshot = RegisterSnapshot(IsolationUsesXactSnapshot() ? GetTransactionSnapshot() :
															  GetLatestSnapshot());
	collect(&storage, snapshot, &all);
	choose(&all);
	for (int i = 0; i < all.n; i++)
	{
		rows += all.segments[i].rows;
		old_bytes += all.segments[i].bytes;
	}
	if (all.n > 0)
		created = merge(rel, &all, snapshot, &new_bytes);
	UnregisterSnapshot(snapshot);

	AtEOXact_GUC(false, nestlevel);
	SetUserIdAndSecContext(user, sec_context);

	values[0] = Int64GetDatum(all.total);
	values[1] = Int64GetDatum(all.total - all.n + created);
	values[2] = Int64GetDatum(rows);
	values[3] = Int64GetDatum(all.total_bytes);
	values[4] = Int64GetDatum(all.total_bytes - old_bytes + new_bytes);
	table_close(rel, NoLock);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
