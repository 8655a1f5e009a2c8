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
 * When a sweep is due is in sweep_when.c.  Files that compaction has replaced stay while a
 * snapshot may read them; VACUUM, and the next compaction, sweep the storage of the one
 * table that they have locked against both.
 *
 * Whoever sweeps holds an advisory lock of the database.  Empty directories are removed
 * only while no other session has a storage prepared (see storage.h).
 */
#include "postgres.h"

#include <dirent.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/transam.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "shuffle.h"
#include "storage.h"
#include "sweep.h"

#define ARROW_SUFFIX ".arrow"

/* A file or segment directory that step 1 has found. */
typedef struct Candidate
{
	uint64 fxid;
	char  *key; /* <tablespace>_<filenumber>/<name>, without ".arrow" */
	char  *path;
	bool   keep;
} Candidate;

typedef struct SweepState
{
	List		 *roots; /* of this cluster, char * */
	Candidate	 *candidates;
	size_t		  ncandidates;
	size_t		  maxcandidates;
	List		 *storage_dirs; /* all seen, char * */
	List		 *databases;	/* Oids of other databases' directories */
	uint64		  limit;		/* full transaction id of step 2 */
	uint64		  undecided;	/* files that step 2 keeps */
	uint64		  removed;		/* files */
	MemoryContext cxt;
} SweepState;

/* ---------------------------------------------------------------- directories */

void
shuffle_sweep_for_each_entry(const char *dir, ShuffleEntryVisitor visit, void *arg)
{
	DIR			  *d = AllocateDir(dir);
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
	size_t a = strspn(name, "0123456789");
	size_t b;

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
		return; /* not ours */

	if (state->ncandidates == state->maxcandidates)
	{
		state->maxcandidates = Max(state->maxcandidates * 2, 1024);
		state->candidates = state->candidates ?
			repalloc_huge(state->candidates, state->maxcandidates * sizeof(Candidate)) :
			palloc_extended(state->maxcandidates * sizeof(Candidate), MCXT_ALLOC_HUGE);
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
	shuffle_sweep_for_each_entry(path, visit_file, state);
}

static void
visit_database(const char *dir, const char *name, void *arg)
{
	SweepState	 *state = arg;
	char		 *end;
	unsigned long oid = strtoul(name, &end, 10);

	if (name[0] >= '1' && name[0] <= '9' && *end == '\0' && oid <= OID_MAX && oid != MyDatabaseId)
		state->databases = list_append_unique_oid(state->databases, (Oid) oid);
}

/* ---------------------------------------------------------------- the four steps */

static void
add_root(SweepState *state, const char *root)
{
	ListCell *lc;

	foreach(lc, state->roots)
		if (strcmp((char *) lfirst(lc), root) == 0)
			return;
	state->roots = lappend(state->roots, MemoryContextStrdup(state->cxt, root));
}

static void
visit_version_root(const ShuffleSegmentRow *row, bool dead, void *arg)
{
	SweepState	 *state = arg;
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
	ListCell *lc;

	add_root(state, SHUFFLE_DATA_ROOT);
	add_root(state, shuffle_root());
	shuffle_catalog_versions(storage, visit_version_root, state);

	foreach(lc, state->roots)
	{
		char *root = (char *) lfirst(lc);

		switch (shuffle_root_state(root, NULL))
		{
			case SHUFFLE_ROOT_OURS:
				continue;
			case SHUFFLE_ROOT_FOREIGN:
				ereport(elevel,
						(errmsg("not sweeping directory \"%s\" because it belongs to another "
								"cluster",
								root)));
				break;
			case SHUFFLE_ROOT_NO_OWNER:
				break;
		}
		state->roots = foreach_delete_current(state->roots, lc);
	}
}

uint64
shuffle_sweep_oldest_running(void)
{
	TransactionId	  oldest = GetOldestActiveTransactionId();
	FullTransactionId next = ReadNextFullTransactionId();
	uint32			  epoch = EpochFromFullTransactionId(next);

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
	for (;
		 found < state->candidates + state->ncandidates && compare_candidates(found, &wanted) == 0;
		 found++)
		found->keep = true;
}

/* Removes directories of storages that are empty, unless someone is about to use one. */
static void
remove_empty_directories(SweepState *state)
{
	LOCKTAG	  tag;
	ListCell *lc;

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
	ListCell *lc;

	foreach(lc, state->roots)
	{
		SweepState inner = {.cxt = state->cxt};
		char	  *dir = shuffle_database_dir((char *) lfirst(lc), database);
		char	  *notes = psprintf("%s/" SHUFFLE_NOTES_DIRECTORY, dir);
		ListCell  *storage;

		shuffle_sweep_for_each_entry(dir, visit_storage, &inner);
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
	size_t n = 0;

	/* 2. */
	state->limit = shuffle_sweep_oldest_running();
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
	SweepState	  state = {0};
	MemoryContext old;
	ListCell	 *lc;

	state.cxt =
		AllocSetContextCreate(CurrentMemoryContext, "shuffle sweep", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(state.cxt);
	collect_roots(&state, storage, LOG);
	foreach(lc, state.roots)
		shuffle_sweep_for_each_entry(shuffle_storage_dir((char *) lfirst(lc), storage), visit_file,
									 &state);
	remove_unknown(&state, storage);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(state.cxt);
	return state.removed;
}

uint64
shuffle_sweep_files(int elevel, bool *complete)
{
	SweepState	  state = {0};
	MemoryContext old;
	ListCell	 *lc;

	state.cxt =
		AllocSetContextCreate(CurrentMemoryContext, "shuffle sweep", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(state.cxt);
	collect_roots(&state, NULL, elevel);

	/* 1. */
	foreach(lc, state.roots)
	{
		char *root = (char *) lfirst(lc);

		shuffle_sweep_for_each_entry(root, visit_database, &state);
		shuffle_sweep_for_each_entry(shuffle_database_dir(root, MyDatabaseId), visit_storage,
									 &state);
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

bool
shuffle_sweep_database_was_dropped(void)
{
	SweepState state = {0};
	char	  *root = shuffle_root();
	ListCell  *lc;

	shuffle_sweep_for_each_entry(SHUFFLE_DATA_ROOT, visit_database, &state);
	if (shuffle_root_is_outer(root))
		shuffle_sweep_for_each_entry(root, visit_database, &state);
	InvalidateCatalogSnapshot();
	foreach(lc, state.databases)
		if (!database_exists(lfirst_oid(lc)))
			return true;
	return false;
}
