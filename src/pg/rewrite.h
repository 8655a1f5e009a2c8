/*
 * rewrite.h
 *	  Writing rows of a shuffle table again: shared by VACUUM FULL and compaction.
 */
#ifndef SHUFFLE_REWRITE_H
#define SHUFFLE_REWRITE_H

#include "read_state.h"

/*
 * Takes rows that were read from a table and writes them into new segments of dest, with
 * the table's options, on this process alone.  progress is a token for shuffle_progress, or
 * 0.
 */
typedef struct ShuffleRewriter ShuffleRewriter;

extern ShuffleRewriter *shuffle_rewriter_begin(Relation dest, int progress);

/*
 * Copies every row that reading has, in its order.  progress, if not NULL, is called
 * now and then with the number of rows copied by this rewriter so far.
 */
extern void shuffle_rewriter_copy(ShuffleRewriter *rewriter, ShuffleReadState *reading,
								  void (*progress)(uint64 rows));

/*
 * Publishes the segments and frees the rewriter.  The first nnumbers segments get these
 * numbers, the others new ones.  Returns how many segments there are, and in *bytes, if
 * not NULL, their size.  The caller does CommandCounterIncrement.
 */
extern int
shuffle_rewriter_end(ShuffleRewriter *rewriter, const int32 *numbers, int nnumbers, int64 *bytes);

/* Callbacks of the table access method. */
extern void shuffle_copy_data(Relation rel, const RelFileLocator *locator);
extern void shuffle_copy_for_cluster(Relation old_rel, Relation new_rel, Relation index,
									 double *num_tuples, double *tups_vacuumed);

#endif /* SHUFFLE_REWRITE_H */
