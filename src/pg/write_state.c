/*
 * write_state.c
 *	  Rows of INSERT, COPY and the like on their way into segments.
 *
 * A write state collects the rows that one command inserts into one storage in one
 * subtransaction, in a ShuffleWriter.  Rows may leave for a file at any time; they exist
 * once the segment's row is in the catalog, inserted with the command id the rows were
 * inserted with ("published"), so that every snapshot sees them as it would see rows of a
 * heap.  A state is published
 *
 *	  - when its statement has ended: see write_hooks.c;
 *	  - before somebody reads the table, or starts a parallel query, with a snapshot that
 *		sees the command: a trigger or a volatile function of the statement itself;
 *	  - before rows of another command, another tuple descriptor or other options come;
 *	  - before commit and prepare.
 *
 * A logical replication worker makes every row a command of its own.  Nobody there keeps a
 * snapshot from one to the next, so that rows of many commands share a state and count as
 * inserted by the first.
 *
 * Only the subtransaction that owns the rows may publish them for good.  A reader in a
 * subtransaction inside it, an exception block in a function that the INSERT calls,
 * needs them as well: there the segments are completed and their catalog rows are "lent",
 * inserted in the inner subtransaction.  If that commits, they are published.  If it
 * aborts, the catalog rows go with it and the state, which has kept the segments, is
 * published once more later.
 *
 * The files belong to the owning subtransaction from before the first one is made
 * (shuffle_xact_own_files).  An abort throws the states away first: deleting the memory
 * context of a state closes descriptors and frees the engine's memory, too.
 *
 * All states of a session share shuffle_ext.memory_limit.  When they get near it, the one
 * with most memory emits its rows, closes its files and becomes small; descriptors are
 * bounded the same way.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/pg_prng.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replication/logicalworker.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "write_state.h"

/* Descriptors that all states together keep. */
#define MAX_DESCRIPTORS 64

/* A drain that gains less is not repeated until memory has grown by so much. */
#define MIN_GAIN (64 * 1024)

typedef struct WriteState
{
	dlist_node			node; /* in states */
	struct WriteState  *next; /* of the same storage */
	MemoryContext		cxt;  /* holds everything here */
	ShuffleStorage		storage;
	Oid					relid;
	SubTransactionId	subid;	 /* whose rows these are */
	CommandId			cid;	 /* that inserted them */
	int					depth;	 /* shuffle_statement_depth() of its statement ... */
	TimestampTz			started; /* ... and when the client's command began */
	bool				stale;	 /* the table may have changed: compare before the next row */
	bool				busy;	 /* in the engine, or left by an error there */
	const ShuffleShape *shape;	 /* how rows are stored */

	ShufflePlace place;	 /* where files go if there are any */
	bool		 opened; /* it has been */

	ShuffleWriter *writer;		/* NULL: completed and lent */
	uint64		   base_memory; /* of cxt */
	uint64		   memory;		/* with the writer's, as counted in total_memory */

	/* completed and lent: its segments, and the subtransaction that has the catalog rows */
	int				 nsegments;
	ShfSegment		*segments;
	SubTransactionId lent;
	bool			 spilled; /* the index file has extents of some */
} WriteState;

typedef struct StorageStates
{
	ShuffleStorage storage; /* key */
	WriteState	  *first;
} StorageStates;

static dlist_head	 states = DLIST_STATIC_INIT(states); /* oldest first */
static MemoryContext states_cxt = NULL;					 /* below TopTransactionContext */
static HTAB			*by_storage = NULL;
static WriteState	*latest = NULL; /* that took a row */
static uint64		 total_memory = 0;
static uint64		 retry_memory = 0; /* draining is no use below */

/* ---------------------------------------------------------------- life of a state */

static inline void
count_memory(WriteState *state)
{
	uint64 memory = state->base_memory;

	if (state->writer != NULL)
		memory += shuffle_writer_memory(state->writer);
	total_memory += memory - state->memory;
	state->memory = memory;
}

/* Never raises. */
static void
free_state(WriteState *state)
{
	StorageStates *entry = hash_search(by_storage, &state->storage, HASH_FIND, NULL);
	WriteState	 **link = &entry->first;

	while (*link != state)
		link = &(*link)->next;
	*link = state->next;
	dlist_delete(&state->node);
	if (latest == state)
		latest = NULL;
	total_memory -= state->memory;
	MemoryContextDelete(state->cxt);
}

static void
relation_changed(Datum arg, Oid relid)
{
	dlist_iter iter;

	dlist_foreach(iter, &states)
	{
		WriteState *state = dlist_container(WriteState, node, iter.cur);

		if (relid == InvalidOid || relid == state->relid)
			state->stale = true;
	}
	shuffle_shapes_relation_changed(relid);
}

static void
init_states(void)
{
	static bool registered = false;
	HASHCTL		ctl = {0};

	if (!registered)
	{
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
		registered = true;
	}
	ctl.keysize = sizeof(ShuffleStorage);
	ctl.entrysize = sizeof(StorageStates);
	ctl.hcxt = AllocSetContextCreate(TopTransactionContext, "shuffle write states",
									 ALLOCSET_DEFAULT_SIZES);
	by_storage =
		hash_create("shuffle write states", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	states_cxt = ctl.hcxt; /* last: an error until now may end no more than a subtransaction */
}

/* ---------------------------------------------------------------- files and memory */

/*
 * The engine is left by errors and by interrupts.  They end the subtransaction, but the
 * state may belong to one around it, and must not be used then.
 */
static void
enter_engine(WriteState *state)
{
	if (state->busy)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot write more rows to shuffle table \"%s\" after an error",
						get_rel_name(state->relid))));
	state->busy = true;
}

/* Closes files until some descriptors are left for one more writer. */
static void
spare_descriptors(WriteState *except)
{
	int		   held = 0;
	dlist_iter iter;

	dlist_foreach(iter, &states)
	{
		WriteState *state = dlist_container(WriteState, node, iter.cur);

		if (state->writer != NULL)
			held += shuffle_writer_descriptors(state->writer);
	}
	if (held < MAX_DESCRIPTORS)
		return;
	dlist_foreach(iter, &states)
	{
		WriteState *state = dlist_container(WriteState, node, iter.cur);

		if (state == except || state->writer == NULL || state->busy ||
			shuffle_writer_descriptors(state->writer) == 0)
			continue;
		enter_engine(state);
		shuffle_writer_rest(state->writer);
		state->busy = false;
		count_memory(state);
	}
}

/* The writer is about to open files: callback of ShuffleWriteSpec. */
static void
opening(void *arg)
{
	WriteState *state = arg;

	spare_descriptors(state);
	if (!state->opened)
	{
		MemoryContext old = MemoryContextSwitchTo(state->cxt);

		shuffle_place_open(&state->place, state->subid);
		MemoryContextSwitchTo(old);
		state->opened = true;
	}
}

static void
drain_largest(uint64 limit)
{
	while (total_memory > limit && total_memory >= retry_memory)
	{
		WriteState *largest = NULL;
		uint64		before;
		dlist_iter	iter;

		dlist_foreach(iter, &states)
		{
			WriteState *state = dlist_container(WriteState, node, iter.cur);

			if (state->writer != NULL && !state->busy &&
				(largest == NULL || state->memory > largest->memory))
				largest = state;
		}
		if (largest == NULL)
			return;
		before = largest->memory;
		enter_engine(largest);
		shuffle_writer_drain(largest->writer);
		largest->busy = false;
		count_memory(largest);
		retry_memory = before - largest->memory < MIN_GAIN ? total_memory + MIN_GAIN : 0;
	}
}

/* A row has been taken; keeps room for what emitting a run takes. */
static inline void
check_memory(WriteState *state)
{
	uint64 limit = (uint64) shuffle_setting_memory_limit_kb * 1024;
	uint64 reserve = shuffle_writer_least_memory(state->writer);

	count_memory(state);
	if (unlikely(total_memory + reserve > limit) && state->memory < total_memory)
		drain_largest(limit > reserve ? limit - reserve : 0);
}

/* ---------------------------------------------------------------- publishing */

/* Keeps copies of the segments without the writer that made them. */
static void
keep_segments(WriteState *state, const ShfSegment *segments, int nsegments)
{
	MemoryContext old = MemoryContextSwitchTo(state->cxt);

	state->segments = palloc(sizeof(ShfSegment) * Max(nsegments, 1));
	for (int i = 0; i < nsegments; i++)
	{
		ShfSegment *segment = &state->segments[i];
		Size		bytes = sizeof(ShfExtent) * (Size) segments[i].nextents;

		*segment = segments[i];
		if (segments[i].extents != NULL)
		{
			segment->extents = palloc_extended(Max(bytes, 1), MCXT_ALLOC_HUGE);
			memcpy(segment->extents, segments[i].extents, bytes);
		}
		if (segments[i].image != NULL)
		{
			segment->image = palloc(segments[i].bytes);
			memcpy(segment->image, segments[i].image, segments[i].bytes);
		}
		if (segments[i].metrics != NULL)
		{
			ShfMetrics *metrics = palloc(sizeof(ShfMetrics));

			*metrics = *segments[i].metrics;
			segment->metrics = metrics;
		}
	}
	state->nsegments = nsegments;
	shuffle_writer_free(state->writer);
	state->writer = NULL;
	state->base_memory = MemoryContextMemAllocated(state->cxt, true);
	count_memory(state);
	MemoryContextSwitchTo(old);
}

/* The catalog rows are there and will stay. */
static void
published(WriteState *state)
{
	if (state->spilled)
		shuffle_place_drop_index(&state->place, 0);
	free_state(state);
}

/* Publishes a state for good and frees it, or lends its rows to an inner subtransaction. */
static void
publish(WriteState *state)
{
	bool			  lend = state->subid != GetCurrentSubTransactionId();
	const ShfSegment *segments = state->segments;
	int				  nsegments = state->nsegments;
	bool			  pushed = false;
	MemoryContext	  cxt;
	MemoryContext	  old;

	if (state->lent != InvalidSubTransactionId)
		return;
	if (IsInParallelMode() && !TransactionIdIsValid(GetCurrentTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot read shuffle table \"%s\" in a parallel query of a subtransaction "
						"while rows are being inserted into it",
						get_rel_name(state->relid)),
				 errhint("Set \"max_parallel_workers_per_gather\" to 0 for the query.")));

	if (state->writer != NULL)
	{
		enter_engine(state);
		segments = shuffle_writer_end(state->writer, &nsegments);
		state->busy = false;
		if (lend)
		{
			keep_segments(state, segments, nsegments);
			segments = state->segments;
		}
	}

	/* Large values of the row need one, and before commit there is none. */
	if (!ActiveSnapshotSet())
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		pushed = true;
	}
	cxt = AllocSetContextCreate(CurrentMemoryContext, "shuffle publish", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(cxt);
	for (int i = 0; i < nsegments; i++)
	{
		shuffle_publish(&state->place, state->shape->options, state->shape->routing, 0,
						&segments[i], -1, state->cid);
		state->spilled |= segments[i].extents == NULL;
		MemoryContextReset(cxt);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
	if (pushed)
		PopActiveSnapshot();

	if (lend)
		state->lent = GetCurrentSubTransactionId();
	else
		published(state);
}

void
shuffle_states_publish_above(int depth)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &states)
	{
		WriteState *state = dlist_container(WriteState, node, iter.cur);

		if (state->depth > depth && state->subid == GetCurrentSubTransactionId())
			publish(state);
	}
}

void
shuffle_states_publish_uncounted(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &states)
	{
		WriteState *state = dlist_container(WriteState, node, iter.cur);

		if (state->depth == 0 && state->started != GetCurrentStatementStartTimestamp() &&
			state->subid == GetCurrentSubTransactionId())
			publish(state);
	}
}

void
shuffle_states_before_read(const ShuffleStorage *storage, Snapshot snapshot)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &states)
	{
		WriteState *state = dlist_container(WriteState, node, iter.cur);

		if (storage != NULL && !shuffle_same_storage(storage, &state->storage))
			continue;
		if (snapshot != NULL && IsMVCCSnapshot(snapshot) && state->cid >= snapshot->curcid)
			continue;
		publish(state);
	}
}

void
shuffle_states_discard(const ShuffleStorage *storage)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &states)
	{
		WriteState *state = dlist_container(WriteState, node, iter.cur);

		if (shuffle_same_storage(storage, &state->storage))
			free_state(state);
	}
}

/* ---------------------------------------------------------------- rows */

static WriteState *
create_state(Relation rel, CommandId cid, StorageStates *entry)
{
	MemoryContext cxt =
		AllocSetContextCreate(CurTransactionContext, "shuffle write state", ALLOCSET_SMALL_SIZES);
	MemoryContext	 old = MemoryContextSwitchTo(cxt);
	WriteState		*state = palloc0(sizeof(WriteState));
	ShuffleWriteSpec spec = {0};

	shuffle_check_insertable(rel);
	state->cxt = cxt;
	state->storage = entry->storage;
	state->relid = RelationGetRelid(rel);
	state->subid = GetCurrentSubTransactionId();
	state->cid = cid;
	state->depth = shuffle_statement_depth();
	state->started = GetCurrentStatementStartTimestamp();
	state->shape = shuffle_shape_of(rel);

	/* It may not be possible any more to assign one when the rows are published. */
	(void) GetCurrentTransactionId();
	shuffle_place_make(&state->place, &state->storage);

	spec.desc = state->shape->desc;
	spec.options = state->shape->options;
	spec.map = state->shape->map;
	spec.path = shuffle_place_path(&state->place, 0);
	shuffle_write_spec_settings(&spec);
	spec.sync = state->place.sync;
	spec.relid = state->relid;
	spec.inline_max = (uint32) shuffle_setting_inline_bytes;
	spec.opening = opening;
	spec.opening_arg = state;

	/* Round robin begins anywhere, or single rows would all go to the same partition. */
	spec.writer = pg_prng_uint32(&pg_global_prng_state) % spec.options->partitions;
	state->writer = shuffle_writer_begin(&spec, cxt);
	state->base_memory = MemoryContextMemAllocated(cxt, true);

	/* Nothing can fail any more: until now it would have gone with the subtransaction. */
	MemoryContextSetParent(cxt, states_cxt);
	MemoryContextSwitchTo(old);
	state->next = entry->first;
	entry->first = state;
	dlist_push_tail(&states, &state->node);
	return state;
}

/* May rows of command cid be added? */
static inline bool
same_command(const WriteState *state, CommandId cid)
{
	return state->cid == cid || (state->cid < cid && IsLogicalWorker());
}

/* Has the table, since the state was made, remained what its rows were stored for? */
static bool
still_fits(WriteState *state, Relation rel)
{
	bool fits = equalTupleDescs(state->shape->desc, RelationGetDescr(rel));

	if (fits)
	{
		char *routing = shuffle_options_format(shuffle_options_of(rel), true);

		fits = strcmp(routing, state->shape->routing) == 0;
		pfree(routing);
	}
	if (fits)
		state->stale = false;
	return fits;
}

/* The state for a row of this command; an older one of the subtransaction is published. */
static WriteState *
find_state(Relation rel, const ShuffleStorage *storage, CommandId cid)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	StorageStates	*entry;
	WriteState		*state;
	bool			 found;

	if (states_cxt == NULL)
		init_states();
	entry = hash_search(by_storage, storage, HASH_ENTER, &found);
	if (!found)
		entry->first = NULL;
	for (state = entry->first; state != NULL; state = state->next)
	{
		if (state->subid == subid && state->writer != NULL)
			break;
	}
	if (state != NULL && same_command(state, cid) && (!state->stale || still_fits(state, rel)))
		return state;
	if (state != NULL)
		publish(state);
	return create_state(rel, cid, entry);
}

void
shuffle_states_insert(Relation rel, TupleTableSlot *slot, CommandId cid)
{
	ShuffleStorage storage = shuffle_storage_of(rel);
	WriteState	  *state = latest;

	if (state == NULL || !shuffle_same_storage(&state->storage, &storage) ||
		!same_command(state, cid) || state->stale || state->writer == NULL ||
		state->subid != GetCurrentSubTransactionId())
		state = latest = find_state(rel, &storage, cid);

	slot_getallattrs(slot);
	enter_engine(state);
	shuffle_writer_put(state->writer, slot->tts_values, slot->tts_isnull);
	state->busy = false;
	check_memory(state);

	/*
	 * Where the row will be found is known when its segment is complete.  There may be an
	 * index, one that CREATE INDEX CONCURRENTLY has failed to build: nothing is entered
	 * into it, but the executor wants a TID that looks like one.
	 */
	if (unlikely(rel->rd_rel->relhasindex))
		ItemPointerSet(&slot->tts_tid, MaxBlockNumber, MaxOffsetNumber);
	else
		ItemPointerSetInvalid(&slot->tts_tid);
	slot->tts_tableOid = RelationGetRelid(rel);
	pgstat_count_heap_insert(rel, 1);
}

/* ---------------------------------------------------------------- ends of transactions */

void
shuffle_states_pre_commit(void)
{
	while (!dlist_is_empty(&states))
	{
		WriteState *state = dlist_head_element(WriteState, node, &states);

		Assert(state->subid == GetCurrentSubTransactionId());
		Assert(state->lent == InvalidSubTransactionId);
		publish(state);
	}
}

void
shuffle_states_forget(void)
{
	dlist_init(&states);
	by_storage = NULL;
	latest = NULL;
	total_memory = retry_memory = 0;
	if (states_cxt != NULL)
		MemoryContextDelete(states_cxt);
	states_cxt = NULL;
}

void
shuffle_states_subcommit(SubTransactionId subid, SubTransactionId parent)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &states)
	{
		WriteState *state = dlist_container(WriteState, node, iter.cur);

		if (state->subid == subid)
			state->subid = parent;
		if (state->lent == subid)
			state->lent = parent;
		if (state->lent == state->subid)
			published(state);
	}
}

void
shuffle_states_subabort(SubTransactionId subid)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &states)
	{
		WriteState *state = dlist_container(WriteState, node, iter.cur);

		if (state->subid == subid)
			free_state(state);
		else if (state->lent == subid)
			state->lent = InvalidSubTransactionId;
	}
}
