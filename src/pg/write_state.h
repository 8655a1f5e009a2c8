/*
 * write_state.h
 *	  Rows that INSERT, COPY and other statements hand to the access method, on their way
 *	  into segments.  See write_state.c for what happens when.
 */
#ifndef SHUFFLE_WRITE_STATE_H
#define SHUFFLE_WRITE_STATE_H

#include "shuffle.h"

/* ------------------------------------------------------------ write_state.c */

/*
 * Takes the row in slot, inserted by command cid.  Raises if the table cannot be
 * inserted into.
 */
extern void shuffle_states_insert(Relation rel, TupleTableSlot *slot, CommandId cid);

/* Publishes what statements have written that ran deeper than depth; they have ended. */
extern void shuffle_states_publish_above(int depth);

/*
 * The same where no level was counted: by earlier commands of the client, while the
 * hooks were not installed yet, and by logical replication.
 */
extern void shuffle_states_publish_uncounted(void);

/*
 * Publishes what a reader with this snapshot may see: rows of earlier commands that are
 * not published yet, of one storage, or with NULL of all.
 */
extern void shuffle_states_before_read(const ShuffleStorage *storage, Snapshot snapshot);

/* The storage is about to lose all its rows. */
extern void shuffle_states_discard(const ShuffleStorage *storage);

/* Ends of transactions, for xact.c; all but the first never raise. */
extern void shuffle_states_pre_commit(void);
extern void shuffle_states_forget(void);
extern void shuffle_states_subcommit(SubTransactionId subid, SubTransactionId parent);
extern void shuffle_states_subabort(SubTransactionId subid);

/* ------------------------------------------------------------ tableam.c */

/* Raises for tables with triggers, foreign keys or publications that we cannot serve. */
extern void shuffle_check_insertable(Relation rel);

/* ------------------------------------------------------------ write_shape.c */

/* How rows of a table are stored. */
typedef struct ShuffleShape
{
	TupleDesc		desc;
	ShuffleOptions *options;
	char		   *routing; /* options as text */
	ShuffleTypeMap *map;	 /* NULL: every writer needs its own */
} ShuffleShape;

/*
 * The shape of a table that is being inserted into, as it is now; it stays as it is until
 * the current memory context is reset.  Raises if a key column is missing.
 */
extern const ShuffleShape *shuffle_shape_of(Relation rel);

/* A relcache callback's news, which must be passed on from before the first shape is made. */
extern void shuffle_shapes_relation_changed(Oid relid);

/* ------------------------------------------------------------ write_hooks.c */

/* Installs the hooks. */
extern void shuffle_states_init(void);

/* How many executor runs and utility commands are around the current one. */
extern int shuffle_statement_depth(void);

#endif /* SHUFFLE_WRITE_STATE_H */
