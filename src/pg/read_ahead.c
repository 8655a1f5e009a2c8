/*
 * read_ahead.c
 *	  Reads and decompresses the next blocks in a thread.
 *
 * About a third of the time of a scan goes into reading blocks, their checksums and
 * decompression, none of which needs the server.  A thread of plain C (engine/ahead.c)
 * does it for the next few blocks of a file while the backend makes rows of those before
 * them.  It begins with the third block that a scan takes in order, if something in the
 * first two was wanted (an aggregate copies the first row even for count(*)), and not in
 * parallel plans, which fill the cores already.
 *
 * Blocks come in groups, so that handing them over costs little for each:
 *
 *	  reading: what the thread is at; nobody else refers to these blocks;
 *	  ready:   the group before, taken from one by one;
 *	  spare:   blocks whose buffers will serve again.
 *
 * The reader of the file is the thread's until it has been waited for: file->ahead tells
 * so, and whoever else needs the reader waits (shuffle_file_reader).
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "storage/fd.h"

#include "read_block.h"

/*
 * For fewer blocks the thread would cost more than it saves, as it would for blocks of
 * fewer stored bytes.
 */
#define AHEAD_MIN_BLOCKS 32 /* left to read when the thread is started */
#define AHEAD_MIN_BYTES	 (8 * 1024)

/*
 * Threads at a time: each has a descriptor, and scans may be many, as in an Append whose
 * parts end by LIMIT.
 */
#define AHEAD_MAX_THREADS 4

static int nthreads;

/*
 * Memory: a group is complete when it has so many stored bytes, larger blocks are not
 * read ahead, and spare blocks with larger buffers are freed.  With the thread's own limit
 * (engine/ahead.c) all this is at most about 60 MB, however large the values are.
 */
#define AHEAD_GROUP_BYTES (512 * 1024)
#define AHEAD_MAX_BYTES	  (4 * 1024 * 1024)
#define SPARE_MAX_BYTES	  (2 * 1024 * 1024)

static bool
group_has(const ShuffleAheadGroup *group, int64 number)
{
	return number >= group->first && number < group->first + group->n;
}

/* Where the group was is forgotten, too: the next blocks may be asked for from anywhere. */
static void
drop_group(ShuffleAheadGroup *group)
{
	for (int i = 0; i < group->n; i++)
	{
		if (group->blocks[i] != NULL)
			shuffle_block_unpin(group->blocks[i]);
	}
	group->first = 0;
	group->n = 0;
}

static void
await_thread(ShuffleAhead *ahead)
{
	if (ahead->reading.n > 0)
		(void) shuffle_file_reader(ahead->reading.blocks[0]->file);
	if (ahead->thread != NULL)
		shf_ahead_wait(ahead->thread);
}

/* Will it pay to read what comes behind a block that has been used? */
bool
shuffle_ahead_pays(const ShuffleBlock *block)
{
	return shuffle_setting_read_ahead && block->wanted && block->loaded &&
		block->file->image == NULL && !IsInParallelMode() && !IsParallelWorker() &&
		shf_batch_message(block->batch).len >= AHEAD_MIN_BYTES;
}

/* May a group be added now, with so many blocks left? */
bool
shuffle_ahead_idle(ShuffleAhead *ahead, int64 left)
{
	if (ahead->thread == NULL && left >= AHEAD_MIN_BLOCKS && nthreads < AHEAD_MAX_THREADS &&
		AcquireExternalFD())
	{
		ahead->thread = shf_ahead_create();
		if (ahead->thread != NULL)
			nthreads++;
		else
			ReleaseExternalFD();
	}
	return ahead->thread != NULL && ahead->reading.n == 0;
}

/* The first block that has not been read ahead, current being in use. */
int64
shuffle_ahead_next(const ShuffleAhead *ahead, int64 current)
{
	return Max(current + 1, ahead->ready.first + ahead->ready.n);
}

/* Can the next block, of so many bytes, be added to the group? */
bool
shuffle_ahead_accepts(const ShuffleAhead *ahead, uint64 bytes)
{
	const ShuffleAheadGroup *group = &ahead->reading;

	return bytes <= AHEAD_MAX_BYTES &&
		(group->n == 0 || (group->n < SHF_AHEAD_BLOCKS && group->bytes < AHEAD_GROUP_BYTES));
}

/*
 * Adds a block that is accepted, the caller's reference included, which follows that added
 * before it.
 */
void
shuffle_ahead_add(ShuffleAhead *ahead, ShuffleBlock *block, int64 number, uint64 bytes)
{
	ShuffleAheadGroup *group = &ahead->reading;

	Assert(block->refs == 1 && shuffle_ahead_accepts(ahead, bytes));
	Assert(group->n == 0 ||
		   (number == group->first + group->n && block->file == group->blocks[0]->file));

	if (group->n == 0)
	{
		group->first = number;
		group->bytes = 0;
	}
	group->blocks[group->n++] = block;
	group->bytes += bytes;
	shf_ahead_add(ahead->thread, block->batch, block->offset, block->limit, block->partition);
}

/*
 * Starts reading the group, if it has any blocks, with the columns that have been asked for
 * in like, of the same decoder.
 */
void
shuffle_ahead_run(ShuffleAhead *ahead, const ShuffleBlock *like)
{
	ShuffleFile *file;

	if (ahead->reading.n == 0)
		return;
	file = ahead->reading.blocks[0]->file;
	Assert(file->decoder == like->file->decoder);
	shf_ahead_run(ahead->thread, shuffle_file_reader(file), like->batch);
	file->ahead = ahead->thread;
}

/*
 * Block number "number" if it has been read ahead, loaded unless that failed, or NULL.
 * Blocks before it will not be asked for.
 */
ShuffleBlock *
shuffle_ahead_take(ShuffleAhead *ahead, int64 number)
{
	ShuffleAheadGroup *ready = &ahead->ready;
	ShuffleBlock	  *block;

	if (group_has(&ahead->reading, number))
	{
		instr_time none;

		INSTR_TIME_SET_ZERO(none);
		await_thread(ahead);
		drop_group(ready);
		*ready = ahead->reading;
		ahead->reading.n = 0;
		for (int i = 0; i < ready->n; i++)
		{
			if (shf_ahead_done(ahead->thread, i))
				(void) shuffle_block_accept(ready->blocks[i], none);
		}
	}
	if (!group_has(ready, number) || ready->blocks[number - ready->first] == NULL)
	{
		shuffle_ahead_drop(ahead);
		return NULL;
	}
	block = ready->blocks[number - ready->first];
	ready->blocks[number - ready->first] = NULL;
	return block;
}

/* An unused block, or NULL. */
ShuffleBlock *
shuffle_ahead_take_spare(ShuffleAhead *ahead)
{
	return ahead->nspare > 0 ? ahead->spare[--ahead->nspare] : NULL;
}

/* The caller gives up its reference to a block. */
void
shuffle_ahead_put_spare(ShuffleAhead *ahead, ShuffleBlock *block)
{
	if (ahead->thread != NULL && block->refs == 1 && ahead->nspare < SHF_AHEAD_BLOCKS &&
		shf_batch_memory(block->batch) <= SPARE_MAX_BYTES)
		ahead->spare[ahead->nspare++] = block;
	else
		shuffle_block_unpin(block);
}

/* Forgets all blocks. */
void
shuffle_ahead_drop(ShuffleAhead *ahead)
{
	await_thread(ahead);
	drop_group(&ahead->reading);
	drop_group(&ahead->ready);
	while (ahead->nspare > 0)
		shuffle_block_unpin(ahead->spare[--ahead->nspare]);
}

/* Ends the thread, too. */
void
shuffle_ahead_end(ShuffleAhead *ahead)
{
	if (ahead->thread != NULL)
	{
		if (ahead->reading.n > 0)
			ahead->reading.blocks[0]->file->ahead = NULL;
		shf_ahead_free(ahead->thread);
		ahead->thread = NULL;
		nthreads--;
		ReleaseExternalFD();
	}
	shuffle_ahead_drop(ahead);
}
