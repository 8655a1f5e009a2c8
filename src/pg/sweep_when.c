/*
 * sweep_when.c
 *	  When leftover files are looked for, and shuffle_sweep().
 *
 * A sweep runs when the first writer of a session finds that one is due: after a crash,
 * an immediate shutdown, a promotion or a restored backup, which shuffle_sweep_state
 * tells, an unlogged table that the server empties on exactly these occasions; when a
 * prepared transaction that was noted (a file in pg_shuffle/<database>/prepared) has
 * ended; and when another database was dropped.  Users may call shuffle_sweep().
 *
 * Only a sweep that knew the fate of every file counts as the one after a crash: a
 * transaction that is running may have got the id of one that left files in the crash before
 * anything with that id was in the write-ahead log.
 */
#include "postgres.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/indexing.h"
#include "catalog/storage.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "shuffle.h"
#include "storage.h"
#include "sweep.h"

PG_FUNCTION_INFO_V1(shuffle_sweep);

bool shuffle_sweep_wanted = false;

static char *
notes_dir(void)
{
	char *database = shuffle_database_dir(SHUFFLE_DATA_ROOT, MyDatabaseId);
	char *dir = psprintf("%s/" SHUFFLE_NOTES_DIRECTORY, database);

	pfree(database);
	return dir;
}

static void
make_note_directory(const char *path)
{
	if (MakePGDirectory(path) != 0 && errno != EEXIST)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not create directory \"%s\": %m", path)));
}

void
shuffle_sweep_note(FullTransactionId fxid)
{
	char *database = shuffle_database_dir(SHUFFLE_DATA_ROOT, MyDatabaseId);
	char *dir = notes_dir();
	char *path = psprintf("%s/%016" PRIx64 "-", dir, U64FromFullTransactionId(fxid));
	int	  fd;

	make_note_directory(SHUFFLE_DATA_ROOT);
	make_note_directory(database);
	make_note_directory(dir);
	fd = OpenTransientFile(path, O_CREAT | O_WRONLY | PG_BINARY);
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not create file \"%s\": %m", path)));
	if (CloseTransientFile(fd) != 0)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not close file \"%s\": %m", path)));
	shuffle_fsync_dir(dir);
	shuffle_fsync_dir(database);
	shuffle_fsync_dir(SHUFFLE_DATA_ROOT);
	shuffle_fsync_dir(DataDir);
}

typedef struct Notes
{
	uint64 limit;
	List  *paths; /* of decided transactions, char * */
} Notes;

static void
visit_note(const char *dir, const char *name, void *arg)
{
	Notes *notes = arg;
	uint64 fxid;

	if (shuffle_name_xid(name, &fxid) && fxid < notes->limit)
		notes->paths = lappend(notes->paths, psprintf("%s/%s", dir, name));
}

/* Notes of transactions that have ended; the sweep must follow this call. */
static List *
decided_notes(void)
{
	Notes notes = {shuffle_sweep_oldest_running(), NIL};
	char *dir = notes_dir();

	shuffle_sweep_for_each_entry(dir, visit_note, &notes);
	pfree(dir);
	return notes.paths;
}

/* Has a sweep been done since the server last emptied unlogged tables? */
static bool
swept_since_crash(Relation state)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(state, InvalidOid, false, snapshot, 0, NULL);
	bool		found = HeapTupleIsValid(systable_getnext(scan));

	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	return found;
}

/* Runs a sweep under its lock; -1 if an automatic one finds another session at it. */
static int64
locked_sweep(bool automatic)
{
	Relation  state;
	LOCKTAG	  tag;
	List	 *notes;
	ListCell *lc;
	uint64	  removed;
	bool	  complete;

	shuffle_storage_lock_tag(&tag, MyDatabaseId, SHUFFLE_LOCK_SWEEP);
	if (LockAcquire(&tag, ExclusiveLock, false, automatic) == LOCKACQUIRE_NOT_AVAIL)
		return -1;

	notes = decided_notes();
	shuffle_sweep_wanted = false;
	removed = shuffle_sweep_files(automatic ? LOG : WARNING, &complete);
	foreach(lc, notes)
		(void) unlink((char *) lfirst(lc));

	state = table_open(shuffle_catalog_ids()->sweep_state, RowExclusiveLock);
	if (complete && !swept_since_crash(state))
	{
		Datum	  value = TimestampTzGetDatum(GetCurrentTimestamp());
		bool	  isnull = false;
		HeapTuple tuple = heap_form_tuple(RelationGetDescr(state), &value, &isnull);

		CatalogTupleInsert(state, tuple);
		heap_freetuple(tuple);
	}
	table_close(state, RowExclusiveLock);
	(void) LockRelease(&tag, ExclusiveLock, false);

	if (removed > 0)
		ereport(LOG,
				(errmsg_plural("removed %llu leftover shuffle segment file",
							   "removed %llu leftover shuffle segment files",
							   (unsigned long) removed, (unsigned long long) removed)));
	return (int64) removed;
}

void
shuffle_sweep_if_needed(void)
{
	static bool checked = false;

	/* In parallel mode (CREATE TABLE AS) nothing may be written to a table of ours. */
	if ((checked && !shuffle_sweep_wanted) || IsBinaryUpgrade || IsInParallelMode() ||
		RecoveryInProgress() || !shuffle_extension_exists())
		return;

	if (!checked && !shuffle_sweep_wanted)
	{
		Relation state = table_open(shuffle_catalog_ids()->sweep_state, AccessShareLock);
		bool	 swept = swept_since_crash(state);

		table_close(state, AccessShareLock);
		if (swept && decided_notes() == NIL && !shuffle_sweep_database_was_dropped())
		{
			checked = true;
			return;
		}
	}
	if (locked_sweep(true) >= 0)
		checked = true;
}

/*
 * Deletes rows whose storage no relation has.  Every way of dropping a table deletes
 * its rows with it, so that there are none unless the library could not be loaded then.
 * Their files go at the first sweep after everybody has forgotten the rows.
 */
static void
delete_orphans(void)
{
	Relation		rel;
	SysScanDesc		scan;
	HeapTuple		tuple;
	Snapshot		snapshot;
	RelFileLocator *dropped;

	/* Rows of what this very transaction drops are still to be freed at commit. */
	if (smgrGetPendingDeletes(true, &dropped) > 0)
		return;

	rel = table_open(shuffle_catalog_ids()->table, RowExclusiveLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool isnull;
		Oid	 tablespace = DatumGetObjectId(
			 heap_getattr(tuple, Anum_segment_tablespace, RelationGetDescr(rel), &isnull));
		RelFileNumber filenumber = DatumGetObjectId(
			heap_getattr(tuple, Anum_segment_filenumber, RelationGetDescr(rel), &isnull));
		TM_FailureData failure;

		CHECK_FOR_INTERRUPTS();

		/*
		 * Looked up after the row was seen: if the relation went in between, so did the
		 * row, and the deletion finds that out.
		 */
		if (!OidIsValid(RelidByRelfilenumber(tablespace, filenumber)))
			(void) heap_delete(rel, &tuple->t_self, GetCurrentCommandId(true), InvalidSnapshot,
							   false, &failure, false);
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, RowExclusiveLock);
}

/*
 * shuffle_sweep() returns bigint
 *
 * Removes leftover files of this database and of dropped ones; returns how many.
 */
Datum
shuffle_sweep(PG_FUNCTION_ARGS)
{
	PreventCommandDuringRecovery("shuffle_sweep()");
	PreventCommandIfReadOnly("shuffle_sweep()");
	PreventCommandIfParallelMode("shuffle_sweep()");
	if (IsBinaryUpgrade)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot sweep during a binary upgrade")));

	delete_orphans();
	PG_RETURN_INT64(locked_sweep(false));
}
