/*
 * flatbuf_parse.c
 *	  Parses Schema and RecordBatch messages, trusting nothing.
 *
 * Every step through the flatbuffer is checked (flatbuf_view.h), so a damaged or hostile
 * one can at worst describe a schema that is not ours.  Tables may be shared in a
 * flatbuffer, which would let a small one describe a schema exponentially larger than
 * itself; ours never share, so the number of fields and the bytes of text are limited by
 * the buffer's own length.
 */
#include "flatbuf.h"

#include <stdio.h>
#include <stdlib.h>

#include "flatbuf_tables.h"
#include "flatbuf_view.h"

#define PARTITION_KEY	 "shuffle:partition"
#define PARTITION_DIGITS 10
#define CRC_KEY			 "shuffle:crc32c"
#define CRC_DIGITS		 8

/* Copy of a string that must be there. */
static ShfCode
copy_text(FbParser *p, const FbView *v, int slot, const char *what, char **copy)
{
	FbText	text;
	ShfCode code = fb_view_text(p, v, slot, &text);

	if (code != SHF_OK)
		return code;
	if (text.pos == 0)
		return fb_bad(p, what, v->pos);
	if (text.len > p->text_left)
		return fb_bad(p, "strings overlap", text.pos);
	p->text_left -= text.len;
	*copy = malloc(text.len + 1);
	if (*copy == NULL)
		return shf_error(p->err, SHF_ERR_NOMEM, "out of memory while reading a schema");
	memcpy(*copy, p->buf + text.pos, text.len + 1);
	return SHF_OK;
}

/* The Message table at the root of buf, whose header must be of the given kind. */
static ShfCode
view_message(const FbParser *p, int header_type, const char *what, FbView *message, FbView *header)
{
	int64_t version = 0;
	int64_t type = 0;
	size_t	ref;
	ShfCode code;

	if (p->len < 8 || p->len > INT32_MAX)
		return fb_bad(p, "impossible length", 0);
	code = fb_view_table(p, 0, message);
	if (code == SHF_OK)
		code = fb_view_scalar(p, message, FB_MESSAGE_VERSION, 2, &version);
	if (code == SHF_OK)
		code = fb_view_scalar(p, message, FB_MESSAGE_HEADER_TYPE, 1, &type);
	if (code == SHF_OK)
		code = fb_view_field(p, message, FB_MESSAGE_HEADER, 4, &ref);
	if (code != SHF_OK)
		return code;
	if (version != FB_VERSION_V5)
		return shf_error(p->err, SHF_ERR_CORRUPT, "Arrow metadata version is %d, expected %d (V5)",
						 (int) version, FB_VERSION_V5);
	if (type != header_type || ref == 0)
		return shf_error(p->err, SHF_ERR_CORRUPT, "Arrow message is of type %d, expected %d (%s)",
						 (int) type, header_type, what);
	return fb_view_table(p, ref, header);
}

/* ---------------------------------------------------------------- schema */

static ShfCode
parse_meta(FbParser *p, const FbView *v, int slot, ShfMeta **meta, int *nmeta)
{
	FbVector vec;
	ShfCode	 code = fb_view_vector(p, v, slot, 4, &vec);

	if (code != SHF_OK || vec.count == 0)
		return code;
	if (vec.count > p->fields_left)
		return fb_bad(p, "tables overlap", vec.first);
	p->fields_left -= vec.count;
	*meta = calloc(vec.count, sizeof(ShfMeta));
	if (*meta == NULL)
		return shf_error(p->err, SHF_ERR_NOMEM, "out of memory while reading a schema");
	*nmeta = (int) vec.count;
	for (size_t i = 0; code == SHF_OK && i < vec.count; i++)
	{
		FbView kv;

		code = fb_view_table(p, vec.first + 4 * i, &kv);
		if (code == SHF_OK)
			code = copy_text(p, &kv, FB_KEYVALUE_KEY, "metadata has no key", &(*meta)[i].key);
		if (code == SHF_OK)
			code = copy_text(p, &kv, FB_KEYVALUE_VALUE, "metadata has no value", &(*meta)[i].value);
	}
	return code;
}

static ShfCode
unsupported(const FbParser *p, const ShfField *f, const char *what, int64_t value)
{
	return shf_error(p->err, SHF_ERR_CORRUPT,
					 "column \"%.100s\" has an Arrow type that shuffle tables do not use: %s %lld",
					 f->name, what, (long long) value);
}

static ShfCode
parse_int(FbParser *p, const FbView *t, ShfField *f)
{
	int64_t bits = 0;
	int64_t is_signed = 0;
	ShfCode code = fb_view_scalar(p, t, FB_INT_BITWIDTH, 4, &bits);

	if (code == SHF_OK)
		code = fb_view_scalar(p, t, FB_INT_SIGNED, 1, &is_signed);
	if (code != SHF_OK)
		return code;
	if (!is_signed)
	{
		f->kind = SHF_UINT32;
		return bits == 32 ? SHF_OK : unsupported(p, f, "unsigned integer of bits", bits);
	}
	switch (bits)
	{
		case 8:
			f->kind = SHF_INT8;
			return SHF_OK;
		case 16:
			f->kind = SHF_INT16;
			return SHF_OK;
		case 32:
			f->kind = SHF_INT32;
			return SHF_OK;
		case 64:
			f->kind = SHF_INT64;
			return SHF_OK;
	}
	return unsupported(p, f, "integer of bits", bits);
}

static ShfCode
parse_decimal(FbParser *p, const FbView *t, ShfField *f)
{
	int64_t precision = 0;
	int64_t scale = 0;
	int64_t bits = 128;
	ShfCode code = fb_view_scalar(p, t, FB_DECIMAL_PRECISION, 4, &precision);

	if (code == SHF_OK)
		code = fb_view_scalar(p, t, FB_DECIMAL_SCALE, 4, &scale);
	if (code == SHF_OK)
		code = fb_view_scalar(p, t, FB_DECIMAL_BITWIDTH, 4, &bits);
	if (code != SHF_OK)
		return code;
	if (bits != 128)
		return unsupported(p, f, "decimal of bits", bits);
	f->kind = SHF_DECIMAL128;
	f->precision = (int32_t) precision;
	f->scale = (int32_t) scale;
	return SHF_OK;
}

static ShfCode
parse_timestamp(FbParser *p, const FbView *t, ShfField *f)
{
	int64_t unit = FB_UNIT_SECOND;
	FbText	zone;
	ShfCode code = fb_view_scalar(p, t, FB_TIMESTAMP_UNIT, 2, &unit);

	if (code == SHF_OK)
		code = fb_view_text(p, t, FB_TIMESTAMP_ZONE, &zone);
	if (code != SHF_OK)
		return code;
	if (unit != FB_UNIT_MICROSECOND)
		return unsupported(p, f, "timestamp of unit", unit);
	if (zone.pos == 0)
		f->kind = SHF_TIMESTAMP_US;
	else if (zone.len == strlen(FB_ZONE_UTC) &&
			 memcmp(p->buf + zone.pos, FB_ZONE_UTC, zone.len) == 0)
		f->kind = SHF_TIMESTAMPTZ_US;
	else
		return unsupported(p, f, "timestamp with a time zone other than UTC, bytes",
						   (int64_t) zone.len);
	return SHF_OK;
}

/* Types whose one parameter must have one value. */
static ShfCode
parse_unit(FbParser *p, const FbView *t, ShfField *f, int slot, int64_t value, int64_t expected,
		   const char *what, ShfKind kind)
{
	ShfCode code = fb_view_scalar(p, t, slot, 2, &value);

	if (code != SHF_OK)
		return code;
	f->kind = kind;
	return value == expected ? SHF_OK : unsupported(p, f, what, value);
}

static ShfCode
parse_type(FbParser *p, const FbView *field, ShfField *f)
{
	int64_t member = FB_TYPE_NONE;
	int64_t value = 0;
	size_t	ref;
	FbView	t;
	ShfCode code = fb_view_scalar(p, field, FB_FIELD_TYPE_TYPE, 1, &member);

	if (code == SHF_OK)
		code = fb_view_field(p, field, FB_FIELD_TYPE, 4, &ref);
	if (code != SHF_OK)
		return code;
	if (ref == 0)
		return fb_bad(p, "field has no type", field->pos);
	code = fb_view_table(p, ref, &t);
	if (code != SHF_OK)
		return code;

	switch (member)
	{
		case FB_TYPE_BOOL:
			f->kind = SHF_BOOL;
			return SHF_OK;
		case FB_TYPE_INT:
			return parse_int(p, &t, f);
		case FB_TYPE_FLOAT:
			code = fb_view_scalar(p, &t, FB_FLOAT_PRECISION, 2, &value);
			if (code != SHF_OK)
				return code;
			f->kind = value == FB_FLOAT_SINGLE ? SHF_FLOAT32 : SHF_FLOAT64;
			if (value != FB_FLOAT_SINGLE && value != FB_FLOAT_DOUBLE)
				return unsupported(p, f, "floating point of precision", value);
			return SHF_OK;
		case FB_TYPE_DECIMAL:
			return parse_decimal(p, &t, f);
		case FB_TYPE_DATE:
			return parse_unit(p, &t, f, FB_DATE_UNIT, FB_DATE_MILLISECOND, FB_DATE_DAY,
							  "date of unit", SHF_DATE32);
		case FB_TYPE_TIME:
			value = 32;
			code = fb_view_scalar(p, &t, FB_TIME_BITWIDTH, 4, &value);
			if (code != SHF_OK)
				return code;
			if (value != 64)
				return unsupported(p, f, "time of bits", value);
			return parse_unit(p, &t, f, FB_TIME_UNIT, FB_UNIT_MILLISECOND, FB_UNIT_MICROSECOND,
							  "time of unit", SHF_TIME64_US);
		case FB_TYPE_TIMESTAMP:
			return parse_timestamp(p, &t, f);
		case FB_TYPE_INTERVAL:
			return parse_unit(p, &t, f, FB_INTERVAL_UNIT, 0, FB_INTERVAL_MONTH_DAY_NANO,
							  "interval of unit", SHF_INTERVAL_MDN);
		case FB_TYPE_UTF8:
			f->kind = SHF_UTF8;
			return SHF_OK;
		case FB_TYPE_BINARY:
			f->kind = SHF_BINARY;
			return SHF_OK;
		case FB_TYPE_FIXED_BINARY:
			code = fb_view_scalar(p, &t, FB_FIXED_WIDTH, 4, &value);
			f->kind = SHF_FIXED_BINARY;
			f->width = (int32_t) value;
			return code;
		case FB_TYPE_LIST:
			f->kind = SHF_LIST;
			return SHF_OK;
		case FB_TYPE_STRUCT:
			f->kind = SHF_STRUCT;
			return SHF_OK;
	}
	return unsupported(p, f, "type number", member);
}

static ShfCode
parse_fields(FbParser *p, const FbView *v, int slot, int depth, ShfField **fields, int *nfields)
{
	FbVector vec;
	ShfCode	 code = fb_view_vector(p, v, slot, 4, &vec);

	if (code != SHF_OK || vec.count == 0)
		return code;
	if (depth > SHF_MAX_NESTING)
		return shf_error(p->err, SHF_ERR_CORRUPT, "schema is nested more than %d levels deep",
						 SHF_MAX_NESTING);
	if (vec.count > p->fields_left)
		return fb_bad(p, "tables overlap", vec.first);
	p->fields_left -= vec.count;
	*fields = calloc(vec.count, sizeof(ShfField));
	if (*fields == NULL)
		return shf_error(p->err, SHF_ERR_NOMEM, "out of memory while reading a schema");
	*nfields = (int) vec.count;

	for (size_t i = 0; i < vec.count; i++)
	{
		ShfField *f = &(*fields)[i];
		FbView	  field;
		int64_t	  nullable = 0;
		size_t	  dictionary = 0;

		code = fb_view_table(p, vec.first + 4 * i, &field);
		if (code == SHF_OK)
			code = copy_text(p, &field, FB_FIELD_NAME, "field has no name", &f->name);
		if (code == SHF_OK)
			code = fb_view_scalar(p, &field, FB_FIELD_NULLABLE, 1, &nullable);
		if (code == SHF_OK)
			code = fb_view_field(p, &field, FB_FIELD_DICTIONARY, 4, &dictionary);
		if (code == SHF_OK)
			code = parse_type(p, &field, f);
		if (code != SHF_OK)
			return code;
		f->nullable = nullable != 0;
		if (dictionary != 0)
			return shf_error(p->err, SHF_ERR_CORRUPT,
							 "column \"%.100s\" is dictionary-encoded, "
							 "which shuffle tables do not use",
							 f->name);
		code = parse_fields(p, &field, FB_FIELD_CHILDREN, depth + 1, &f->children, &f->nchildren);
		if (code == SHF_OK)
			code = parse_meta(p, &field, FB_FIELD_METADATA, &f->meta, &f->nmeta);
		if (code != SHF_OK)
			return code;
	}
	return SHF_OK;
}

ShfCode
shf_parse_schema_message(const uint8_t *buf, size_t len, ShfSchema *schema, ShfError *err)
{
	FbParser p = {.buf = buf, .len = len, .err = err, .fields_left = len / 8, .text_left = len};
	FbView	 message;
	FbView	 header;
	FbVector features;
	int64_t	 endianness = 0;
	int64_t	 body = 0;
	ShfCode	 code;

	memset(schema, 0, sizeof(*schema));
	code = view_message(&p, FB_HEADER_SCHEMA, "Schema", &message, &header);
	if (code == SHF_OK)
		code = fb_view_scalar(&p, &message, FB_MESSAGE_BODY_LENGTH, 8, &body);
	if (code == SHF_OK)
		code = fb_view_scalar(&p, &header, FB_SCHEMA_ENDIANNESS, 2, &endianness);
	if (code == SHF_OK)
		code = fb_view_vector(&p, &header, FB_SCHEMA_FEATURES, 8, &features);
	if (code != SHF_OK)
		return code;
	if (body != 0 || endianness != 0 || features.count != 0)
		return shf_error(err, SHF_ERR_CORRUPT,
						 "Arrow schema is not one of shuffle tables: it has a body, "
						 "big-endian values or optional features");

	code = parse_fields(&p, &header, FB_SCHEMA_FIELDS, 0, &schema->fields, &schema->nfields);
	if (code == SHF_OK)
		code = parse_meta(&p, &header, FB_SCHEMA_METADATA, &schema->meta, &schema->nmeta);
	if (code == SHF_OK)
	{
		code = shf_schema_check(schema, err);
		if (code == SHF_ERR_INVALID || code == SHF_ERR_LIMIT)
		{
			code = SHF_ERR_CORRUPT;
			if (err != NULL)
				err->code = code;
		}
	}
	if (code != SHF_OK)
		shf_schema_release(schema);
	return code;
}

/* ---------------------------------------------------------------- record batch */

/* Digits of the base at pos; false when there is anything else or no room in 32 bits. */
static bool
parse_digits(const FbParser *p, const FbText *text, size_t digits, unsigned base, uint32_t *value)
{
	uint64_t v = 0;

	if (text->len != digits)
		return false;
	for (size_t i = 0; i < digits; i++)
	{
		uint8_t	 c = p->buf[text->pos + i];
		unsigned d;

		if (c >= '0' && c <= '9')
			d = c - '0';
		else if (base == 16 && c >= 'a' && c <= 'f')
			d = c - 'a' + 10;
		else
			return false;
		v = v * base + d;
	}
	*value = (uint32_t) v;
	return v <= UINT32_MAX;
}

/* The two entries of our own; others are no harm. */
static ShfCode
parse_batch_meta(const FbParser *p, const FbView *message, ShfBatchHeader *h)
{
	bool	 have_partition = false;
	bool	 have_crc = false;
	FbVector vec;
	ShfCode	 code = fb_view_vector(p, message, FB_MESSAGE_METADATA, 4, &vec);

	for (size_t i = 0; code == SHF_OK && i < vec.count; i++)
	{
		FbView kv;
		FbText key;
		FbText value;

		code = fb_view_table(p, vec.first + 4 * i, &kv);
		if (code == SHF_OK)
			code = fb_view_text(p, &kv, FB_KEYVALUE_KEY, &key);
		if (code == SHF_OK)
			code = fb_view_text(p, &kv, FB_KEYVALUE_VALUE, &value);
		if (code != SHF_OK || key.pos == 0 || value.pos == 0)
			continue;
		if (key.len == strlen(PARTITION_KEY) &&
			memcmp(p->buf + key.pos, PARTITION_KEY, key.len) == 0)
			have_partition = parse_digits(p, &value, PARTITION_DIGITS, 10, &h->partition);
		else if (key.len == strlen(CRC_KEY) && memcmp(p->buf + key.pos, CRC_KEY, key.len) == 0)
		{
			have_crc = parse_digits(p, &value, CRC_DIGITS, 16, &h->crc);
			h->crc_offset = value.pos;
		}
	}
	if (code != SHF_OK)
		return code;
	if (!have_partition || !have_crc)
		return shf_error(p->err, SHF_ERR_CORRUPT,
						 "record batch has no valid \"%s\" and \"%s\" metadata", PARTITION_KEY,
						 CRC_KEY);
	return SHF_OK;
}

ShfCode
shf_parse_batch_message(const uint8_t *buf, size_t len, ShfBatchHeader *h, ShfError *err)
{
	FbParser p = {.buf = buf, .len = len, .err = err};
	FbView	 message;
	FbView	 batch;
	FbView	 compression;
	FbVector nodes;
	FbVector buffers;
	size_t	 ref;
	ShfCode	 code;

	memset(h, 0, sizeof(*h));
	code = view_message(&p, FB_HEADER_RECORD_BATCH, "RecordBatch", &message, &batch);
	if (code == SHF_OK)
		code = fb_view_scalar(&p, &message, FB_MESSAGE_BODY_LENGTH, 8, &h->body_bytes);
	if (code == SHF_OK)
		code = fb_view_scalar(&p, &batch, FB_BATCH_LENGTH, 8, &h->rows);
	if (code == SHF_OK)
		code = fb_view_vector(&p, &batch, FB_BATCH_NODES, 16, &nodes);
	if (code == SHF_OK)
		code = fb_view_vector(&p, &batch, FB_BATCH_BUFFERS, 16, &buffers);
	if (code == SHF_OK)
		code = fb_view_field(&p, &batch, FB_BATCH_COMPRESSION, 4, &ref);
	if (code != SHF_OK)
		return code;
	if (h->body_bytes < 0 || (h->body_bytes & 7) != 0)
		return shf_error(err, SHF_ERR_CORRUPT, "record batch has an impossible body of %lld bytes",
						 (long long) h->body_bytes);
	if (h->rows < 0 || h->rows > (int64_t) SHF_SEGMENT_MAX_ROWS)
		return shf_error(err, SHF_ERR_CORRUPT,
						 "record batch has an impossible number of rows: %lld",
						 (long long) h->rows);
	h->nnodes = (int) nodes.count;
	h->nodes = buf + nodes.first;
	h->nbuffers = (int) buffers.count;
	h->buffers = buf + buffers.first;

	if (ref != 0)
	{
		int64_t codec = FB_CODEC_LZ4_FRAME;
		int64_t method = 0;

		code = fb_view_table(&p, ref, &compression);
		if (code == SHF_OK)
			code = fb_view_scalar(&p, &compression, FB_COMPRESSION_CODEC, 1, &codec);
		if (code == SHF_OK)
			code = fb_view_scalar(&p, &compression, FB_COMPRESSION_METHOD, 1, &method);
		if (code != SHF_OK)
			return code;
		if (method != 0 || (codec != FB_CODEC_LZ4_FRAME && codec != FB_CODEC_ZSTD))
			return shf_error(err, SHF_ERR_CORRUPT,
							 "record batch has unknown compression (codec %d, method %d)",
							 (int) codec, (int) method);
		h->compressed = true;
		h->codec = codec == FB_CODEC_ZSTD ? SHF_CODEC_ZSTD : SHF_CODEC_LZ4;
	}
	return parse_batch_meta(&p, &message, h);
}
