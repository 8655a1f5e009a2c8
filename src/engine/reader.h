/*
 * reader.h
 *	  Inside of the reader: a block in memory and a file to read blocks from.
 */
#ifndef SHF_READER_H
#define SHF_READER_H

#include "bytes.h"
#include "codec.h"
#include "flatbuf.h"

/* One Arrow node (column or nested child) of the schema, depth first. */
typedef struct ShfNode
{
	const ShfField *field;
	ShfColumn	   *column;
	int				parent; /* index of the parent node, or -1 */
	int				first_buffer;
	int				nbuffers;
} ShfNode;

/* What a top-level column's buffers are decompressed into; grows only. */
typedef struct ShfSlab
{
	uint8_t *data;
	size_t	 cap;
} ShfSlab;

struct ShfBatch
{
	ShfSchema		 schema;
	int				 nnodes;
	int				 nbuffers;
	ShfNode			*nodes;		 /* [nnodes] */
	ShfColumn		*columns;	 /* [nnodes]: top level first, children of a node together */
	int				*first_node; /* [nfields + 1] node of each top-level column */
	bool			*decoded;	 /* [nfields] */
	bool			*used;		 /* [nfields] asked for by the caller */
	ShfSlab			*slabs;		 /* [nfields] */
	ShfDecompressor *decompressor;
	size_t			 fixed_memory; /* of everything above but slabs and decompressor */

	/* The block; message is NULL while there is none. */
	char		  *name;	/* its file, for messages */
	uint64_t	   offset;	/* its place there */
	const uint8_t *message; /* buffer, or the reader's memory */
	size_t		   message_bytes;
	size_t		   metadata_bytes; /* with the 8-byte prefix */
	ShfBatchHeader header;
	uint8_t		  *buffer;
	size_t		   buffer_cap;
};

struct ShfReader
{
	char		  *name;
	int			   fd; /* -1: memory */
	const uint8_t *memory;
	uint64_t	   size;
	ShfSchema	   schema;
	size_t		   schema_bytes; /* of the leading schema message, prefix included */

	/* The last piece read ahead: serves prefixes, headers and small blocks. */
	uint8_t *window;
	size_t	 window_cap;
	uint64_t window_at;
	size_t	 window_len;
	size_t	 ahead; /* bytes to read at least, by the size of the last block */
};

/* ------------------------------------------------------------ reader.c */

/*
 * Bytes offset .. offset + len - 1 of the file, in *data until the next call.  what
 * says in messages what was expected there.
 */
extern ShfCode shf_reader_bytes(ShfReader *r, uint64_t offset, size_t len, const char *what,
								const uint8_t **data, ShfError *err);

/* shf_reader_block() for any partition. */
extern ShfCode
shf_reader_any_block(ShfReader *r, ShfBatch *batch, uint64_t offset, uint64_t limit, ShfError *err);

/* ------------------------------------------------------------ batch.c */

#define SHF_ALIGN_UP(n, a) (((n) + (a) -1) & ~((a) -1))
#define SHF_BUFFER_ALIGN   ((size_t) 64) /* of everything the batch allocates */

/* Values and NULLs of a node, as the header says. */
static inline int64_t
shf_node_length(const ShfBatch *b, int node)
{
	return (int64_t) shf_load64(b->header.nodes + 16 * (size_t) node);
}

static inline int64_t
shf_node_nulls(const ShfBatch *b, int node)
{
	return (int64_t) shf_load64(b->header.nodes + 16 * (size_t) node + 8);
}

/* Makes room for a message of need bytes; what was there is lost. */
extern ShfCode shf_batch_reserve(ShfBatch *batch, size_t need, ShfError *err);

/* Drops the block that the batch holds. */
extern void shf_batch_clear(ShfBatch *batch);

/* Checks nodes and buffers of the message just read against the schema. */
extern ShfCode shf_batch_check(ShfBatch *batch, ShfError *err);

/* Where buffer i lies in the body, once checked. */
extern void shf_batch_buffer(const ShfBatch *batch, int i, uint64_t *offset, uint64_t *len);

/*
 * Where buffer i is stored and how many bytes it has when decompressed; *compressed
 * tells whether it is a frame.
 */
extern ShfCode shf_batch_stored(const ShfBatch *batch, int i, const uint8_t **data,
								uint64_t *stored, int64_t *raw, bool *compressed, ShfError *err);

extern ShfCode shf_batch_nomem(ShfError *err, size_t bytes);

/* "block at byte N of file "F" is damaged: ..." */
extern ShfCode shf_batch_corrupt(const ShfBatch *batch, ShfError *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ------------------------------------------------------------ decode.c */

/* Decompresses (once) and checks column i, which exists, of a block that has been read. */
extern ShfCode shf_batch_decode(ShfBatch *batch, int i, ShfError *err);

/* ------------------------------------------------------------ verify.c */

/* shf_verify_file() of a file that is open. */
extern ShfCode shf_verify_reader(ShfReader *reader, const uint8_t *id, const ShfExtent *extents,
								 uint32_t nextents, ShfError *err);

#endif /* SHF_READER_H */
