/*
 * sweep.h
 *	  What the transaction callbacks tell the sweep.
 */
#ifndef SHUFFLE_SWEEP_H
#define SHUFFLE_SWEEP_H

#include "postgres.h"

#include "access/transam.h"

/*
 * The prepared transaction fxid has files or has dropped storages: once it is decided,
 * a sweep must follow.  Leaves a file that says so; raises if it cannot.
 */
extern void shuffle_sweep_note(FullTransactionId fxid);

#endif							/* SHUFFLE_SWEEP_H */
