/*
 * flatbuf_view.h
 *	  Reading flatbuffers without trusting them: tables, fields, vectors and strings
 *	  are checked to lie inside the buffer before they are looked at.
 *
 * Inline, because the header of every block is read through these.  Encoding:
 * flatbuffers "Internals".
 */
#ifndef SHF_FLATBUF_VIEW_H
#define SHF_FLATBUF_VIEW_H

#include "bytes.h"
#include "shf.h"

typedef struct FbParser
{
	const uint8_t *buf;
	size_t		   len;
	ShfError	  *err;
	size_t		   fields_left; /* see flatbuf_parse.c */
	size_t		   text_left;
} FbParser;

typedef struct FbView
{
	size_t pos;	  /* of the table */
	size_t bytes; /* of its inline part */
	size_t vtable;
	int	   nslots;
} FbView;

typedef struct FbVector
{
	size_t first; /* position of the first element */
	size_t count;
} FbVector;

typedef struct FbText
{
	size_t pos;
	size_t len;
} FbText;

static inline uint16_t
fb_get16(const FbParser *p, size_t pos)
{
	uint16_t v;

	memcpy(&v, p->buf + pos, 2);
	return v;
}

static inline uint32_t
fb_get32(const FbParser *p, size_t pos)
{
	return shf_load32(p->buf + pos);
}

static inline int64_t
fb_get64(const FbParser *p, size_t pos)
{
	return (int64_t) shf_load64(p->buf + pos);
}

static inline ShfCode
fb_bad(const FbParser *p, const char *what, size_t pos)
{
	return shf_error(p->err, SHF_ERR_CORRUPT, "Arrow metadata is damaged: %s at byte %zu of %zu",
					 what, pos, p->len);
}

/* Follows the offset stored at pos, which is known to lie inside. */
static inline ShfCode
fb_follow(const FbParser *p, size_t pos, size_t *target)
{
	uint32_t offset = fb_get32(p, pos);

	*target = 0;
	if (offset < 4 || offset > p->len - pos || ((pos + offset) & 3) != 0 ||
		p->len - (pos + offset) < 4)
		return fb_bad(p, "offset points outside", pos);
	*target = pos + offset;
	return SHF_OK;
}

/* The table that the offset at ref points to. */
static inline ShfCode
fb_view_table(const FbParser *p, size_t ref, FbView *v)
{
	ShfCode	 code = fb_follow(p, ref, &v->pos);
	int64_t	 vtable;
	uint16_t vtable_bytes;

	if (code != SHF_OK)
		return code;
	vtable = (int64_t) v->pos - (int32_t) fb_get32(p, v->pos);
	if (vtable < 0 || (vtable & 1) != 0 || p->len < 4 || (uint64_t) vtable > p->len - 4)
		return fb_bad(p, "table has no vtable", v->pos);
	v->vtable = (size_t) vtable;
	vtable_bytes = fb_get16(p, v->vtable);
	v->bytes = fb_get16(p, v->vtable + 2);
	if (vtable_bytes < 4 || (vtable_bytes & 1) != 0 || vtable_bytes > p->len - v->vtable)
		return fb_bad(p, "vtable has an invalid size", v->vtable);
	if (v->bytes < 4 || v->bytes > p->len - v->pos)
		return fb_bad(p, "table has an invalid size", v->pos);
	v->nslots = (vtable_bytes - 4) / 2;
	return SHF_OK;
}

/* Position of a field of size bytes, or 0 when the table does not have it. */
static inline ShfCode
fb_view_field(const FbParser *p, const FbView *v, int slot, size_t size, size_t *pos)
{
	size_t at;

	*pos = 0;
	if (slot >= v->nslots)
		return SHF_OK;
	at = fb_get16(p, v->vtable + 4 + 2 * (size_t) slot);
	if (at == 0)
		return SHF_OK;
	if (at < 4 || at + size > v->bytes || ((v->pos + at) & (size - 1)) != 0)
		return fb_bad(p, "table has a misplaced field", v->pos);
	*pos = v->pos + at;
	return SHF_OK;
}

/* Scalar of 1, 2, 4 or 8 bytes, sign-extended; value keeps the default when absent. */
static inline ShfCode
fb_view_scalar(const FbParser *p, const FbView *v, int slot, size_t size, int64_t *value)
{
	size_t	pos;
	ShfCode code = fb_view_field(p, v, slot, size, &pos);

	if (code != SHF_OK || pos == 0)
		return code;
	switch (size)
	{
		case 1:
			*value = (int8_t) p->buf[pos];
			break;
		case 2:
			*value = (int16_t) fb_get16(p, pos);
			break;
		case 4:
			*value = (int32_t) fb_get32(p, pos);
			break;
		default:
			*value = fb_get64(p, pos);
			break;
	}
	return SHF_OK;
}

/* A vector; count 0 when the field is absent. */
static inline ShfCode
fb_view_vector(const FbParser *p, const FbView *v, int slot, size_t element, FbVector *vec)
{
	size_t	ref;
	size_t	pos;
	ShfCode code = fb_view_field(p, v, slot, 4, &ref);

	vec->first = 0;
	vec->count = 0;
	if (code != SHF_OK || ref == 0)
		return code;
	code = fb_follow(p, ref, &pos);
	if (code != SHF_OK)
		return code;
	vec->first = pos + 4;
	vec->count = fb_get32(p, pos);
	if (vec->count > (p->len - vec->first) / element)
		return fb_bad(p, "vector runs over the end", pos);
	if (element >= 8 && vec->count > 0 && (vec->first & 7) != 0)
		return fb_bad(p, "vector is not aligned", pos);
	return SHF_OK;
}

/* A NUL-terminated string without NULs inside; pos 0 when the field is absent. */
static inline ShfCode
fb_view_text(const FbParser *p, const FbView *v, int slot, FbText *text)
{
	size_t	ref;
	size_t	pos;
	ShfCode code = fb_view_field(p, v, slot, 4, &ref);

	text->pos = 0;
	text->len = 0;
	if (code != SHF_OK || ref == 0)
		return code;
	code = fb_follow(p, ref, &pos);
	if (code != SHF_OK)
		return code;
	text->pos = pos + 4;
	text->len = fb_get32(p, pos);
	if (text->len >= p->len - text->pos || p->buf[text->pos + text->len] != 0 ||
		memchr(p->buf + text->pos, 0, text->len) != NULL)
		return fb_bad(p, "string is not terminated", pos);
	return SHF_OK;
}

#endif /* SHF_FLATBUF_VIEW_H */
