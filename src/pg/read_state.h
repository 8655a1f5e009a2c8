/*
 * read_state.h
 *	  Reading the blocks of a shuffle table: what scan, TID fetch, ANALYZE,
 *	  shuffle_read and shuffle_fetch share.
 *
 * A read state is a list of segments fixed by one snapshot, seen as one array of
 * blocks: block numbers 0 .. n-1 run over the segments in their order and inside a
 * segment in the order of row numbers, so TIDs ascend with them.  The numbering
 * depends on nothing but the snapshot and the list of partitions; participants of
 * a parallel scan agree on it without sharing more than a counter.
 *
 * What a row's values need is counted, because a slot may outlive the scan that
 * filled it:
 *
 *	  window -> block -> file -> decoder
 *
 * A *window* is a range of rows of one block with their decoded columns, small
 * enough to stay in the processor's cache; a *block* is one batch, read from its
 * file when a column is first asked for; a *file* is an open segment file; a
 * *decoder* turns columns of one schema into values of the table's columns.  Each
 * lives in memory of its own below TopMemoryContext and goes with its last
 * reference.  The references of a read state and of a slot are dropped by reset
 * callbacks of the contexts these live in, so errors need no cleanup, and neither
 * resource owners nor subtransactions matter: a cursor keeps its file when another
 * subtransaction aborts.
 */
#ifndef SHUFFLE_READ_STATE_H
#define SHUFFLE_READ_STATE_H

#include "access/relscan.h"
#include "access/sdir.h"
#include "access/skey.h"
#include "access/tableam.h"

#include "shuffle.h"

/* Columns of one schema -> values of one tuple descriptor. */
typedef struct ShuffleDecoder
{
	int			   refs;
	MemoryContext  cxt; /* holds this struct and all below */
	TupleDesc	   desc;
	ShfSchema	   schema;
	ShuffleUnpack *unpack;
	int			   window_rows; /* most rows of a window */
} ShuffleDecoder;

/* An open segment file, counted as an external descriptor. */
typedef struct ShuffleFile
{
	int				refs;
	bool			counted; /* holds an external descriptor */
	ShfReader	   *reader;	 /* by shuffle_file_reader(); NULL when closed */
	ShfAhead	   *ahead;	 /* uses reader now, or NULL */
	uint8		   *image;	 /* what reader reads, of a segment without files */
	ShuffleDecoder *decoder;
	ShuffleStorage	storage;
	char			relname[NAMEDATALEN]; /* for messages */
} ShuffleFile;

/* One block.  The batch is empty until shuffle_block_load(). */
typedef struct ShuffleBlock
{
	int			 refs;
	ShuffleFile *file;
	ShfBatch	*batch;
	bool		 loaded;
	bool		 wanted; /* by somebody else than who reads ahead */
	uint64		 offset; /* of its message */
	uint64		 limit;	 /* end of its extent */
	uint32		 partition;
	uint32		 rows;
	int32		 segment;	/* number of its segment ... */
	uint64		 first_row; /* ... and of its first row there: its TIDs */
} ShuffleBlock;

/*
 * Rows first .. first + count - 1 of a block.  Columns are decoded one by one, but their
 * values lie row by row, so that a slot can point to a row's values where they are.
 */
typedef struct ShuffleWindow
{
	int			  refs;
	ShuffleBlock *block;
	uint32		  first;
	uint32		  count;
	uint32		  capacity; /* rows that values and isnull have room for */
	int			  ndecoded; /* columns decoded: always a prefix */
	int			  natts;
	MemoryContext cxt;	  /* by-reference values of the columns */
	Datum		 *values; /* row i at [i * natts] */
	bool		 *isnull; /* likewise; false where nothing is decoded */
	bool		  nulls;  /* is isnull anywhere true? */
} ShuffleWindow;

extern ShuffleWindow *shuffle_window_pin(ShuffleWindow *window);
extern void			  shuffle_window_unpin(ShuffleWindow *window);

/* Decodes what is missing of the first natts columns. */
extern void shuffle_window_decode(ShuffleWindow *window, int natts);

/* What is in the block is wanted: reads and checks it if that has not been done. */
extern void shuffle_block_load(ShuffleBlock *block);

/*
 * Starts reading, in a child of the current memory context.  Values are made for desc,
 * which gets copied; that is not always the relation's: ALTER TABLE reads rows of
 * the old types when it rewrites.  partitions, if not NULL, are the only ones to be
 * seen: ascending, without duplicates.  rel may be closed as long as the lock on it is
 * kept; snapshot is used in this call only, except that its xmin must hold the segment rows.
 */
extern ShuffleReadState *shuffle_reading_begin(Relation rel, TupleDesc desc, Snapshot snapshot,
											   const uint32 *partitions, int npartitions);

/* The same for these segments (ShuffleSegmentRow), which must outlive the state. */
extern ShuffleReadState *shuffle_reading_begin_segments(Relation rel, TupleDesc desc, List *rows);

extern void shuffle_reading_end(ShuffleReadState *state);

extern int64 shuffle_reading_blocks(const ShuffleReadState *state);
extern int64 shuffle_reading_rows(const ShuffleReadState *state);

/* Bytes of the files; meaningless when only some partitions are read. */
extern int64 shuffle_reading_bytes(const ShuffleReadState *state);

/* Goes to block n.  The result belongs to the state and is valid until the next seek. */
extern ShuffleBlock *shuffle_reading_seek(ShuffleReadState *state, int64 n);

/*
 * The window of the current block that holds its row "row"; valid until the next call of
 * this or of seek, unless pinned.  count > 0 asks for a window of at most so many rows
 * that begins with the row, 0 for the largest that aligns.
 */
extern ShuffleWindow *shuffle_reading_window(ShuffleReadState *state, uint32 row, uint32 count);

/*
 * Number of the first block that ends behind row "row" of segment "segment", that is
 * the one that holds the row if there is one; the number of blocks if there is none.
 */
extern int64 shuffle_reading_locate(ShuffleReadState *state, int32 segment, uint64 row);

/* Gives back what the cursor holds: nothing will be read for a while. */
extern void shuffle_reading_pause(ShuffleReadState *state);

/* The schema that all values are decoded from now: that of the current block's file. */
extern const ShfSchema *shuffle_reading_schema(const ShuffleReadState *state);

/* ------------------------------------------------------------ catalog.c */

/* Totals over the segments that are in sight. */
typedef struct ShuffleTotals
{
	int64 segments;
	int64 rows;
	int64 bytes;
	int64 raw_bytes;
	int64 blocks;
} ShuffleTotals;

/* Raises a serialization failure like shuffle_catalog_segments(). */
extern void shuffle_totals(Relation rel, Snapshot snapshot, ShuffleTotals *totals);

/* ------------------------------------------------------------ fetch.c */

/*
 * Opens a shuffle table whose rows the caller may read as a whole: an error unless the
 * user has SELECT on all columns and no row-level security applies.
 */
extern Relation shuffle_open_for_reading(Oid relid);

/*
 * Starts reading the partitions in an SQL array of int4, as the table's columns are now;
 * an error if it is or contains NULL, or numbers that the table does not have.
 */
extern ShuffleReadState *shuffle_partitions_begin(Relation rel, Datum list, bool isnull);

/* ------------------------------------------------------------ custom_scan.c */

extern void shuffle_custom_scans_init(void); /* makes the planner know our plan nodes */

/* ------------------------------------------------------------ slot.c */

/* Stores row "row" of the window's block; pins the window. */
extern void shuffle_slot_store(TupleTableSlot *slot, ShuffleWindow *window, uint32 row);

/* The window whose row the slot holds, or NULL. */
extern ShuffleWindow *shuffle_slot_window(TupleTableSlot *slot);

/* ------------------------------------------------------------ scan.c, analyze.c */

extern TableScanDesc
shuffle_scan_begin(Relation rel, Snapshot snapshot, int nkeys, struct ScanKeyData *key,
				   ParallelTableScanDesc pscan, uint32 flags);
/* A sequential scan of these partitions, ascending, or of all if NULL. */
extern TableScanDesc shuffle_scan_begin_partitions(Relation rel, Snapshot snapshot,
												   const uint32 *partitions, int npartitions);
extern void			 shuffle_scan_end(TableScanDesc sscan);
extern void shuffle_scan_rescan(TableScanDesc sscan, struct ScanKeyData *key, bool set_params,
								bool allow_strat, bool allow_sync, bool allow_pagemode);
extern bool
shuffle_scan_getnextslot(TableScanDesc sscan, ScanDirection direction, TupleTableSlot *slot);
extern void shuffle_scan_set_tidrange(TableScanDesc sscan, ItemPointer mintid, ItemPointer maxtid);
extern bool shuffle_scan_tid_valid(TableScanDesc sscan, ItemPointer tid);

/*
 * One row that is in sight of snapshot, as a window of one row to unpin; NULL if it is
 * not.  The block of near, which may be NULL, serves again if the row is in it.
 */
extern ShuffleWindow *shuffle_fetch_row(Relation rel, TupleDesc desc, ItemPointer tid,
										Snapshot snapshot, ShuffleWindow *near);

extern ShuffleReadState		  *shuffle_scan_reading(TableScanDesc sscan, TupleDesc desc);
extern struct ShuffleAnalyze **shuffle_scan_analyze_state(TableScanDesc sscan);
extern Size					   shuffle_parallelscan_estimate(Relation rel);
extern Size shuffle_parallelscan_initialize(Relation rel, ParallelTableScanDesc pscan);
extern void shuffle_parallelscan_reinitialize(Relation rel, ParallelTableScanDesc pscan);

extern bool shuffle_analyze_next_page(TableScanDesc sscan, BlockNumber page);
extern bool shuffle_analyze_next_tuple(TableScanDesc sscan, TransactionId oldest_xmin,
									   double *liverows, double *deadrows, TupleTableSlot *slot);

/* Pages of BLCKSZ that the table is said to have; see analyze.c for the limit. */
extern BlockNumber shuffle_pages(uint64 bytes);

#endif /* SHUFFLE_READ_STATE_H */
