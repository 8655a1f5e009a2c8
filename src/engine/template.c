/*
 * template.c
 *	  Building and patching of RecordBatch messages; see template.h for the layout.
 */
#include "template.h"

#include <stdlib.h>

/* Offsets in the flatbuffer. */
enum
{
	AT_MESSAGE_VTABLE = 4,
	AT_MESSAGE = 20,
	AT_BODY_LENGTH = 24,
	AT_METADATA = 44,
	AT_KEYVALUE_VTABLE = 56,
	AT_KEYVALUE_1 = 64,
	AT_KEYVALUE_2 = 76,
	AT_KEY_1 = 88,
	AT_VALUE_1 = 112,
	AT_PARTITION = 116,
	AT_KEY_2 = 128,
	AT_VALUE_2 = 148,
	AT_CRC = 152,
	AT_BATCH_VTABLE = 164,
	AT_COMPRESSION_SLOT = 174,
	AT_BATCH = 180,
	AT_ROWS = 184,
	AT_COMPRESSION_VTABLE = 204,
	AT_COMPRESSION = 212,
	AT_NODES = 220
};

#define PREFIX_BYTES	   8
#define PARTITION_DIGITS   10
#define CRC_DIGITS		   8
#define COMPRESSION_OFFSET 20 /* of the field in the RecordBatch table */

/* Bytes of the flatbuffer up to the count of Buffers, which lies at 4 mod 8. */
#define AT_BUFFERS(nnodes) (AT_NODES + 4 + 16 * (uint64_t) (nnodes) + 4)

uint64_t
shf_template_bytes(int nnodes, int nbuffers)
{
	return PREFIX_BYTES + AT_BUFFERS(nnodes) + 4 + 16 * (uint64_t) nbuffers;
}

static void
put_u16s(uint8_t *at, const uint16_t *values, int n)
{
	memcpy(at, values, sizeof(uint16_t) * (size_t) n);
}

static void
put_u32(uint8_t *at, uint32_t value)
{
	memcpy(at, &value, sizeof(value));
}

/* A field at "at" referring forward to "target". */
static void
put_ref(uint8_t *fb, uint32_t at, uint32_t target)
{
	put_u32(fb + at, target - at);
}

static void
put_string(uint8_t *at, const char *s)
{
	put_u32(at, (uint32_t) strlen(s));
	memcpy(at + 4, s, strlen(s) + 1);
}

ShfCode
shf_template_init(ShfTemplate *t, const ShfSchema *schema, ShfCodecKind codec, ShfError *err)
{
	static const uint16_t message_vtable[] = {14, 24, 20, 22, 12, 4, 16};
	static const uint16_t keyvalue_vtable[] = {8, 12, 4, 8};
	static const uint16_t batch_vtable[] = {12, 24, 4, 12, 16, COMPRESSION_OFFSET};
	static const uint16_t compression_vtable[] = {8, 8, 4, 5};
	uint32_t			  at_buffers;
	uint8_t				 *fb;

	memset(t, 0, sizeof(*t));
	shf_schema_count(schema, &t->nnodes, &t->nbuffers);
	at_buffers = (uint32_t) AT_BUFFERS(t->nnodes);
	t->bytes = (uint32_t) shf_template_bytes(t->nnodes, t->nbuffers);
	t->nodes = PREFIX_BYTES + AT_NODES + 4;
	t->buffers = PREFIX_BYTES + at_buffers + 4;
	t->data = calloc(1, t->bytes);
	if (t->data == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a record batch header");

	memset(t->data, 0xFF, 4);
	put_u32(t->data + 4, t->bytes - PREFIX_BYTES);
	fb = t->data + PREFIX_BYTES;

	put_ref(fb, 0, AT_MESSAGE);
	put_u16s(fb + AT_MESSAGE_VTABLE, message_vtable, 7);
	put_u32(fb + AT_MESSAGE, AT_MESSAGE - AT_MESSAGE_VTABLE);
	put_ref(fb, AT_MESSAGE + 12, AT_BATCH);
	put_ref(fb, AT_MESSAGE + 16, AT_METADATA);
	fb[AT_MESSAGE + 20] = 4; /* MetadataVersion.V5 */
	fb[AT_MESSAGE + 22] = 3; /* MessageHeader.RecordBatch */

	put_u32(fb + AT_METADATA, 2);
	put_ref(fb, AT_METADATA + 4, AT_KEYVALUE_1);
	put_ref(fb, AT_METADATA + 8, AT_KEYVALUE_2);
	put_u16s(fb + AT_KEYVALUE_VTABLE, keyvalue_vtable, 4);
	put_u32(fb + AT_KEYVALUE_1, AT_KEYVALUE_1 - AT_KEYVALUE_VTABLE);
	put_ref(fb, AT_KEYVALUE_1 + 4, AT_KEY_1);
	put_ref(fb, AT_KEYVALUE_1 + 8, AT_VALUE_1);
	put_u32(fb + AT_KEYVALUE_2, AT_KEYVALUE_2 - AT_KEYVALUE_VTABLE);
	put_ref(fb, AT_KEYVALUE_2 + 4, AT_KEY_2);
	put_ref(fb, AT_KEYVALUE_2 + 8, AT_VALUE_2);
	put_string(fb + AT_KEY_1, "shuffle:partition");
	put_string(fb + AT_VALUE_1, "0000000000");
	put_string(fb + AT_KEY_2, "shuffle:crc32c");
	put_string(fb + AT_VALUE_2, "00000000");

	put_u16s(fb + AT_BATCH_VTABLE, batch_vtable, 6);
	put_u32(fb + AT_BATCH, AT_BATCH - AT_BATCH_VTABLE);
	put_ref(fb, AT_BATCH + 12, AT_NODES);
	put_ref(fb, AT_BATCH + 16, at_buffers);
	put_ref(fb, AT_BATCH + COMPRESSION_OFFSET, AT_COMPRESSION);
	put_u16s(fb + AT_COMPRESSION_VTABLE, compression_vtable, 4);
	put_u32(fb + AT_COMPRESSION, AT_COMPRESSION - AT_COMPRESSION_VTABLE);
	fb[AT_COMPRESSION + 4] = codec == SHF_CODEC_ZSTD ? 1 : 0; /* CompressionType */
	put_u32(fb + AT_NODES, (uint32_t) t->nnodes);
	put_u32(fb + at_buffers, (uint32_t) t->nbuffers);
	return SHF_OK;
}

void
shf_template_release(ShfTemplate *t)
{
	free(t->data);
	memset(t, 0, sizeof(*t));
}

void
shf_template_patch(uint8_t *message, uint32_t partition, uint64_t rows, uint64_t body_bytes,
				   bool compressed)
{
	uint8_t *fb = message + PREFIX_BYTES;
	uint16_t slot = compressed ? COMPRESSION_OFFSET : 0;

	for (int i = PARTITION_DIGITS - 1; partition > 0; i--)
	{
		fb[AT_PARTITION + i] = (uint8_t) ('0' + partition % 10);
		partition /= 10;
	}
	memcpy(fb + AT_ROWS, &rows, sizeof(rows));
	memcpy(fb + AT_BODY_LENGTH, &body_bytes, sizeof(body_bytes));
	memcpy(fb + AT_COMPRESSION_SLOT, &slot, sizeof(slot));
}

void
shf_template_set_crc(uint8_t *message, uint32_t crc)
{
	static const char digits[] = "0123456789abcdef";
	uint8_t			 *at = message + PREFIX_BYTES + AT_CRC;

	for (int i = CRC_DIGITS - 1; i >= 0; i--)
	{
		at[i] = (uint8_t) digits[crc & 15];
		crc >>= 4;
	}
}
