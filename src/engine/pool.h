/*
 * pool.h
 *	  Encoders that make the blocks of one run in parallel.
 *
 * A run is cut into units, consecutive entries of its order array.  Whoever is free, one of
 * the pool's threads or the one that drives the run, takes the next unit and encodes it to
 * memory.  The driver alone writes to the output, unit by unit in the order of the run, so
 * that the file is laid out as if one thread had made it.
 */
#ifndef SHF_POOL_H
#define SHF_POOL_H

#include "encode.h"

typedef struct ShfPool ShfPool;

/* Entries [first, end) of the order array, of partition and those behind it. */
typedef struct ShfUnit
{
	uint32_t partition;
	uint32_t first;
	uint32_t end;
} ShfUnit;

typedef struct ShfPoolWork
{
	/* The next unit, or false; never called by two threads at once. */
	bool (*next)(void *arg, ShfUnit *unit);

	/*
	 * Encodes a unit to output.  driver: called by shf_pool_run(), else by a thread of the
	 * pool, where it must end soon when the writer stops.
	 */
	ShfCode (*encode)(void *arg, bool driver, ShfEncoder *encoder, ShfOutput *output,
					  const ShfUnit *unit, ShfError *err);
	void *arg;
} ShfPoolWork;

/* Memory of a pool with so many threads at its most. */
extern uint64_t
shf_pool_memory(const ShfSchema *schema, const ShfWriterOptions *options, int threads);

/* A pool with up to so many threads; NULL if there can be none.  The arguments must outlive it. */
extern ShfPool *shf_pool_create(const ShfSchema *schema, const ShfRowLayout *layout,
								const ShfWriterOptions *options, int threads);

/*
 * Encodes all units and writes them to output.  The caller's encoder takes part, and the
 * samples of the others' times are added to account.  After an error, or a jump out of
 * encode, the pool is only good for shf_pool_end(), and until then its threads may still look
 * at work->arg.
 */
extern ShfCode shf_pool_run(ShfPool *pool, const ShfPoolWork *work, ShfEncoder *encoder,
							ShfOutput *output, ShfAccount *account, ShfError *err);

/* Ends the threads, after at most the block that each is at, and frees the pool. */
extern void shf_pool_end(ShfPool *pool);

#endif
