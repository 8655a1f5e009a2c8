/*
 * shf.h
 *	  Public interface of the shuffle engine: schema, row buffer, block writer
 *	  and block reader.
 *
 * The engine is plain C11.  It includes no PostgreSQL header, allocates with
 * malloc, never raises, never prints and keeps no global state, so that it can
 * run in a thread, be fuzzed and be tested by itself.  Every call that can fail
 * returns an ShfCode and describes the failure in a ShfError that the caller
 * owns (pass NULL when the text is not wanted).
 *
 * Words: a *block* is one Arrow RecordBatch message holding rows of exactly one
 * partition; a *run* is what the writer emits when its row buffer is full,
 * blocks in partition order; an *extent* is a byte range of a file holding
 * consecutive blocks of one partition; a *segment* is what one writer leaves
 * behind: one Arrow IPC file (SHF_LAYOUT_LOG) or one directory with an Arrow IPC
 * file per partition (SHF_LAYOUT_PARTITION_FILES).
 *
 * Row flow of a writer:
 *
 *	  ShfRow *row = shf_writer_row(w);
 *	  shf_row_clear(layout, row);	 or shf_row_begin(): all columns present
 *	  ...store fixed-width values at row->fixed + slot[i], width[i] bytes of each,
 *	  variable-width ones in row->var[var[i]], NULLs with shf_row_set_null()...
 *	  shf_writer_append(w, partition, &err);
 */
#ifndef SHF_H
#define SHF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---------------------------------------------------------------- errors */

typedef enum ShfCode
{
	SHF_OK = 0,
	SHF_ERR_NOMEM,	 /* malloc failed */
	SHF_ERR_IO,		 /* a system call failed: sys_errno is set */
	SHF_ERR_CORRUPT, /* stored bytes are not what they must be */
	SHF_ERR_INVALID, /* the caller's arguments make no sense */
	SHF_ERR_LIMIT,	 /* a limit of the format or of the settings */
	SHF_ERR_STOPPED	 /* the caller has asked for it */
} ShfCode;

typedef struct ShfError
{
	ShfCode code;
	int		sys_errno; /* for SHF_ERR_IO, else 0 */

	/* One English sentence without trailing period; names file and offset where there are any. */
	char message[768];
} ShfError;

/* Fills err (if not NULL) and returns code. */
extern ShfCode
shf_error(ShfError *err, ShfCode code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As above for a failed system call: appends ": " and strerror(errno). */
extern ShfCode
shf_error_errno(ShfError *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---------------------------------------------------------------- schema */

/*
 * Column kinds.  "slot" is how a value lies in a packed row and in the fixed part
 * of a ShfRow: host byte order (little-endian is required), natural alignment.
 */
typedef enum ShfKind
{
	SHF_BOOL, /* slot uint8 0/1; Arrow Bool */
	SHF_INT8,
	SHF_INT16,
	SHF_INT32,
	SHF_INT64,
	SHF_UINT32,
	SHF_FLOAT32,
	SHF_FLOAT64,
	SHF_DECIMAL128,		/* slot __int128, 8-byte aligned; see SHF_NARROW_DIGITS */
	SHF_DATE32,			/* slot int32, days since 1970-01-01 */
	SHF_TIME64_US,		/* slot int64, us since midnight, < 86400000000 */
	SHF_TIMESTAMP_US,	/* slot int64, us since 1970-01-01, no time zone */
	SHF_TIMESTAMPTZ_US, /* the same, time zone "UTC" */
	SHF_INTERVAL_MDN,	/* slot {int32 months, int32 days, int64 ns} */
	SHF_UTF8,			/* variable */
	SHF_BINARY,			/* variable */
	SHF_FIXED_BINARY,	/* slot of "width" bytes, alignment 1 */
	SHF_LIST,			/* variable, nested encoding below; 1 child */
	SHF_STRUCT,			/* variable, nested encoding below; n children */
	SHF_NKINDS
} ShfKind;

/*
 * Nested encoding.  A top-level LIST or STRUCT value is one variable-width blob:
 *	  list value    = uint32 count, then count elements
 *	  struct value  = its fields in order
 *	  element/field = uint8 null flag (1 = NULL, nothing follows), then the value:
 *					  fixed-width: its slot bytes, unaligned
 *					  UTF8/BINARY: uint32 length, bytes
 *					  LIST/STRUCT: the nested value as above
 */

/* Levels below a top-level column; arrow-rs and Arrow C++ refuse more than about 60. */
#define SHF_MAX_NESTING 32

typedef struct ShfMeta
{
	char *key;
	char *value;
} ShfMeta;

typedef struct ShfField
{
	char			*name;
	ShfKind			 kind;
	bool			 nullable;
	int32_t			 width;		/* SHF_FIXED_BINARY: bytes, > 0 */
	int32_t			 precision; /* SHF_DECIMAL128: 1..38 */
	int32_t			 scale;		/* SHF_DECIMAL128: 0..precision */
	int				 nmeta;
	ShfMeta			*meta;
	int				 nchildren;
	struct ShfField *children;
} ShfField;

typedef struct ShfSchema
{
	int		  nfields;
	ShfField *fields;
	int		  nmeta;
	ShfMeta	 *meta;
} ShfSchema;

/* One row per kind: the single source for widths, names and buffer counts. */
typedef struct ShfKindInfo
{
	const char *name;		   /* for messages, e.g. "Decimal128" */
	int			width;		   /* bytes of a slot; 0 = see field->width; -1 = variable */
	int			align;		   /* alignment of the slot */
	int			nbuffers;	   /* Arrow buffers of the node itself, children apart */
	bool		raw_forbidden; /* never "-1" (raw) inside a compressed block */
} ShfKindInfo;

extern const ShfKindInfo shf_kinds[SHF_NKINDS];

/* Deep copy into malloc memory / its release.  A zeroed struct may be released. */
extern ShfCode shf_schema_copy(ShfSchema *dst, const ShfSchema *src, ShfError *err);
extern void	   shf_schema_release(ShfSchema *schema);

/* Widths, precisions, child counts, nesting, name encoding. */
extern ShfCode shf_schema_check(const ShfSchema *schema, ShfError *err);

/* Same fields, recursively, and field metadata?  Schema-level metadata is not compared. */
extern bool shf_schema_equal(const ShfSchema *a, const ShfSchema *b);

/* Is this well-formed UTF-8 (no surrogates, no overlong forms, at most U+10FFFF)? */
extern bool shf_utf8_valid(const void *data, size_t len);

/* Value of a metadata key, or NULL. */
extern const char *shf_meta_get(const ShfMeta *meta, int nmeta, const char *key);

/* Totals over all fields, depth first: Arrow FieldNodes and Buffers of a batch. */
extern void shf_schema_count(const ShfSchema *schema, int *nnodes, int *nbuffers);

/* A Decimal128 of at most so many digits fits an int64: its slot in a packed row is one. */
#define SHF_NARROW_DIGITS 18

/*
 * Where things lie in a packed row:
 *	  uint32 row bytes, null bitmap (bit = 1: NULL; whole uint32 words), slots, data.
 * A variable-width column's slot is a uint32, the offset from the row's start at which its
 * value ends; the first one begins at fixed_bytes, each other one where the last ended.
 * These slots are neighbours, in the order of ShfRow.var.
 */
typedef struct ShfRowLayout
{
	int		  nfields;
	uint32_t  fixed_bytes; /* header, bitmap and slots; a multiple of 8 */
	uint32_t  null_offset; /* 4 */
	uint32_t  var_ends;	   /* byte offset of the slot of ShfRow.var[0] */
	int		  nvar;
	uint32_t *slot;	 /* [nfields] byte offset of the slot in the fixed part */
	uint32_t *width; /* [nfields] bytes of the slot */
	int		 *var;	 /* [nfields] index into ShfRow.var, or -1 */
} ShfRowLayout;

extern ShfCode shf_row_layout_init(ShfRowLayout *layout, const ShfSchema *schema, ShfError *err);
extern void	   shf_row_layout_release(ShfRowLayout *layout);

typedef struct ShfBytes
{
	const void *data;
	size_t		len;
} ShfBytes;

/* One row on its way in.  Pointers in var must stay valid until append returns. */
typedef struct ShfRow
{
	uint8_t	 *fixed; /* layout.fixed_bytes, 8-byte aligned; moves with each append */
	ShfBytes *var;	 /* layout.nvar */
} ShfRow;

/* Makes all columns present, for callers who store every slot and every variable-width value. */
static inline void
shf_row_begin(const ShfRowLayout *layout, ShfRow *row)
{
	for (int i = 0; i < layout->nfields; i += 32)
		memset(row->fixed + layout->null_offset + i / 8, 0, sizeof(uint32_t));
}

/* The same, with all slots zero and all variable-width values empty. */
static inline void
shf_row_clear(const ShfRowLayout *layout, ShfRow *row)
{
	memset(row->fixed, 0, layout->fixed_bytes);
	if (layout->nvar > 0)
		memset(row->var, 0, sizeof(ShfBytes) * (size_t) layout->nvar);
}

/* The slot of a NULL must be left zero and its variable-width value empty. */
static inline void
shf_row_set_null(const ShfRowLayout *layout, ShfRow *row, int field)
{
	row->fixed[layout->null_offset + (field >> 3)] |= (uint8_t) (1 << (field & 7));
}

/* ---------------------------------------------------------------- writer */

typedef enum ShfCodecKind
{
	SHF_CODEC_NONE,
	SHF_CODEC_LZ4, /* Arrow LZ4_FRAME */
	SHF_CODEC_ZSTD /* Arrow ZSTD */
} ShfCodecKind;

typedef struct ShfCodec
{
	ShfCodecKind kind;

	/* lz4: 1 = fast, 2..12 as the lz4 program (from 3 on HC); zstd: ZSTD_minCLevel()..22, not 0 */
	int level;
} ShfCodec;

typedef enum ShfLayoutKind
{
	SHF_LAYOUT_LOG,				/* one file, run after run: <path>-<n>.arrow */
	SHF_LAYOUT_PARTITION_FILES, /* one file per partition: <path>-<n>/p<5 digits>.arrow */
	SHF_LAYOUT_STREAM			/* Arrow IPC stream handed to write_stream */
} ShfLayoutKind;

#define SHF_MAX_PARTITIONS		1000000
#define SHF_MAX_PARTITION_FILES 4096				/* partitions of SHF_LAYOUT_PARTITION_FILES */
#define SHF_SEGMENT_ROLL_BYTES	(UINT64_C(1) << 30) /* a log segment ends near here */
#define SHF_SEGMENT_MAX_EXTENTS 500000
#define SHF_SEGMENT_MAX_ROWS	(UINT64_C(1) << 27) /* hard: row numbers have 27 bits */

typedef struct ShfWriterOptions
{
	uint32_t	  partitions; /* 1..SHF_MAX_PARTITIONS */
	ShfLayoutKind layout;
	ShfCodec	  codec;
	uint64_t	  memory_limit;		 /* bytes, everything the writer holds */
	uint32_t	  block_rows;		 /* a block ends at so many rows ... */
	uint32_t	  block_bytes;		 /* ... or packed bytes, whichever comes first */
	uint32_t	  block_min_rows;	 /* smaller ones wait for the next run if they can */
	uint32_t	  write_buffer_size; /* bytes */
	bool		  sync;				 /* fsync every file before finish returns */
	const char	 *path;				 /* absolute prefix, see ShfLayoutKind; copied */
	uint32_t	  file_mode;		 /* e.g. 0600 */
	uint32_t	  dir_mode;			 /* e.g. 0700 */
	int			  max_open_files;	 /* descriptors the writer may hold at once, >= 1 */

	/*
	 * SHF_LAYOUT_LOG, and SHF_LAYOUT_PARTITION_FILES as long as nothing has left the
	 * row buffer: a segment of up to so many bytes gets no file, ShfSegment.image has
	 * it.  At most write_buffer_size; 0: always files.
	 */
	uint32_t inline_max;

	/*
	 * Most bytes that it may write, images included; 0: no limit.  What would pass it
	 * fails with SHF_ERR_LIMIT and is not written.
	 */
	uint64_t output_limit;

	/*
	 * Called when the writer holds no descriptor and wants up to "wanted" of them;
	 * returns how many it may hold until it is drained, rested or closed, at least 1.
	 * May longjmp like poll; NULL: max_open_files are there at any time.
	 */
	int (*open_files)(void *arg, int wanted);
	void *open_files_arg;

	/*
	 * Called between blocks on the thread that called append or finish, may be
	 * NULL.  It may longjmp out: shf_writer_close() stays valid after that.
	 */
	void (*poll)(void *arg);
	void *poll_arg;

	/*
	 * Asked when the row buffer is full for the first time, and again after a drain or
	 * rest: may the writer have a thread of its own, which holds one more descriptor?
	 * Full row buffers are emitted by the thread then, while rows are appended to a
	 * second one.  NULL or false, or SHF_LAYOUT_STREAM: no thread, everything happens
	 * inside of the calls.  The errors of the thread come out of the next call.
	 */
	bool (*start_thread)(void *poll_arg);

	/*
	 * How many threads these are: more than one make the blocks of one run in parallel if
	 * there is a codec, in the same order, as far as a quarter of memory_limit allows.
	 */
	int threads;

	/*
	 * Called by append and the others when they must wait for the thread: returns when
	 * fd is readable, or earlier.  May longjmp like poll.  NULL: they just wait.
	 */
	void (*wait)(void *poll_arg, int fd);

	/* SHF_LAYOUT_STREAM: takes each piece of the stream; returns SHF_OK or fails. */
	ShfCode (*write_stream)(void *arg, const void *data, size_t len, ShfError *err);
	void *write_arg;
} ShfWriterOptions;

/* 48 bytes, stored as they are (little-endian) in the offset index. */
typedef struct ShfExtent
{
	uint32_t partition;
	uint32_t blocks;
	uint64_t offset;	/* of the first block's message in its file */
	uint64_t bytes;		/* message bytes of all its blocks */
	uint64_t raw_bytes; /* Arrow body bytes before compression, padding included */
	uint64_t rows;

	/* Number of its first row in the segment: in file order, partition file by partition file. */
	uint64_t first_row;
} ShfExtent;

typedef struct ShfSegment
{
	/* Random; also in the files' schema metadata under SHF_META_SEGMENT_ID. */
	uint8_t id[16];

	uint32_t	  number; /* the <n> of its path */
	ShfLayoutKind layout;
	uint64_t	  rows;
	uint64_t	  bytes;	 /* of all its files together */
	uint64_t	  raw_bytes; /* sum over extents */
	uint64_t	  blocks;
	uint64_t	  files; /* 1, or how many partition files there are; 0: image */

	/*
	 * By partition, then offset; every extent has rows.  NULL: they begin at index_offset of
	 * the index file, from where shf_segment_load_extents() reads them.
	 */
	uint32_t   nextents;
	ShfExtent *extents;
	uint64_t   index_offset;

	/* The whole file where there is none, see inline_max; else NULL. */
	uint8_t *image;

	/* Of the whole writer, in its last segment; else NULL. */
	const struct ShfMetrics *metrics;
} ShfSegment;

#define SHF_META_SEGMENT_ID "shuffle:segment_id"

/* A segment id as it is in the metadata: 32 hex digits, and a zero byte. */
extern void shf_segment_id_text(const uint8_t id[16], char text[33]);

/*
 * What a writer has done.  Times are nanoseconds.  Every system call that writes and
 * every run is timed; how the work on blocks divides into gathering and encoding is
 * known from samples.  With inline runs sort, gather, encode, write and sync are all of
 * caller_ns; in a thread of their own they run beside the caller.
 */
typedef struct ShfMetrics
{
	uint64_t rows;
	uint64_t raw_bytes;
	uint64_t stored_bytes;
	uint64_t blocks;
	uint64_t runs;
	uint64_t memory_peak; /* bytes accounted at the highest point */

	uint64_t sort_ns;	/* rows by partition, and care of the row buffer */
	uint64_t gather_ns; /* rows into columns */
	uint64_t encode_ns; /* compression, headers, checksums */
	uint64_t write_ns;	/* files created, written and completed; write_stream */
	uint64_t sync_ns;	/* fsync and its like */
	uint64_t queue_ns;	/* append and finish waiting for a thread's run */
	uint64_t caller_ns; /* append and finish doing more than to pack a row */

	/* What the engine cannot see: shf_writer_outside() tells. */
	uint64_t input_ns; /* waiting for rows */
	uint64_t pack_ns;  /* routing and packing them */
} ShfMetrics;

typedef struct ShfWriter ShfWriter;

/* The least memory_limit, in bytes, for this schema and these options; 0 if they are invalid. */
extern uint64_t shf_writer_min_memory(const ShfSchema *schema, const ShfWriterOptions *options);

/* Copies schema and options.  Creates no file before the first block. */
extern ShfCode shf_writer_open(ShfWriter **writer, const ShfSchema *schema,
							   const ShfWriterOptions *options, ShfError *err);

extern const ShfRowLayout *shf_writer_layout(const ShfWriter *w);
extern ShfRow			  *shf_writer_row(ShfWriter *w);

/*
 * Takes the row in shf_writer_row() into the row buffer of its partition
 * (0..partitions-1).  When the buffer is full this emits a run first.  A row
 * larger than block_bytes becomes a block of its own, written from its values
 * without being copied; order inside each partition is kept.
 */
extern ShfCode shf_writer_append(ShfWriter *w, uint32_t partition, ShfError *err);

/* What shf_writer_min_memory() says for this writer: enough to emit a run. */
extern uint64_t shf_writer_least_memory(const ShfWriter *w);

/* Memory that the writer holds now, in bytes; cheap. */
extern uint64_t shf_writer_memory(const ShfWriter *w);

/*
 * Bytes that have left the writer, with those that the limit stopped; and another
 * output_limit, which may be 0 here.  Both at any time.
 */
extern uint64_t shf_writer_written(const ShfWriter *w);
extern void		shf_writer_limit_output(ShfWriter *w, uint64_t bytes);

/*
 * Emits all rows, also those that would have waited for more of their partition, and
 * rests.
 */
extern ShfCode shf_writer_drain(ShfWriter *w, ShfError *err);

/*
 * Gives back descriptors and working memory, not the rows, until the next row needs
 * them: files are written to, synced if they are to be, closed and later opened again.
 */
extern ShfCode shf_writer_rest(ShfWriter *w, ShfError *err);

/*
 * Emits what is left, completes, checks and syncs all files.  The array belongs to
 * the writer and lives until shf_writer_close().  No rows: no segments, no files.
 * SHF_LAYOUT_STREAM has no segments ever, and without rows hands out an empty stream.
 */
extern ShfCode
shf_writer_finish(ShfWriter *w, const ShfSegment **segments, int *nsegments, ShfError *err);
extern const ShfMetrics *shf_writer_metrics(const ShfWriter *w);

/*
 * Extents that memory_limit had no room for are in a file "<path>.index", path being the
 * writer's, which the owner of the segment files removes when they have been read.
 * extents: room for segment->nextents.
 */
extern ShfCode shf_segment_load_extents(const ShfSegment *segment, const char *path,
										ShfExtent *extents, ShfError *err);

/* Records how long the caller waited for rows and packed them, in nanoseconds. */
extern void shf_writer_outside(ShfWriter *w, uint64_t input_ns, uint64_t pack_ns);

/*
 * Ends the writer's thread, if it has one, after at most the block that it is at.  The
 * writer is only good for shf_writer_close() then.
 */
extern void shf_writer_stop(ShfWriter *w);

/*
 * Closes descriptors and frees everything; valid in any state, also after an error
 * or a longjmp out of poll or wait.  A thread is joined.  Files stay where they are:
 * their owner removes them.
 */
extern void shf_writer_close(ShfWriter *w);

/* ---------------------------------------------------------------- reader */

typedef struct ShfReader ShfReader;

/* One decoded Arrow array.  Pointers live until the batch reads another block. */
typedef struct ShfColumn
{
	const ShfField *field;
	int64_t			length;
	int64_t			null_count;
	const uint8_t  *validity; /* bit = 1: present; NULL when there are no NULLs */

	/* length + 1, checked: ascending, and inside data or child; NULL for fixed-width kinds */
	const int32_t *offsets;

	const uint8_t	 *data; /* values (BOOL: bitmap) or bytes */
	int64_t			  data_bytes;
	struct ShfColumn *children;
} ShfColumn;

/* Opens a segment file and reads its leading schema; err->sys_errno tells ENOENT. */
extern ShfCode shf_reader_open(ShfReader **reader, const char *path, ShfError *err);

/* The same over bytes in memory, which must outlive the reader; name is for messages. */
extern ShfCode			shf_reader_open_memory(ShfReader **reader, const void *data, size_t len,
											   const char *name, ShfError *err);
extern const ShfSchema *shf_reader_schema(const ShfReader *r);
extern const char	   *shf_reader_name(const ShfReader *r);
extern uint64_t			shf_reader_file_size(const ShfReader *r);
extern void				shf_reader_close(ShfReader *r);

/* One block in memory.  Reusable: its buffers grow to the largest block seen. */
typedef struct ShfBatch ShfBatch;

extern ShfCode shf_batch_create(ShfBatch **batch, const ShfSchema *schema, ShfError *err);
extern void	   shf_batch_free(ShfBatch *batch);

/*
 * Reads the block whose message begins at offset and must end at or before limit;
 * checks length, CRC, structure, and that it belongs to partition.  The batch must
 * have been created with an equal schema.  Columns are not decompressed yet.
 */
extern ShfCode	shf_reader_block(ShfReader *r, ShfBatch *batch, uint64_t offset, uint64_t limit,
								 uint32_t partition, ShfError *err);
extern uint32_t shf_batch_rows(const ShfBatch *batch);
extern uint64_t shf_batch_raw_bytes(const ShfBatch *batch);

/* The message as stored, 8-byte aligned length: valid inside any stream of the same schema. */
extern ShfBytes shf_batch_message(const ShfBatch *batch);

/* Decompresses (once) and checks column i, children included. */
extern ShfCode shf_batch_column(ShfBatch *batch, int i, const ShfColumn **column, ShfError *err);

/* Bytes held by the batch, for memory accounting. */
extern size_t shf_batch_memory(const ShfBatch *batch);

/*
 * Header-only look at the block at offset: rows and message bytes, no checksum, no
 * body.  Lets a count(*) or a row-number search skip bodies.
 */
extern ShfCode shf_reader_peek(ShfReader *r, uint64_t offset, uint64_t limit, uint32_t *rows,
							   uint64_t *message_bytes, ShfError *err);

/* A hint that these bytes of the file will be read soon; returns without waiting for them. */
extern void shf_reader_prefetch(const ShfReader *reader, uint64_t offset, uint64_t len);

/*
 * A thread that reads some blocks of a file while the caller uses others.  First they are
 * added, then it runs.  Until shf_ahead_wait() has returned the caller touches neither the
 * reader nor the batches.
 */
typedef struct ShfAhead ShfAhead;

#define SHF_AHEAD_BLOCKS 8 /* most in one run */

/* NULL when there can be no thread.  It holds one descriptor. */
extern ShfAhead *shf_ahead_create(void);

/* Another block for the next run: arguments of shf_reader_block(). */
extern void shf_ahead_add(ShfAhead *ahead, ShfBatch *batch, uint64_t offset, uint64_t limit,
						  uint32_t partition);

/*
 * Runs: reads the blocks, and decodes the columns that have been asked for in the block
 * that like holds, which has the same schema and may be one of the batches.  Blocks that
 * would take more than 16 MB together are not decoded, only read.
 */
extern void shf_ahead_run(ShfAhead *ahead, ShfReader *reader, const ShfBatch *like);

/* Waits for the end of a run, if there is one; nothing is added then. */
extern void shf_ahead_wait(ShfAhead *ahead);

/*
 * After that: does the batch added as number i hold its block?  If not, shf_reader_block()
 * will tell why, as shf_batch_column() will of columns that could not be decoded.
 */
extern bool shf_ahead_done(const ShfAhead *ahead, int i);

/* Ends the thread after at most the block that it is at.  NULL is allowed. */
extern void shf_ahead_free(ShfAhead *ahead);

/*
 * Verifies a whole file: magic, schema, every message (CRC, structure, all columns,
 * UTF-8, zero padding), end of stream, footer equal to what the writer would have
 * written, nothing behind it.  If extents is not NULL, the file's blocks must be
 * exactly these extents (all of this file, any order).  If id is not NULL the
 * segment id must equal it.
 */
extern ShfCode shf_verify_file(const char *path, const uint8_t *id, const ShfExtent *extents,
							   uint32_t nextents, ShfError *err);

/*
 * The same, until stop(arg), called before every block, is true: then SHF_ERR_STOPPED.
 * A large file takes many seconds.
 */
extern ShfCode
shf_verify_file_until(const char *path, const uint8_t *id, const ShfExtent *extents,
					  uint32_t nextents, bool (*stop)(void *arg), void *arg, ShfError *err);

/* The same of a file in memory; name is for messages. */
extern ShfCode shf_verify_memory(const void *data, size_t len, const char *name, const uint8_t *id,
								 const ShfExtent *extents, uint32_t nextents, ShfError *err);

/* ---------------------------------------------------------------- streams */

/* The encapsulated Schema message that starts an Arrow IPC stream; free() the result. */
extern ShfCode
shf_stream_schema(const ShfSchema *schema, void **message, size_t *len, ShfError *err);

/* What ends a stream. */
extern const uint8_t shf_stream_end[8];

#endif /* SHF_H */
