/*
 * schema.c
 *	  The table of column kinds, operations on schemas, and the layout of packed rows.
 */
#include "shf.h"

#include "bytes.h"

#include <stdlib.h>

/*
 * Source of the buffer counts: Arrow columnar format, "Buffer Listing for Each
 * Layout".  raw_forbidden: Polars aborts on an uncompressed ("-1") buffer of 16-byte
 * values inside a compressed batch, because it wants them 16-byte aligned.
 */
const ShfKindInfo shf_kinds[SHF_NKINDS] = {
	[SHF_BOOL] = {"Bool", 1, 1, 2, false},
	[SHF_INT8] = {"Int8", 1, 1, 2, false},
	[SHF_INT16] = {"Int16", 2, 2, 2, false},
	[SHF_INT32] = {"Int32", 4, 4, 2, false},
	[SHF_INT64] = {"Int64", 8, 8, 2, false},
	[SHF_UINT32] = {"UInt32", 4, 4, 2, false},
	[SHF_FLOAT32] = {"Float32", 4, 4, 2, false},
	[SHF_FLOAT64] = {"Float64", 8, 8, 2, false},
	[SHF_DECIMAL128] = {"Decimal128", 16, 8, 2, true},
	[SHF_DATE32] = {"Date32", 4, 4, 2, false},
	[SHF_TIME64_US] = {"Time64(us)", 8, 8, 2, false},
	[SHF_TIMESTAMP_US] = {"Timestamp(us)", 8, 8, 2, false},
	[SHF_TIMESTAMPTZ_US] = {"Timestamp(us, UTC)", 8, 8, 2, false},
	[SHF_INTERVAL_MDN] = {"Interval(MonthDayNano)", 16, 8, 2, true},
	[SHF_UTF8] = {"Utf8", -1, 4, 3, false},
	[SHF_BINARY] = {"Binary", -1, 4, 3, false},
	[SHF_FIXED_BINARY] = {"FixedSizeBinary", 0, 1, 2, false},
	[SHF_LIST] = {"List", -1, 4, 2, false},
	[SHF_STRUCT] = {"Struct", -1, 4, 1, false},
};

/* Most FieldNodes of a schema: keeps every size computed from it far inside int32. */
#define MAX_NODES (1 << 20)

/* Largest FixedSizeBinary: PostgreSQL has no fixed-length type above 32 kB. */
#define MAX_FIXED_WIDTH 65536

/* ---------------------------------------------------------------- copy, release */

static ShfCode
out_of_memory(ShfError *err)
{
	return shf_error(err, SHF_ERR_NOMEM, "out of memory while copying a schema");
}

static void
release_meta(ShfMeta *meta, int nmeta)
{
	if (meta == NULL)
		return;
	for (int i = 0; i < nmeta; i++)
	{
		free(meta[i].key);
		free(meta[i].value);
	}
	free(meta);
}

static void
release_fields(ShfField *fields, int nfields)
{
	if (fields == NULL)
		return;
	for (int i = 0; i < nfields; i++)
	{
		free(fields[i].name);
		release_meta(fields[i].meta, fields[i].nmeta);
		release_fields(fields[i].children, fields[i].nchildren);
	}
	free(fields);
}

/* On failure *dst holds what release_meta() can free, like all the copy functions. */
static ShfCode
copy_meta(ShfMeta **dst, int *ndst, const ShfMeta *src, int nsrc, ShfError *err)
{
	if (nsrc <= 0)
		return SHF_OK;
	*dst = calloc((size_t) nsrc, sizeof(ShfMeta));
	if (*dst == NULL)
		return out_of_memory(err);
	*ndst = nsrc;
	for (int i = 0; i < nsrc; i++)
	{
		(*dst)[i].key = strdup(src[i].key);
		(*dst)[i].value = strdup(src[i].value);
		if ((*dst)[i].key == NULL || (*dst)[i].value == NULL)
			return out_of_memory(err);
	}
	return SHF_OK;
}

static ShfCode
copy_fields(ShfField **dst, int *ndst, const ShfField *src, int nsrc, ShfError *err)
{
	if (nsrc <= 0)
		return SHF_OK;
	*dst = calloc((size_t) nsrc, sizeof(ShfField));
	if (*dst == NULL)
		return out_of_memory(err);
	*ndst = nsrc;
	for (int i = 0; i < nsrc; i++)
	{
		ShfField	   *d = &(*dst)[i];
		const ShfField *s = &src[i];
		ShfCode			code;

		d->kind = s->kind;
		d->nullable = s->nullable;
		d->width = s->width;
		d->precision = s->precision;
		d->scale = s->scale;
		d->name = strdup(s->name);
		if (d->name == NULL)
			return out_of_memory(err);
		code = copy_meta(&d->meta, &d->nmeta, s->meta, s->nmeta, err);
		if (code == SHF_OK)
			code = copy_fields(&d->children, &d->nchildren, s->children, s->nchildren, err);
		if (code != SHF_OK)
			return code;
	}
	return SHF_OK;
}

ShfCode
shf_schema_copy(ShfSchema *dst, const ShfSchema *src, ShfError *err)
{
	ShfCode code;

	memset(dst, 0, sizeof(*dst));
	code = copy_meta(&dst->meta, &dst->nmeta, src->meta, src->nmeta, err);
	if (code == SHF_OK)
		code = copy_fields(&dst->fields, &dst->nfields, src->fields, src->nfields, err);
	if (code != SHF_OK)
		shf_schema_release(dst);
	return code;
}

void
shf_schema_release(ShfSchema *schema)
{
	release_meta(schema->meta, schema->nmeta);
	release_fields(schema->fields, schema->nfields);
	memset(schema, 0, sizeof(*schema));
}

/* ---------------------------------------------------------------- checks */

bool
shf_utf8_valid(const void *data, size_t len)
{
	const uint8_t *p = data;
	const uint8_t *end = p + len;

	while (p < end)
	{
		uint8_t c;

		/* Most text is ASCII: eight bytes at a time. */
		while (end - p >= 8)
		{
			if (shf_load64(p) & UINT64_C(0x8080808080808080))
				break;
			p += 8;
		}
		if (p == end)
			break;
		c = *p;
		if (c < 0x80)
			p++;
		else if (c < 0xE0)
		{
			if (c < 0xC2 || end - p < 2 || (p[1] & 0xC0) != 0x80)
				return false;
			p += 2;
		}
		else if (c < 0xF0)
		{
			if (end - p < 3 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80 ||
				(c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F))
				return false;
			p += 3;
		}
		else
		{
			if (c > 0xF4 || end - p < 4 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80 ||
				(p[3] & 0xC0) != 0x80 || (c == 0xF0 && p[1] < 0x90) || (c == 0xF4 && p[1] > 0x8F))
				return false;
			p += 4;
		}
	}
	return true;
}

static ShfCode
bad_meta(int entry, const char *column, const char *what, ShfError *err)
{
	if (column == NULL)
		return shf_error(err, SHF_ERR_INVALID, "metadata entry %d of the schema %s", entry, what);
	return shf_error(err, SHF_ERR_INVALID, "metadata entry %d of column \"%.120s\" %s", entry,
					 column, what);
}

/* column: whose metadata this is; NULL: the schema's. */
static ShfCode
check_meta(const ShfMeta *meta, int nmeta, const char *column, ShfError *err)
{
	for (int i = 0; i < nmeta; i++)
	{
		if (meta[i].key == NULL || meta[i].value == NULL)
			return bad_meta(i + 1, column, "has no key or no value", err);
		if (!shf_utf8_valid(meta[i].key, strlen(meta[i].key)) ||
			!shf_utf8_valid(meta[i].value, strlen(meta[i].value)))
			return bad_meta(i + 1, column, "is not valid UTF-8", err);
	}
	return SHF_OK;
}

static ShfCode
check_fields(const ShfField *fields, int nfields, int depth, ShfError *err)
{
	for (int i = 0; i < nfields; i++)
	{
		const ShfField *f = &fields[i];
		ShfCode			code;

		if (f->name == NULL || !shf_utf8_valid(f->name, strlen(f->name)))
			return shf_error(err, SHF_ERR_INVALID, "name of column %d is not valid UTF-8", i + 1);
		if ((unsigned) f->kind >= SHF_NKINDS)
			return shf_error(err, SHF_ERR_INVALID, "column \"%s\" has unknown kind %d", f->name,
							 (int) f->kind);
		if (depth > SHF_MAX_NESTING)
			return shf_error(err, SHF_ERR_LIMIT, "column \"%s\" is nested more than %d levels deep",
							 f->name, SHF_MAX_NESTING);
		if (f->kind == SHF_FIXED_BINARY && (f->width < 1 || f->width > MAX_FIXED_WIDTH))
			return shf_error(err, SHF_ERR_INVALID,
							 "column \"%s\" has a width of %d bytes, which is not between 1 and %d",
							 f->name, (int) f->width, MAX_FIXED_WIDTH);
		if (f->kind == SHF_DECIMAL128 &&
			(f->precision < 1 || f->precision > 38 || f->scale < 0 || f->scale > f->precision))
			return shf_error(err, SHF_ERR_INVALID,
							 "column \"%s\" has decimal precision %d and scale %d, "
							 "which are outside 1..38 and 0..precision",
							 f->name, (int) f->precision, (int) f->scale);
		if (f->nchildren < 0 || f->nmeta < 0 || (f->kind == SHF_LIST && f->nchildren != 1) ||
			(f->kind != SHF_LIST && f->kind != SHF_STRUCT && f->nchildren != 0))
			return shf_error(err, SHF_ERR_INVALID, "column \"%s\" of type %s has %d children",
							 f->name, shf_kinds[f->kind].name, f->nchildren);
		code = check_meta(f->meta, f->nmeta, f->name, err);
		if (code == SHF_OK)
			code = check_fields(f->children, f->nchildren, depth + 1, err);
		if (code != SHF_OK)
			return code;
	}
	return SHF_OK;
}

ShfCode
shf_schema_check(const ShfSchema *schema, ShfError *err)
{
	ShfCode code;
	int		nnodes;
	int		nbuffers;

	if (schema->nfields < 0 || schema->nmeta < 0)
		return shf_error(err, SHF_ERR_INVALID, "schema has a negative number of columns");
	code = check_meta(schema->meta, schema->nmeta, NULL, err);
	if (code == SHF_OK)
		code = check_fields(schema->fields, schema->nfields, 0, err);
	if (code != SHF_OK)
		return code;
	shf_schema_count(schema, &nnodes, &nbuffers);
	if (nnodes > MAX_NODES)
		return shf_error(err, SHF_ERR_LIMIT,
						 "schema has %d columns, nested ones included, "
						 "more than the limit of %d",
						 nnodes, MAX_NODES);
	return SHF_OK;
}

static bool
meta_equal(const ShfMeta *a, int na, const ShfMeta *b, int nb)
{
	if (na != nb)
		return false;
	for (int i = 0; i < na; i++)
	{
		if (strcmp(a[i].key, b[i].key) != 0 || strcmp(a[i].value, b[i].value) != 0)
			return false;
	}
	return true;
}

static bool
fields_equal(const ShfField *a, int na, const ShfField *b, int nb)
{
	if (na != nb)
		return false;
	for (int i = 0; i < na; i++)
	{
		if (a[i].kind != b[i].kind || a[i].nullable != b[i].nullable ||
			strcmp(a[i].name, b[i].name) != 0)
			return false;
		if (a[i].kind == SHF_FIXED_BINARY && a[i].width != b[i].width)
			return false;
		if (a[i].kind == SHF_DECIMAL128 &&
			(a[i].precision != b[i].precision || a[i].scale != b[i].scale))
			return false;
		if (!meta_equal(a[i].meta, a[i].nmeta, b[i].meta, b[i].nmeta) ||
			!fields_equal(a[i].children, a[i].nchildren, b[i].children, b[i].nchildren))
			return false;
	}
	return true;
}

bool
shf_schema_equal(const ShfSchema *a, const ShfSchema *b)
{
	return fields_equal(a->fields, a->nfields, b->fields, b->nfields);
}

const char *
shf_meta_get(const ShfMeta *meta, int nmeta, const char *key)
{
	for (int i = 0; i < nmeta; i++)
	{
		if (strcmp(meta[i].key, key) == 0)
			return meta[i].value;
	}
	return NULL;
}

static void
count_fields(const ShfField *fields, int nfields, int *nnodes, int *nbuffers)
{
	for (int i = 0; i < nfields; i++)
	{
		*nnodes += 1;
		*nbuffers += shf_kinds[fields[i].kind].nbuffers;
		count_fields(fields[i].children, fields[i].nchildren, nnodes, nbuffers);
	}
}

void
shf_schema_count(const ShfSchema *schema, int *nnodes, int *nbuffers)
{
	*nnodes = 0;
	*nbuffers = 0;
	count_fields(schema->fields, schema->nfields, nnodes, nbuffers);
}

/* ---------------------------------------------------------------- packed rows */

static uint32_t
slot_bytes(const ShfField *field)
{
	int width = shf_kinds[field->kind].width;

	if (width < 0)
		return sizeof(uint32_t);
	if (field->kind == SHF_DECIMAL128 && field->precision <= SHF_NARROW_DIGITS)
		return sizeof(int64_t);
	return (uint32_t) (width > 0 ? width : field->width);
}

/* Places the slots of an alignment, of fixed-width columns or of the others. */
static void
place_slots(ShfRowLayout *layout, const ShfSchema *schema, int align, bool variable, uint64_t *at)
{
	*at = (*at + (uint64_t) align - 1) & ~((uint64_t) align - 1);
	for (int i = 0; i < schema->nfields; i++)
	{
		const ShfKindInfo *kind = &shf_kinds[schema->fields[i].kind];

		if (kind->align != align || (kind->width < 0) != variable)
			continue;
		layout->slot[i] = (uint32_t) *at;
		layout->width[i] = slot_bytes(&schema->fields[i]);
		layout->var[i] = -1;
		if (variable)
		{
			if (layout->nvar == 0)
				layout->var_ends = layout->slot[i];
			layout->var[i] = layout->nvar++;
		}
		*at += layout->width[i];
	}
}

/*
 * Slots are laid out by ascending alignment, so that small ones fill the gap behind
 * the bitmap and no slot needs padding between it and its equals.
 */
ShfCode
shf_row_layout_init(ShfRowLayout *layout, const ShfSchema *schema, ShfError *err)
{
	size_t	 n = (size_t) schema->nfields;
	uint64_t at;

	memset(layout, 0, sizeof(*layout));
	layout->nfields = schema->nfields;
	layout->null_offset = 4;
	layout->slot = calloc(n > 0 ? n : 1, sizeof(*layout->slot));
	layout->var = calloc(n > 0 ? n : 1, sizeof(*layout->var));
	layout->width = calloc(n > 0 ? n : 1, sizeof(*layout->width));
	if (layout->slot == NULL || layout->var == NULL || layout->width == NULL)
	{
		shf_row_layout_release(layout);
		return out_of_memory(err);
	}

	at = layout->null_offset + (n + 31) / 32 * 4;
	for (int align = 1; align <= 8; align *= 2)
	{
		place_slots(layout, schema, align, false, &at);
		place_slots(layout, schema, align, true, &at);
	}
	at = shf_pad8(at);
	if (at > INT32_MAX)
	{
		shf_row_layout_release(layout);
		return shf_error(err, SHF_ERR_LIMIT,
						 "fixed-width columns of a row take %llu bytes, more than the limit of %d",
						 (unsigned long long) at, INT32_MAX);
	}
	layout->fixed_bytes = (uint32_t) at;
	return SHF_OK;
}

void
shf_row_layout_release(ShfRowLayout *layout)
{
	free(layout->slot);
	free(layout->var);
	free(layout->width);
	memset(layout, 0, sizeof(*layout));
}
