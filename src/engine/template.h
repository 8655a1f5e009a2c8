/*
 * template.h
 *	  The RecordBatch message of a schema: constant bytes with a few places to patch.
 *
 * All offsets inside a RecordBatch flatbuffer depend on the schema only, so it is
 * laid out once by hand and copied in front of every block.  Offsets below count from
 * the flatbuffer's start, which lies 8 bytes into the message (behind FF FF FF FF and
 * the i32 length).  i64 fields, FieldNodes and Buffers lie at multiples of 8, u32 and
 * offsets at 4, vtables at 2; strings end in NUL: what every verifier wants.
 *
 *	  0	  root -> Message
 *	  4	  vtable of Message	 (version@20 header_type@22 header@12 bodyLength@4
 *		  custom_metadata@16)
 *	  20  Message			 24: i64 bodyLength (patched)
 *	  44  custom_metadata	 two KeyValues at 64 and 76 sharing the vtable at 56
 *	  88  "shuffle:partition"	 116: 10 digits (patched)
 *	  128 "shuffle:crc32c"		 152: 8 hex digits (patched)
 *	  164 vtable of RecordBatch	 174: slot of "compression", 0 = plain (patched)
 *	  180 RecordBatch		 184: i64 length (patched)
 *	  204 BodyCompression
 *	  220 u32 n, n FieldNodes {i64 length, i64 null_count} (patched), then, at 4 mod 8,
 *		  u32 m, m Buffers {i64 offset, i64 length} (patched), padding to 8
 *
 * The CRC-32C covers the flatbuffer with its padding, the CRC's own digits read as
 * '0', and the body with its padding; not the 8 bytes in front.
 *
 * Source: apache/arrow format/Message.fbs; flatbuffers "Internals" for the encoding.
 */
#ifndef SHF_TEMPLATE_H
#define SHF_TEMPLATE_H

#include "shf.h"

typedef struct ShfTemplate
{
	uint8_t *data;	/* the message without body: prefix and flatbuffer */
	uint32_t bytes; /* a multiple of 8 */
	int		 nnodes;
	int		 nbuffers;
	uint32_t nodes;	  /* offset of the first FieldNode in data */
	uint32_t buffers; /* offset of the first Buffer in data */
} ShfTemplate;

/* codec is named in BodyCompression; SHF_CODEC_NONE makes plain blocks only. */
extern ShfCode
shf_template_init(ShfTemplate *t, const ShfSchema *schema, ShfCodecKind codec, ShfError *err);
extern void shf_template_release(ShfTemplate *t);

/* Bytes of the message without body, for a schema with so many nodes and buffers. */
extern uint64_t shf_template_bytes(int nnodes, int nbuffers);

/*
 * Patches everything but nodes, buffers and CRC of a copy of the template.  A block
 * that is not compressed loses its "compression" field.
 */
extern void shf_template_patch(uint8_t *message, uint32_t partition, uint64_t rows,
							   uint64_t body_bytes, bool compressed);

/* Writes the digits of the CRC; they must be '0' while it is computed. */
extern void shf_template_set_crc(uint8_t *message, uint32_t crc);

#endif
