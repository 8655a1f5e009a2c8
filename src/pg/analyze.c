/*
 * analyze.c
 *	  Sampling rows for ANALYZE.
 *
 * The server samples pages: it draws up to 300 * statistics target page numbers below
 * table_relation_size() / BLCKSZ and takes all rows of these pages into account.
 * An Arrow block is as large as some hundred pages, and a random page of each would
 * make a large table be read as a whole.  So ANALYZE sees a table that is made of a
 * stratified random sample of the blocks, cut into as many "pages" with equal
 * numbers of rows as the table has pages, but never so small that the pages drawn
 * hold less rows than the server wants.  Page numbers ascend, so every sampled
 * block is read once, and rows come in physical order.
 *
 * A page counts for (rows of the table / pages) live rows whatever it holds: the
 * server's extrapolation then gives the exact number of rows.
 */
#include "postgres.h"

#include <math.h>

#include "access/relscan.h"
#include "access/tableam.h"
#include "commands/vacuum.h"
#include "common/pg_prng.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "read_state.h"

/*
 * Blocks are sampled up to the bytes that pages would have, but at least so many, and
 * so many rows per row of the server's sample.
 */
#define SAMPLE_MIN_BLOCKS 512
#define SAMPLE_ROW_FACTOR 4

/*
 * Servers before 17 prefetch the pages they sample from the main fork, which is
 * empty: that is harmless inside the first segment file and an error behind it.
 */
#if PG_VERSION_NUM < 170000
#define MAX_PAGES ((uint64) RELSEG_SIZE - 1)
#else
#define MAX_PAGES ((uint64) MaxBlockNumber)
#endif

typedef struct ShuffleAnalyze
{
	BlockNumber pages;
	double		live_per_page;

	/* the sample: blocks, ascending, and the number of rows before each of them */
	int64  nblocks;
	int64 *blocks;
	int64 *rows_before; /* [nblocks + 1]; known up to "known" */
	int64  known;
	double rows; /* of the sample; an estimate when it is not all blocks */

	/* the page being read */
	int64 row; /* next row of the sample */
	int64 end_row;
	bool  counted; /* its live rows have been counted */
	int64 block;   /* index of the block that holds row */
} ShuffleAnalyze;

BlockNumber
shuffle_pages(uint64 bytes)
{
	return (BlockNumber) Min((bytes + BLCKSZ - 1) / BLCKSZ, MAX_PAGES);
}

static ShuffleAnalyze *
analyze_begin(TableScanDesc sscan)
{
	ShuffleReadState *reading = shuffle_scan_reading(sscan, RelationGetDescr(sscan->rs_rd));
	ShuffleAnalyze	 *analyze = palloc0(sizeof(ShuffleAnalyze));
	int64			  nblocks = shuffle_reading_blocks(reading);
	double			  nrows = (double) shuffle_reading_rows(reading);
	double			  server_rows = 300.0 * default_statistics_target;
	double			  want;

	analyze->pages = shuffle_pages(table_relation_size(sscan->rs_rd, MAIN_FORKNUM));
	analyze->live_per_page = nrows / Max(analyze->pages, 1);

	/* many blocks when they are small, because rows of a block may resemble each other */
	want = SAMPLE_MIN_BLOCKS;
	if (nblocks > 0)
	{
		double block_bytes = (double) shuffle_reading_bytes(reading) / nblocks;
		double block_rows = nrows / nblocks;

		want = Max(want, server_rows * BLCKSZ / Max(block_bytes, BLCKSZ));
		want = Max(want, ceil(SAMPLE_ROW_FACTOR * server_rows / block_rows));
	}
	analyze->nblocks = (want < nblocks) ? (int64) want : nblocks;

	analyze->blocks =
		MemoryContextAllocHuge(CurrentMemoryContext, sizeof(int64) * Max(analyze->nblocks, 1));
	analyze->rows_before =
		MemoryContextAllocHuge(CurrentMemoryContext, sizeof(int64) * (analyze->nblocks + 1));
	for (int64 i = 0; i < analyze->nblocks; i++)
	{
		double u = (analyze->nblocks == nblocks) ? 0 : pg_prng_double(&pg_global_prng_state);

		analyze->blocks[i] = (int64) ((i + u) * nblocks / analyze->nblocks);
		analyze->blocks[i] = Min(analyze->blocks[i], nblocks - 1);
	}
	analyze->rows_before[0] = 0;
	analyze->rows = (nblocks > 0) ? nrows * analyze->nblocks / nblocks : 0;
	return analyze;
}

/* Goes to the sampled block that holds row; false if the sample ends before it. */
static bool
analyze_find(TableScanDesc sscan, ShuffleAnalyze *analyze, int64 row)
{
	ShuffleReadState *reading = shuffle_scan_reading(sscan, RelationGetDescr(sscan->rs_rd));

	while (analyze->known <= analyze->block || row >= analyze->rows_before[analyze->block + 1])
	{
		if (analyze->known > analyze->block)
			analyze->block++;
		if (analyze->block >= analyze->nblocks)
			return false;
		if (analyze->known <= analyze->block)
		{
			ShuffleBlock *block = shuffle_reading_seek(reading, analyze->blocks[analyze->block]);

			analyze->rows_before[analyze->block + 1] =
				analyze->rows_before[analyze->block] + block->rows;
			analyze->known = analyze->block + 1;
		}
	}
	return true;
}

bool
shuffle_analyze_next_page(TableScanDesc sscan, BlockNumber page)
{
	ShuffleAnalyze **place = shuffle_scan_analyze_state(sscan);
	ShuffleAnalyze	*analyze;

	if (*place == NULL)
		*place = analyze_begin(sscan);
	analyze = *place;

	/* The table may have changed since the server asked for its size. */
	if (page >= analyze->pages)
		return false;

	/* Ranges must not overlap: a row sampled twice would count as a duplicate. */
	analyze->row = Max((int64) (analyze->rows * page / analyze->pages), analyze->end_row);
	analyze->end_row = Max((int64) (analyze->rows * (page + 1.0) / analyze->pages),
						   analyze->row + SAMPLE_ROW_FACTOR);
	analyze->counted = false;
	return true;
}

bool
shuffle_analyze_next_tuple(TableScanDesc sscan, TransactionId oldest_xmin, double *liverows,
						   double *deadrows, TupleTableSlot *slot)
{
	ShuffleAnalyze	 *analyze = *shuffle_scan_analyze_state(sscan);
	ShuffleReadState *reading = shuffle_scan_reading(sscan, RelationGetDescr(sscan->rs_rd));
	ShuffleWindow	 *window;
	uint32			  row;

	if (!analyze->counted)
	{
		*liverows += analyze->live_per_page;
		analyze->counted = true;
	}

	ExecClearTuple(slot);
	if (analyze->row >= analyze->end_row || !analyze_find(sscan, analyze, analyze->row))
		return false;

	shuffle_reading_seek(reading, analyze->blocks[analyze->block]);
	row = (uint32) (analyze->row - analyze->rows_before[analyze->block]);
	window = shuffle_reading_window(reading, row,
									(uint32) Min(analyze->end_row - analyze->row, PG_INT32_MAX));
	shuffle_slot_store(slot, window, row);
	slot->tts_tableOid = RelationGetRelid(sscan->rs_rd);
	analyze->row++;
	return true;
}
