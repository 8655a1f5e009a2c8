/*
 * shuffle.h
 *	  Declarations shared by the PostgreSQL side of shuffle_ext.
 *
 * Grouped by the file that implements them.  src/pg is everything that knows
 * PostgreSQL; src/engine (shf.h) is everything that knows Arrow.
 */
#ifndef SHUFFLE_H
#define SHUFFLE_H

#include "postgres.h"

#include "access/attnum.h"
#include "access/tupdesc.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "nodes/parsenodes.h"
#include "nodes/pg_list.h"
#include "nodes/plannodes.h"
#include "port/atomics.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "compat.h"
#include "../engine/shf.h"

#define SHUFFLE_EXTENSION "shuffle_ext"
#define SHUFFLE_AM		  "shuffle" /* access method, label provider is "shuffle_ext" */
#define SHUFFLE_MAX_KEYS  32		/* as many as a partition key of the server has */

/* ------------------------------------------------------------ module.c */

/* Settings (shuffle_ext.*); sizes in the unit of the variable's name. */
extern int	 shuffle_setting_partitions;
extern char *shuffle_setting_codec;
extern int	 shuffle_setting_memory_limit_kb;
extern int	 shuffle_setting_block_rows;
extern int	 shuffle_setting_block_bytes;
extern int	 shuffle_setting_block_min_rows;
extern int	 shuffle_setting_writer_threads;
extern int	 shuffle_setting_write_buffer_kb;
extern int	 shuffle_setting_inline_bytes;
extern int	 shuffle_setting_output_limit_kb; /* 0: none */
extern char *shuffle_setting_directory;		  /* "" = pg_shuffle in the data directory */
extern bool	 shuffle_setting_sync;
extern bool	 shuffle_setting_read_ahead;

/* ------------------------------------------------------------ error.c */

/* In ereport(), which errno must have reached as err->sys_errno: the SQLSTATE that fits. */
extern int shuffle_errcode(const ShfError *err);

/* Raises an engine error with its SQLSTATE (58P01/53100/XX001/53200/22023 ...). */
extern void shuffle_raise(const ShfError *err) pg_attribute_noreturn();

/* Says that an object of the extension ("table", "function") is of another version. */
extern void shuffle_raise_misfit(const char *kind, const char *name) pg_attribute_noreturn();

/* Raises that unless the called function has as many arguments and result columns (0: any). */
extern void shuffle_require_signature(FunctionCallInfo fcinfo, int nargs, int ncolumns);

#define SHUFFLE_CHECK(call, err) \
	do \
	{ \
		if (unlikely((call) != SHF_OK)) \
			shuffle_raise(err); \
	} while (0)

/* ------------------------------------------------------------ options.c */

typedef enum ShuffleMethod
{
	SHUFFLE_HASH,
	SHUFFLE_RANGE,
	SHUFFLE_ROUND_ROBIN,
	SHUFFLE_SINGLE
} ShuffleMethod;

typedef enum ShuffleTypes
{
	SHUFFLE_TYPES_ARROW,
	SHUFFLE_TYPES_ARROW_EXT,
	SHUFFLE_TYPES_NATIVE
} ShuffleTypes;

/*
 * How rows are routed and stored.  Kept as a security label of the table plus a label
 * "key=1", "key=2", ... on each key column.
 */
typedef struct ShuffleOptions
{
	int			  partitions;
	ShuffleMethod method;
	char		 *hash; /* hash family; "postgres" */
	int			  nkeys;
	AttrNumber	 *keys;	   /* attribute numbers of the table, in key order */
	int			  nbounds; /* range: partitions - 1 cut points as text */
	char		**bounds;  /* one key: its text form; several: a row literal */
	ShfLayoutKind layout;  /* SHF_LAYOUT_LOG or SHF_LAYOUT_PARTITION_FILES */
	ShfCodec	  codec;
	ShuffleTypes  types;
	bool		  null_unrepresentable; /* unrepresentable => 'null' instead of 'error' */
	bool		  labelled;				/* read from the table's label, not the defaults */
} ShuffleOptions;

/* Parsers of single option values; the error lists the valid ones. */
extern ShuffleMethod shuffle_parse_method(const char *text);
extern ShfLayoutKind shuffle_parse_layout(const char *text);
extern ShfCodec		 shuffle_parse_codec(const char *text);
extern bool			 shuffle_try_parse_codec(const char *text, ShfCodec *codec, char **message);
extern ShuffleTypes	 shuffle_parse_types(const char *text);
extern bool			 shuffle_parse_unrepresentable(const char *text); /* true = null */
extern void			 shuffle_check_hash(const char *text);
extern const char	*shuffle_method_name(ShuffleMethod method);
extern const char	*shuffle_layout_name(ShfLayoutKind layout);
extern char			*shuffle_codec_name(ShfCodec codec);
extern const char	*shuffle_types_name(ShuffleTypes types);

/* One partition, single, the settings' codec, arrow types: a table without a label. */
extern void shuffle_options_default(ShuffleOptions *options);

/*
 * Checks that need no catalog: partitions against layout, keys against method, number of
 * bounds.  Options as a user gave them (not stored) have all bounds or none, which are
 * then estimated; an estimate may find fewer than the partitions have room for.
 */
extern void shuffle_options_check(const ShuffleOptions *options, bool stored);

/* Does it route rows by keys: hash or range? */
extern bool shuffle_method_has_keys(ShuffleMethod method);

/* Does the table route rows by keys, all of which have their column? */
extern bool shuffle_options_have_keys(const ShuffleOptions *options);

/* Do both send every row to the same partition?  Codec, types and layout do not matter. */
extern bool shuffle_options_same_routing(const ShuffleOptions *a, const ShuffleOptions *b);

/* ------------------------------------------------------------ options_text.c */

/*
 * Options as text: a table's label, or with attnums, which adds the attribute numbers of
 * the keys, the routing that a segment remembers.  Reading a label leaves keys NULL, only
 * nkeys is known.  Raises on anything that shuffle_options_format() does not write.
 */
extern char			  *shuffle_options_format(const ShuffleOptions *options, bool attnums);
extern ShuffleOptions *shuffle_options_parse(const char *text);

/* ------------------------------------------------------------ label.c */

extern void shuffle_label_init(void); /* registers the provider */

/*
 * Options of a shuffle table, palloc'd in the current context; of rd_rel->relrewrite
 * while the table is a rewrite's transient relation.  A key column that was dropped
 * counts in nkeys and is 0 in keys: fine for reading, see the next function.
 */
extern ShuffleOptions *shuffle_options_of(Relation rel);

/* Those that readers need. */
typedef struct ShuffleReadOptions
{
	int			  partitions;
	ShuffleMethod method;
	int			  nkeys;
	AttrNumber	  keys[SHUFFLE_MAX_KEYS];
	ShfCodec	  codec;
	ShuffleTypes  types;
	bool		  null_unrepresentable;
} ShuffleReadOptions;

/*
 * Parsed once and then kept in the relation's cache entry, which a changed label empties:
 * the label of a range-partitioned table may have 100,000 bounds.
 */
extern ShuffleReadOptions shuffle_read_options(Relation rel);

/* Before rows of rel are routed by these options: raises if a key column is gone. */
extern void shuffle_options_require_keys(const ShuffleOptions *options, Relation rel);

/*
 * Stores them as labels of a table, replacing what was there; no emptiness check.  The
 * pg_class row must be visible; ends with a CommandCounterIncrement.
 */
extern void shuffle_options_store(Oid relid, const ShuffleOptions *options);

/*
 * Before what decides the partition of a row changes: keeps writers out until the
 * transaction ends and raises if the table has rows or is in use by more than the
 * caller's nrefs references.  A table of another access method is left alone.
 */
extern void shuffle_options_require_empty(Relation rel, int nrefs);

/* Is it, or could it become, a shuffle table? */
extern bool shuffle_may_have_options(Relation rel);

/* A notice if rel is a table of another access method, whose options do nothing yet. */
extern void shuffle_options_without_effect(Relation rel);

/* ------------------------------------------------------------ route.c */

typedef struct ShuffleRouter ShuffleRouter;

/*
 * Routing for rows of this descriptor.  Looks up hash / btree support functions (error
 * if a key type has none) and parses the bounds (error unless strictly ascending).
 * start is the first partition of round robin (give each writer its own).
 */
extern ShuffleRouter *
shuffle_router_create(const ShuffleOptions *options, TupleDesc desc, uint32 start);

/* Error for a column that has no value when rows are written. */
extern void shuffle_key_require_stored(Form_pg_attribute att);

/* values and isnull are indexed by attribute number - 1. */
extern uint32 shuffle_route(ShuffleRouter *router, const Datum *values, const bool *isnull);

/*
 * The same for a row that has been routed to this partition, when the values of some columns
 * (attribute number - 1) are stored as NULL: the partition is that of the row as it is
 * stored.  Error if a key has elements or fields that are.
 */
extern uint32
shuffle_route_nulled(ShuffleRouter *router, uint32 partition, const Datum *values,
					 const bool *isnull, const Bitmapset *whole, const Bitmapset *inside);

/* ------------------------------------------------------------ parallel.c */

/* Are the functions that routing and packing call for these columns parallel safe? */
extern bool shuffle_columns_parallel_safe(const ShuffleOptions *options, TupleDesc desc);

/* ------------------------------------------------------------ bounds.c, bounds_estimate.c */

/*
 * Bounds as the user typed them, under the session's settings, become the text that is
 * stored and that routers read under fixed settings.  Errors name the position of a bound
 * that does not parse or is not above the one before.  keys must be resolved.
 */
extern void shuffle_bounds_normalize(ShuffleOptions *options, TupleDesc desc);

/*
 * Range cut points for options->partitions from statistics or a sample of the query's
 * keys; fills options->nbounds and bounds.  query is the analysed, rewritten-ready
 * Query whose non-junk output columns 1..n match desc.  Fewer distinct keys than
 * partitions: the cut points that exist are used and later partitions stay empty
 * (bounds must stay strictly ascending, so nbounds may be below partitions - 1).
 */
extern void shuffle_bounds_estimate(ShuffleOptions *options, Query *query, TupleDesc desc);

/* ------------------------------------------------------------ execute.c */

typedef void (*ShuffleRowFunction)(TupleTableSlot *slot, void *arg);

/* Runs a plan with the active snapshot; text is the query's for messages. */
extern void
shuffle_execute(PlannedStmt *plan, const char *text, ShuffleRowFunction receive, void *arg);

/* ------------------------------------------------------------ typemap.c, pack.c */

/* How values of a table's columns become Arrow values: see the type table in typemap.c. */
typedef struct ShuffleTypeMap ShuffleTypeMap;

/*
 * Dropped columns are left out of the schema; field metadata tells which attribute a field
 * is: "shuffle:attnum", and "pg:type", "pg:typmod", ... (typemap.h).  Allocated in the
 * current context.
 */
extern ShuffleTypeMap *
shuffle_typemap_create(TupleDesc desc, ShuffleTypes types, bool null_unrepresentable);
extern const ShfSchema *shuffle_typemap_schema(const ShuffleTypeMap *map);

/*
 * Does a map stay right as long as the columns are the same, whatever happens to types, and
 * keep nothing of a row when the next one is packed?
 */
extern bool shuffle_typemap_lasts(TupleDesc desc, ShuffleTypes types);

/* Frees what the last row has left, which may be large. */
extern void shuffle_typemap_forget_row(ShuffleTypeMap *map);

/*
 * Converts one row into row (cleared here), values indexed by attribute number - 1.
 * Pointers stored in row->var stay valid until the next call.  Errors name the column
 * and the value.  Temporary memory is the map's own and reset on each call.
 */
extern void shuffle_pack_row(ShuffleTypeMap *map, const ShfRowLayout *layout, ShfRow *row,
							 const Datum *values, const bool *isnull);

/* ------------------------------------------------------------ unpack.c */

/* How a segment's columns become values of a table's columns. */
typedef struct ShuffleUnpack ShuffleUnpack;

/*
 * Matches fields to attributes by "shuffle:attnum".  A column whose type changed
 * without a rewrite is converted, or refused with a hint at VACUUM FULL when it is
 * first unpacked.  Allocated in the current context.
 */
extern ShuffleUnpack *shuffle_unpack_create(const ShfSchema *schema, TupleDesc desc);

/* Field of an attribute, or -1: the column was added later (missing value or NULL). */
extern int shuffle_unpack_field(const ShuffleUnpack *unpack, AttrNumber attnum);

/* Where unpacked values go: number i to [i * stride]. */
typedef struct ShuffleValues
{
	Datum *values;
	bool  *isnull; /* all false before; those of NULLs are set */
	int	   stride;
} ShuffleValues;

/*
 * Decodes rows first .. first + count - 1 of a column.  By-reference values are
 * allocated in cxt, which the caller resets when it drops the values.  For field -1 pass
 * column NULL.
 */
extern void shuffle_unpack_column(ShuffleUnpack *unpack, AttrNumber attnum, const ShfColumn *column,
								  int64 first, int count, ShuffleValues out, MemoryContext cxt);

/* ------------------------------------------------------------ storage.c */

/* What segment rows and files are keyed by; numbers are unique per tablespace only. */
typedef struct ShuffleStorage
{
	Oid			  tablespace; /* 0: the database's default, as in pg_class.reltablespace */
	RelFileNumber filenumber;
} ShuffleStorage;

static inline bool
shuffle_same_storage(const ShuffleStorage *a, const ShuffleStorage *b)
{
	return a->filenumber == b->filenumber && a->tablespace == b->tablespace;
}

extern ShuffleStorage shuffle_storage_of(Relation rel);

/* Where segment files of this session go now: "pg_shuffle", or <directory>/PG_<sysid>. */
extern char *shuffle_root(void);

/*
 * Directory of a storage for writing: checks the root (missing, not writable, another
 * cluster's: error with hint), creates what is missing with the data directory's modes
 * and syncs new directories and their parents.  Absolute path, palloc'd.
 */
extern char *shuffle_storage_prepare(const ShuffleStorage *storage);

/* The same path for a root that a segment row remembers; creates nothing. */
extern char *shuffle_storage_dir(const char *root, const ShuffleStorage *storage);

/* "<full xid>-<subxact>-<nonce>" in fixed-width hex: names of one job's files begin so. */
extern char *shuffle_job_prefix(FullTransactionId fxid, SubTransactionId subxid, uint64 nonce);

/* Removes every file and directory in dir whose name begins with prefix; LOG on failure. */
extern void shuffle_unlink_prefix(const char *dir, const char *prefix);

/* Removes a storage's directory and all in it; LOG on failure. */
extern void shuffle_unlink_storage(const char *dir);

/* File of a partition of a segment; partition is ignored for a log. */
extern char *shuffle_segment_path(const char *root, const ShuffleStorage *storage, const char *name,
								  ShfLayoutKind layout, uint32 partition);

extern void shuffle_fsync_dir(const char *path);

/* ------------------------------------------------------------ xact.c */

extern void shuffle_xact_init(void); /* registers the transaction callbacks */

/*
 * The leader answers for all files in dir whose name begins with prefix: they are
 * unlinked when the subtransaction, the current one or one around it, or a parent it was
 * merged into, aborts.
 */
extern void shuffle_xact_own_files(const char *dir, const char *prefix, SubTransactionId subid);

/* ------------------------------------------------------------ sweep.c */

/*
 * For writers, when they prepare a storage: sweeps if a crash, a prepared transaction or a
 * dropped database may have left files behind.  Looked at once per session, and again when
 * shuffle_sweep_wanted is set.
 */
extern void shuffle_sweep_if_needed(void);

/* ------------------------------------------------------------ extension.c */

extern bool shuffle_extension_exists(void);

/* ------------------------------------------------------------ catalog.c */

/* One row of shuffle_segment; extents stay in the table until asked for. */
typedef struct ShuffleSegmentRow
{
	ShuffleStorage	  storage;
	int32			  number; /* 0 .. SHUFFLE_MAX_SEGMENTS - 1, unique per storage */
	ShfLayoutKind	  layout;
	int32			  partitions;
	char			 *routing; /* the label text it was written with; NULL when read */
	char			 *root;
	char			 *name; /* file name without ".arrow" / directory name */
	uint8			  id[16];
	int64			  rows;
	int64			  bytes;
	int64			  raw_bytes;
	int64			  blocks;
	int64			  files; /* 0: the segment is image */
	int32			  nextents;
	const ShfMetrics *metrics; /* of its writer, or NULL; NULL when read */
	Datum			  extents; /* detoastable bytea, or 0 */
	Datum			  image;   /* detoastable bytea: what would be its file, or 0 */
} ShuffleSegmentRow;

#define SHUFFLE_MAX_SEGMENTS (1 << 20) /* per storage; see shuffle_tid_encode() */

/*
 * Publishes a segment: inserts the row as if by command cid of the current
 * subtransaction, which must have a transaction id in parallel mode.  It gets row->number
 * if that is not negative and a new number otherwise, and row->image; row->extents is not
 * looked at.  Later commands see the row: with the current command id the caller does
 * CommandCounterIncrement.
 */
extern void shuffle_catalog_insert(ShuffleSegmentRow *row, const ShfExtent *extents, CommandId cid);

/*
 * Segments of a storage visible to snapshot, by number, in the current context.
 * Raises ERRCODE_T_R_SERIALIZATION_FAILURE when the table has another storage for snapshot,
 * because it was rewritten or truncated since.
 */
extern List *shuffle_catalog_segments(const ShuffleStorage *storage, Snapshot snapshot);

/*
 * The snapshot with which a function reads a table that it has locked itself; the caller
 * unregisters it.
 */
extern Snapshot shuffle_function_snapshot(Relation rel);

/* A registered snapshot of what is committed now, for sizes and estimates; works in workers. */
extern Snapshot shuffle_latest_snapshot(void);

/* One segment, or NULL. */
extern ShuffleSegmentRow *
shuffle_catalog_segment(const ShuffleStorage *storage, int32 number, Snapshot snapshot);

/* Deletes the rows of a storage; true if there were any.  Adds the roots they name to roots. */
extern bool shuffle_catalog_delete(const ShuffleStorage *storage, List **roots);

/* ------------------------------------------------------------ extents.c */

/* All extents, by partition and offset; palloc'd (huge allowed). */
extern ShfExtent *shuffle_catalog_extents(const ShuffleSegmentRow *row);

/*
 * Those of several ascending partitions, by partition and offset, found by binary search over
 * slices of the stored value.  May be NULL if there are none.
 */
extern ShfExtent *
shuffle_catalog_partitions_extents(const ShuffleSegmentRow *row, const uint32 *partitions,
								   int npartitions, int *nextents);

/* Sorts extents by first_row, which is file order in a log. */
extern void shuffle_extents_sort(ShfExtent *extents, int nextents);

/* Image of a segment without files, detoasted. */
extern bytea *shuffle_catalog_image(const ShuffleSegmentRow *row);

/* ------------------------------------------------------------ writer.c */

typedef struct ShuffleWriter ShuffleWriter;

/* What one writing process needs to know, whoever it is; no catalog behind it. */
typedef struct ShuffleWriteSpec
{
	TupleDesc			  desc; /* of the target table */
	const ShuffleOptions *options;
	ShuffleTypeMap		 *map;	  /* of desc and options; NULL: the writer makes one */
	const char			 *path;	  /* directory, "/", job prefix, "-", writer number in hex */
	uint32				  writer; /* number of this writer in its job */
	int					  memory_limit_kb;
	int					  block_rows;
	int					  block_bytes;
	int					  block_min_rows;
	int					  write_buffer_kb;
	bool				  sync;

	/* output_limit.c; NULL: the count of the statement in this process */
	int				  output_limit_kb;
	pg_atomic_uint64 *output;

	/*
	 * For writers that may turn out to need no file: a segment of up to so many bytes
	 * becomes ShfSegment.image, and opening is called before files are opened, each time
	 * after none was open.  It may raise.
	 */
	uint32 inline_max;
	void (*opening)(void *arg);
	void *opening_arg;
	Oid	  relid;					  /* whose progress is reported; InvalidOid: nobody's */
	int	  leader;					  /* process that has begun to report it; 0: the writer does */
	int	  progress;					  /* the leader's token */
	struct ShuffleProgressDone *done; /* see progress.c; NULL where one process writes */
	uint64 begun; /* shf_clock() when the query was first planned; 0: as it is made */
} ShuffleWriteSpec;

/* Largest inline_max: the most that shuffle_setting_inline_bytes allows. */
#define SHUFFLE_INLINE_MAX (64 * 1024)

/* Fills the settings part of a spec from the current settings. */
extern void shuffle_write_spec_settings(ShuffleWriteSpec *spec);

/*
 * A writer in a memory context: a reset callback of cxt closes descriptors and frees
 * engine memory, so that error and early end need no further care.
 */
extern ShuffleWriter *shuffle_writer_begin(const ShuffleWriteSpec *spec, MemoryContext cxt);

/* Routes and stores one row; values indexed by attribute number - 1. */
extern void shuffle_writer_put(ShuffleWriter *writer, const Datum *values, const bool *isnull);

/* Stores one row in a partition that is known. */
extern void shuffle_writer_put_into(ShuffleWriter *writer, uint32 partition, const Datum *values,
									const bool *isnull);

/*
 * Completes the files.  The array lives as long as the writer; the last segment has the
 * writer's metrics.
 */
extern const ShfSegment *shuffle_writer_end(ShuffleWriter *writer, int *nsegments);

/* Memory in bytes: held now; least that a writer needs to emit a run. */
extern uint64 shuffle_writer_memory(const ShuffleWriter *writer);
extern uint64 shuffle_writer_least_memory(const ShuffleWriter *writer);

/* Descriptors held now, of a writer with spec.opening. */
extern int shuffle_writer_descriptors(const ShuffleWriter *writer);

/* Emits all rows and gives back memory and descriptors; the latter only. */
extern void shuffle_writer_drain(ShuffleWriter *writer);
extern void shuffle_writer_rest(ShuffleWriter *writer);

/* Frees the writer and all its memory before its context does. */
extern void shuffle_writer_free(ShuffleWriter *writer);

/* ------------------------------------------------------------ publish.c */

/* Where the segments of one write go. */
typedef struct ShufflePlace
{
	ShuffleStorage storage;
	char		  *root;
	char		  *dir;
	char		  *prefix; /* of the names of its files */
	bool		   sync;   /* the setting may change while the write runs */
} ShufflePlace;

/* Names only; the place belongs to the current subtransaction. */
extern void shuffle_place_make(ShufflePlace *place, const ShuffleStorage *storage);

/*
 * Makes the directory.  From here on an abort of the subtransaction the place belongs to
 * removes the files.
 */
extern void shuffle_place_open(const ShufflePlace *place, SubTransactionId subid);

/* Both, for the current subtransaction. */
extern void shuffle_place_prepare(ShufflePlace *place, const ShuffleStorage *storage);

/* What ShuffleWriteSpec calls path. */
extern char *shuffle_place_path(const ShufflePlace *place, uint32 writer);

/*
 * Extents of a finished segment: its own, or read from the writer's index file, in the
 * current context.
 */
extern ShfExtent *
shuffle_place_extents(const ShufflePlace *place, uint32 writer, const ShfSegment *segment);

/* Removes the index file of a writer: all its segments have been published. */
extern void shuffle_place_drop_index(const ShufflePlace *place, uint32 writer);

/*
 * Inserts the catalog row of a finished segment, whose extents may be in the index file.
 * routing is options as text with attnums; number is the segment's, or -1 for a new one; cid
 * is the command that its rows were inserted by.
 */
extern void
shuffle_publish(const ShufflePlace *place, const ShuffleOptions *options, const char *routing,
				uint32 writer, const ShfSegment *segment, int32 number, CommandId cid);

/* ------------------------------------------------------------ output_limit.c */

/* What the statement has written in this process; after a parallel part of it. */
extern uint64 shuffle_output_written(void);
extern void	  shuffle_output_set(uint64 written);

/*
 * Adds bytes to a count, NULL: that of the statement, and returns what is left of the
 * limit.  Raises if there is nothing left.
 */
extern uint64 shuffle_output_add(pg_atomic_uint64 *count, uint64 bytes, int limit_kb);

/* ------------------------------------------------------------ stats.c */

/* Metrics as the catalog keeps them: int8[]. */
extern Datum shuffle_metrics_datum(const ShfMetrics *metrics);

/* A segment of some process of a write, known by the prefix of its names, was published. */
extern void shuffle_stats_published(const char *write, uint32 process, const ShfSegment *segment);

/* ------------------------------------------------------------ progress.c */

/* The numbers are those in the view shuffle_progress. */
typedef enum ShuffleOperation
{
	SHUFFLE_OPERATION_WRITE = 1,
	SHUFFLE_OPERATION_FETCH,
	SHUFFLE_OPERATION_COMPACT
} ShuffleOperation;

typedef enum ShufflePhase
{
	SHUFFLE_PHASE_PLANNING = 1,
	SHUFFLE_PHASE_INPUT,  /* rows come and are packed */
	SHUFFLE_PHASE_RUN,	  /* the row buffer is emptied */
	SHUFFLE_PHASE_FINISH, /* files are completed and flushed */
	SHUFFLE_PHASE_WAIT,	  /* for the other processes */
	SHUFFLE_PHASE_PUBLISH,
	SHUFFLE_PHASE_SEND /* fetch */
} ShufflePhase;

/* What processes of a parallel write had done when they ended; in shared memory. */
typedef struct ShuffleProgressDone
{
	pg_atomic_uint64 rows;
	pg_atomic_uint64 bytes;
	pg_atomic_uint64 processes;
} ShuffleProgressDone;

/*
 * Starts to report an operation on a table of a process, or of the leader whose worker it
 * is.  Returns a token for the other calls, or 0, with which they do nothing, where the
 * process has something else to report.  rows: those of this process.
 */
extern int	shuffle_progress_begin(ShuffleOperation operation, Oid relid, int leader);
extern void shuffle_progress_expect(int token, double rows);
extern void shuffle_progress_phase(int token, ShufflePhase phase);
extern void shuffle_progress_report(int token, ShufflePhase phase, uint64 rows, uint64 bytes);
extern void shuffle_progress_end(int token);

/*
 * The leader of a parallel write says where its processes leave what they have done; NULL
 * before that goes away.  done: this process will have no more rows.  refresh: others may
 * be done, and the leader has nothing to report by itself.
 */
extern void shuffle_progress_share(int token, ShuffleProgressDone *done);
extern void shuffle_progress_done(int token, ShuffleProgressDone *done, uint64 rows, uint64 bytes);
extern void shuffle_progress_refresh(void);

/* ------------------------------------------------------------ target.c */

/*
 * Error if a table, or one of this name and schema that is to be made (relid invalid),
 * belongs to a publication other than FOR ALL TABLES: its rows could not be replicated.
 */
extern void shuffle_refuse_published(Oid relid, Oid namespace, const char *name);

/* ------------------------------------------------------------ row numbers */

/*
 * Rows of a table are numbered with 47 bits: segment number (20) and row number (27).  In a
 * TID the low 15 of them + 1 are the offset, so that it is never 0, the others the block.
 */
#define SHUFFLE_ROW_BITS	27
#define SHUFFLE_OFFSET_BITS 15
#define SHUFFLE_MAX_OFFSET	(1 << SHUFFLE_OFFSET_BITS)

static inline uint64
shuffle_row_key(int32 segment, uint64 row)
{
	return ((uint64) segment << SHUFFLE_ROW_BITS) | row;
}

static inline void
shuffle_row_of_key(uint64 key, int32 *segment, uint64 *row)
{
	*segment = (int32) (key >> SHUFFLE_ROW_BITS);
	*row = key & ((UINT64CONST(1) << SHUFFLE_ROW_BITS) - 1);
}

static inline void
shuffle_tid_encode(ItemPointer tid, int32 segment, uint64 row)
{
	uint64 key = shuffle_row_key(segment, row);

	ItemPointerSet(tid, (BlockNumber) (key >> SHUFFLE_OFFSET_BITS),
				   (OffsetNumber) (key % SHUFFLE_MAX_OFFSET + 1));
}

static inline void
shuffle_tid_decode(ItemPointer tid, int32 *segment, uint64 *row)
{
	uint64 key = ((uint64) ItemPointerGetBlockNumberNoCheck(tid) << SHUFFLE_OFFSET_BITS) |
		(uint64) (ItemPointerGetOffsetNumberNoCheck(tid) - 1);

	shuffle_row_of_key(key, segment, row);
}

/* ------------------------------------------------------------ read_state.c */

/*
 * Reads blocks of a list of segments one after the other: the one reader under the
 * sequential scan, shuffle_read, shuffle_fetch, ANALYZE and TID fetch; see read_state.h.
 */
typedef struct ShuffleReadState ShuffleReadState;

/* ------------------------------------------------------------ slot.c */

extern const TupleTableSlotOps ShuffleSlotOps;

/* ------------------------------------------------------------ tableam.c */

/* Is this relation one of our tables?  Error naming it if not. */
extern void shuffle_require_table(Relation rel);
extern bool shuffle_is_table(Relation rel);

/* Opens and locks a relation of any kind; error if it does not exist, or not any more. */
extern Relation shuffle_open_relation(Oid relid, LOCKMODE lockmode);

#endif /* SHUFFLE_H */
