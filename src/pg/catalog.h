/*
 * catalog.h
 *	  Columns of shuffle_segment, for the files that read it themselves.
 */
#ifndef SHUFFLE_CATALOG_H
#define SHUFFLE_CATALOG_H

#include "postgres.h"

#include "access/skey.h"
#include "utils/uuid.h"

#include "shuffle.h"

/* Objects of the extension in this database, found by extension.c. */
typedef struct ShuffleCatalogIds
{
	Oid table; /* shuffle_segment ... */
	Oid pkey;  /* ... its index */
	Oid sequence;
	Oid sweep_state; /* see sweep_when.c */
} ShuffleCatalogIds;

/* An error if the extension is not installed, or not as this library knows it. */
extern const ShuffleCatalogIds *shuffle_catalog_ids(void);

/* In the order of CREATE TABLE. */
enum
{
	Anum_segment_tablespace = 1, /* 0: the database's default, as in pg_class */
	Anum_segment_filenumber,
	Anum_segment_number,
	Anum_segment_partitions,
	Anum_segment_id,
	Anum_segment_rows,
	Anum_segment_bytes,
	Anum_segment_raw_bytes,
	Anum_segment_blocks,
	Anum_segment_files,
	Anum_segment_nextents,
	Anum_segment_written,
	Anum_segment_metrics, /* see shuffle_metrics_datum() */
	Anum_segment_layout,
	Anum_segment_root,
	Anum_segment_name,
	Anum_segment_routing,
	Anum_segment_extents,
	Anum_segment_image, /* NULL for a segment with files */
	Natts_segment = Anum_segment_image
};

/* The columns before "written", which are never NULL, where they lie in a tuple. */
typedef struct FormData_segment
{
	Oid		  tablespace;
	Oid		  filenumber;
	int32	  number;
	int32	  partitions;
	pg_uuid_t id;
	int64	  rows;
	int64	  bytes;
	int64	  raw_bytes;
	int64	  blocks;
	int64	  files;
	int32	  nextents;
} FormData_segment;

/* Fills the first two keys of an index scan: the rows of a storage. */
extern void shuffle_catalog_storage_keys(ScanKeyData *keys, const ShuffleStorage *storage);

/* As shuffle_catalog_segments(), without the check for a rewrite. */
extern List *shuffle_catalog_scan(const ShuffleStorage *storage, Snapshot snapshot);

/*
 * Calls visit for every row version of shuffle_segment, or of those of one storage if it
 * is not NULL, that some snapshot, now or later, might see: all but the surely dead.  row
 * is valid during the call only and has no extents; dead tells that its deletion is
 * committed.
 */
typedef void (*ShuffleVersionVisitor)(const ShuffleSegmentRow *row, bool dead, void *arg);

extern void
shuffle_catalog_versions(const ShuffleStorage *storage, ShuffleVersionVisitor visit, void *arg);

/* Rows in segments that are deleted, but that some snapshot may still see. */
extern int64 shuffle_catalog_dead_rows(const ShuffleStorage *storage);

/* ------------------------------------------------------------ offset_index.c */

typedef struct ShufflePartitionTotals
{
	int64 rows;
	int64 bytes;
	int64 raw_bytes;
	int64 blocks;
	int32 segments;
} ShufflePartitionTotals;

/*
 * Totals of all partitions of a relation, *n of them, in the current context; NULL when
 * the caller may not read all of it.
 */
extern ShufflePartitionTotals *shuffle_partition_sizes(Oid relid, int *n);

#endif /* SHUFFLE_CATALOG_H */
