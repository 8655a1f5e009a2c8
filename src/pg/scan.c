/*
 * scan.c
 *	  Sequential scan of a shuffle table, serial and parallel, in both directions,
 *	  whole or over a range of TIDs.
 *
 * The position is a block number and a row in that block.  Participants of a parallel
 * scan draw ranges of block numbers from a shared counter; what a number means
 * follows from the snapshot they share.  Ranges get smaller towards the end,
 * so that all participants end at about the same time.
 *
 * A row is given out before its block has been read: until a column is asked for, only
 * headers are looked at, and count(*) reads nothing else.
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/skey.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "storage/predicate.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "read_block.h"

/* Most blocks a participant draws at once, and what part of the rest. */
#define PARALLEL_MAX_DRAW  64
#define PARALLEL_DRAW_PART 64

typedef struct ShuffleParallelScan
{
	ParallelTableScanDescData base;
	pg_atomic_uint64		  next_block;
} ShuffleParallelScan;

typedef enum ScanPlace
{
	SCAN_START,	 /* not begun: goes to the first row, or backward to the last */
	SCAN_BEFORE, /* before the first row */
	SCAN_INSIDE, /* on row "row" of block "block" */
	SCAN_AFTER	 /* behind the last row */
} ScanPlace;

typedef struct ShuffleScan
{
	TableScanDescData base;
	MemoryContext	  cxt;		  /* where the read state is made */
	ShuffleReadState *reading;	  /* NULL until the first row is asked for */
	uint32			 *partitions; /* that are scanned; NULL: all */
	int				  npartitions;

	/* what is scanned: blocks, and rows of the boundary blocks by their TIDs */
	int64  first_block;
	int64  end_block;
	uint64 first_key; /* smallest and largest TID as shuffle_row_key() */
	uint64 last_key;

	ScanPlace	   place;
	int64		   block;
	ShuffleBlock  *cur; /* that block */
	uint32		   row;
	uint32		   first_row; /* rows of the block that are scanned */
	uint32		   last_row;
	ShuffleWindow *window; /* holds row, or NULL */

	int64 drawn_end; /* parallel: end of the blocks drawn */

	struct ShuffleAnalyze *analyze;
} ShuffleScan;

TableScanDesc
shuffle_scan_begin(Relation rel, Snapshot snapshot, int nkeys, struct ScanKeyData *key,
				   ParallelTableScanDesc pscan, uint32 flags)
{
	ShuffleScan *scan;

	RelationIncrementReferenceCount(rel);

	scan = palloc0(sizeof(ShuffleScan));
	scan->base.rs_rd = rel;
	scan->base.rs_snapshot = snapshot;
	scan->base.rs_nkeys = nkeys;
	scan->base.rs_flags = flags;
	scan->base.rs_parallel = pscan;
	scan->cxt = AllocSetContextCreate(CurrentMemoryContext, "shuffle scan", ALLOCSET_SMALL_SIZES);
	scan->place = SCAN_START;
	scan->last_key = PG_UINT64_MAX;

	if (nkeys > 0)
	{
		scan->base.rs_key = palloc(sizeof(ScanKeyData) * nkeys);
		if (key != NULL)
			memcpy(scan->base.rs_key, key, sizeof(ScanKeyData) * nkeys);
	}

	if (flags & (SO_TYPE_SEQSCAN | SO_TYPE_SAMPLESCAN))
	{
		Assert(snapshot);
		PredicateLockRelation(rel, snapshot);
		pgstat_count_heap_scan(rel);
	}

	return (TableScanDesc) scan;
}

TableScanDesc
shuffle_scan_begin_partitions(Relation rel, Snapshot snapshot, const uint32 *partitions,
							  int npartitions)
{
	TableScanDesc sscan = shuffle_scan_begin(rel, snapshot, 0, NULL, NULL, SO_TYPE_SEQSCAN);
	ShuffleScan	 *scan = (ShuffleScan *) sscan;

	if (partitions == NULL)
		return sscan;
	scan->npartitions = npartitions;
	scan->partitions = MemoryContextAlloc(scan->cxt, sizeof(uint32) * Max(npartitions, 1));
	memcpy(scan->partitions, partitions, sizeof(uint32) * npartitions);
	return sscan;
}

void
shuffle_scan_end(TableScanDesc sscan)
{
	ShuffleScan *scan = (ShuffleScan *) sscan;

	MemoryContextDelete(scan->cxt);
	RelationDecrementReferenceCount(scan->base.rs_rd);
	if (scan->base.rs_key)
		pfree(scan->base.rs_key);
	if (scan->base.rs_flags & SO_TEMP_SNAPSHOT)
		UnregisterSnapshot(scan->base.rs_snapshot);
	pfree(scan);
}

void
shuffle_scan_rescan(TableScanDesc sscan, struct ScanKeyData *key, bool set_params, bool allow_strat,
					bool allow_sync, bool allow_pagemode)
{
	ShuffleScan *scan = (ShuffleScan *) sscan;

	if (key != NULL && scan->base.rs_nkeys > 0)
		memcpy(scan->base.rs_key, key, sizeof(ScanKeyData) * scan->base.rs_nkeys);
	scan->place = SCAN_START;
	scan->cur = NULL;
	scan->window = NULL;
	scan->drawn_end = 0;
	scan->block = 0;
	if (scan->base.rs_flags & SO_TYPE_SEQSCAN)
		pgstat_count_heap_scan(scan->base.rs_rd);
}

/* The read state, made now if need be for rows of desc. */
ShuffleReadState *
shuffle_scan_reading(TableScanDesc sscan, TupleDesc desc)
{
	ShuffleScan *scan = (ShuffleScan *) sscan;

	if (scan->reading == NULL)
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(scan->cxt);
		Snapshot	  snapshot = scan->base.rs_snapshot;

		/*
		 * Rows have no versions but those that the snapshot shows or hides with their
		 * segment.  ANALYZE passes no snapshot, and whoever wants to see rows of any
		 * state gets those that are there.
		 */
		if (snapshot == NULL || !IsMVCCSnapshot(snapshot))
		{
			snapshot = shuffle_latest_snapshot();
			scan->reading = shuffle_reading_begin(scan->base.rs_rd, desc, snapshot, NULL, 0);
			UnregisterSnapshot(snapshot);
		}
		else
			scan->reading = shuffle_reading_begin(scan->base.rs_rd, desc, snapshot,
												  scan->partitions, scan->npartitions);
		MemoryContextSwitchTo(oldcxt);
		scan->first_block = 0;
		scan->end_block = shuffle_reading_blocks(scan->reading);
	}
	return scan->reading;
}

struct ShuffleAnalyze **
shuffle_scan_analyze_state(TableScanDesc sscan)
{
	return &((ShuffleScan *) sscan)->analyze;
}

/* Draws the next blocks of a parallel scan; false when there are none left. */
static bool
draw_blocks(ShuffleScan *scan)
{
	ShuffleParallelScan *pscan = (ShuffleParallelScan *) scan->base.rs_parallel;
	uint64				 total = (uint64) scan->end_block;
	uint64				 next = pg_atomic_read_u64(&pscan->next_block);
	uint64				 draw;

	do
	{
		if (next >= total)
			return false;
		draw = (total - next) / PARALLEL_DRAW_PART;
		draw = Min(Max(draw, 1), PARALLEL_MAX_DRAW);
	} while (!pg_atomic_compare_exchange_u64(&pscan->next_block, &next, next + draw));

	scan->block = (int64) next;
	scan->drawn_end = (int64) (next + draw);
	return true;
}

/*
 * Goes to the next block in a direction that has rows to scan; the slot must not
 * pin anything that could be read over.
 */
static bool
next_block(ShuffleScan *scan, bool forward, TupleDesc desc)
{
	ShuffleReadState *reading = shuffle_scan_reading(&scan->base, desc);

	for (;;)
	{
		uint64 key;

		scan->window = NULL;
		if (scan->base.rs_parallel != NULL)
		{
			Assert(forward);
			if (scan->place == SCAN_INSIDE && scan->block + 1 < scan->drawn_end)
				scan->block++;
			else if (!draw_blocks(scan))
				break;
		}
		else if (scan->place == SCAN_INSIDE)
		{
			scan->block += forward ? 1 : -1;
			if (scan->block < scan->first_block || scan->block >= scan->end_block)
				break;
		}
		else
		{
			if (scan->first_block >= scan->end_block)
				break;
			scan->block = forward ? scan->first_block : scan->end_block - 1;
		}

		scan->cur = shuffle_reading_seek(reading, scan->block);
		scan->place = SCAN_INSIDE;

		/* Only the blocks at the ends of a range of TIDs have rows outside of it. */
		key = shuffle_row_key(scan->cur->segment, scan->cur->first_row);
		if (key > scan->last_key || key + (scan->cur->rows - 1) < scan->first_key)
			continue;
		scan->first_row = (key < scan->first_key) ? (uint32) (scan->first_key - key) : 0;
		scan->last_row = (scan->last_key - key < scan->cur->rows) ?
			(uint32) (scan->last_key - key) :
			scan->cur->rows - 1;
		scan->row = forward ? scan->first_row : scan->last_row;
		return true;
	}

	scan->place = forward ? SCAN_AFTER : SCAN_BEFORE;
	scan->cur = NULL;
	return false;
}

/* Same rules as for heap: a NULL matches no key. */
static bool
keys_match(ShuffleScan *scan, TupleTableSlot *slot)
{
	for (int i = 0; i < scan->base.rs_nkeys; i++)
	{
		ScanKey key = &scan->base.rs_key[i];
		Datum	value;
		bool	isnull;

		if (key->sk_flags & SK_ISNULL)
			return false;
		value = slot_getattr(slot, key->sk_attno, &isnull);
		if (isnull ||
			!DatumGetBool(
				FunctionCall2Coll(&key->sk_func, key->sk_collation, value, key->sk_argument)))
			return false;
	}
	return true;
}

bool
shuffle_scan_getnextslot(TableScanDesc sscan, ScanDirection direction, TupleTableSlot *slot)
{
	ShuffleScan *scan = (ShuffleScan *) sscan;
	bool		 forward = !ScanDirectionIsBackward(direction);

	for (;;)
	{
		bool same = (scan->place == SCAN_INSIDE);

		if (same && forward && scan->row < scan->last_row)
			scan->row++;
		else if (same && !forward && scan->row > scan->first_row)
			scan->row--;
		else if (scan->place == (forward ? SCAN_AFTER : SCAN_BEFORE))
		{
			ExecClearTuple(slot);
			return false;
		}
		else
		{
			ExecClearTuple(slot);
			if (!next_block(scan, forward, slot->tts_tupleDescriptor))
			{
				shuffle_reading_pause(scan->reading);
				return false;
			}
		}

		if (scan->window == NULL || scan->row - scan->window->first >= scan->window->count)
		{
			ExecClearTuple(slot);
			scan->window = shuffle_reading_window(scan->reading, scan->row, 0);
		}
		shuffle_slot_store(slot, scan->window, scan->row);
		slot->tts_tableOid = RelationGetRelid(scan->base.rs_rd);

		if (scan->base.rs_nkeys == 0 || keys_match(scan, slot))
			break;
	}

	pgstat_count_heap_getnext(scan->base.rs_rd);
	return true;
}

/*
 * Limits the scan to TIDs from mintid to maxtid, whatever these contain: offsets run from 1
 * to SHUFFLE_MAX_OFFSET here, those outside come before or behind all of their "page".
 */
void
shuffle_scan_set_tidrange(TableScanDesc sscan, ItemPointer mintid, ItemPointer maxtid)
{
	ShuffleScan		 *scan = (ShuffleScan *) sscan;
	ShuffleReadState *reading = shuffle_scan_reading(sscan, RelationGetDescr(sscan->rs_rd));
	int64			  low = (int64) ItemPointerGetBlockNumberNoCheck(mintid) << SHUFFLE_OFFSET_BITS;
	int64  high = (int64) ItemPointerGetBlockNumberNoCheck(maxtid) << SHUFFLE_OFFSET_BITS;
	int32  segment;
	uint64 row;

	low += Max(Min((int) ItemPointerGetOffsetNumberNoCheck(mintid), SHUFFLE_MAX_OFFSET + 1) - 1, 0);
	high += Min((int) ItemPointerGetOffsetNumberNoCheck(maxtid), SHUFFLE_MAX_OFFSET) - 1;

	scan->place = SCAN_START;
	scan->cur = NULL;
	scan->window = NULL;
	scan->first_block = scan->end_block = 0;
	if (low > high)
		return;

	scan->first_key = (uint64) low;
	scan->last_key = (uint64) high;
	shuffle_row_of_key(scan->first_key, &segment, &row);
	scan->first_block = shuffle_reading_locate(reading, segment, row);
	shuffle_row_of_key(scan->last_key, &segment, &row);
	scan->end_block = shuffle_reading_locate(reading, segment, row);
	scan->end_block = Min(scan->end_block + 1, shuffle_reading_blocks(reading));
}

/* Could this be the TID of a row? */
bool
shuffle_scan_tid_valid(TableScanDesc sscan, ItemPointer tid)
{
	ShuffleStorage	   storage = shuffle_storage_of(sscan->rs_rd);
	ShuffleSegmentRow *segment;
	int32			   number;
	uint64			   row;

	if (ItemPointerGetOffsetNumberNoCheck(tid) < 1 ||
		ItemPointerGetOffsetNumberNoCheck(tid) > SHUFFLE_MAX_OFFSET)
		return false;
	shuffle_tid_decode(tid, &number, &row);
	segment = shuffle_catalog_segment(&storage, number, sscan->rs_snapshot);
	return segment != NULL && row < (uint64) segment->rows;
}

/* ---------------------------------------------------------------- single rows */

ShuffleWindow *
shuffle_fetch_row(Relation rel, TupleDesc desc, ItemPointer tid, Snapshot snapshot,
				  ShuffleWindow *near)
{
	ShuffleStorage	   storage = shuffle_storage_of(rel);
	ShuffleBlock	  *block = (near != NULL) ? near->block : NULL;
	ShuffleWindow	  *window = NULL;
	ShuffleSegmentRow *segment;
	ShuffleReadState  *reading;
	int32			   number;
	uint64			   row;
	int64			   n;
	MemoryContext	   cxt;
	MemoryContext	   oldcxt;

	shuffle_tid_decode(tid, &number, &row);

	cxt = AllocSetContextCreate(CurrentMemoryContext, "shuffle row", ALLOCSET_SMALL_SIZES);
	oldcxt = MemoryContextSwitchTo(cxt);
	segment = shuffle_catalog_segment(&storage, number, snapshot);
	if (segment == NULL || row >= (uint64) segment->rows)
		window = NULL;
	else if (block != NULL && near->natts == desc->natts &&
			 shuffle_block_has_row(block, &storage, number, row))
		window = shuffle_window_create(block, (uint32) (row - block->first_row), 1, NULL);
	else
	{
		reading = shuffle_reading_begin_segments(rel, desc, list_make1(segment));
		n = shuffle_reading_locate(reading, number, row);
		if (n < shuffle_reading_blocks(reading))
		{
			block = shuffle_reading_seek(reading, n);
			if (shuffle_block_has_row(block, &storage, number, row))
				window = shuffle_window_create(block, (uint32) (row - block->first_row), 1, NULL);
		}
	}
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
	return window;
}

/* ---------------------------------------------------------------- parallel */

Size
shuffle_parallelscan_estimate(Relation rel)
{
	return sizeof(ShuffleParallelScan);
}

Size
shuffle_parallelscan_initialize(Relation rel, ParallelTableScanDesc pscan)
{
	ShuffleParallelScan *shared = (ShuffleParallelScan *) pscan;

	shuffle_parallelscan_set_rel(pscan, rel);
	pscan->phs_syncscan = false;
	pg_atomic_init_u64(&shared->next_block, 0);
	return sizeof(ShuffleParallelScan);
}

void
shuffle_parallelscan_reinitialize(Relation rel, ParallelTableScanDesc pscan)
{
	pg_atomic_write_u64(&((ShuffleParallelScan *) pscan)->next_block, 0);
}
