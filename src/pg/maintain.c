/*
 * maintain.c
 *	  Size of a shuffle table and verification of its files.
 */
#include "postgres.h"

#include "access/relation.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "read_state.h"

/* SQL: shuffle_size(relation regclass) RETURNS bigint */
PG_FUNCTION_INFO_V1(shuffle_size);

Datum
shuffle_size(PG_FUNCTION_ARGS)
{
	Relation	  rel = try_relation_open(PG_GETARG_OID(0), AccessShareLock);
	Snapshot	  snapshot;
	ShuffleTotals totals;

	/* like pg_relation_size(): the table may have been dropped under a running query */
	if (rel == NULL)
		PG_RETURN_NULL();
	shuffle_require_table(rel);
	snapshot = shuffle_function_snapshot(rel);
	shuffle_totals(rel, snapshot, &totals);
	UnregisterSnapshot(snapshot);
	relation_close(rel, AccessShareLock);
	PG_RETURN_INT64(totals.bytes);
}

#define VERIFY_COLUMNS 5

/* One row of the result. */
static void
verify_report(ReturnSetInfo *rsinfo, const char *file, int64 partition, int64 blocks, int64 rows,
			  const char *error)
{
	Datum values[VERIFY_COLUMNS];
	bool  nulls[VERIFY_COLUMNS] = {0};

	values[0] = CStringGetTextDatum(file);
	values[1] = Int32GetDatum((int32) partition);
	nulls[1] = (partition < 0);
	values[2] = Int64GetDatum(blocks);
	values[3] = Int64GetDatum(rows);
	nulls[4] = (error == NULL);
	values[4] = error ? CStringGetTextDatum(error) : (Datum) 0;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* What is wrong with the offset index of a segment by itself, or NULL. */
static const char *
verify_index(const ShuffleSegmentRow *row, const ShfExtent *extents)
{
	uint64	   rows = 0;
	uint64	   blocks = 0;
	uint64	   raw_bytes = 0;
	uint64	   next = 0;
	ShfExtent *by_row;

	for (int i = 0; i < row->nextents; i++)
	{
		const ShfExtent *extent = &extents[i];

		rows += extent->rows;
		blocks += extent->blocks;
		raw_bytes += extent->raw_bytes;
		if (extent->partition >= (uint32) row->partitions)
			return psprintf("extent %d is of partition %u, but there are %d partitions", i,
							extent->partition, row->partitions);
		if (i > 0 &&
			(extent->partition < extent[-1].partition ||
			 (extent->partition == extent[-1].partition &&
			  extent->offset < extent[-1].offset + extent[-1].bytes)))
			return psprintf("extent %d is out of order", i);
	}
	if (rows != (uint64) row->rows || blocks != (uint64) row->blocks ||
		raw_bytes != (uint64) row->raw_bytes)
		return psprintf("extents have %llu rows, %llu blocks, %llu raw bytes, but the segment "
						"has %lld, %lld, %lld",
						(unsigned long long) rows, (unsigned long long) blocks,
						(unsigned long long) raw_bytes, (long long) row->rows,
						(long long) row->blocks, (long long) row->raw_bytes);

	by_row = MemoryContextAllocHuge(CurrentMemoryContext,
									sizeof(ShfExtent) * Max((Size) row->nextents, 1));
	memcpy(by_row, extents, sizeof(ShfExtent) * (Size) row->nextents);
	shuffle_extents_sort(by_row, row->nextents);
	for (int i = 0; i < row->nextents; i++)
	{
		if (by_row[i].first_row != next)
			return psprintf("no extent begins with row %llu", (unsigned long long) next);
		next += by_row[i].rows;
	}
	pfree(by_row);
	return NULL;
}

/* What is wrong with the segment's image, or NULL. */
static const char *
verify_image(const char *name, const ShuffleSegmentRow *row, const ShfExtent *extents)
{
	bytea	*image = shuffle_catalog_image(row);
	ShfError err;

	if (shf_verify_memory(VARDATA_ANY(image), VARSIZE_ANY_EXHDR(image), name, row->id, extents,
						  row->nextents, &err) != SHF_OK)
		return pstrdup(err.message);
	return NULL;
}

/* Stops the engine where an interrupt waits, which is served once nothing is open. */
static bool
verify_stop(void *arg)
{
	return InterruptPending;
}

/* Size of a file, or what is wrong with it. */
static const char *
verify_file(const char *path, const ShuffleSegmentRow *row, const ShfExtent *extents,
			uint32 nextents, int64 *bytes)
{
	ShfReader *reader;
	ShfCode	   code;
	ShfError   err;

	*bytes = 0;
	ReserveExternalFD(); /* nothing below raises */
	code = shf_reader_open(&reader, path, &err);
	if (code == SHF_OK)
	{
		*bytes = (int64) shf_reader_file_size(reader);
		shf_reader_close(reader);
		while ((code = shf_verify_file_until(path, row->id, extents, nextents, verify_stop, NULL,
											 &err)) == SHF_ERR_STOPPED)
		{
			/* It may be no reason to end; then the file is done again. */
			ReleaseExternalFD();
			CHECK_FOR_INTERRUPTS();
			ReserveExternalFD();
		}
	}
	ReleaseExternalFD();
	return code == SHF_OK ? NULL : pstrdup(err.message);
}

static void
verify_segment(ReturnSetInfo *rsinfo, const ShuffleSegmentRow *row)
{
	ShfExtent  *extents = shuffle_catalog_extents(row);
	const char *error = verify_index(row, extents);
	int64		all_bytes = 0;
	int64		files = 0;
	int			i = 0;

	if (row->files == 0)
	{
		char *name = psprintf("segment %d in the catalog", row->number);

		verify_report(rsinfo, name, -1, row->blocks, row->rows,
					  error != NULL ? error : verify_image(name, row, extents));
		return;
	}
	while (i < row->nextents)
	{
		uint32		partition = extents[i].partition;
		uint64		blocks = 0;
		uint64		rows = 0;
		int			n = 0;
		int64		bytes;
		char	   *path;
		const char *file_error;

		CHECK_FOR_INTERRUPTS();
		while (i + n < row->nextents &&
			   (row->layout == SHF_LAYOUT_LOG || extents[i + n].partition == partition))
		{
			blocks += extents[i + n].blocks;
			rows += extents[i + n].rows;
			n++;
		}
		path = shuffle_segment_path(row->root, &row->storage, row->name, row->layout, partition);
		file_error = verify_file(path, row, extents + i, n, &bytes);
		verify_report(rsinfo, path, row->layout == SHF_LAYOUT_LOG ? -1 : (int64) partition, blocks,
					  rows, file_error);
		if (file_error != NULL && error == NULL)
			error = ""; /* reported; sizes will not agree either */
		all_bytes += bytes;
		files++;
		i += n;
	}

	if (error == NULL && (all_bytes != row->bytes || files != row->files))
		error = psprintf("%lld files have %lld bytes, but the segment has %lld and %lld",
						 (long long) files, (long long) all_bytes, (long long) row->files,
						 (long long) row->bytes);
	if (error != NULL && error[0] != '\0')
		verify_report(rsinfo,
					  psprintf("%s/%s", shuffle_storage_dir(row->root, &row->storage), row->name),
					  -1, row->blocks, row->rows, error);
}

/*
 * SQL: shuffle_verify(relation regclass)
 *		RETURNS TABLE (file text, partition int, blocks bigint, rows bigint, error text)
 *
 * A row per file, error NULL where all is well; one more for a segment whose offset
 * index does not agree with itself or its files.
 */
PG_FUNCTION_INFO_V1(shuffle_verify);

Datum
shuffle_verify(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation	   rel = shuffle_open_for_reading(PG_GETARG_OID(0));
	ShuffleStorage storage = shuffle_storage_of(rel);
	Snapshot	   snapshot = shuffle_function_snapshot(rel);
	MemoryContext  cxt;
	List		  *segments;
	ListCell	  *lc;

	shuffle_require_signature(fcinfo, 1, VERIFY_COLUMNS);
	InitMaterializedSRF(fcinfo, 0);
	segments = shuffle_catalog_segments(&storage, snapshot);
	UnregisterSnapshot(snapshot);
	cxt = AllocSetContextCreate(CurrentMemoryContext, "shuffle verify", ALLOCSET_DEFAULT_SIZES);
	foreach(lc, segments)
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(cxt);

		verify_segment(rsinfo, lfirst(lc));
		MemoryContextSwitchTo(oldcxt);
		MemoryContextReset(cxt);
	}
	relation_close(rel, AccessShareLock);
	return (Datum) 0;
}
