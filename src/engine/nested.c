/*
 * nested.c
 *	  See nested.h.
 */
#include "nested.h"

#include "bytes.h"

#include <stdlib.h>

static ShfCode
malformed(const ShfBuilder *b, ShfError *err)
{
	return shf_error(err, SHF_ERR_INVALID, "malformed nested value in column \"%s\"", b->column);
}

static ShfCode
init(ShfBuilder *b, const ShfField *field, const char *column, ShfError *err)
{
	ShfCode code = SHF_OK;

	memset(b, 0, sizeof(*b));
	b->field = field;
	b->column = column;
	if (shf_kinds[field->kind].width > 0)
		b->width = shf_kinds[field->kind].width;
	else if (shf_kinds[field->kind].width == 0)
		b->width = field->width;
	if (field->nchildren > 0)
	{
		b->children = calloc((size_t) field->nchildren, sizeof(ShfBuilder));
		if (b->children == NULL)
			return shf_error(err, SHF_ERR_NOMEM, "out of memory for column \"%s\"", column);
		b->nchildren = field->nchildren;
	}
	for (int i = 0; i < b->nchildren && code == SHF_OK; i++)
		code = init(&b->children[i], &field->children[i], column, err);
	return code;
}

ShfCode
shf_builder_init(ShfBuilder *b, const ShfField *field, ShfError *err)
{
	return init(b, field, field->name, err);
}

void
shf_builder_release(ShfBuilder *b)
{
	for (int i = 0; i < b->nchildren; i++)
		shf_builder_release(&b->children[i]);
	free(b->children);
	free(b->validity.data);
	free(b->offsets.data);
	free(b->data.data);
	memset(b, 0, sizeof(*b));
}

void
shf_builder_reset(ShfBuilder *b)
{
	b->length = 0;
	b->null_count = 0;
	b->validity.len = 0;
	b->offsets.len = 0;
	b->data.len = 0;
	for (int i = 0; i < b->nchildren; i++)
		shf_builder_reset(&b->children[i]);
}

void
shf_builder_trim(ShfBuilder *b)
{
	shf_builder_reset(b);
	free(b->validity.data);
	free(b->offsets.data);
	free(b->data.data);
	memset(&b->validity, 0, sizeof(b->validity));
	memset(&b->offsets, 0, sizeof(b->offsets));
	memset(&b->data, 0, sizeof(b->data));
	for (int i = 0; i < b->nchildren; i++)
		shf_builder_trim(&b->children[i]);
}

/* Room for more bytes, tested inline: this is called for every value. */
static inline ShfCode
reserve(ShfBuffer *buf, size_t more, ShfError *err)
{
	if (buf->cap - buf->len >= more)
		return SHF_OK;
	return shf_buffer_reserve(buf, more, err);
}

/* Appends bit number i, which must be the next one. */
static inline ShfCode
append_bit(ShfBuffer *bits, uint32_t i, bool bit, ShfError *err)
{
	if ((i & 7) == 0)
	{
		ShfCode code = reserve(bits, 1, err);

		if (code != SHF_OK)
			return code;
		bits->data[bits->len++] = 0;
	}
	if (bit)
		bits->data[i >> 3] |= (uint8_t) (1 << (i & 7));
	return SHF_OK;
}

/* The validity of the next element, before its value is appended. */
static inline ShfCode
append_validity(ShfBuilder *b, bool valid, ShfError *err)
{
	if (b->length == INT32_MAX)
		return shf_error(err, SHF_ERR_LIMIT, "a value of column \"%s\" has more than %d elements",
						 b->column, INT32_MAX);
	if (b->null_count == 0)
	{
		if (valid)
			return SHF_OK;

		/* The first NULL: all before it were present. */
		if (b->length > 0)
		{
			size_t	bytes = (b->length + 7) / 8;
			ShfCode code = reserve(&b->validity, bytes, err);

			if (code != SHF_OK)
				return code;
			memset(b->validity.data, 0xFF, bytes);
			if (b->length & 7)
				b->validity.data[bytes - 1] = (uint8_t) ((1 << (b->length & 7)) - 1);
			b->validity.len = bytes;
		}
	}
	b->null_count += !valid;
	return append_bit(&b->validity, b->length, valid, err);
}

/* Ends element b->length at this offset of data or child. */
static inline ShfCode
append_offset(ShfBuilder *b, uint64_t end, ShfError *err)
{
	int32_t value = (int32_t) end;
	ShfCode code = reserve(&b->offsets, 2 * sizeof(value), err);

	if (code != SHF_OK)
		return code;
	if (end > INT32_MAX)
		return shf_error(err, SHF_ERR_LIMIT,
						 "a value of column \"%s\" exceeds the limit of %d bytes or elements",
						 b->column, INT32_MAX);
	if (b->length == 0)
	{
		memset(b->offsets.data, 0, sizeof(value));
		b->offsets.len = sizeof(value);
	}
	memcpy(b->offsets.data + b->offsets.len, &value, sizeof(value));
	b->offsets.len += sizeof(value);
	return SHF_OK;
}

/* A NULL takes the room of a value and has NULLs below it, as Arrow wants. */
static ShfCode
append_null(ShfBuilder *b, ShfError *err)
{
	ShfCode code = append_validity(b, false, err);

	if (code != SHF_OK)
		return code;
	switch (b->field->kind)
	{
		case SHF_STRUCT:
			for (int i = 0; i < b->nchildren && code == SHF_OK; i++)
				code = append_null(&b->children[i], err);
			break;
		case SHF_LIST:
			code = append_offset(b, b->children[0].length, err);
			break;
		case SHF_UTF8:
		case SHF_BINARY:
			code = append_offset(b, b->data.len, err);
			break;
		case SHF_BOOL:
			code = append_bit(&b->data, b->length, false, err);
			break;
		default:
			code = reserve(&b->data, (size_t) b->width, err);
			if (code == SHF_OK)
			{
				memset(b->data.data + b->data.len, 0, (size_t) b->width);
				b->data.len += (size_t) b->width;
			}
	}
	if (code == SHF_OK)
		b->length++;
	return code;
}

static ShfCode append_value(ShfBuilder *b, const uint8_t **p, const uint8_t *end, ShfError *err);

/* A null flag and, if it is 0, a value. */
static ShfCode
append_element(ShfBuilder *b, const uint8_t **p, const uint8_t *end, ShfError *err)
{
	uint8_t flag;

	if (*p == end || **p > 1)
		return malformed(b, err);
	flag = *(*p)++;
	return flag ? append_null(b, err) : append_value(b, p, end, err);
}

/* The elements of a list whose child has a fixed width: the common array. */
static ShfCode
append_fixed_elements(ShfBuilder *b, uint32_t count, const uint8_t **pp, const uint8_t *end,
					  ShfError *err)
{
	const size_t   width = (size_t) b->width;
	const uint8_t *p = *pp;
	ShfCode		   code = reserve(&b->data, width * count, err);

	if (code != SHF_OK)
		return code;
	for (uint32_t i = 0; i < count; i++)
	{
		uint8_t *dst = b->data.data + b->data.len;
		bool	 valid;

		if (p == end || *p > 1)
			return malformed(b, err);
		valid = *p++ == 0;
		if (b->null_count > 0 || !valid || b->length == INT32_MAX)
		{
			code = append_validity(b, valid, err);
			if (code != SHF_OK)
				return code;
		}
		if (!valid)
			memset(dst, 0, width);
		else
		{
			if ((size_t) (end - p) < width)
				return malformed(b, err);
			if (width == 4)
				memcpy(dst, p, 4);
			else if (width == 8)
				memcpy(dst, p, 8);
			else
				memcpy(dst, p, width);
			p += width;
		}
		b->data.len += width;
		b->length++;
	}
	*pp = p;
	return SHF_OK;
}

static ShfCode
append_value(ShfBuilder *b, const uint8_t **p, const uint8_t *end, ShfError *err)
{
	size_t	 left = (size_t) (end - *p);
	uint32_t n = 0;
	ShfCode	 code = append_validity(b, true, err);

	if (code != SHF_OK)
		return code;
	if (b->field->kind == SHF_LIST || b->field->kind == SHF_UTF8 || b->field->kind == SHF_BINARY)
	{
		if (left < sizeof(n))
			return malformed(b, err);
		n = shf_load32(*p);
		*p += sizeof(n);

		/* Every element takes at least its null flag. */
		if (n > left - sizeof(n))
			return malformed(b, err);
	}
	switch (b->field->kind)
	{
		case SHF_STRUCT:
			for (int i = 0; i < b->nchildren && code == SHF_OK; i++)
				code = append_element(&b->children[i], p, end, err);
			break;
		case SHF_LIST:
		{
			ShfBuilder *child = &b->children[0];

			if (child->width > 0 && child->field->kind != SHF_BOOL)
				code = append_fixed_elements(child, n, p, end, err);
			else
			{
				for (uint32_t i = 0; i < n && code == SHF_OK; i++)
					code = append_element(child, p, end, err);
			}
			if (code == SHF_OK)
				code = append_offset(b, child->length, err);
		}
		break;
		case SHF_UTF8:
		case SHF_BINARY:
			code = reserve(&b->data, n, err);
			if (code != SHF_OK)
				return code;
			if (n > 0)
				memcpy(b->data.data + b->data.len, *p, n);
			b->data.len += n;
			*p += n;
			code = append_offset(b, b->data.len, err);
			break;
		case SHF_BOOL:
			if (left < 1 || **p > 1)
				return malformed(b, err);
			code = append_bit(&b->data, b->length, *(*p)++ != 0, err);
			break;
		default:
			if (left < (size_t) b->width)
				return malformed(b, err);
			code = reserve(&b->data, (size_t) b->width, err);
			if (code != SHF_OK)
				return code;
			memcpy(b->data.data + b->data.len, *p, (size_t) b->width);
			b->data.len += (size_t) b->width;
			*p += b->width;
	}
	if (code == SHF_OK)
		b->length++;
	return code;
}

ShfCode
shf_builder_append(ShfBuilder *b, const void *value, size_t len, ShfError *err)
{
	const uint8_t *p = len > 0 ? value : (const uint8_t *) "";
	const uint8_t *end = p + len;
	ShfCode		   code = append_value(b, &p, end, err);

	return code == SHF_OK && p != end ? malformed(b, err) : code;
}

ShfCode
shf_builder_append_null(ShfBuilder *b, ShfError *err)
{
	return append_null(b, err);
}

uint64_t
shf_builder_bytes(const ShfBuilder *b)
{
	uint64_t bytes = shf_pad8(b->validity.len) + shf_pad8(b->offsets.len) + shf_pad8(b->data.len);

	for (int i = 0; i < b->nchildren; i++)
		bytes += shf_builder_bytes(&b->children[i]);
	return bytes;
}

uint64_t
shf_builder_held(const ShfBuilder *b)
{
	uint64_t bytes = sizeof(*b) + b->validity.cap + b->offsets.cap + b->data.cap;

	for (int i = 0; i < b->nchildren; i++)
		bytes += shf_builder_held(&b->children[i]);
	return bytes;
}

void
shf_builder_list(const ShfBuilder *b, int64_t **nodes, ShfSpan **spans, const uint8_t ***sources)
{
	static const uint8_t no_offsets[4];
	const ShfBuffer		*buffers[3];
	int					 n = 0;

	*(*nodes)++ = b->length;
	*(*nodes)++ = b->null_count;
	buffers[n++] = &b->validity;
	if (b->width == 0 && b->field->kind != SHF_STRUCT)
		buffers[n++] = &b->offsets;
	if (b->field->kind != SHF_LIST && b->field->kind != SHF_STRUCT)
		buffers[n++] = &b->data;
	for (int i = 0; i < n; i++)
	{
		const ShfBuffer *buffer = buffers[i];

		/* An array without elements still has its first offset. */
		bool lone_offset = buffer == &b->offsets && buffer->len == 0;

		(*spans)++->length = lone_offset ? (int64_t) sizeof(no_offsets) : (int64_t) buffer->len;
		*(*sources)++ = lone_offset ? no_offsets : buffer->data;
	}
	for (int i = 0; i < b->nchildren; i++)
		shf_builder_list(&b->children[i], nodes, spans, sources);
}
