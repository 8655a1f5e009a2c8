/*
 * read_state.c
 *	  A cursor over the blocks of a shuffle table (see read_state.h).
 *
 * Extents of a segment are loaded when the cursor enters the segment (24 MB at the
 * most) and sorted by row number, which is file order in a log.  Where the blocks
 * inside an extent begin is learned by looking at their headers, and only for
 * extents of several blocks: what is known of the current extent is kept, so that
 * moving by one block in either direction looks at one header at most.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "read_block.h"

/* Bytes that are announced to the kernel before they are read. */
#define PREFETCH_BYTES (1024 * 1024)

typedef struct ReadSegment
{
	ShuffleSegmentRow *row;
	int64			   first_block; /* number of its first block */
	int64			   blocks;
	ShfExtent		  *extents; /* when reading some partitions only, else NULL */
	int				   nextents;
} ReadSegment;

/* Where a block of the current extent begins. */
typedef struct BlockStart
{
	uint64 offset;
	uint64 row;
} BlockStart;

struct ShuffleReadState
{
	MemoryContext  cxt; /* holds everything here */
	char		   relname[NAMEDATALEN];
	TupleDesc	   desc;
	ShuffleStorage storage;

	int			 nsegments;
	ReadSegment *segments;
	int64		 nblocks;
	int64		 nrows;
	int64		 nbytes;

	/* the segment the cursor is in, or -1 */
	int			  segment;
	MemoryContext segment_cxt;
	ShfExtent	 *extents; /* by first_row */
	int			  nextents;
	uint32		 *extent_block; /* [nextents + 1] number of its first block in the segment */

	/* extents behind the current one that were announced to the kernel, and their bytes */
	int	   prefetched; /* the first that was not */
	uint64 prefetched_bytes;

	/* the extent the cursor is in, or -1 */
	int			extent;
	BlockStart *starts; /* known ones of its blocks */
	uint32		nstarts;
	uint32		starts_size;

	ShuffleDecoder *decoder; /* of the last file */
	ShuffleFile	   *file;	 /* open file of the current segment, or NULL */
	uint32			file_partition;

	int64		   current; /* number of block, or -1 */
	ShuffleBlock  *block;
	ShuffleBlock  *last; /* before it, while the cursor moves on */
	ShuffleWindow *window;
	int			   run; /* blocks before it, in order, that reading ahead would have helped */
	ShuffleAhead   ahead;

	MemoryContextCallback callback;
};

static void
drop_window(ShuffleReadState *state)
{
	if (state->window != NULL)
		shuffle_window_unpin(state->window);
	state->window = NULL;
}

static void
drop_block(ShuffleReadState *state)
{
	drop_window(state);
	if (state->block != NULL)
		shuffle_block_unpin(state->block);
	state->block = NULL;
	state->current = -1;
}

static void
drop_file(ShuffleReadState *state)
{
	if (state->file != NULL)
		shuffle_file_unpin(state->file);
	state->file = NULL;
}

static void
release_state(void *arg)
{
	ShuffleReadState *state = arg;

	shuffle_ahead_end(&state->ahead);
	if (state->last != NULL)
		shuffle_block_unpin(state->last);
	state->last = NULL;
	drop_block(state);
	drop_file(state);
	if (state->decoder != NULL)
		shuffle_decoder_unpin(state->decoder);
	state->decoder = NULL;
}

/* A state without segments, in cxt. */
static ShuffleReadState *
create_state(Relation rel, MemoryContext cxt)
{
	ShuffleReadState *state = MemoryContextAllocZero(cxt, sizeof(ShuffleReadState));

	state->cxt = cxt;
	state->segment_cxt = AllocSetContextCreate(cxt, "shuffle read segment", ALLOCSET_SMALL_SIZES);
	strlcpy(state->relname, RelationGetRelationName(rel), NAMEDATALEN);
	state->storage = shuffle_storage_of(rel);
	state->segment = -1;
	state->extent = -1;
	state->current = -1;
	state->callback.func = release_state;
	state->callback.arg = state;
	MemoryContextRegisterResetCallback(cxt, &state->callback);
	return state;
}

/* Makes rows (ShuffleSegmentRow) the segments of a new state. */
static void
add_segments(ShuffleReadState *state, List *rows, const uint32 *partitions, int npartitions)
{
	ListCell *lc;

	state->segments = palloc0(sizeof(ReadSegment) * Max(list_length(rows), 1));
	foreach(lc, rows)
	{
		ReadSegment *seg = &state->segments[state->nsegments];

		seg->row = lfirst(lc);
		state->nbytes += seg->row->bytes;
		if (partitions == NULL)
		{
			seg->blocks = seg->row->blocks;
			state->nrows += seg->row->rows;
		}
		else
		{
			seg->extents = shuffle_catalog_partitions_extents(seg->row, partitions, npartitions,
															  &seg->nextents);
			shuffle_extents_sort(seg->extents, seg->nextents);
			for (int i = 0; i < seg->nextents; i++)
			{
				seg->blocks += seg->extents[i].blocks;
				state->nrows += seg->extents[i].rows;
			}
		}
		if (seg->blocks == 0)
			continue;
		seg->first_block = state->nblocks;
		state->nblocks += seg->blocks;
		state->nsegments++;
	}
}

ShuffleReadState *
shuffle_reading_begin(Relation rel, TupleDesc desc, Snapshot snapshot, const uint32 *partitions,
					  int npartitions)
{
	MemoryContext	  cxt;
	MemoryContext	  oldcxt;
	ShuffleReadState *state;
	List			 *rows;

	cxt = AllocSetContextCreate(CurrentMemoryContext, "shuffle read state", ALLOCSET_DEFAULT_SIZES);
	oldcxt = MemoryContextSwitchTo(cxt);
	state = create_state(rel, cxt);
	state->desc = CreateTupleDescCopyConstr(desc);

	rows = shuffle_catalog_segments(&state->storage, snapshot);
	add_segments(state, rows, partitions, npartitions);
	MemoryContextSwitchTo(oldcxt);
	return state;
}

ShuffleReadState *
shuffle_reading_begin_segments(Relation rel, TupleDesc desc, List *rows)
{
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "shuffle read state", ALLOCSET_SMALL_SIZES);
	ShuffleReadState *state = create_state(rel, cxt);
	MemoryContext	  oldcxt = MemoryContextSwitchTo(cxt);

	state->desc = CreateTupleDescCopyConstr(desc);
	add_segments(state, rows, NULL, 0);
	MemoryContextSwitchTo(oldcxt);
	return state;
}

void
shuffle_reading_end(ShuffleReadState *state)
{
	MemoryContextDelete(state->cxt);
}

int64
shuffle_reading_blocks(const ShuffleReadState *state)
{
	return state->nblocks;
}

int64
shuffle_reading_bytes(const ShuffleReadState *state)
{
	return state->nbytes;
}

int64
shuffle_reading_rows(const ShuffleReadState *state)
{
	return state->nrows;
}

const ShfSchema *
shuffle_reading_schema(const ShuffleReadState *state)
{
	return &state->block->file->decoder->schema;
}

/*
 * The only block of a small table stays, for the rescans of a nested loop, but not its
 * descriptor: an Append keeps the scans of all its tables.
 */
void
shuffle_reading_pause(ShuffleReadState *state)
{
	shuffle_ahead_end(&state->ahead);
	if (state->nblocks == 1 && state->block != NULL && state->block->loaded)
		shuffle_file_close(state->block->file);
	else
		drop_block(state);
	drop_file(state);
}

/* Complains about an offset index that contradicts itself or its file. */
static void
index_corrupt(const ShuffleReadState *state, const ReadSegment *seg, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("offset index of segment \"%s\" of table \"%s\" is damaged: %s", seg->row->name,
					state->relname, what)));
}

/* Makes segment s the current one and loads its extents. */
static void
enter_segment(ShuffleReadState *state, int s)
{
	ReadSegment	 *seg = &state->segments[s];
	MemoryContext oldcxt;
	uint64		  blocks = 0;

	if (state->segment == s)
		return;

	drop_file(state);
	state->segment = -1;
	state->extent = -1;
	state->prefetched = 0;
	state->starts = NULL;
	state->starts_size = 0;
	MemoryContextReset(state->segment_cxt);

	oldcxt = MemoryContextSwitchTo(state->segment_cxt);
	if (seg->extents != NULL)
	{
		state->extents = seg->extents;
		state->nextents = seg->nextents;
	}
	else
	{
		state->extents = shuffle_catalog_extents(seg->row);
		state->nextents = seg->row->nextents;
		shuffle_extents_sort(state->extents, state->nextents);
	}

	state->extent_block =
		MemoryContextAllocHuge(state->segment_cxt, sizeof(uint32) * ((Size) state->nextents + 1));
	for (int i = 0; i < state->nextents; i++)
	{
		const ShfExtent *extent = &state->extents[i];

		if (extent->blocks == 0 || extent->rows < extent->blocks)
			index_corrupt(state, seg, "an extent without rows");
		state->extent_block[i] = (uint32) blocks;
		blocks += extent->blocks;
	}
	if (blocks != (uint64) seg->blocks || blocks > PG_UINT32_MAX)
		index_corrupt(state, seg, "its extents have another number of blocks");
	state->extent_block[state->nextents] = (uint32) blocks;

	MemoryContextSwitchTo(oldcxt);
	state->segment = s;
}

/* Opens the file of the current segment that holds the partition. */
static void
enter_file(ShuffleReadState *state, uint32 partition)
{
	ShuffleSegmentRow *row = state->segments[state->segment].row;
	bool			   one_file = (row->layout == SHF_LAYOUT_LOG);
	char			  *path;
	MemoryContext	   oldcxt;

	if (state->file != NULL && (one_file || state->file_partition == partition))
		return;

	drop_file(state);
	oldcxt = MemoryContextSwitchTo(state->segment_cxt);
	if (row->files > 0)
		path = shuffle_segment_path(row->root, &row->storage, row->name, row->layout, partition);
	else
		path = psprintf("segment %d in the catalog", row->number);
	state->file = shuffle_file_open(path, row, state->desc, state->relname, &state->decoder);
	state->file_partition = partition;
	pfree(path);
	MemoryContextSwitchTo(oldcxt);
}

/*
 * Extent e comes next.  Where reading is about to jump, as it does through the runs of one
 * partition, the kernel's own read-ahead is of no use, so it is told what comes behind e.
 */
static void
prefetch_behind(ShuffleReadState *state, int e)
{
	bool one_file = (state->segments[state->segment].row->layout == SHF_LAYOUT_LOG);

	if (e == state->extent + 1 && e < state->prefetched)
		state->prefetched_bytes -= state->extents[e].bytes;
	else
	{
		state->prefetched = e + 1;
		state->prefetched_bytes = 0;
	}
	while (state->prefetched < state->nextents && state->prefetched_bytes < PREFETCH_BYTES)
	{
		const ShfExtent *next = &state->extents[state->prefetched];

		if (!one_file && next->partition != state->file_partition)
			break;
		if (next->offset != next[-1].offset + next[-1].bytes)
			shf_reader_prefetch(shuffle_file_reader(state->file), next->offset, next->bytes);
		state->prefetched_bytes += next->bytes;
		state->prefetched++;
	}
}

/* Makes extent e of the current segment the current one. */
static void
enter_extent(ShuffleReadState *state, int e)
{
	const ShfExtent *extent = &state->extents[e];

	enter_file(state, extent->partition);
	if (state->extent == e)
		return;

	prefetch_behind(state, e);
	state->extent = -1;
	if (state->starts_size < extent->blocks)
	{
		if (state->starts != NULL)
			pfree(state->starts);
		state->starts = NULL;
		state->starts_size = 0;
		state->starts =
			MemoryContextAllocHuge(state->segment_cxt, sizeof(BlockStart) * (Size) extent->blocks);
		state->starts_size = extent->blocks;
	}
	state->starts[0].offset = extent->offset;
	state->starts[0].row = extent->first_row;
	state->nstarts = 1;
	state->extent = e;
}

/*
 * Learns where block k of the current extent begins.  Damage on the way is an error, or if
 * the block has not been asked for, only false.
 */
static bool
learn_start(ShuffleReadState *state, uint32 k, bool asked)
{
	const ShfExtent *extent = &state->extents[state->extent];
	uint64			 end = extent->offset + extent->bytes;

	while (state->nstarts <= k)
	{
		BlockStart *last = &state->starts[state->nstarts - 1];
		uint32		rows;
		uint64		bytes;
		ShfError	err;

		CHECK_FOR_INTERRUPTS();
		if (shf_reader_peek(shuffle_file_reader(state->file), last->offset, end, &rows, &bytes,
							&err) != SHF_OK)
		{
			if (!asked)
				return false;
			shuffle_read_error(state->relname, &err);
		}
		last[1].offset = last->offset + bytes;
		last[1].row = last->row + rows;
		if (last[1].offset >= end || last[1].row >= extent->first_row + extent->rows)
		{
			if (!asked)
				return false;
			index_corrupt(state, &state->segments[state->segment],
						  "an extent has more blocks than its file");
		}
		state->nstarts++;
	}
	return true;
}

/* The segment that block n of the table is in. */
static int
segment_of_block(const ShuffleReadState *state, int64 n)
{
	int low = 0;
	int high = state->nsegments - 1;

	while (low < high)
	{
		int middle = low + (high - low + 1) / 2;

		if (state->segments[middle].first_block <= n)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* The extent that block n of the current segment is in. */
static int
extent_of_block(const ShuffleReadState *state, uint32 n)
{
	int low = 0;
	int high = state->nextents - 1;

	/* mostly it is the current one or the next */
	if (state->extent >= 0 && state->extent_block[state->extent] <= n)
	{
		low = state->extent;
		if (n < state->extent_block[low + 1])
			return low;
		if (n < state->extent_block[low + 2])
			return low + 1;
	}
	while (low < high)
	{
		int middle = low + (high - low + 1) / 2;

		if (state->extent_block[middle] <= n)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* Where a block lies. */
typedef struct Place
{
	uint64 offset;
	uint64 bytes;
	uint64 limit; /* end of its extent */
	uint64 first_row;
	uint32 rows;
	uint32 partition;
} Place;

/* Goes to block n and finds its place; see learn_start(). */
static bool
find_place(ShuffleReadState *state, int64 n, Place *place, bool asked)
{
	const ShfExtent *extent;
	uint64			 end_row;
	uint32			 in_segment;
	uint32			 k;
	int				 s = state->segment;

	if (s < 0 || n < state->segments[s].first_block ||
		n >= state->segments[s].first_block + state->segments[s].blocks)
		s = segment_of_block(state, n);
	enter_segment(state, s);

	in_segment = (uint32) (n - state->segments[s].first_block);
	enter_extent(state, extent_of_block(state, in_segment));
	extent = &state->extents[state->extent];
	k = in_segment - state->extent_block[state->extent];
	if (!learn_start(state, Min(k + 1, extent->blocks - 1), asked))
		return false;
	place->offset = state->starts[k].offset;
	place->limit = extent->offset + extent->bytes;
	if (k + 1 < extent->blocks)
	{
		place->bytes = state->starts[k + 1].offset - place->offset;
		end_row = state->starts[k + 1].row;
	}
	else
	{
		place->bytes = place->limit - place->offset;
		end_row = extent->first_row + extent->rows;
	}
	place->first_row = state->starts[k].row;
	place->rows = (uint32) (end_row - place->first_row);
	place->partition = extent->partition;
	return true;
}

/* An empty block of the current file at this place; see shuffle_block_create() for reuse. */
static ShuffleBlock *
create_block(ShuffleReadState *state, const Place *place, ShuffleBlock *reuse)
{
	ShuffleBlock *block = shuffle_block_create(state->file, reuse);

	block->offset = place->offset;
	block->limit = place->limit;
	block->partition = place->partition;
	block->rows = place->rows;
	block->segment = state->segments[state->segment].row->number;
	block->first_row = place->first_row;
	return block;
}

/* Is block n of the current segment in its current file? */
static bool
in_current_file(const ShuffleReadState *state, int64 n)
{
	const ReadSegment *seg = &state->segments[state->segment];

	if (n < seg->first_block || n >= seg->first_block + seg->blocks)
		return false;
	return seg->row->layout == SHF_LAYOUT_LOG ||
		state->extents[extent_of_block(state, (uint32) (n - seg->first_block))].partition ==
		state->file_partition;
}

/* The current block follows the last one: starts to read what comes next in the file. */
static void
read_ahead(ShuffleReadState *state)
{
	int64 n = shuffle_ahead_next(&state->ahead, state->current);

	if (state->block->file != state->file || !in_current_file(state, n) ||
		state->last->file->decoder != state->file->decoder ||
		!shuffle_ahead_idle(&state->ahead, state->nblocks - n))
		return;

	/* The thread is about to have the file for itself. */
	shuffle_block_load(state->block);
	state->block->wanted = false;

	for (; in_current_file(state, n); n++)
	{
		Place		  place;
		ShuffleBlock *block;

		if (!find_place(state, n, &place, false) ||
			!shuffle_ahead_accepts(&state->ahead, place.bytes))
			break;
		block = create_block(state, &place, shuffle_ahead_take_spare(&state->ahead));
		shuffle_ahead_add(&state->ahead, block, n, place.bytes);
	}
	shuffle_ahead_run(&state->ahead, state->last);
}

ShuffleBlock *
shuffle_reading_seek(ShuffleReadState *state, int64 n)
{
	bool ahead;

	Assert(n >= 0 && n < state->nblocks);

	if (n == state->current)
		return state->block;

	CHECK_FOR_INTERRUPTS();

	if (state->block != NULL && n == state->current + 1 && shuffle_ahead_pays(state->block))
		state->run++;
	else
		state->run = 0;
	ahead = state->run >= 2;

	/* Read over the last block unless a slot still needs it. */
	if (state->window != NULL)
	{
		if (state->window->refs == 1)
			shuffle_window_detach(state->window);
		else
			drop_window(state);
	}
	state->last = state->block;
	state->current = -1;
	state->block = shuffle_ahead_take(&state->ahead, n);
	if (state->block == NULL)
	{
		ShuffleBlock *reuse = NULL;
		Place		  place;

		(void) find_place(state, n, &place, true);
		ahead = ahead && in_current_file(state, n + 1);
		if (!ahead && state->last != NULL && state->last->refs == 1)
		{
			reuse = state->last;
			state->last = NULL;
		}
		state->block = create_block(state, &place, reuse);
	}
	state->current = n;

	if (ahead)
		read_ahead(state);
	if (state->last != NULL)
		shuffle_ahead_put_spare(&state->ahead, state->last);
	state->last = NULL;
	return state->block;
}

ShuffleWindow *
shuffle_reading_window(ShuffleReadState *state, uint32 row, uint32 count)
{
	ShuffleBlock  *block = state->block;
	ShuffleWindow *window = state->window;
	uint32		   most = block->file->decoder->window_rows;
	uint32		   first = row;

	Assert(row < block->rows);

	if (window != NULL && window->block == block && row >= window->first &&
		row - window->first < window->count)
		return window;

	if (count == 0)
	{
		first = row - row % most;
		count = most;
	}
	count = Min(count, most);
	count = Min(count, block->rows - first);

	if (window != NULL && window->refs > 1)
	{
		drop_window(state);
		window = NULL;
	}
	state->window = NULL;
	state->window = shuffle_window_create(block, first, count, window);
	return state->window;
}

int64
shuffle_reading_locate(ShuffleReadState *state, int32 segment, uint64 row)
{
	ReadSegment		*seg;
	int				 s = 0;
	int				 low;
	int				 high;
	const ShfExtent *extent;
	uint32			 k = 0;

	while (s < state->nsegments && state->segments[s].row->number < segment)
		s++;
	if (s == state->nsegments)
		return state->nblocks;
	seg = &state->segments[s];
	if (seg->row->number > segment)
		return seg->first_block;

	enter_segment(state, s);

	/* the first extent that ends behind the row */
	low = 0;
	high = state->nextents;
	while (low < high)
	{
		int middle = low + (high - low) / 2;

		if (state->extents[middle].first_row + state->extents[middle].rows <= row)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == state->nextents)
		return seg->first_block + seg->blocks;

	extent = &state->extents[low];
	enter_extent(state, low);
	while (k + 1 < extent->blocks)
	{
		(void) learn_start(state, k + 1, true);
		if (state->starts[k + 1].row > row)
			break;
		k++;
	}
	return seg->first_block + state->extent_block[low] + k;
}
