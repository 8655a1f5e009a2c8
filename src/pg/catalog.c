/*
 * catalog.c
 *	  shuffle_segment: one row per published segment.
 *
 * MVCC on these rows is the visibility of the rows of shuffle tables: whoever sees the
 * row sees the segment.  The key is (tablespace, filenumber, number), where the first
 * two are the relation's storage as pg_class names it and nothing ties a row to a
 * relation's oid: rewrites swap storages between relations.
 *
 * Writes of a few rows have their segment in the row itself: what would be the bytes of
 * its file is in "image".
 *
 * Rows are inserted and deleted here only, below the executor, so that neither triggers
 * (one keeps everybody else's rows out) nor privileges of the current user apply.
 * Callers hold whatever lock on the relation their operation needs; two writers of one
 * storage never wait for each other, because each picks a number that no row version in
 * progress has.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/toast_internals.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "catalog.h"
#include "read_state.h"
#include "write_state.h"

PG_FUNCTION_INFO_V1(shuffle_segment_guard);

/* ---------------------------------------------------------------- rows */

/*
 * Fills row from a tuple; by-reference fields are copied to the current context.  The
 * routing, which may be large, is left out: it is there for people to read.
 */
static void
form_row(ShuffleSegmentRow *row, HeapTuple tuple, TupleDesc desc)
{
	const FormData_segment *form = (const FormData_segment *) GETSTRUCT(tuple);
	Datum					values[Natts_segment];
	bool					isnull[Natts_segment];
	char				   *layout;

	heap_deform_tuple(tuple, desc, values, isnull);
	memset(row, 0, sizeof(*row));
	row->storage.tablespace = form->tablespace;
	row->storage.filenumber = form->filenumber;
	row->number = form->number;
	row->partitions = form->partitions;
	memcpy(row->id, form->id.data, sizeof(row->id));
	row->rows = form->rows;
	row->bytes = form->bytes;
	row->raw_bytes = form->raw_bytes;
	row->blocks = form->blocks;
	row->files = form->files;
	row->nextents = form->nextents;
	layout = TextDatumGetCString(values[Anum_segment_layout - 1]);
	row->layout = shuffle_parse_layout(layout);
	pfree(layout);
	row->root = TextDatumGetCString(values[Anum_segment_root - 1]);
	row->name = TextDatumGetCString(values[Anum_segment_name - 1]);
	if (!isnull[Anum_segment_extents - 1])
		row->extents = datumCopy(values[Anum_segment_extents - 1], false, -1);
	if (!isnull[Anum_segment_image - 1])
		row->image = datumCopy(values[Anum_segment_image - 1], false, -1);
}

void
shuffle_catalog_storage_keys(ScanKeyData *keys, const ShuffleStorage *storage)
{
	ScanKeyInit(&keys[0], Anum_segment_tablespace, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(storage->tablespace));
	ScanKeyInit(&keys[1], Anum_segment_filenumber, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(storage->filenumber));
}

/* Keys of a scan for one segment. */
static void
segment_keys(ScanKeyData *keys, const ShuffleStorage *storage, int32 number)
{
	shuffle_catalog_storage_keys(keys, storage);
	ScanKeyInit(&keys[2], Anum_segment_number, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(number));
}

/*
 * A number for a new segment.  The sequence makes numbers ascend in the order of
 * writing; parallel mode has no nextval(), there any free number does.  A dirty look
 * skips what other transactions have just taken, so that the unique index need not
 * wait for them.
 */
static int32
draw_number(Relation rel, const ShuffleCatalogIds *ids, const ShuffleStorage *storage)
{
	SnapshotData dirty;

	InitDirtySnapshot(dirty);
	for (int tries = 0; tries < SHUFFLE_MAX_SEGMENTS; tries++)
	{
		ScanKeyData keys[3];
		SysScanDesc scan;
		uint64		drawn;
		int32		number;
		bool		taken;

		CHECK_FOR_INTERRUPTS();
		drawn = IsInParallelMode() ? pg_prng_uint64(&pg_global_prng_state) :
									 (uint64) nextval_internal(ids->sequence, false);
		number = (int32) (drawn % SHUFFLE_MAX_SEGMENTS);

		segment_keys(keys, storage, number);
		scan = systable_beginscan(rel, ids->pkey, true, &dirty, 3, keys);
		taken = HeapTupleIsValid(systable_getnext(scan));
		systable_endscan(scan);
		if (!taken)
			return number;
	}

	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("a shuffle table cannot have more than %d segments", SHUFFLE_MAX_SEGMENTS),
			 errhint("Use VACUUM FULL to rewrite the table into fewer segments.")));
	return 0; /* keep compiler quiet */
}

/* CatalogTupleInsert() always takes the current command id. */
static void
insert_tuple(Relation rel, Oid pkey, HeapTuple tuple, Datum *key, CommandId cid)
{
	Relation index;
	bool	 isnull[3] = {false};

	heap_insert(rel, tuple, cid, 0, NULL);
	index = index_open(pkey, RowExclusiveLock);
	(void) index_insert(index, key, isnull, &tuple->t_self, rel, UNIQUE_CHECK_YES, false,
						BuildIndexInfo(index));
	index_close(index, RowExclusiveLock);
}

/*
 * An image has its schema twice and little else when there are few rows: a third of it is
 * left by lz4, in less time than the rest takes to be stored and logged.  pglz, for servers
 * without lz4, would not be worth its time.
 */
static Datum
compress_image(Datum image)
{
	Datum compressed = (Datum) 0;

#ifdef USE_LZ4
	compressed = toast_compress_datum(image, TOAST_LZ4_COMPRESSION);
#endif
	return compressed != (Datum) 0 ? compressed : image;
}

void
shuffle_catalog_insert(ShuffleSegmentRow *row, const ShfExtent *extents, CommandId cid)
{
	const ShuffleCatalogIds *ids = shuffle_catalog_ids();
	Datum					 values[Natts_segment];
	bool					 isnull[Natts_segment] = {false};
	Relation				 rel;
	HeapTuple				 tuple;
	bytea					*stored;
	size_t					 extent_bytes = (size_t) row->nextents * sizeof(ShfExtent);
	pg_uuid_t				 id;

	if (row->nextents < 0 || row->nextents > SHF_SEGMENT_MAX_EXTENTS)
		elog(ERROR, "segment with %d extents", row->nextents);

	rel = table_open(ids->table, RowExclusiveLock);
	if (row->number < 0)
		row->number = draw_number(rel, ids, &row->storage);

	stored = palloc(VARHDRSZ + extent_bytes);
	SET_VARSIZE(stored, VARHDRSZ + extent_bytes);
	memcpy(VARDATA(stored), extents, extent_bytes);
	memcpy(id.data, row->id, sizeof(row->id));

	values[Anum_segment_tablespace - 1] = ObjectIdGetDatum(row->storage.tablespace);
	values[Anum_segment_filenumber - 1] = ObjectIdGetDatum(row->storage.filenumber);
	values[Anum_segment_number - 1] = Int32GetDatum(row->number);
	values[Anum_segment_partitions - 1] = Int32GetDatum(row->partitions);
	values[Anum_segment_id - 1] = UUIDPGetDatum(&id);
	values[Anum_segment_rows - 1] = Int64GetDatum(row->rows);
	values[Anum_segment_bytes - 1] = Int64GetDatum(row->bytes);
	values[Anum_segment_raw_bytes - 1] = Int64GetDatum(row->raw_bytes);
	values[Anum_segment_blocks - 1] = Int64GetDatum(row->blocks);
	values[Anum_segment_files - 1] = Int64GetDatum(row->files);
	values[Anum_segment_nextents - 1] = Int32GetDatum(row->nextents);
	values[Anum_segment_written - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	if (row->metrics != NULL)
		values[Anum_segment_metrics - 1] = shuffle_metrics_datum(row->metrics);
	isnull[Anum_segment_metrics - 1] = row->metrics == NULL;
	values[Anum_segment_layout - 1] = CStringGetTextDatum(shuffle_layout_name(row->layout));
	values[Anum_segment_root - 1] = CStringGetTextDatum(row->root);
	values[Anum_segment_name - 1] = CStringGetTextDatum(row->name);
	values[Anum_segment_routing - 1] = CStringGetTextDatum(row->routing);
	values[Anum_segment_extents - 1] = PointerGetDatum(stored);
	isnull[Anum_segment_image - 1] = (row->image == (Datum) 0);
	if (row->image != (Datum) 0)
		values[Anum_segment_image - 1] = compress_image(row->image);

	/* The key's columns are the first three. */
	tuple = heap_form_tuple(RelationGetDescr(rel), values, isnull);
	insert_tuple(rel, ids->pkey, tuple, values, cid);
	heap_freetuple(tuple);
	pfree(stored);
	table_close(rel, RowExclusiveLock);
}

bool
shuffle_catalog_delete(const ShuffleStorage *storage, List **roots)
{
	const ShuffleCatalogIds *ids = shuffle_catalog_ids();
	Relation				 rel;
	ScanKeyData				 keys[3];
	SysScanDesc				 scan;
	HeapTuple				 tuple;
	bool					 found = false;

	rel = table_open(ids->table, RowExclusiveLock);
	shuffle_catalog_storage_keys(keys, storage);

	/* Committed rows and all of our own, whatever snapshot the transaction is on. */
	scan = systable_beginscan(rel, ids->pkey, true, SnapshotSelf, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		if (roots)
		{
			bool  isnull;
			char *root = TextDatumGetCString(
				heap_getattr(tuple, Anum_segment_root, RelationGetDescr(rel), &isnull));
			bool	  known = false;
			ListCell *lc;

			foreach(lc, *roots)
				if (strcmp((char *) lfirst(lc), root) == 0)
					known = true;
			if (!known)
				*roots = lappend(*roots, root);
			else
				pfree(root);
		}
		CatalogTupleDelete(rel, &tuple->t_self);
		found = true;
	}
	systable_endscan(scan);
	table_close(rel, RowExclusiveLock);
	return found;
}

typedef void (*TupleVisitor)(HeapTuple tuple, TupleDesc desc, void *arg);

static void
collect_row(HeapTuple tuple, TupleDesc desc, void *arg)
{
	List			 **rows = arg;
	ShuffleSegmentRow *row = palloc(sizeof(ShuffleSegmentRow));

	form_row(row, tuple, desc);
	*rows = lappend(*rows, row);
}

static void
add_totals(HeapTuple tuple, TupleDesc desc, void *arg)
{
	const FormData_segment *form = (const FormData_segment *) GETSTRUCT(tuple);
	ShuffleTotals		   *totals = arg;

	totals->segments++;
	totals->rows += form->rows;
	totals->bytes += form->bytes;
	totals->raw_bytes += form->raw_bytes;
	totals->blocks += form->blocks;
}

/*
 * Calls visit for a storage's rows by number.  True if the snapshot sees a row that another
 * transaction has written: then it also sees the rewrite that made this storage, if one
 * did, because a rewrite has the table to itself until it commits.
 */
static bool
scan_storage(const ShuffleStorage *storage, Snapshot snapshot, TupleVisitor visit, void *arg)
{
	const ShuffleCatalogIds *ids = shuffle_catalog_ids();
	ScanKeyData				 keys[3];
	SysScanDesc				 scan;
	HeapTuple				 tuple;
	Relation				 rel;
	Relation				 index;
	bool					 settled = false;

	shuffle_states_before_read(storage, snapshot);
	rel = table_open(ids->table, AccessShareLock);
	index = index_open(ids->pkey, AccessShareLock);
	shuffle_catalog_storage_keys(keys, storage);
	scan = systable_beginscan_ordered(rel, index, snapshot, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext_ordered(scan, ForwardScanDirection)))
	{
		visit(tuple, RelationGetDescr(rel), arg);
		if (!settled && !TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)))
			settled = true;
	}
	systable_endscan_ordered(scan);
	index_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	return settled;
}

List *
shuffle_catalog_scan(const ShuffleStorage *storage, Snapshot snapshot)
{
	List *rows = NIL;

	scan_storage(storage, snapshot, collect_row, &rows);
	return rows;
}

/*
 * Nothing that the snapshot sees in the storage proves it young enough.  If, for the
 * snapshot, the table has another storage, then a rewrite or TRUNCATE came in between,
 * the rows that it should see are gone, and returning nothing would be a lie.  A table
 * that the snapshot does not see at all is empty for it.
 */
static bool
rewritten_since(const ShuffleStorage *storage, Snapshot snapshot)
{
	Oid			relid = RelidByRelfilenumber(storage->tablespace, storage->filenumber);
	Relation	rel;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		rewritten = false;

	/* The transient relation of a rewrite under way has no such past. */
	if (!OidIsValid(relid))
		return false;

	rel = table_open(RelationRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(rel, ClassOidIndexId, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		rewritten =
			form->relfilenode != storage->filenumber || form->reltablespace != storage->tablespace;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return rewritten;
}

static void
check_rewrite(const ShuffleStorage *storage, Snapshot snapshot)
{
	Oid	  relid;
	char *name;

	if (!rewritten_since(storage, snapshot))
		return;
	relid = RelidByRelfilenumber(storage->tablespace, storage->filenumber);
	name = get_rel_name(relid);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not read table \"%s\" due to a concurrent rewrite", name ? name : "?"),
			 errdetail("The table was rewritten or truncated after this transaction's "
					   "snapshot was taken, and its earlier segments are gone."),
			 errhint("Retry the transaction.")));
}

Snapshot
shuffle_latest_snapshot(void)
{
	return RegisterSnapshot(GetCatalogSnapshot(shuffle_catalog_ids()->table));
}

/*
 * The server locks the tables of a statement before it takes the snapshot.  A table
 * that a function is told to read is locked later, perhaps after waiting for a rewrite:
 * read committed then sees what there is now, as it would had the wait come first.
 */
Snapshot
shuffle_function_snapshot(Relation rel)
{
	ShuffleStorage storage = shuffle_storage_of(rel);
	Snapshot	   snapshot = GetActiveSnapshot();

	if (!IsolationUsesXactSnapshot() && IsMVCCSnapshot(snapshot) &&
		rewritten_since(&storage, snapshot))
		return shuffle_latest_snapshot();
	return RegisterSnapshot(snapshot);
}

List *
shuffle_catalog_segments(const ShuffleStorage *storage, Snapshot snapshot)
{
	List *rows = NIL;

	if (!scan_storage(storage, snapshot, collect_row, &rows) && IsMVCCSnapshot(snapshot))
		check_rewrite(storage, snapshot);
	return rows;
}

void
shuffle_totals(Relation rel, Snapshot snapshot, ShuffleTotals *totals)
{
	ShuffleStorage storage = shuffle_storage_of(rel);

	memset(totals, 0, sizeof(ShuffleTotals));
	if (!scan_storage(&storage, snapshot, add_totals, totals) && IsMVCCSnapshot(snapshot))
		check_rewrite(&storage, snapshot);
}

ShuffleSegmentRow *
shuffle_catalog_segment(const ShuffleStorage *storage, int32 number, Snapshot snapshot)
{
	const ShuffleCatalogIds *ids = shuffle_catalog_ids();
	ShuffleSegmentRow		*row = NULL;
	Relation				 rel;
	ScanKeyData				 keys[3];
	SysScanDesc				 scan;
	HeapTuple				 tuple;

	rel = table_open(ids->table, AccessShareLock);
	segment_keys(keys, storage, number);
	scan = systable_beginscan(rel, ids->pkey, true, snapshot, 3, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		row = palloc(sizeof(ShuffleSegmentRow));
		form_row(row, tuple, RelationGetDescr(rel));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return row;
}

void
shuffle_catalog_versions(const ShuffleStorage *storage, ShuffleVersionVisitor visit, void *arg)
{
	const ShuffleCatalogIds *ids = shuffle_catalog_ids();
	Relation				 rel;
	ScanKeyData				 keys[3];
	SysScanDesc				 scan;
	HeapTuple				 tuple;
	TransactionId			 horizon;
	MemoryContext			 cxt;

	rel = table_open(ids->table, AccessShareLock);
	cxt = AllocSetContextCreate(CurrentMemoryContext, "shuffle segment version",
								ALLOCSET_SMALL_SIZES);
	if (storage != NULL)
		shuffle_catalog_storage_keys(keys, storage);

	/* Taken once, before the first row: it only ever moves forward. */
	horizon = GetOldestNonRemovableTransactionId(rel);
	scan = systable_beginscan(rel, ids->pkey, storage != NULL, SnapshotAny, storage != NULL ? 2 : 0,
							  keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Buffer		buffer = ((BufferHeapTupleTableSlot *) scan->slot)->buffer;
		HTSV_Result state;

		CHECK_FOR_INTERRUPTS();
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		state = HeapTupleSatisfiesVacuum(tuple, horizon, buffer);
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);

		if (state != HEAPTUPLE_DEAD)
		{
			MemoryContext	  old = MemoryContextSwitchTo(cxt);
			ShuffleSegmentRow row;

			form_row(&row, tuple, RelationGetDescr(rel));
			row.extents = (Datum) 0;
			visit(&row, state == HEAPTUPLE_RECENTLY_DEAD, arg);
			MemoryContextSwitchTo(old);
			MemoryContextReset(cxt);
		}
	}
	systable_endscan(scan);
	MemoryContextDelete(cxt);
	table_close(rel, AccessShareLock);
}

static void
count_dead_rows(const ShuffleSegmentRow *row, bool dead, void *arg)
{
	if (dead)
		*(int64 *) arg += row->rows;
}

int64
shuffle_catalog_dead_rows(const ShuffleStorage *storage)
{
	int64 rows = 0;

	shuffle_catalog_versions(storage, count_dead_rows, &rows);
	return rows;
}

/* ---------------------------------------------------------------- guard */

/*
 * The trigger on shuffle_segment, ENABLE ALWAYS.  The table's rows stand for files of
 * this database, so that rows which logical replication brings, or a user makes, are
 * silently left out; a TRUNCATE, which could not be, is refused.
 */
Datum
shuffle_segment_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(
			ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg("function \"%s\" was not called by trigger manager", "shuffle_segment_guard")));
	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot truncate table \"%s\"", RelationGetRelationName(trigger->tg_relation)),
			 errhint("Use TRUNCATE or DROP TABLE on the shuffle tables themselves.")));
	return PointerGetDatum(NULL);
}
