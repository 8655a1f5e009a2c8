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

#endif							/* SHUFFLE_SWEEP_H */
