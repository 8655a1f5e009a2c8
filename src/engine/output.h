/*
 * output.h
 *	  Where blocks go: the interface between the block encoder and files, with the
 *	  write buffer and the list of segments that all outputs share.
 *
 * A block is written in two steps, so that it is encoded where it will be written from:
 *
 *	  shf_output_reserve(out, partition, rows, bytes, &at)	room for a whole message
 *	  shf_output_put(out, &block)							the message now lies at "at"
 *
 * or, if it is too large for memory, produced piece by piece by shf_output_put_large().
 *
 * An implementation fills in ShfOutputOps: it decides which file a block goes to and
 * when a segment ends.  Blocks come in runs, partitions in ascending order inside a
 * run, except that a large row may come at any time.  Everything is written through
 * one buffer, so that fd and file_bytes always describe one current destination; an
 * implementation flushes before it changes them.
 *
 * After an error the output is useless but for shf_output_close().
 */
#ifndef SHF_OUTPUT_H
#define SHF_OUTPUT_H

#include <sys/types.h>

#include "account.h"
#include "codec.h"
#include "flatbuf.h"

typedef struct ShfOutput ShfOutput;

typedef struct ShfBlock
{
	uint32_t partition;
	uint32_t rows;
	uint64_t raw_bytes; /* body before compression */
	uint64_t body_bytes;
	uint64_t message_bytes; /* header and body */
} ShfBlock;

/* A block whose body is produced on demand, the same bytes each time. */
typedef struct ShfLargeBlock ShfLargeBlock;
struct ShfLargeBlock
{
	uint32_t partition;
	uint32_t rows;
	uint64_t estimated_bytes; /* of the message */

	/* Emits the body; then *header (of constant size) and *block are complete. */
	ShfCode (*produce)(ShfLargeBlock *large, ShfEmit emit, void *arg, ShfError *err);
	const uint8_t *header;
	uint32_t	   header_bytes;
	ShfBlock	   block;
};

typedef struct ShfOutputOps
{
	/* Allocates out->state; creates no file.  NULL if the implementation has no state. */
	ShfCode (*open)(ShfOutput *out, ShfError *err);

	/* Makes the current destination the right one for a block of so many rows and bytes. */
	ShfCode (*open_block)(ShfOutput *out, uint32_t partition, uint32_t rows, uint64_t bytes,
						  ShfError *err);

	/* Records a block whose message begins at offset of the current destination. */
	ShfCode (*add_block)(ShfOutput *out, const ShfBlock *block, uint64_t offset, ShfError *err);

	/* Closes all descriptors; files that are not complete are opened again later. */
	ShfCode (*rest)(ShfOutput *out, ShfError *err);

	/* Completes the open segment early: the next block begins another one.  Not of a stream. */
	ShfCode (*end_segment)(ShfOutput *out, ShfError *err);

	/* Completes what is open. */
	ShfCode (*finish)(ShfOutput *out, ShfError *err);

	/* Closes its own descriptors and frees out->state, at any time.  NULL: has neither. */
	void (*abort)(ShfOutput *out);
} ShfOutputOps;

struct ShfOutput
{
	const ShfOutputOps	   *ops;
	void				   *state;	/* of the implementation */
	const ShfSchema		   *schema; /* of the writer */
	const ShfWriterOptions *options;
	ShfAccount			   *account;

	/* write buffer: what is not yet in the current destination; allocated when needed */
	uint8_t *buffer;
	size_t	 len;
	size_t	 normal_cap; /* write_buffer_size and one ordinary message */
	size_t	 cap;		 /* larger for one oversized block only */

	/* current destination */
	int		 fd;		 /* -1: the caller's write_stream, or nothing yet */
	char	*path;		 /* of fd, for messages */
	uint64_t file_bytes; /* written and buffered so far */
	uint64_t flushed;	 /* log: of these, bytes that have left the buffer */

	/* current segment: the last of segments while segment_open */
	bool		 segment_open;
	ShfSchema	 segment_schema; /* columns and most metadata are the writer's */
	char		 segment_id[33]; /* as its metadata has it */
	ShfBuffer	 leader;		 /* what each of its files begins with */
	ShfBlockPos *positions;		 /* of the file that is completed next */
	size_t		 npositions;
	size_t		 positions_cap;

	ShfSegment *segments;
	int			nsegments;
	int			segments_cap;
	uint32_t	extents_cap; /* of the current segment */
	uint64_t	most_blocks; /* of any segment whose positions are in memory */
	uint64_t	extents;	 /* in memory */

	/* see index_file.c */
	uint64_t index_limit;
	uint64_t index_bytes; /* in the file */

	/* totals over all segments */
	uint64_t rows;
	uint64_t raw_bytes;
	uint64_t blocks;
	uint64_t bytes_written; /* to any destination, buffered ones included; atomic */
};

/*
 * What one block position and one extent may cost in memory at their most: growth by
 * an eighth, and for a block its entry in the footer as well.  The lists grow by
 * SHF_INDEX_STEP at least: the slack is part of the output's fixed memory.
 */
#define SHF_BLOCK_COST	 54
#define SHF_EXTENT_COST	 54
#define SHF_SEGMENT_COST (2 * sizeof(ShfSegment))
#define SHF_INDEX_STEP	 16
#define SHF_INDEX_SLACK	 (SHF_INDEX_STEP * (SHF_BLOCK_COST + SHF_EXTENT_COST))

/* Creates the output of options->layout; no file yet.  max_message: an ordinary block's. */
extern ShfCode
shf_output_create(ShfOutput **out, const ShfSchema *schema, const ShfWriterOptions *options,
				  size_t max_message, ShfAccount *account, ShfError *err);

/* What create allocates, and what a segment costs beside its blocks and extents. */
extern uint64_t shf_output_fixed_memory(const ShfSchema *schema, const ShfWriterOptions *options,
										size_t max_message);

/* Memory of extents and block positions so far, footers to come included. */
extern uint64_t shf_output_index_memory(const ShfOutput *out);

extern ShfCode shf_output_reserve(ShfOutput *out, uint32_t partition, uint32_t rows, size_t bytes,
								  uint8_t **at, ShfError *err);
extern ShfCode shf_output_put(ShfOutput *out, const ShfBlock *block, ShfError *err);
extern ShfCode shf_output_put_large(ShfOutput *out, ShfLargeBlock *large, ShfError *err);

/* Closes descriptors and gives back the write buffer until it is needed again. */
extern ShfCode shf_output_rest(ShfOutput *out, ShfError *err);

/* All blocks of a run, or of a large row, have been put; keeps the index in its limit. */
extern ShfCode shf_output_end_run(ShfOutput *out, ShfError *err);
extern ShfCode shf_output_finish(ShfOutput *out, ShfError *err);
extern void	   shf_output_close(ShfOutput *out);

/* ------------------------------------------------ for the implementations */

extern const ShfOutputOps shf_output_log_ops;
extern const ShfOutputOps shf_output_parts_ops;
extern const ShfOutputOps shf_output_stream_ops;

extern uint64_t shf_output_parts_memory(uint32_t partitions);

/* Begins a segment: random id, schema message in leader, empty extent list. */
extern ShfCode	   shf_segment_begin(ShfOutput *out, ShfError *err);
extern ShfSegment *shf_segment_current(ShfOutput *out);
extern ShfCode	   shf_segment_add_extent(ShfOutput *out, const ShfExtent *extent, ShfError *err);

/* Counts a block in the current segment; its extent and position are added apart. */
extern void shf_segment_add_block(ShfOutput *out, const ShfBlock *block);

/* Writes the extents in memory, of complete segments all, to the index file. */
extern ShfCode shf_output_spill_index(ShfOutput *out, ShfError *err);

/* Grows positions to hold n. */
extern ShfCode shf_positions_reserve(ShfOutput *out, size_t n, ShfError *err);

/* Gives them back, no segment being open. */
extern void shf_positions_free(ShfOutput *out);

/* Sorts the extents by partition and offset, shrinks the list and leaves the segment. */
extern void shf_segment_end(ShfOutput *out);

/* Appends to the current destination, through the buffer or past it. */
extern ShfCode shf_output_write(ShfOutput *out, const void *data, size_t len, ShfError *err);
extern ShfCode shf_output_flush(ShfOutput *out, ShfError *err);

/* So many bytes are about to be written, or kept as an image: fails above the limit. */
extern ShfCode shf_output_count(ShfOutput *out, size_t len, ShfError *err);

/*
 * Writes to a file at an offset, or, if at is negative, where its descriptor is.  path is for
 * messages.
 */
extern ShfCode
shf_write_all(int fd, const char *path, const void *data, size_t len, off_t at, ShfError *err);

/* Creates the file at out->path and opens it as out->fd. */
extern ShfCode shf_file_open_new(ShfOutput *out, ShfError *err);

/* Opens a new file as the current destination and writes the segment's leader. */
extern ShfCode shf_file_create(ShfOutput *out, char *path, ShfError *err);

/* The same, but the file is created when its first bytes leave the buffer. */
extern ShfCode shf_file_begin(ShfOutput *out, char *path, ShfError *err);

/* Opens the file at path, which has so many bytes, for appending. */
extern ShfCode shf_file_reopen(const char *path, uint64_t bytes, int *fd, ShfError *err);

/* Asks for descriptors when none is held; the answer is between 1 and max_open_files. */
extern int shf_output_ask_files(const ShfOutput *out);

/* Writes end of stream and footer, made from positions, to the current file. */
extern ShfCode shf_file_complete(ShfOutput *out, ShfError *err);

/*
 * Flushes, compares position and size of the current file with file_bytes, syncs it if
 * asked, and closes it.
 */
extern ShfCode shf_file_close(ShfOutput *out, bool sync, ShfError *err);

/* Closes the current file, whatever state it is in. */
extern void shf_file_abandon(ShfOutput *out);

/* Makes the names in the directory of options->path durable. */
extern ShfCode shf_sync_parent(ShfOutput *out, ShfError *err);
extern ShfCode shf_sync_directory(ShfOutput *out, const char *path, ShfError *err);

/*
 * Has write-back of the current file begin if it is to be synced and has grown enough, from
 * before to after bytes.
 */
extern ShfCode shf_write_back(ShfOutput *out, uint64_t before, uint64_t after, ShfError *err);

/* fsync() and syncfs(), timed. */
extern int shf_fsync(ShfOutput *out, int fd);
extern int shf_syncfs(ShfOutput *out, int fd);

/* malloc'd text; NULL when out of memory. */
extern char *shf_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
