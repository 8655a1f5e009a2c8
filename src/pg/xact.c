/*
 * xact.c
 *	  Transaction callbacks: who answers for files until commit, and what is removed
 *	  when a transaction or subtransaction ends.
 *
 * Two lists, both in TopTransactionContext and of this backend's transaction only.
 *
 * "owned" are files written by a subtransaction that has not committed to the top yet.
 * An entry follows its subtransaction: merged into the parent at subcommit, unlinked at
 * subabort.  At commit the list is just forgotten; the files belong to the catalog rows
 * then.  An entry without prefix is a storage's directory that we made: it is removed
 * when the storage itself is going (CREATE rolled back), which the server's list of
 * storages to delete at abort tells.
 *
 * "freed" are directories of storages that the server will drop at commit, found at
 * PRE_COMMIT in its list of storages to delete: that list has exactly what DROP,
 * TRUNCATE, rewrites, REFRESH and SET TABLESPACE leave behind, whoever issued them.
 * Their rows are deleted there, inside the transaction; their files go in the COMMIT
 * callback, when nothing can fail any more.  (The server flushes the commit record
 * before that whenever storages are dropped, also with synchronous_commit = off.)
 *
 * Rows on their way into segments are in write states (write_state.c), which are told of
 * every end: published before commit, thrown away before their files are unlinked.
 *
 * PREPARE TRANSACTION: rows are deleted in the prepared transaction; files are nobody's
 * until it is decided, so a note is left for the sweep.
 *
 * The COMMIT, ABORT and subtransaction callbacks touch no catalog and never raise.
 * Parallel workers own nothing and do nothing: their leader answers for all files, and
 * has waited for them to exit before its own callbacks run.
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/storage.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "alter.h"
#include "shuffle.h"
#include "storage.h"
#include "sweep.h"
#include "write_state.h"

typedef struct OwnedFiles
{
	struct OwnedFiles *next;
	SubTransactionId   subid;
	ShuffleStorage	   storage; /* of a directory entry */
	char			  *prefix;	/* NULL: the directory itself */
	char			   dir[FLEXIBLE_ARRAY_MEMBER];
} OwnedFiles;

typedef struct FreedDirectory
{
	struct FreedDirectory *next;
	char				   path[FLEXIBLE_ARRAY_MEMBER];
} FreedDirectory;

static OwnedFiles	  *owned = NULL;
static FreedDirectory *freed = NULL;

static void
own(const char *dir, const char *prefix, ShuffleStorage storage, SubTransactionId subid)
{
	OwnedFiles *entry;

	Assert(!IsParallelWorker());
	entry = MemoryContextAlloc(TopTransactionContext, offsetof(OwnedFiles, dir) + strlen(dir) + 1);
	strcpy(entry->dir, dir);
	entry->prefix = prefix ? MemoryContextStrdup(TopTransactionContext, prefix) : NULL;
	entry->storage = storage;
	entry->subid = subid;
	entry->next = owned;
	owned = entry;
}

void
shuffle_xact_own_files(const char *dir, const char *prefix, SubTransactionId subid)
{
	own(dir, prefix, (ShuffleStorage){0}, subid);
}

void
shuffle_xact_own_directory(const char *dir, const ShuffleStorage *storage)
{
	own(dir, NULL, *storage, GetCurrentSubTransactionId());
}

static void
remember_freed(const char *path)
{
	FreedDirectory *entry;

	entry = MemoryContextAlloc(TopTransactionContext,
							   offsetof(FreedDirectory, path) + strlen(path) + 1);
	strcpy(entry->path, path);
	entry->next = freed;
	freed = entry;
}

/*
 * Unlinks what the ending subtransaction owns (InvalidSubTransactionId: everything).
 * Directories of storages that stay are handed to the parent.
 *
 * The list of storages comes from the same call with which the server records this very
 * abort, so that its allocation adds no way to fail.
 */
static void
abort_owned(SubTransactionId subid, SubTransactionId parent)
{
	OwnedFiles	  **link = &owned;
	RelFileLocator *dropped = NULL;
	int				ndropped = -1;

	while (*link != NULL)
	{
		OwnedFiles *entry = *link;

		if (subid != InvalidSubTransactionId && entry->subid != subid)
		{
			link = &entry->next;
			continue;
		}

		if (entry->prefix != NULL)
			shuffle_unlink_prefix(entry->dir, entry->prefix);
		else
		{
			bool going = false;

			if (ndropped < 0)
				ndropped = smgrGetPendingDeletes(false, &dropped);
			for (int i = 0; i < ndropped && !going; i++)
			{
				ShuffleStorage storage = shuffle_storage_from_locator(dropped[i]);

				going = shuffle_same_storage(&storage, &entry->storage);
			}
			if (going)
				shuffle_unlink_storage(entry->dir);
			else if (subid != InvalidSubTransactionId)
			{
				entry->subid = parent;
				link = &entry->next;
				continue;
			}
		}
		*link = entry->next;
	}
	if (dropped)
		pfree(dropped);
}

/*
 * Deletes the segment rows of the storages that commit is going to drop, and notes
 * their directories.  An ordinary transaction drops none and returns at once.
 */
static void
free_dropped(void)
{
	RelFileLocator *dropped;
	int				ndropped = smgrGetPendingDeletes(true, &dropped);
	List		   *likely_roots;
	bool			exists;
	bool			pushed = false;

	if (ndropped == 0)
		return;

	/* Other snapshots ignore the xid of a lazy VACUUM; it drops no table of ours anyway. */
	if (!OidIsValid(MyDatabaseId) || (MyProc->statusFlags & PROC_IN_VACUUM) != 0 || IsBinaryUpgrade)
		return;

	/* Rows inserted by this transaction's last command must be deletable, too. */
	CommandCounterIncrement();
	if (!ActiveSnapshotSet())
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		pushed = true;
	}

	/*
	 * Besides the roots that rows name: a write without rows leaves an empty directory, and
	 * DROP EXTENSION has taken the rows with it.
	 */
	likely_roots = list_make1(pstrdup(SHUFFLE_DATA_ROOT));
	if (shuffle_setting_directory[0] != '\0')
		likely_roots = lappend(likely_roots, shuffle_root());

	exists = shuffle_extension_exists();
	for (int i = 0; i < ndropped; i++)
	{
		ShuffleStorage storage;
		List		  *roots;
		ListCell	  *lc;

		if (dropped[i].dbOid != MyDatabaseId)
			continue;
		storage = shuffle_storage_from_locator(dropped[i]);
		roots = list_copy(likely_roots);
		if (exists)
			(void) shuffle_catalog_delete(&storage, &roots);
		foreach(lc, roots)
		{
			char	   *root = (char *) lfirst(lc);
			char	   *dir = shuffle_storage_dir(root, &storage);
			struct stat st;

			if (lstat(dir, &st) == 0 && shuffle_root_state(root, NULL) == SHUFFLE_ROOT_OURS)
				remember_freed(dir);
			pfree(dir);
		}
	}

	if (pushed)
		PopActiveSnapshot();
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			shuffle_states_pre_commit();
			shuffle_alter_check();
			free_dropped();
			break;

		case XACT_EVENT_PRE_PREPARE:
			shuffle_states_pre_commit();
			shuffle_alter_check();
			free_dropped();
			if (owned != NULL || freed != NULL)
				shuffle_sweep_note(GetTopFullTransactionId());
			break;

		case XACT_EVENT_COMMIT:
			shuffle_states_forget();
			shuffle_alter_forget();
			for (; freed != NULL; freed = freed->next)
				shuffle_unlink_storage(freed->path);
			owned = NULL;
			break;

		case XACT_EVENT_ABORT:
			shuffle_states_forget();
			shuffle_alter_forget();
			if (owned != NULL)
				abort_owned(InvalidSubTransactionId, InvalidSubTransactionId);
			owned = NULL;
			freed = NULL;
			break;

		case XACT_EVENT_PREPARE:
			shuffle_states_forget();
			shuffle_alter_forget();
			owned = NULL;
			freed = NULL;
			break;

		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;
	}
}

static void
subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	OwnedFiles *entry;

	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			shuffle_states_subcommit(subid, parent);
			for (entry = owned; entry != NULL; entry = entry->next)
				if (entry->subid == subid)
					entry->subid = parent;
			break;

		case SUBXACT_EVENT_ABORT_SUB:
			shuffle_states_subabort(subid);
			if (owned != NULL)
				abort_owned(subid, parent);
			break;

		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
	}
}

void
shuffle_xact_init(void)
{
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
}
