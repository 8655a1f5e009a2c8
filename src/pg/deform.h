/*
 * deform.h
 *	  slot_getsomeattrs() for those who want many attributes of every row.
 */
#ifndef SHUFFLE_DEFORM_H
#define SHUFFLE_DEFORM_H

#include "postgres.h"

#include "executor/tuptable.h"

typedef struct ShuffleDeform ShuffleDeform;

/* For the first natts attributes, in the current context. */
extern ShuffleDeform *shuffle_deform_create(int natts);

/* As slot_getsomeattrs(slot, natts).  Fastest when the same descriptor comes again and again. */
extern void shuffle_deform(ShuffleDeform *deform, TupleTableSlot *slot);

#endif
