/*
 * sweep.h
 *	  What others tell the sweep, and ask of it.
 */
#ifndef SHUFFLE_SWEEP_H
#define SHUFFLE_SWEEP_H

#include "postgres.h"

#include "access/transam.h"

#include "shuffle.h"

/*
 * The prepared transaction fxid has files or has dropped storages: once it is decided,
 * a sweep must follow.  Leaves a file that says so; raises if it cannot.
 */
extern void shuffle_sweep_note(FullTransactionId fxid);

/*
 * Removes files of one storage that no snapshot needs any more; returns how many.  The
 * caller holds a lock on its relation that keeps DDL out.  Writes no catalog.
 */
extern uint64 shuffle_sweep_storage(const ShuffleStorage *storage);

/* ------------------------------------------------------------ between sweep.c and sweep_when.c */

/* Directory of notes of prepared transactions, in a database's of the data directory. */
#define SHUFFLE_NOTES_DIRECTORY "prepared"

typedef void (*ShuffleEntryVisitor)(const char *dir, const char *name, void *arg);

/* Calls visit for every entry; a directory that is missing has none, others are logged. */
extern void shuffle_sweep_for_each_entry(const char *dir, ShuffleEntryVisitor visit, void *arg);

/* The oldest full transaction id that might still be running, or else the next one. */
extern uint64 shuffle_sweep_oldest_running(void);

/*
 * Sweeps this database and dropped ones; the caller holds the sweep lock.  Returns how many
 * files were removed, and in *complete whether the fate of all files was known; tells at
 * elevel which roots are not ours.
 */
extern uint64 shuffle_sweep_files(int elevel, bool *complete);

/* Is there a directory of a database that is gone? */
extern bool shuffle_sweep_database_was_dropped(void);

#endif /* SHUFFLE_SWEEP_H */
