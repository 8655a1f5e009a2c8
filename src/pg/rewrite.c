/*
 * rewrite.c
 *	  New storage for the rows of a shuffle table: VACUUM FULL and SET TABLESPACE.
 *
 * VACUUM FULL reads all blocks and writes them as new segments into the transient
 * relation that the server swaps in afterwards.  Rows are routed again, so that a table
 * whose key changed its type without a rewrite is right after it; where there is nothing
 * to route by (round robin, a key column that was dropped) every row stays in its
 * partition.
 *
 * SET TABLESPACE copies the segment rows to the key of the new storage, with their
 * numbers, and gives each file a second name there: a hard link, or a copy where
 * the file system has none.  The names are those of this transaction, so that its abort,
 * or after a crash the sweep, finds them.
 *
 * Either way the server knows that it drops the old storage at commit, and xact.c lets
 * its rows and files go with it.  Snapshots taken before may not read the new
 * storage (catalog.c), so that row versions that only they could see are left behind.
 * The caller holds AccessExclusiveLock throughout.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/storage.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/copydir.h"
#include "storage/fd.h"
#include "storage/smgr.h"
#include "utils/backend_progress.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "rewrite.h"
#include "storage.h"
#include "write_state.h"

/* ---------------------------------------------------------------- rewriter */

struct ShuffleRewriter
{
	MemoryContext	 cxt; /* holds everything here */
	ShufflePlace	 place;
	bool			 opened;  /* the place has been: there are files */
	SubTransactionId subid;	  /* whose files these are */
	ShuffleOptions	*options; /* of the table */
	TupleDesc		 desc;
	ShuffleWriter	*writer;
	bool			 route; /* else rows stay in their partitions */
	uint64			 rows;
};

/* The writer is about to open files: callback of ShuffleWriteSpec. */
static void
opening(void *arg)
{
	ShuffleRewriter *rewriter = arg;

	if (!rewriter->opened)
	{
		MemoryContext old = MemoryContextSwitchTo(rewriter->cxt);

		shuffle_place_open(&rewriter->place, rewriter->subid);
		rewriter->opened = true;
		MemoryContextSwitchTo(old);
	}
}

ShuffleRewriter *
shuffle_rewriter_begin(Relation dest, int progress)
{
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "shuffle rewriter", ALLOCSET_DEFAULT_SIZES);
	MemoryContext	 old = MemoryContextSwitchTo(cxt);
	ShuffleRewriter *rewriter = palloc0(sizeof(ShuffleRewriter));
	ShuffleStorage	 storage = shuffle_storage_of(dest);
	ShuffleWriteSpec spec = {0};
	ShuffleOptions	 stay;

	rewriter->cxt = cxt;
	rewriter->desc = RelationGetDescr(dest);
	rewriter->options = shuffle_options_of(dest);
	rewriter->route = shuffle_options_have_keys(rewriter->options);
	rewriter->subid = GetCurrentSubTransactionId();
	shuffle_place_make(&rewriter->place, &storage);

	stay = *rewriter->options;
	if (!rewriter->route)
	{
		stay.method = SHUFFLE_ROUND_ROBIN;
		stay.nkeys = stay.nbounds = 0;
	}
	spec.desc = rewriter->desc;
	spec.options = &stay;
	spec.path = shuffle_place_path(&rewriter->place, 0);
	shuffle_write_spec_settings(&spec);
	spec.sync = rewriter->place.sync;
	spec.inline_max = (uint32) shuffle_setting_inline_bytes;
	spec.opening = opening;
	spec.opening_arg = rewriter;
	spec.relid = RelationGetRelid(dest);
	spec.leader = MyProcPid;
	spec.progress = progress;
	rewriter->writer = shuffle_writer_begin(&spec, cxt);
	MemoryContextSwitchTo(old);
	return rewriter;
}

static void
copy_window(ShuffleRewriter *rewriter, const ShuffleWindow *window)
{
	uint32 partition = window->block->partition;

	for (uint32 row = 0; row < window->count; row++)
	{
		const Datum *values = window->values + (Size) row * window->natts;
		const bool	*isnull = window->isnull + (Size) row * window->natts;

		if (rewriter->route)
			shuffle_writer_put(rewriter->writer, values, isnull);
		else
			shuffle_writer_put_into(rewriter->writer, partition, values, isnull);
	}
	rewriter->rows += window->count;
}

void
shuffle_rewriter_copy(ShuffleRewriter *rewriter, ShuffleReadState *reading,
					  void (*progress)(uint64 rows))
{
	int64 nblocks = shuffle_reading_blocks(reading);

	for (int64 n = 0; n < nblocks; n++)
	{
		ShuffleBlock *block = shuffle_reading_seek(reading, n);
		uint32		  row = 0;

		if (!rewriter->route && block->partition >= (uint32) rewriter->options->partitions)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("block of partition %u in a table of %d partitions", block->partition,
							rewriter->options->partitions)));
		while (row < block->rows)
		{
			ShuffleWindow *window = shuffle_reading_window(reading, row, 0);

			shuffle_window_decode(window, rewriter->desc->natts);
			copy_window(rewriter, window);
			row = window->first + window->count;
		}
		if (progress != NULL)
			progress(rewriter->rows);
	}
}

int
shuffle_rewriter_end(ShuffleRewriter *rewriter, const int32 *numbers, int nnumbers, int64 *bytes)
{
	MemoryContext	  old = MemoryContextSwitchTo(rewriter->cxt);
	char			 *routing = shuffle_options_format(rewriter->options, true);
	const ShfSegment *segments;
	int				  nsegments;
	bool			  spilled = false;
	MemoryContext	  cxt;

	segments = shuffle_writer_end(rewriter->writer, &nsegments);
	if (rewriter->opened && rewriter->place.sync)
		shuffle_fsync_dir(rewriter->place.dir);
	if (bytes != NULL)
		*bytes = 0;
	cxt = AllocSetContextCreate(rewriter->cxt, "shuffle publish", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(cxt);
	for (int i = 0; i < nsegments; i++)
	{
		if (bytes != NULL)
			*bytes += segments[i].bytes;
		shuffle_publish(&rewriter->place, rewriter->options, routing, 0, &segments[i],
						i < nnumbers ? numbers[i] : -1, GetCurrentCommandId(true));
		spilled |= segments[i].extents == NULL;
		MemoryContextReset(cxt);
	}
	if (spilled)
		shuffle_place_drop_index(&rewriter->place, 0);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(rewriter->cxt);
	return nsegments;
}

/* ---------------------------------------------------------------- VACUUM FULL */

static void
report_progress(uint64 rows)
{
	const int	index[] = {PROGRESS_CLUSTER_HEAP_TUPLES_SCANNED,
						   PROGRESS_CLUSTER_HEAP_TUPLES_WRITTEN};
	const int64 value[] = {(int64) rows, (int64) rows};

	pgstat_progress_update_multi_param(2, index, value);
}

void
shuffle_copy_for_cluster(Relation old_rel, Relation new_rel, Relation index, double *num_tuples,
						 double *tups_vacuumed)
{
	ShuffleStorage	  storage = shuffle_storage_of(old_rel);
	ShuffleReadState *reading;
	Snapshot		  snapshot;
	int64			  rows;

	if (index != NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("CLUSTER is not supported for shuffle table \"%s\"",
					RelationGetRelationName(old_rel)),
			 errhint("Use shuffle_write('SELECT ... ORDER BY ...', '%s', if_exists => 'replace').",
					 RelationGetRelationName(old_rel))));

	pgstat_progress_update_param(PROGRESS_CLUSTER_PHASE, PROGRESS_CLUSTER_PHASE_SEQ_SCAN_HEAP);

	/* Nobody else has the table: what is committed now is all there is. */
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	reading = shuffle_reading_begin(old_rel, RelationGetDescr(old_rel), snapshot, NULL, 0);
	UnregisterSnapshot(snapshot);

	rows = shuffle_reading_rows(reading);
	if (rows > 0)
	{
		ShuffleRewriter *rewriter = shuffle_rewriter_begin(new_rel, 0);

		shuffle_rewriter_copy(rewriter, reading, report_progress);
		shuffle_rewriter_end(rewriter, NULL, 0, NULL);
		CommandCounterIncrement();
	}
	shuffle_reading_end(reading);

	/* What compaction has left for old snapshots goes with the old storage. */
	*num_tuples = (double) rows;
	*tups_vacuumed = (double) shuffle_catalog_dead_rows(&storage);
}

/* ---------------------------------------------------------------- SET TABLESPACE */

/* Gives a file a second name, or makes a copy of it. */
static void
link_or_copy(const char *from, const char *to, bool sync)
{
	CHECK_FOR_INTERRUPTS();
	if (link(from, to) == 0)
		return;
	if (errno != EXDEV && errno != EPERM && errno != EMLINK && errno != EOPNOTSUPP &&
		errno != ENOSYS)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not link file \"%s\" to \"%s\": %m", from, to)));
	copy_file(unconstify(char *, from), unconstify(char *, to));
	if (sync)
		(void) fsync_fname_ext(to, false, false, ERROR);
}

static void
link_directory(const char *from, const char *to, bool sync)
{
	DIR			  *dir;
	struct dirent *de;

	if (MakePGDirectory(to) != 0)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not create directory \"%s\": %m", to)));
	dir = AllocateDir(from);
	while ((de = ReadDir(dir, from)) != NULL)
	{
		char *source;
		char *target;

		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		source = psprintf("%s/%s", from, de->d_name);
		target = psprintf("%s/%s", to, de->d_name);
		link_or_copy(source, target, sync);
		pfree(source);
		pfree(target);
	}
	FreeDir(dir);
	if (sync)
		shuffle_fsync_dir(to);
}

/* Where files of a storage go to while it is copied. */
typedef struct Move
{
	ShuffleStorage from;
	ShuffleStorage to;
	ShufflePlace   place;
	bool		   prepared;
	uint32		   nfiles;
} Move;

/* Lets the files of a segment appear in the new storage; returns their new name. */
static char *
move_files(Move *move, const char *root, const char *name, ShfLayoutKind layout)
{
	char *dir = shuffle_storage_dir(root, &move->from);
	char *new_name;

	if (!move->prepared)
	{
		shuffle_place_prepare(&move->place, &move->to);
		move->prepared = true;
	}
	new_name = psprintf("%s-%x-0", move->place.prefix, move->nfiles++);
	if (layout == SHF_LAYOUT_PARTITION_FILES)
		link_directory(psprintf("%s/%s", dir, name), psprintf("%s/%s", move->place.dir, new_name),
					   move->place.sync);
	else
		link_or_copy(psprintf("%s/%s.arrow", dir, name),
					 psprintf("%s/%s.arrow", move->place.dir, new_name), move->place.sync);
	return new_name;
}

/* Inserts a copy of a segment row under the key of the new storage. */
static void
move_row(Move *move, Relation segments, CatalogIndexState indexes, HeapTuple tuple)
{
	Datum	  values[Natts_segment];
	bool	  isnull[Natts_segment];
	HeapTuple copy;

	heap_deform_tuple(tuple, RelationGetDescr(segments), values, isnull);
	values[Anum_segment_tablespace - 1] = ObjectIdGetDatum(move->to.tablespace);
	values[Anum_segment_filenumber - 1] = ObjectIdGetDatum(move->to.filenumber);
	if (DatumGetInt64(values[Anum_segment_files - 1]) > 0)
	{
		ShfLayoutKind layout;
		char		 *name;

		layout = shuffle_parse_layout(TextDatumGetCString(values[Anum_segment_layout - 1]));
		name = move_files(move, TextDatumGetCString(values[Anum_segment_root - 1]),
						  TextDatumGetCString(values[Anum_segment_name - 1]), layout);
		values[Anum_segment_root - 1] = CStringGetTextDatum(move->place.root);
		values[Anum_segment_name - 1] = CStringGetTextDatum(name);
	}
	copy = heap_form_tuple(RelationGetDescr(segments), values, isnull);
	CatalogTupleInsertWithInfo(segments, copy, indexes);
}

void
shuffle_copy_data(Relation rel, const RelFileLocator *locator)
{
	Move		  move = {0};
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "shuffle move", ALLOCSET_DEFAULT_SIZES);
	MemoryContext row_cxt = AllocSetContextCreate(cxt, "shuffle move row", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	Relation	  segments = table_open(shuffle_catalog_ids()->table, RowExclusiveLock);
	CatalogIndexState indexes;
	ScanKeyData		  keys[2];
	SysScanDesc		  scan;
	HeapTuple		  tuple;

	/* The main fork is empty, and there are no others. */
	smgrclose(RelationCreateStorage(*locator, rel->rd_rel->relpersistence, true));
	RelationDropStorage(rel);

	move.from = shuffle_storage_of(rel);
	move.to = shuffle_storage_from_locator(*locator);
	shuffle_states_before_read(&move.from, NULL);

	shuffle_catalog_storage_keys(keys, &move.from);
	indexes = CatalogOpenIndexes(segments);
	scan = systable_beginscan(segments, shuffle_catalog_ids()->pkey, true, SnapshotSelf, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		/* The place must outlive the row. */
		if (!move.prepared)
			move_row(&move, segments, indexes, tuple);
		else
		{
			MemoryContextSwitchTo(row_cxt);
			move_row(&move, segments, indexes, tuple);
			MemoryContextSwitchTo(cxt);
			MemoryContextReset(row_cxt);
		}
	}
	systable_endscan(scan);
	CatalogCloseIndexes(indexes);
	table_close(segments, RowExclusiveLock);

	if (move.prepared && move.place.sync)
		shuffle_fsync_dir(move.place.dir);
	CommandCounterIncrement();
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
}
