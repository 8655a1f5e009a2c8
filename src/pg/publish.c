/*
 * publish.c
 *	  From a storage to the place where its next segments go, and from finished
 *	  segments to rows of the catalog.
 *
 * Whoever writes segments prepares a place first: from then on an abort of the current
 * subtransaction removes every file whose name begins with the place's prefix.  When the
 * files are complete, each segment is published in the same subtransaction; its rows
 * exist from the next command on.
 *
 * A write that may turn out to need no file makes the place first, which is only names,
 * and opens it when the first file is made.
 */
#include "postgres.h"

#include "access/xact.h"

#include "shuffle.h"

/* Assigns the transaction id, which cannot be done once parallel workers run. */
void
shuffle_place_make(ShufflePlace *place, const ShuffleStorage *storage)
{
	FullTransactionId fxid = GetTopFullTransactionId();
	uint64			  nonce;

	if (!pg_strong_random(&nonce, sizeof(nonce)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate a random number")));
	place->storage = *storage;
	place->sync = shuffle_setting_sync;
	place->root = shuffle_root();
	place->dir = shuffle_storage_dir(place->root, &place->storage);
	place->prefix = shuffle_job_prefix(fxid, GetCurrentSubTransactionId(), nonce);
}

void
shuffle_place_open(const ShufflePlace *place, SubTransactionId subid)
{
	char *dir = shuffle_storage_prepare(&place->storage);

	if (strcmp(dir, place->dir) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" has changed during a write", "shuffle_ext.directory")));
	pfree(dir);
	shuffle_xact_own_files(place->dir, place->prefix, subid);
}

void
shuffle_place_prepare(ShufflePlace *place, const ShuffleStorage *storage)
{
	shuffle_place_make(place, storage);
	shuffle_place_open(place, GetCurrentSubTransactionId());
}

char *
shuffle_place_path(const ShufflePlace *place, uint32 writer)
{
	return psprintf("%s/%s-%x", place->dir, place->prefix, writer);
}

ShfExtent *
shuffle_place_extents(const ShufflePlace *place, uint32 writer, const ShfSegment *segment)
{
	ShfExtent *extents = segment->extents;
	ShfError   err;

	if (extents != NULL || segment->nextents == 0)
		return extents;
	extents = palloc_extended(sizeof(ShfExtent) * (Size) segment->nextents, MCXT_ALLOC_HUGE);
	SHUFFLE_CHECK(
		shf_segment_load_extents(segment, shuffle_place_path(place, writer), extents, &err), &err);
	return extents;
}

/* Called when a subtransaction has committed, too: allocates nothing. */
void
shuffle_place_drop_index(const ShufflePlace *place, uint32 writer)
{
	char path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/%s-%x.index", place->dir, place->prefix, writer);
	if (unlink(path) != 0 && errno != ENOENT)
		ereport(LOG, (errcode_for_file_access(), errmsg("could not remove file \"%s\": %m", path)));
}

void
shuffle_publish(const ShufflePlace *place, const ShuffleOptions *options, const char *routing,
				uint32 writer, const ShfSegment *segment, int32 number, CommandId cid)
{
	ShuffleSegmentRow row = {0};

	row.storage = place->storage;
	row.number = number;
	row.layout = segment->layout;
	row.partitions = options->partitions;
	row.routing = unconstify(char *, routing);
	row.root = place->root;
	row.name = psprintf("%s-%x-%u", place->prefix, writer, segment->number);
	memcpy(row.id, segment->id, sizeof(row.id));
	row.rows = segment->rows;
	row.bytes = segment->bytes;
	row.raw_bytes = segment->raw_bytes;
	row.blocks = segment->blocks;
	row.files = segment->files;
	row.nextents = segment->nextents;
	row.metrics = segment->metrics;

	if (segment->image != NULL)
	{
		bytea *image = palloc(VARHDRSZ + segment->bytes);

		SET_VARSIZE(image, VARHDRSZ + segment->bytes);
		memcpy(VARDATA(image), segment->image, segment->bytes);
		row.image = PointerGetDatum(image);
	}
	if (segment->layout == SHF_LAYOUT_PARTITION_FILES && place->sync)
		shuffle_fsync_dir(psprintf("%s/%s", place->dir, row.name));
	shuffle_catalog_insert(&row, shuffle_place_extents(place, writer, segment), cid);
	shuffle_stats_published(place->prefix, writer, segment);
}
