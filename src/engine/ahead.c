/*
 * ahead.c
 *	  Reads the next blocks of a file in a thread while the caller uses others.
 *
 * What is handed over is written before shf_thread_run() and read by the caller after
 * shf_thread_wait(), which are all the synchronization there is, save the flag that
 * ends a run early.  Errors are not kept: a block that could not be read is read again by
 * the caller, who meets the error then.
 */
#include "reader.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "thread.h"

/*
 * What the blocks of one run may take when decompressed: twice what eight blocks of the
 * default size do.  Those beyond it are only read, and decompressed one by one when the
 * caller gets to them.
 */
#define AHEAD_RAW_BYTES (16 * 1024 * 1024)

typedef struct AheadBlock
{
	ShfBatch *batch;
	uint64_t  offset;
	uint64_t  limit;
	uint32_t  partition;
	bool	  done; /* the batch holds the block */
} AheadBlock;

struct ShfAhead
{
	ShfThread  *thread;
	bool		running; /* and not waited for */
	atomic_bool stop;
	ShfReader  *reader;
	int			nblocks;
	AheadBlock	blocks[SHF_AHEAD_BLOCKS];
	bool	   *columns; /* [ncolumns]: to be decoded */
	int			ncolumns;
};

static void
read_blocks(void *arg)
{
	ShfAhead *a = arg;
	uint64_t  raw = 0;

	for (int i = 0; i < a->nblocks; i++)
	{
		AheadBlock *block = &a->blocks[i];

		if (atomic_load_explicit(&a->stop, memory_order_relaxed))
			return;
		block->done = shf_reader_block(a->reader, block->batch, block->offset, block->limit,
									   block->partition, NULL) == SHF_OK;
		if (block->done)
			raw += shf_batch_raw_bytes(block->batch);
		for (int c = 0; block->done && raw <= AHEAD_RAW_BYTES && c < a->ncolumns; c++)
		{
			/* A column that cannot be decoded stays to be decoded. */
			if (a->columns[c])
				(void) shf_batch_decode(block->batch, c, NULL);
		}
	}
}

ShfAhead *
shf_ahead_create(void)
{
	ShfAhead *a = calloc(1, sizeof(ShfAhead));

	if (a == NULL)
		return NULL;
	a->thread = shf_thread_start(read_blocks, a);
	if (a->thread != NULL)
		return a;
	free(a);
	return NULL;
}

void
shf_ahead_add(ShfAhead *a, ShfBatch *batch, uint64_t offset, uint64_t limit, uint32_t partition)
{
	AheadBlock block = {batch, offset, limit, partition, false};

	a->blocks[a->nblocks++] = block;
}

void
shf_ahead_run(ShfAhead *a, ShfReader *r, const ShfBatch *like)
{
	int ncolumns = like->schema.nfields;

	if (ncolumns != a->ncolumns)
	{
		free(a->columns);
		a->columns = calloc((size_t) ncolumns + 1, sizeof(bool));
		a->ncolumns = a->columns != NULL ? ncolumns : 0;
	}
	if (a->ncolumns > 0)
		memcpy(a->columns, like->used, sizeof(bool) * (size_t) ncolumns);
	a->reader = r;
	a->running = true;
	shf_thread_run(a->thread);
}

void
shf_ahead_wait(ShfAhead *a)
{
	if (a->running)
		shf_thread_wait(a->thread);
	a->running = false;
	a->nblocks = 0;
}

bool
shf_ahead_done(const ShfAhead *a, int i)
{
	return a->blocks[i].done;
}

void
shf_ahead_free(ShfAhead *a)
{
	if (a == NULL)
		return;
	atomic_store_explicit(&a->stop, true, memory_order_relaxed);
	shf_thread_end(a->thread);
	free(a->columns);
	free(a);
}
