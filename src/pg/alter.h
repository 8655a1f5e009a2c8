/*
 * alter.h
 *	  Refuses changes of key columns that would leave rows in the wrong partitions, and lets
 *	  long values follow into another access method.
 */
#ifndef SHUFFLE_ALTER_H
#define SHUFFLE_ALTER_H

#include "shuffle.h"

/* Installs the hook. */
extern void shuffle_alter_init(void);

/* After a statement, and before commit: raises if a key was changed without a rewrite. */
extern void shuffle_alter_check(void);

/* At the end of a transaction. */
extern void shuffle_alter_forget(void);

#endif /* SHUFFLE_ALTER_H */
