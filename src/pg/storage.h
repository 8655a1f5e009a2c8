/*
 * storage.h
 *	  What storage.c, xact.c and sweep.c share about roots and directories.
 */
#ifndef SHUFFLE_STORAGE_H
#define SHUFFLE_STORAGE_H

#include "postgres.h"

#include "storage/lock.h"

#include "shuffle.h"

#define SHUFFLE_DATA_ROOT "pg_shuffle" /* in the data directory */

/*
 * Advisory locks of our own; none of them conflicts with those of SQL.
 *
 * OWNER (cluster-wide): claiming an outer root.  SWEEP (per database): one sweep at a
 * time.  DIRECTORIES (per database): share by whoever has prepared a storage, until its
 * transaction ends; exclusive, never waited for, by a sweep while it removes empty
 * directories.
 */
#define SHUFFLE_LOCK_OWNER		 1
#define SHUFFLE_LOCK_SWEEP		 2
#define SHUFFLE_LOCK_DIRECTORIES 3

extern void shuffle_storage_lock_tag(LOCKTAG *tag, Oid database, uint32 purpose);

typedef enum ShuffleRootState
{
	SHUFFLE_ROOT_OURS,
	SHUFFLE_ROOT_NO_OWNER, /* not there, or without an OWNER file */
	SHUFFLE_ROOT_FOREIGN   /* another cluster's, or its OWNER file is unreadable */
} ShuffleRootState;

extern bool				shuffle_root_is_outer(const char *root);
extern ShuffleRootState shuffle_root_state(const char *root, char **owner);
extern char			   *shuffle_database_dir(const char *root, Oid database);

extern ShuffleStorage shuffle_storage_from_locator(RelFileLocator locator);
extern bool			  shuffle_name_xid(const char *name, uint64 *fxid);

/*
 * Removes a file, or a directory and all in it.  Never raises, logs what it cannot
 * remove, and returns how many files went.
 */
extern uint64 shuffle_remove_path(const char *path);

/* xact.c: dir was made just now for storage and goes when the storage does. */
extern void shuffle_xact_own_directory(const char *dir, const ShuffleStorage *storage);

/*
 * sweep.c: set when something could not be removed, in this session, or when a file's
 * fate is decided elsewhere: the next writer sweeps.
 */
extern bool shuffle_sweep_wanted;

#endif /* SHUFFLE_STORAGE_H */
