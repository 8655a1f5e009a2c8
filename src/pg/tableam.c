/*
 * tableam.c
 *	  Table access method "shuffle": the handler, DDL and planner callbacks, and what is
 *	  refused.
 *
 * The relation keeps an ordinary, empty main fork, so that creating, dropping and
 * truncating tables, and undoing it, is the server's own bookkeeping of storage.
 * The rows are in segment files, and rows of shuffle_segment say which ones are in
 * sight (catalog.c); scans are in scan.c, the slot in slot.c.
 *
 * An access method cannot see a statement, only what it does to tables; each
 * refusal below says in its hint what to do instead.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/multixact.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "catalog/pg_trigger.h"
#include "catalog/storage.h"
#include "commands/trigger.h"
#include "commands/vacuum.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/procarray.h"
#include "storage/smgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "read_state.h"
#include "rewrite.h"
#include "sweep.h"
#include "write_state.h"

static const TableAmRoutine shuffle_methods;

bool
shuffle_is_table(Relation rel)
{
	return rel->rd_tableam == &shuffle_methods;
}

void
shuffle_require_table(Relation rel)
{
	if (!shuffle_is_table(rel))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a shuffle table", RelationGetRelationName(rel)),
				 errhint("Shuffle tables are made by shuffle_write() or CREATE TABLE ... "
						 "USING shuffle.")));
}

Relation
shuffle_open_relation(Oid relid, LOCKMODE lockmode)
{
	char	*name = get_rel_name(relid);
	Relation rel = try_relation_open(relid, lockmode);

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 name ? errmsg("relation \"%s\" does not exist", name) :
						errmsg("relation with OID %u does not exist", relid)));
	return rel;
}

#define REFUSE(rel, what, hint) \
	ereport(ERROR, \
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED), \
			 errmsg(what " shuffle table \"%s\"", RelationGetRelationName(rel)), errhint(hint)))

#define REWRITE_HINT \
	"Write the rows you want to keep with shuffle_write('SELECT ...', 'the_table', " \
	"if_exists => 'replace')."

#define INDEX_HINT \
	"Create the table USING heap if it needs keys or indexes.  Single partitions of a shuffle " \
	"table are read with shuffle_read()."

static const TupleTableSlotOps *
am_slot_callbacks(Relation rel)
{
	return &ShuffleSlotOps;
}

/* ---------------------------------------------------------------- rows by TID */

/*
 * EvalPlanQual asks with SnapshotAny for rows that a scan of the running query has
 * returned: its snapshot shows them.
 */
static Snapshot
fetch_snapshot(Snapshot snapshot)
{
	return IsMVCCSnapshot(snapshot) ? snapshot : GetActiveSnapshot();
}

static bool
am_tuple_fetch_row_version(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot)
{
	ShuffleWindow *window = NULL;

	/* tid may point into the slot */
	if (ItemPointerIsValid(tid))
		window = shuffle_fetch_row(rel, slot->tts_tupleDescriptor, tid, fetch_snapshot(snapshot),
								   shuffle_slot_window(slot));
	ExecClearTuple(slot);
	if (window == NULL)
		return false;
	shuffle_slot_store(slot, window, window->first);
	shuffle_window_unpin(window);
	slot->tts_tableOid = RelationGetRelid(rel);
	pgstat_count_heap_fetch(rel);
	return true;
}

static void
am_tuple_get_latest_tid(TableScanDesc scan, ItemPointer tid)
{
	/* rows have one version */
}

static bool
am_tuple_satisfies_snapshot(Relation rel, TupleTableSlot *slot, Snapshot snapshot)
{
	ShuffleStorage storage = shuffle_storage_of(rel);
	int32		   segment;
	uint64		   row;

	if (!ItemPointerIsValid(&slot->tts_tid))
		return false;
	shuffle_tid_decode(&slot->tts_tid, &segment, &row);
	return shuffle_catalog_segment(&storage, segment, fetch_snapshot(snapshot)) != NULL;
}

/* ---------------------------------------------------------------- writing rows */

/* What an access method cannot see when it is made it finds when rows come. */
void
shuffle_check_insertable(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	if (OidIsValid(rel->rd_rel->relrewrite))
		return;
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger->tgenabled == TRIGGER_DISABLED || !TRIGGER_FOR_ROW(trigger->tgtype) ||
			!TRIGGER_FOR_AFTER(trigger->tgtype) || !TRIGGER_FOR_INSERT(trigger->tgtype))
			continue;
		if (OidIsValid(trigger->tgconstraint) && trigger->tgisinternal)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("foreign keys are not supported on shuffle table \"%s\"",
							RelationGetRelationName(rel)),
					 errhint("Drop the constraint, or use a table USING heap.")));
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("AFTER ROW triggers are not supported on shuffle table \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail("Trigger \"%s\" fires after each inserted row.", trigger->tgname),
				 errhint("Use a BEFORE ROW trigger, or an AFTER STATEMENT trigger with a "
						 "transition table.")));
	}
	shuffle_refuse_published(RelationGetRelid(rel), RelationGetNamespace(rel),
							 RelationGetRelationName(rel));
}

static void
am_tuple_insert(Relation rel, TupleTableSlot *slot, CommandId cid, int options,
				BulkInsertState bistate)
{
	shuffle_states_insert(rel, slot, cid);
}

static void
am_multi_insert(Relation rel, TupleTableSlot **slots, int nslots, CommandId cid, int options,
				BulkInsertState bistate)
{
	for (int i = 0; i < nslots; i++)
		shuffle_states_insert(rel, slots[i], cid);
}

static void
am_tuple_insert_speculative(Relation rel, TupleTableSlot *slot, CommandId cid, int options,
							BulkInsertState bistate, uint32 token)
{
	REFUSE(rel, "ON CONFLICT is not supported for",
		   "Shuffle tables have no unique indexes; remove duplicates in the query that "
		   "shuffle_write() runs.");
}

static void
am_tuple_complete_speculative(Relation rel, TupleTableSlot *slot, uint32 token, bool succeeded)
{
	am_tuple_insert_speculative(rel, slot, 0, 0, NULL, token);
}

static TM_Result
am_tuple_delete(Relation rel, ItemPointer tid, CommandId cid, Snapshot snapshot,
				Snapshot crosscheck, bool wait, TM_FailureData *tmfd, bool changing_part)
{
	REFUSE(rel, "cannot delete rows of", REWRITE_HINT "  TRUNCATE removes all rows.");
	return TM_Ok; /* keep compiler quiet */
}

static TM_Result
am_tuple_update(Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid,
				Snapshot snapshot, Snapshot crosscheck, bool wait, TM_FailureData *tmfd,
				LockTupleMode *lockmode, ShuffleUpdateIndexes *update_indexes)
{
	REFUSE(rel, "cannot update rows of", REWRITE_HINT);
	return TM_Ok; /* keep compiler quiet */
}

static TM_Result
am_tuple_lock(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot, CommandId cid,
			  LockTupleMode mode, LockWaitPolicy policy, uint8 flags, TM_FailureData *tmfd)
{
	REFUSE(rel, "cannot lock rows of",
		   "Rows of shuffle tables never change: leave out FOR UPDATE or FOR SHARE, or lock the "
		   "table with LOCK TABLE.");
	return TM_Ok; /* keep compiler quiet */
}

/* ---------------------------------------------------------------- DDL */

static void
am_relation_set_new_filelocator(Relation rel, const RelFileLocator *locator, char persistence,
								TransactionId *freeze_xid, MultiXactId *minmulti)
{
	SMgrRelation srel;

	if (persistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 persistence == RELPERSISTENCE_TEMP ? errmsg("shuffle tables cannot be temporary") :
													  errmsg("shuffle tables cannot be unlogged"),
				 errhint("Create the table USING heap, or as a permanent table.")));

	/*
	 * There are no transaction ids in the storage, but monitoring measures the age of
	 * these columns in all tables: they start and advance (am_relation_vacuum)
	 * as for heap.
	 */
	*freeze_xid = RecentXmin;
	*minmulti = GetOldestMultiXactId();

	srel = RelationCreateStorage(*locator, persistence, true);
	smgrclose(srel);
}

/*
 * TRUNCATE of a table that was created, or got its storage, in this subtransaction.
 * Nobody else can see its rows and its rollback drops the storage altogether, so
 * the files go at once.
 */
static void
am_relation_nontransactional_truncate(Relation rel)
{
	ShuffleStorage storage = shuffle_storage_of(rel);
	List		  *roots = NIL;
	ListCell	  *lc;

	shuffle_states_discard(&storage);
	if (shuffle_catalog_delete(&storage, &roots))
	{
		CommandCounterIncrement();
		foreach(lc, roots)
			shuffle_unlink_storage(shuffle_storage_dir(lfirst(lc), &storage));
	}
}

static void
am_relation_copy_for_cluster(Relation old_rel, Relation new_rel, Relation index, bool use_sort,
							 TransactionId oldest_xmin, TransactionId *xid_cutoff,
							 MultiXactId *multi_cutoff, double *num_tuples, double *tups_vacuumed,
							 double *tups_recently_dead)
{
	/* The cutoffs are right as they are; no row is kept that is dead. */
	*tups_recently_dead = 0;
	shuffle_copy_for_cluster(old_rel, new_rel, index, num_tuples, tups_vacuumed);
}

/*
 * There are no transaction ids to freeze: the ages advance to what is certain for any
 * table, and the statistics become exact.  What is dead are whole segments that
 * compaction has replaced; their files are removed once no snapshot can see them.
 */
static void
am_relation_vacuum(Relation rel, struct VacuumParams *params, BufferAccessStrategy strategy)
{
	ShuffleStorage storage = shuffle_storage_of(rel);
	TransactionId  oldest_xmin = GetOldestNonRemovableTransactionId(rel);
	MultiXactId	   oldest_multi = GetOldestMultiXactId();
	TimestampTz	   start = GetCurrentTimestamp();
	Snapshot	   snapshot = shuffle_latest_snapshot();
	ShuffleTotals  totals;
	int64		   dead;
	uint64		   removed;
	BlockNumber	   pages;

	shuffle_totals(rel, snapshot, &totals);
	UnregisterSnapshot(snapshot);

	removed = shuffle_sweep_storage(&storage);
	dead = shuffle_catalog_dead_rows(&storage);

	pages = shuffle_pages(totals.bytes);
	shuffle_update_relstats(rel, pages, (double) totals.rows, oldest_xmin, oldest_multi);
	shuffle_report_vacuum(rel, totals.rows, dead, start);

	ereport((params->options & VACOPT_VERBOSE) != 0 ? INFO : DEBUG2,
			(errmsg("\"%s\": removed %llu segment files, %lld rows in %lld segments",
					RelationGetRelationName(rel), (unsigned long long) removed,
					(long long) totals.rows, (long long) totals.segments),
			 errdetail("%lld dead rows are in segments that a snapshot may still need.",
					   (long long) dead)));
}

static bool
am_scan_analyze_next_block(TableScanDesc sscan, SHUFFLE_ANALYZE_SOURCE)
{
	BlockNumber page;

	while (shuffle_next_page(&source, &page))
	{
		if (shuffle_analyze_next_page(sscan, page))
			return true;
	}
	return false;
}

/* ---------------------------------------------------------------- indexes */

static IndexFetchTableData *
am_index_fetch_begin(Relation rel)
{
	REFUSE(rel, "indexes are not supported for", INDEX_HINT);
	return NULL; /* keep compiler quiet */
}

static void
am_index_fetch_reset(IndexFetchTableData *data)
{
}

static void
am_index_fetch_end(IndexFetchTableData *data)
{
}

static bool
am_index_fetch_tuple(IndexFetchTableData *data, ItemPointer tid, Snapshot snapshot,
					 TupleTableSlot *slot, bool *call_again, bool *all_dead)
{
	REFUSE(data->rel, "indexes are not supported for", INDEX_HINT);
	return false; /* keep compiler quiet */
}

static TransactionId
am_index_delete_tuples(Relation rel, TM_IndexDeleteOp *delstate)
{
	REFUSE(rel, "indexes are not supported for", INDEX_HINT);
	return InvalidTransactionId; /* keep compiler quiet */
}

static double
am_index_build_range_scan(Relation rel, Relation index, IndexInfo *info, bool allow_sync,
						  bool anyvisible, bool progress, BlockNumber start, BlockNumber numblocks,
						  IndexBuildCallback callback, void *callback_state, TableScanDesc scan)
{
	REFUSE(rel, "indexes are not supported for", INDEX_HINT);
	return 0; /* keep compiler quiet */
}

static void
am_index_validate_scan(Relation rel, Relation index, IndexInfo *info, Snapshot snapshot,
					   ValidateIndexState *state)
{
	REFUSE(rel, "indexes are not supported for", INDEX_HINT);
}

/* ---------------------------------------------------------------- sizes */

/* The compressed size; limited as analyze.c says.  Other forks do not exist. */
static uint64
am_relation_size(Relation rel, ForkNumber fork)
{
	Snapshot	  snapshot;
	ShuffleTotals totals;

	if (fork != MAIN_FORKNUM && fork != InvalidForkNumber)
		return 0;

	snapshot = shuffle_latest_snapshot();
	shuffle_totals(rel, snapshot, &totals);
	UnregisterSnapshot(snapshot);
	return (uint64) shuffle_pages(totals.bytes) * BLCKSZ;
}

static bool
am_relation_needs_toast_table(Relation rel)
{
	return false;
}

/*
 * What the planner takes for pages is what it charges for besides rows, and what it counts
 * parallel workers by: the bytes that are read, and the work of decompressing and
 * decoding them.  Four pages of decoded data take about the time that the planner means by
 * seq_page_cost.
 */
#define DECODED_PER_READ 4

static void
am_relation_estimate_size(Relation rel, int32 *attr_widths, BlockNumber *pages, double *tuples,
						  double *allvisfrac)
{
	Snapshot	  snapshot = shuffle_latest_snapshot();
	ShuffleTotals totals;
	int64		  work;

	shuffle_totals(rel, snapshot, &totals);
	UnregisterSnapshot(snapshot);

	work = totals.bytes + totals.raw_bytes / DECODED_PER_READ;
	*pages = (BlockNumber) Min((work + BLCKSZ - 1) / BLCKSZ, (int64) MaxBlockNumber);
	*tuples = (double) totals.rows;
	*allvisfrac = 1;
}

/* ---------------------------------------------------------------- TABLESAMPLE */

static bool
am_scan_sample_next_block(TableScanDesc scan, struct SampleScanState *scanstate)
{
	REFUSE(scan->rs_rd, "TABLESAMPLE is not supported for",
		   "Use WHERE random() < 0.01, or read some of the partitions with shuffle_read().");
	return false; /* keep compiler quiet */
}

static bool
am_scan_sample_next_tuple(TableScanDesc scan, struct SampleScanState *scanstate,
						  TupleTableSlot *slot)
{
	return false;
}

static const TableAmRoutine shuffle_methods = {
	.type = T_TableAmRoutine,

	.slot_callbacks = am_slot_callbacks,

	.scan_begin = shuffle_scan_begin,
	.scan_end = shuffle_scan_end,
	.scan_rescan = shuffle_scan_rescan,
	.scan_getnextslot = shuffle_scan_getnextslot,

	.scan_set_tidrange = shuffle_scan_set_tidrange,
	.scan_getnextslot_tidrange = shuffle_scan_getnextslot,

	.parallelscan_estimate = shuffle_parallelscan_estimate,
	.parallelscan_initialize = shuffle_parallelscan_initialize,
	.parallelscan_reinitialize = shuffle_parallelscan_reinitialize,

	.index_fetch_begin = am_index_fetch_begin,
	.index_fetch_reset = am_index_fetch_reset,
	.index_fetch_end = am_index_fetch_end,
	.index_fetch_tuple = am_index_fetch_tuple,

	.tuple_fetch_row_version = am_tuple_fetch_row_version,
	.tuple_tid_valid = shuffle_scan_tid_valid,
	.tuple_get_latest_tid = am_tuple_get_latest_tid,
	.tuple_satisfies_snapshot = am_tuple_satisfies_snapshot,
	.index_delete_tuples = am_index_delete_tuples,

	.tuple_insert = am_tuple_insert,
	.tuple_insert_speculative = am_tuple_insert_speculative,
	.tuple_complete_speculative = am_tuple_complete_speculative,
	.multi_insert = am_multi_insert,

	/*
	 * No finish_bulk_insert: COPY calls it whenever it has rows for too many partitions
	 * of a partitioned table, and would make many small segments.
	 */

	.tuple_delete = am_tuple_delete,
	.tuple_update = am_tuple_update,
	.tuple_lock = am_tuple_lock,

	.relation_set_new_filelocator = am_relation_set_new_filelocator,
	.relation_nontransactional_truncate = am_relation_nontransactional_truncate,
	.relation_copy_data = shuffle_copy_data,
	.relation_copy_for_cluster = am_relation_copy_for_cluster,
	.relation_vacuum = am_relation_vacuum,
	.scan_analyze_next_block = am_scan_analyze_next_block,
	.scan_analyze_next_tuple = shuffle_analyze_next_tuple,

	.index_build_range_scan = am_index_build_range_scan,
	.index_validate_scan = am_index_validate_scan,

	.relation_size = am_relation_size,
	.relation_needs_toast_table = am_relation_needs_toast_table,

	.relation_estimate_size = am_relation_estimate_size,

	.scan_sample_next_block = am_scan_sample_next_block,
	.scan_sample_next_tuple = am_scan_sample_next_tuple};

PG_FUNCTION_INFO_V1(shuffle_tableam_handler);

Datum
shuffle_tableam_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&shuffle_methods);
}
