/*
 * publish.c
 *	  From a storage to the place where its next segments go, and from finished
 *	  segments to rows of the catalog.
 *
 * Whoever writes segments prepares a place first: from then on an abort of the current
 * subtransaction removes every file whose name begins with the place's prefix.  When the
 * files are complete, each segment is published in the same subtransaction; its rows
 * exist from the next command on.
 */
#include "postgres.h"

#include "access/xact.h"

#include "shuffle.h"

/* Assigns the transaction id, which cannot be done once parallel workers run. */
void
shuffle_place_prepare(ShufflePlace *place, const ShuffleStorage *storage)
{
	FullTransactionId fxid = GetTopFullTransactionId();
	uint64		nonce;

	if (!pg_strong_random(&nonce, sizeof(nonce)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random number")));
	place->storage = *storage;
	place->sync = shuffle_setting_sync;
	place->root = shuffle_root();
	place->dir = shuffle_storage_prepare(&place->storage);
	place->prefix = shuffle_job_prefix(fxid, GetCurrentSubTransactionId(), nonce);
	shuffle_xact_own_files(place->dir, place->prefix);
}

char *
shuffle_place_path(const ShufflePlace *place, uint32 writer)
{
	return psprintf("%s/%s-%x", place->dir, place->prefix, writer);
}

void
shuffle_publish(const ShufflePlace *place, const ShuffleOptions *options, const char *routing,
				uint32 writer, const ShfSegment *segment, int32 number)
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

	if (segment->layout == SHF_LAYOUT_PARTITION_FILES && place->sync)
		shuffle_fsync_dir(psprintf("%s/%s", place->dir, row.name));
	shuffle_catalog_insert(&row, segment->extents);
}
