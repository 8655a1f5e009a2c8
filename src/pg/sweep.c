/*
 * sweep.c
 *	  Removes files that no transaction answers for any more.
 *
 * Files outlive their transaction when its process or the server dies before the abort
 * callback, when a prepared transaction is rolled back or drops a table, and when an
 * unlink fails.  A sweep works in this order, and only this order is safe:
 *
 *	  1. list files;
 *	  2. keep those whose name begins with a full transaction id at or above the oldest
 *		 running or next one: their transaction may still publish them;
 *	  3. read shuffle_segment and keep every file that a row version names which anyone
 *		 might still see.  The transactions of the files that step 2 left ended before
 *		 this read began, so that their rows, if any, are there to be found;
 *	  4. unlink the rest.
 *
 * Transaction status is never looked up: names may be older than what pg_xact keeps.
 * A file is matched by storage and name alone, not by root, so that two spellings of
 * one root cannot make a live file look unknown; names have 64 random bits.
 *
 * A sweep runs when the first writer of a session finds that one is due: after a crash,
 * an immediate shutdown, a promotion or a restored backup, which shuffle_sweep_state
 * tells, an unlogged table that the server empties on exactly these occasions; when a
 * prepared transaction that was noted (a file in pg_shuffle/<database>/prepared) has
 * ended; and when another database was dropped.  Users may call shuffle_sweep().
 *
 * Files that compaction has replaced stay while a snapshot may read them.  VACUUM, and the
 * next compaction, sweep the storage of the one table they have locked against both.
 *
 * Whoever sweeps holds an advisory lock of the database.  Empty directories are removed
 * only while no other session has a storage prepared (see storage.h).
 */
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/indexing.h"
#include "catalog/storage.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "shuffle.h"
#include "storage.h"
#include "sweep.h"

#define STATE_TABLE			"shuffle_sweep_state"
#define NOTES_DIRECTORY		"prepared"
#define ARROW_SUFFIX		".arrow"

PG_FUNCTION_INFO_V1(shuffle_sweep);

bool		shuffle_sweep_wanted = false;

/* A file or segment directory that step 1 has found. */
typedef struct Candidate
{
	uint64		fxid;
	char	   *key;			/* <tablespace>_<filenumber>/<name>, without ".arrow" */
	char	   *path;
	bool		keep;
} Candidate;

typedef struct SweepState
{
	List	   *roots;			/* of this cluster, char * */
	Candidate  *candidates;
	size_t		ncandidates;
	size_t		maxcandidates;
	List	   *storage_dirs;	/* all seen, char * */
	List	   *databases;		/* Oids of other databases' directories */
	uint64		limit;			/* full transaction id of step 2 */
	uint64		undecided;		/* files that step 2 keeps */
	uint64		removed;		/* files */
	MemoryContext cxt;
} SweepState;

/* ---------------------------------------------------------------- directories */

typedef void (*EntryVisitor) (const char *dir, const char *name, void *arg);

/* Calls visit for every entry; a directory that is missing has none, others are logged. */
static void
for_each_entry(const char *dir, EntryVisitor visit, void *arg)
{
	DIR		   *d = AllocateDir(dir);
	struct dirent *de;

	if (d == NULL && errno == ENOENT)
		return;
	while ((de = ReadDirExtended(d, dir, LOG)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			visit(dir, de->d_name, arg);
	}
	if (d)
		FreeDir(d);
}

/* Is this "<number>_<number>"? */
static bool
is_storage_name(const char *name)
{
	size_t		a = strspn(name, "0123456789");
	size_t		b;

	if (a == 0 || name[a] != '_')
		return false;
	b = strspn(name + a + 1, "0123456789");
	return b > 0 && name[a + 1 + b] == '\0';
}

static void
visit_file(const char *dir, const char *name, void *arg)
{
	SweepState *state = arg;
	Candidate  *candidate;
	uint64		fxid;
	size_t		len = strlen(name);
	size_t		suffix = strlen(ARROW_SUFFIX);

	if (!shuffle_name_xid(name, &fxid))
		return;					/* not ours */

	if (state->ncandidates == state->maxcandidates)
	{
		state->maxcandidates = Max(state->maxcandidates * 2, 1024);
		state->candidates = state->candidates
			? repalloc_huge(state->candidates, state->maxcandidates * sizeof(Candidate))
			: palloc_extended(state->maxcandidates * sizeof(Candidate), MCXT_ALLOC_HUGE);
	}
	if (len > suffix && strcmp(name + len - suffix, ARROW_SUFFIX) == 0)
		len -= suffix;
	candidate = &state->candidates[state->ncandidates++];
	candidate->fxid = fxid;
	candidate->key = psprintf("%s/%.*s", strrchr(dir, '/') + 1, (int) len, name);
	candidate->path = psprintf("%s/%s", dir, name);
	candidate->keep = false;
}

static void
visit_storage(const char *dir, const char *name, void *arg)
{
	SweepState *state = arg;
	char	   *path;

	if (!is_storage_name(name))
		return;
	path = psprintf("%s/%s", dir, name);
	state->storage_dirs = lappend(state->storage_dirs, path);
	for_each_entry(path, visit_file, state);
}

static void
visit_database(const char *dir, const char *name, void *arg)
{
	SweepState *state = arg;
	char	   *end;
	unsigned long oid = strtoul(name, &end, 10);

	if (name[0] >= '1' && name[0] <= '9' && *end == '\0' && oid <= OID_MAX &&
		oid != MyDatabaseId)
		state->databases = list_append_unique_oid(state->databases, (Oid) oid);
}

/* ---------------------------------------------------------------- the four steps */

static void
add_root(SweepState *state, const char *root)
{
	ListCell   *lc;

	foreach(lc, state->roots)
		if (strcmp((char *) lfirst(lc), root) == 0)
			return;
	state->roots = lappend(state->roots, MemoryContextStrdup(state->cxt, root));
}

static void
visit_version_root(const ShuffleSegmentRow *row, bool dead, void *arg)
{
	SweepState *state = arg;
	MemoryContext old = MemoryContextSwitchTo(state->cxt);

	add_root(state, row->root);
	MemoryContextSwitchTo(old);
}

/*
 * All roots known to this database, or that one storage is known to use, without those
 * that are another cluster's.
 */
static void
collect_roots(SweepState *state, const ShuffleStorage *storage, int elevel)
{
	ListCell   *lc;

	add_root(state, SHUFFLE_DATA_ROOT);
	add_root(state, shuffle_root());
	shuffle_catalog_versions(storage, visit_version_root, state);

	foreach(lc, state->roots)
	{
		char	   *root = (char *) lfirst(lc);

		switch (shuffle_root_state(root, NULL))
		{
			case SHUFFLE_ROOT_OURS:
				continue;
			case SHUFFLE_ROOT_FOREIGN:
				ereport(elevel,
						(errmsg("not sweeping directory \"%s\" because it belongs to another "
								"cluster", root)));
				break;
			case SHUFFLE_ROOT_NO_OWNER:
				break;
		}
		state->roots = foreach_delete_current(state->roots, lc);
	}
}

/* The oldest full transaction id that might still be running, or else the next one. */
static uint64
oldest_running(void)
{
	TransactionId oldest = GetOldestActiveTransactionId();
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		epoch = EpochFromFullTransactionId(next);

	if (oldest > XidFromFullTransactionId(next))
		epoch--;
	return U64FromFullTransactionId(FullTransactionIdFromEpochAndXid(epoch, oldest));
}

static int
compare_candidates(const void *a, const void *b)
{
	return strcmp(((const Candidate *) a)->key, ((const Candidate *) b)->key);
}

static void
visit_version_file(const ShuffleSegmentRow *row, bool dead, void *arg)
{
	SweepState *state = arg;
	Candidate	wanted;
	Candidate  *found;

	wanted.key = psprintf("%u_%u/%s", row->storage.tablespace, row->storage.filenumber, row->name);
	found = bsearch(&wanted, state->candidates, state->ncandidates, sizeof(Candidate),
					compare_candidates);
	if (found == NULL)
		return;

	/* The same key may have been listed under several roots. */
	while (found > state->candidates && compare_candidates(found - 1, &wanted) == 0)
		found--;
	for (; found < state->candidates + state->ncandidates &&
		 compare_candidates(found, &wanted) == 0; found++)
		found->keep = true;
}

/* Removes directories of storages that are empty, unless someone is about to use one. */
static void
remove_empty_directories(SweepState *state)
{
	LOCKTAG		tag;
	ListCell   *lc;

	shuffle_storage_lock_tag(&tag, MyDatabaseId, SHUFFLE_LOCK_DIRECTORIES);
	if (LockHeldByMe(&tag, ShareLock, false))
		return;
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return;
	foreach(lc, state->storage_dirs)
		(void) rmdir((char *) lfirst(lc));
	(void) LockRelease(&tag, ExclusiveLock, false);
}

/*
 * Files of a database that is gone.  One of the same oid could have been created since:
 * its files have transaction ids that step 2 keeps.
 */
static void
sweep_dropped_database(SweepState *state, Oid database)
{
	ListCell   *lc;

	foreach(lc, state->roots)
	{
		SweepState	inner = {.cxt = state->cxt};
		char	   *dir = shuffle_database_dir((char *) lfirst(lc), database);
		char	   *notes = psprintf("%s/" NOTES_DIRECTORY, dir);
		ListCell   *storage;

		for_each_entry(dir, visit_storage, &inner);
		for (size_t i = 0; i < inner.ncandidates; i++)
			if (inner.candidates[i].fxid < state->limit)
				state->removed += shuffle_remove_path(inner.candidates[i].path);
		foreach(storage, inner.storage_dirs)
			(void) rmdir((char *) lfirst(storage));
		(void) shuffle_remove_path(notes);
		(void) rmdir(dir);
	}
}

static bool
database_exists(Oid database)
{
	return SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database));
}

/* Steps 2 to 4 for the candidates of step 1, of one storage or of all. */
static void
remove_unknown(SweepState *state, const ShuffleStorage *storage)
{
	size_t		n = 0;

	/* 2. */
	state->limit = oldest_running();
	for (size_t i = 0; i < state->ncandidates; i++)
	{
		if (state->candidates[i].fxid < state->limit)
			state->candidates[n++] = state->candidates[i];
		else
			state->undecided++;
	}
	state->ncandidates = n;

	/* 3. */
	if (n > 0)
	{
		qsort(state->candidates, n, sizeof(Candidate), compare_candidates);
		shuffle_catalog_versions(storage, visit_version_file, state);
	}

	/* 4. */
	for (size_t i = 0; i < state->ncandidates; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!state->candidates[i].keep)
			state->removed += shuffle_remove_path(state->candidates[i].path);
	}
}

uint64
shuffle_sweep_storage(const ShuffleStorage *storage)
{
	SweepState	state = {0};
	MemoryContext old;
	ListCell   *lc;

	state.cxt = AllocSetContextCreate(CurrentMemoryContext, "shuffle sweep",
									  ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(state.cxt);
	collect_roots(&state, storage, LOG);
	foreach(lc, state.roots)
		for_each_entry(shuffle_storage_dir((char *) lfirst(lc), storage), visit_file, &state);
	remove_unknown(&state, storage);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(state.cxt);
	return state.removed;
}

/*
 * The caller holds the sweep lock.  Returns how many files were removed, and in *complete
 * whether the fate of all files was known; tells at elevel which roots are not ours.
 */
static uint64
sweep(int elevel, bool *complete)
{
	SweepState	state = {0};
	MemoryContext old;
	ListCell   *lc;

	state.cxt = AllocSetContextCreate(CurrentMemoryContext, "shuffle sweep",
									  ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(state.cxt);
	collect_roots(&state, NULL, elevel);

	/* 1. */
	foreach(lc, state.roots)
	{
		char	   *root = (char *) lfirst(lc);

		for_each_entry(shuffle_root_path(root), visit_database, &state);
		for_each_entry(shuffle_database_dir(root, MyDatabaseId), visit_storage, &state);
	}

	remove_unknown(&state, NULL);
	remove_empty_directories(&state);

	/* The list of databases is read now, after their directories were. */
	InvalidateCatalogSnapshot();
	foreach(lc, state.databases)
		if (!database_exists(lfirst_oid(lc)))
			sweep_dropped_database(&state, lfirst_oid(lc));

	MemoryContextSwitchTo(old);
	MemoryContextDelete(state.cxt);
	*complete = (state.undecided == 0);
	return state.removed;
}

/* ---------------------------------------------------------------- when */

static char *
notes_dir(void)
{
	char	   *database = shuffle_database_dir(SHUFFLE_DATA_ROOT, MyDatabaseId);
	char	   *dir = psprintf("%s/" NOTES_DIRECTORY, database);

	pfree(database);
	return dir;
}

static void
make_note_directory(char *path)
{
	if (MakePGDirectory(path) != 0 && errno != EEXIST)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create directory \"%s\": %m", path)));
}

void
shuffle_sweep_note(FullTransactionId fxid)
{
	char	   *root = shuffle_root_path(SHUFFLE_DATA_ROOT);
	char	   *database = shuffle_database_dir(SHUFFLE_DATA_ROOT, MyDatabaseId);
	char	   *dir = notes_dir();
	char	   *path = psprintf("%s/%016" PRIx64 "-", dir, U64FromFullTransactionId(fxid));
	int			fd;

	make_note_directory(root);
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
	shuffle_fsync_dir(root);
	shuffle_fsync_dir(DataDir);
}

typedef struct Notes
{
	uint64		limit;
	List	   *paths;			/* of decided transactions, char * */
} Notes;

static void
visit_note(const char *dir, const char *name, void *arg)
{
	Notes	   *notes = arg;
	uint64		fxid;

	if (shuffle_name_xid(name, &fxid) && fxid < notes->limit)
		notes->paths = lappend(notes->paths, psprintf("%s/%s", dir, name));
}

/* Notes of transactions that have ended; the sweep must follow this call. */
static List *
decided_notes(void)
{
	Notes		notes = {oldest_running(), NIL};
	char	   *dir = notes_dir();

	for_each_entry(dir, visit_note, &notes);
	pfree(dir);
	return notes.paths;
}

/* Is there a directory of a database that is gone? */
static bool
database_was_dropped(void)
{
	SweepState	state = {0};
	char	   *root = shuffle_root();
	ListCell   *lc;

	for_each_entry(shuffle_root_path(SHUFFLE_DATA_ROOT), visit_database, &state);
	if (shuffle_root_is_outer(root))
		for_each_entry(shuffle_root_path(root), visit_database, &state);
	InvalidateCatalogSnapshot();
	foreach(lc, state.databases)
		if (!database_exists(lfirst_oid(lc)))
			return true;
	return false;
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
	Relation	state;
	LOCKTAG		tag;
	List	   *notes;
	ListCell   *lc;
	uint64		removed;
	bool		complete;

	shuffle_storage_lock_tag(&tag, MyDatabaseId, SHUFFLE_LOCK_SWEEP);
	if (LockAcquire(&tag, ExclusiveLock, false, automatic) == LOCKACQUIRE_NOT_AVAIL)
		return -1;

	notes = decided_notes();
	shuffle_sweep_wanted = false;
	removed = sweep(automatic ? LOG : WARNING, &complete);
	foreach(lc, notes)
		(void) unlink((char *) lfirst(lc));

	/*
	 * A transaction that is running may have got the id of one that left files in a crash
	 * before anything with that id was in the write-ahead log: the next session must look
	 * again.
	 */
	state = table_open(shuffle_catalog_relid(STATE_TABLE), RowExclusiveLock);
	if (complete && !swept_since_crash(state))
	{
		Datum		value = TimestampTzGetDatum(GetCurrentTimestamp());
		bool		isnull = false;
		HeapTuple	tuple = heap_form_tuple(RelationGetDescr(state), &value, &isnull);

		CatalogTupleInsert(state, tuple);
		heap_freetuple(tuple);
	}
	table_close(state, RowExclusiveLock);
	(void) LockRelease(&tag, ExclusiveLock, false);

	if (removed > 0)
		ereport(LOG,
				(errmsg("removed %llu leftover shuffle segment files",
						(unsigned long long) removed)));
	return (int64) removed;
}

void
shuffle_sweep_if_needed(void)
{
	static bool checked = false;

	/* In parallel mode (CREATE TABLE AS) nothing may be written to a table of ours. */
	if ((checked && !shuffle_sweep_wanted) || IsBinaryUpgrade || IsInParallelMode() ||
		RecoveryInProgress() ||
		!shuffle_extension_exists())
		return;

	if (!checked && !shuffle_sweep_wanted)
	{
		Relation	state = table_open(shuffle_catalog_relid(STATE_TABLE), AccessShareLock);
		bool		swept = swept_since_crash(state);

		table_close(state, AccessShareLock);
		if (swept && decided_notes() == NIL && !database_was_dropped())
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
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	Snapshot	snapshot;
	RelFileLocator *dropped;

	/* Rows of what this very transaction drops are still to be freed at commit. */
	if (smgrGetPendingDeletes(true, &dropped) > 0)
		return;

	rel = table_open(shuffle_catalog_relid(SHUFFLE_SEGMENT_TABLE), RowExclusiveLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		Oid			tablespace = DatumGetObjectId(heap_getattr(tuple, Anum_segment_tablespace,
															   RelationGetDescr(rel), &isnull));
		RelFileNumber filenumber = DatumGetObjectId(heap_getattr(tuple, Anum_segment_filenumber,
																 RelationGetDescr(rel), &isnull));
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
