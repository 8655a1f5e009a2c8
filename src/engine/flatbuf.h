/*
 * flatbuf.h
 *	  The Arrow flatbuffers we need: Schema and Footer built and parsed, RecordBatch
 *	  parsed.  (RecordBatch messages are made from a constant template, template.h.)
 *
 * Source of all tables: apache/arrow format/Schema.fbs, Message.fbs, File.fbs.
 * The builder is deterministic: equal input gives equal bytes, so that a file can be
 * verified by building its schema and footer again.
 */
#ifndef SHF_FLATBUF_H
#define SHF_FLATBUF_H

#include "shf.h"

/* What an Arrow IPC file ends with, and begins with, padded by zeros to 8 bytes. */
#define SHF_MAGIC			  "ARROW1"
#define SHF_MAGIC_BYTES		  6
#define SHF_FILE_HEADER		  SHF_MAGIC "\0" /* with the zero that ends a string */
#define SHF_FILE_HEADER_BYTES 8

/* Growable malloc memory; zero it to begin, free() data at the end. */
typedef struct ShfBuffer
{
	uint8_t *data;
	size_t	 len;
	size_t	 cap;
} ShfBuffer;

/* Room for more bytes behind len. */
extern ShfCode shf_buffer_reserve(ShfBuffer *buf, size_t more, ShfError *err);

/* Appends the encapsulated Schema message: FF FF FF FF, i32 length, flatbuffer, padding to 8. */
extern ShfCode shf_schema_message(ShfBuffer *out, const ShfSchema *schema, ShfError *err);

/* No message of the schema has more bytes. */
extern size_t shf_schema_message_bound(const ShfSchema *schema);

/* Position of one RecordBatch message, as in Footer.recordBatches (24 bytes each). */
typedef struct ShfBlockPos
{
	int64_t offset;
	int32_t metadata_bytes; /* flatbuffer + padding, *including* the 8-byte prefix */
	int32_t zero;
	int64_t body_bytes;
} ShfBlockPos;

/*
 * Appends the footer flatbuffer, its i32 length and the trailing "ARROW1".  The schema is one
 * that shf_schema_check() accepts.
 */
extern ShfCode shf_footer(ShfBuffer *out, const ShfSchema *schema, const ShfBlockPos *blocks,
						  size_t nblocks, ShfError *err);

/*
 * Parsers trust nothing: every offset, length, vtable and string is checked to lie
 * inside buf.  buf is the flatbuffer itself (no prefix).  Schemas that our type table
 * cannot express are SHF_ERR_CORRUPT with a message saying what was found.
 */
extern ShfCode
shf_parse_schema_message(const uint8_t *buf, size_t len, ShfSchema *schema, ShfError *err);

typedef struct ShfBatchHeader
{
	int64_t		   rows;
	int64_t		   body_bytes;
	bool		   compressed;
	ShfCodecKind   codec; /* when compressed */
	uint32_t	   partition;
	uint32_t	   crc;		   /* as stored in the metadata */
	size_t		   crc_offset; /* of its 8 digits inside buf */
	int			   nnodes;
	int			   nbuffers;
	const uint8_t *nodes;	/* nnodes x {i64 length, i64 null_count}, inside buf */
	const uint8_t *buffers; /* nbuffers x {i64 offset, i64 length}, inside buf */
} ShfBatchHeader;

extern ShfCode
shf_parse_batch_message(const uint8_t *buf, size_t len, ShfBatchHeader *header, ShfError *err);

#endif
