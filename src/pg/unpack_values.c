/*
 * unpack_values.c
 *	  Arrow columns that are not nested to Datums, a range of rows at a time.
 *
 * By-reference values of a call lie one behind the other in one allocation.  Headers: text
 * and bytea get the short varlena header where it fits, because their functions take it as
 * it is; numeric and all others get a 4-byte header at its alignment, which saves each
 * function that reads them a copy.
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "typemap.h"

/* Bytes that copy_bytes() reads and writes at once: a value's scratch has as many more. */
#define COPY_SLACK 32

/* Value i of "out", and whether it is NULL. */
#define VALUE(i)   out.values[(Size) (i) *out.stride]
#define IS_NULL(i) out.isnull[(Size) (i) *out.stride]

/* ---------------------------------------------------------------- fixed width */

/* Value i = expression of v; the bits of NULLs are read too. */
#define UNPACK_LOOP(type, expression) \
	do \
	{ \
		const uint8_t *p_ = column->data + first * (int64) sizeof(type); \
		for (int i = 0; i < count; i++) \
		{ \
			type v; \
			memcpy(&v, p_ + i * sizeof(type), sizeof(type)); \
			VALUE(i) = (expression); \
		} \
	} while (0)

static void
unpack_bool(const ShfColumn *column, int64 first, int count, ShuffleValues out)
{
	for (int i = 0; i < count; i++)
	{
		int64 row = first + i;

		VALUE(i) = BoolGetDatum((column->data[row >> 3] >> (row & 7)) & 1);
	}
}

/*
 * Prices, quantities and rates are small numbers that come again and again.  A column that
 * turns out to have such ones gets a table of the numerics of 0 .. SMALL_DECIMALS - 1,
 * filled as they are met, and its values point there: the table lives as long as the
 * decoder, which every window keeps.
 */
#define SMALL_DECIMALS	8192
#define NUMERIC_ROOM	16 /* bytes of one with at most two digits */
#define MAX_TABLES		32 /* of all columns of a decoder */
#define DECIMALS_TO_SEE 8192

static inline bool
is_small(int128 value)
{
	return (uint64) (value >> 64) == 0 && (uint64) value < SMALL_DECIMALS;
}

/* After DECIMALS_TO_SEE values: are at least half of these small? */
static void
consider_table(ShuffleUnpack *unpack, ShuffleNode *node, const uint8_t *src, int count)
{
	int nsmall = 0;

	node->decimals_seen += count;
	if (node->decimals_seen < DECIMALS_TO_SEE || unpack->ntables == MAX_TABLES)
		return;
	node->decimals_seen = 0;
	for (int i = 0; i < count; i++)
	{
		int128 value;

		memcpy(&value, src + i * sizeof(value), sizeof(value));
		nsmall += is_small(value);
	}
	if (nsmall < count / 2)
		return;
	node->numerics =
		MemoryContextAllocZero(GetMemoryChunkContext(unpack), SMALL_DECIMALS * NUMERIC_ROOM);
	unpack->ntables++;
}

static void
unpack_decimal(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column, int64 first,
			   int count, ShuffleValues out, MemoryContext cxt)
{
	const uint8_t *src = column->data + first * (int64) sizeof(int128);
	char		  *dst = MemoryContextAllocHuge(cxt, (Size) count * SHUFFLE_NUMERIC_MAX_BYTES);
	ShuffleDecimal decimal = node->decimal;
	bool		   nulls = (column->validity != NULL);
	char		  *table;

	if (node->numerics == NULL)
		consider_table(unpack, node, src, count);
	table = node->numerics;

	for (int i = 0; i < count; i++, src += sizeof(int128))
	{
		int128 value;
		Size   bytes;

		memcpy(&value, src, sizeof(value));
		if (table != NULL && is_small(value))
		{
			char *numeric = table + (Size) value * NUMERIC_ROOM;

			VALUE(i) = PointerGetDatum(numeric);
			if (unlikely(VARSIZE(numeric) == 0))
				(void) shuffle_numeric_from_decimal(numeric, value, &decimal);
			continue;
		}
		VALUE(i) = PointerGetDatum(dst);
		if (nulls && IS_NULL(i))
			continue;
		bytes = shuffle_numeric_from_small(dst, value, &decimal);
		if (unlikely(bytes == 0))
			bytes = shuffle_numeric_from_decimal(dst, value, &decimal);
		dst += INTALIGN(bytes);
	}
}

static void
unpack_interval(const ShfColumn *column, int64 first, int count, ShuffleValues out,
				MemoryContext cxt)
{
	const uint8_t *src = column->data + first * 16;
	Interval	  *dst = MemoryContextAllocHuge(cxt, (Size) count * sizeof(Interval));

	for (int i = 0; i < count; i++, src += 16)
	{
		int64 ns;

		memcpy(&dst[i].month, src, 4);
		memcpy(&dst[i].day, src + 4, 4);
		memcpy(&ns, src + 8, 8);
		dst[i].time = ns / 1000;
		VALUE(i) = IntervalPGetDatum(&dst[i]);
	}
}

/* Fixed-length types by reference, UUID among them. */
static void
unpack_fixed(const ShuffleNode *node, const ShfColumn *column, int64 first, int count,
			 ShuffleValues out, MemoryContext cxt)
{
	Size		   width = (Size) node->width;
	Size		   stride = att_align_nominal(width, node->typalign);
	const uint8_t *src = column->data + first * (int64) width;
	char		  *dst = MemoryContextAllocHuge(cxt, (Size) count * stride);

	if (stride == width)
		memcpy(dst, src, (Size) count * width);
	for (int i = 0; i < count; i++)
	{
		if (stride != width)
			memcpy(dst + i * stride, src + i * width, width);
		VALUE(i) = PointerGetDatum(dst + i * stride);
	}
}

/* ---------------------------------------------------------------- text and bytes */

/*
 * Copies len bytes.  Most values are short: as long as COPY_SLACK bytes can be read before
 * src_limit they are copied by a fixed number of loads and stores, without a call or a
 * branch on the length.
 */
static inline void
copy_bytes(char *dst, const uint8_t *src, size_t len, const uint8_t *src_limit)
{
	if (len <= COPY_SLACK && src_limit - src >= COPY_SLACK)
	{
		uint64 words[COPY_SLACK / sizeof(uint64)];

		memcpy(words, src, sizeof(words));
		memcpy(dst, words, sizeof(words));
	}
	else
		memcpy(dst, src, len);
}

static void
check_varlena_size(const ShuffleNode *node, size_t len)
{
	if (len > MaxAllocSize - VARHDRSZ)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("value of %zu bytes in column \"%s\" exceeds the maximum size of a value",
						len, node->column)));
}

/* Varlenas from their payload: text that needs no conversion, and bytes. */
static void
unpack_varlena(const ShuffleNode *node, const ShfColumn *column, int64 first, int count,
			   ShuffleValues out, MemoryContext cxt)
{
	const int32_t *offsets = column->offsets + first;
	const uint8_t *limit = column->data + column->data_bytes;
	Size		   align = node->typalign == TYPALIGN_DOUBLE ? ALIGNOF_DOUBLE : ALIGNOF_INT;
	Size		   total = (Size) (offsets[count] - offsets[0]);
	bool		   short_header = node->short_header;
	bool		   nulls = (column->validity != NULL);
	char		  *dst;

	dst = MemoryContextAllocHuge(cxt, total + (Size) count * (VARHDRSZ + align - 1) + COPY_SLACK);
	for (int i = 0; i < count; i++)
	{
		size_t		   len = (size_t) (offsets[i + 1] - offsets[i]);
		const uint8_t *src = column->data + offsets[i];

		if (nulls && IS_NULL(i))
		{
			VALUE(i) = (Datum) 0;
			continue;
		}
		if (short_header && len + VARHDRSZ_SHORT <= VARATT_SHORT_MAX)
		{
			VALUE(i) = PointerGetDatum(dst);
			SET_VARSIZE_SHORT(dst, len + VARHDRSZ_SHORT);
			dst += VARHDRSZ_SHORT;
		}
		else
		{
			check_varlena_size(node, len);
			dst = (char *) TYPEALIGN(align, dst);
			VALUE(i) = PointerGetDatum(dst);
			SET_VARSIZE(dst, len + VARHDRSZ);
			dst += VARHDRSZ;
		}
		copy_bytes(dst, src, len, limit);
		dst += len;
	}
}

/* Text that must be converted to the server encoding: value by value. */
static void
unpack_converted(ShuffleUnpack *unpack, const ShuffleNode *node, const ShfColumn *column,
				 int64 first, int count, ShuffleValues out, MemoryContext cxt)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);

	for (int i = 0; i < count; i++)
	{
		const char *text = (const char *) column->data + column->offsets[first + i];
		size_t		len = (size_t) (column->offsets[first + i + 1] - column->offsets[first + i]);
		struct varlena *value;

		VALUE(i) = (Datum) 0;
		if (IS_NULL(i))
			continue;
		MemoryContextReset(unpack->value_cxt);
		MemoryContextSwitchTo(unpack->value_cxt);
		shuffle_text_from_utf8(&unpack->encoding, &text, &len);
		MemoryContextSwitchTo(cxt);
		check_varlena_size(node, len);
		value = palloc(len + VARHDRSZ);
		SET_VARSIZE(value, len + VARHDRSZ);
		memcpy(VARDATA(value), text, len);
		VALUE(i) = PointerGetDatum(value);
	}
	MemoryContextSwitchTo(old);
}

static void
unpack_name(ShuffleUnpack *unpack, const ShfColumn *column, int64 first, int count,
			ShuffleValues out, MemoryContext cxt)
{
	NameData *dst = MemoryContextAllocHuge(cxt, (Size) count * sizeof(NameData));

	for (int i = 0; i < count; i++)
	{
		const char *text = (const char *) column->data + column->offsets[first + i];
		size_t		len = (size_t) (column->offsets[first + i + 1] - column->offsets[first + i]);

		VALUE(i) = NameGetDatum(&dst[i]);
		if (IS_NULL(i))
			continue;
		shuffle_text_from_utf8(&unpack->encoding, &text, &len);
		memset(&dst[i], 0, sizeof(NameData));
		memcpy(NameStr(dst[i]), text, Min(len, NAMEDATALEN - 1));
	}
}

static void
unpack_cstring(const ShfColumn *column, int64 first, int count, ShuffleValues out,
			   MemoryContext cxt)
{
	const int32_t *offsets = column->offsets + first;
	char *dst = MemoryContextAllocHuge(cxt, (Size) (offsets[count] - offsets[0]) + count + 1);

	for (int i = 0; i < count; i++)
	{
		size_t len = (size_t) (offsets[i + 1] - offsets[i]);

		VALUE(i) = CStringGetDatum(dst);
		memcpy(dst, column->data + offsets[i], len);
		dst[len] = '\0';
		dst += len + 1;
	}
}

static void
unpack_enum(const ShuffleNode *node, const ShfColumn *column, int64 first, int count,
			ShuffleValues out)
{
	const ShuffleLabel *label = NULL;

	for (int i = 0; i < count; i++)
	{
		const char *text = (const char *) column->data + column->offsets[first + i];
		size_t		len = (size_t) (column->offsets[first + i + 1] - column->offsets[first + i]);
		int			low = 0;
		int			high = node->nlabels - 1;

		VALUE(i) = (Datum) 0;
		if (IS_NULL(i))
			continue;
		/* rows of a partition often repeat a label */
		if (label == NULL || label->len != len || memcmp(label->label, text, len) != 0)
		{
			label = NULL;
			while (low <= high && label == NULL)
			{
				int					mid = (low + high) / 2;
				const ShuffleLabel *l = &node->labels[mid];
				int order = l->len != len ? (l->len < len ? -1 : 1) : memcmp(l->label, text, len);

				if (order == 0)
					label = l;
				else if (order < 0)
					low = mid + 1;
				else
					high = mid - 1;
			}
			if (label == NULL)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
						 errmsg("enum %s has no label \"%.*s\"", format_type_be(node->type),
								(int) len, text)));
		}
		VALUE(i) = ObjectIdGetDatum(label->value);
	}
}

/* Through the type's input function. */
static void
unpack_input(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column, int64 first,
			 int count, ShuffleValues out, MemoryContext cxt)
{
	MemoryContext old = CurrentMemoryContext;

	for (int i = 0; i < count; i++)
	{
		const char *text = (const char *) column->data + column->offsets[first + i];
		size_t		len = (size_t) (column->offsets[first + i + 1] - column->offsets[first + i]);
		char	   *cstring;
		Datum		value;

		/* the elements of one array may take seconds */
		if (i % 1024 == 1023)
			CHECK_FOR_INTERRUPTS();

		VALUE(i) = (Datum) 0;
		if (IS_NULL(i))
			continue;
		MemoryContextReset(unpack->value_cxt);
		MemoryContextSwitchTo(unpack->value_cxt);
		shuffle_text_from_utf8(&unpack->encoding, &text, &len);
		check_varlena_size(node, len);
		cstring = palloc(len + 1);
		memcpy(cstring, text, len);
		cstring[len] = '\0';
		/* stored values meet their typmod already, and -1 changes nothing */
		value = InputFunctionCall(&node->io, cstring, node->ioparam, -1);
		MemoryContextSwitchTo(cxt);
		VALUE(i) = datumCopy(value, node->typbyval, node->typlen);
	}
	MemoryContextSwitchTo(old);
}

static void
unpack_numeric(ShuffleNode *node, const ShfColumn *column, int64 first, int count,
			   ShuffleValues out, MemoryContext cxt)
{
	const int32_t *offsets = column->offsets + first;
	Size		   total = (Size) (offsets[count] - offsets[0]);
	char		  *dst = MemoryContextAllocHuge(
				 cxt, total / 2 + (Size) count * SHUFFLE_NUMERIC_TEXT_BYTES(0) + MAXIMUM_ALIGNOF);
	MemoryContext old = MemoryContextSwitchTo(cxt);

	for (int i = 0; i < count; i++)
	{
		const char *text = (const char *) column->data + offsets[i];
		size_t		len = (size_t) (offsets[i + 1] - offsets[i]);
		Size		bytes;

		VALUE(i) = (Datum) 0;
		if (IS_NULL(i))
			continue;
		bytes = shuffle_numeric_from_text(dst, text, len);
		if (bytes > 0)
		{
			VALUE(i) = PointerGetDatum(dst);
			dst += INTALIGN(bytes);
		}
		else
			VALUE(i) = InputFunctionCall(&node->io, pnstrdup(text, len), node->ioparam, -1);
	}
	MemoryContextSwitchTo(old);
}

/* ---------------------------------------------------------------- all of them */

void
shuffle_unpack_values(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column,
					  int64 first, int count, ShuffleValues out, MemoryContext cxt)
{
	switch (node->repr)
	{
		case SHUFFLE_REPR_BOOL:
			unpack_bool(column, first, count, out);
			break;
		case SHUFFLE_REPR_BYVAL1:
			UNPACK_LOOP(int8, CharGetDatum(v));
			break;
		case SHUFFLE_REPR_INT2:
		case SHUFFLE_REPR_BYVAL2:
			UNPACK_LOOP(int16, Int16GetDatum(v));
			break;
		case SHUFFLE_REPR_INT4:
		case SHUFFLE_REPR_FLOAT4:
		case SHUFFLE_REPR_BYVAL4:
			UNPACK_LOOP(int32, Int32GetDatum(v));
			break;
		case SHUFFLE_REPR_OID:
			UNPACK_LOOP(uint32, ObjectIdGetDatum(v));
			break;
		case SHUFFLE_REPR_INT8:
		case SHUFFLE_REPR_FLOAT8:
		case SHUFFLE_REPR_BYVAL8:
			UNPACK_LOOP(int64, Int64GetDatum(v));
			break;
		case SHUFFLE_REPR_TIME:
			UNPACK_LOOP(int64, TimeADTGetDatum(v));
			break;
		case SHUFFLE_REPR_DATE:
			UNPACK_LOOP(int32, DateADTGetDatum(v - UNIX_EPOCH_DAYS));
			break;
		case SHUFFLE_REPR_TIMESTAMP:
		case SHUFFLE_REPR_TIMESTAMPTZ:
			UNPACK_LOOP(int64, TimestampGetDatum(v - UNIX_EPOCH_US));
			break;
		case SHUFFLE_REPR_INTERVAL:
			unpack_interval(column, first, count, out, cxt);
			break;
		case SHUFFLE_REPR_DECIMAL:
			unpack_decimal(unpack, node, column, first, count, out, cxt);
			break;
		case SHUFFLE_REPR_UUID:
		case SHUFFLE_REPR_FIXED:
			unpack_fixed(node, column, first, count, out, cxt);
			break;
		case SHUFFLE_REPR_TEXT:
			if (unpack->encoding.verbatim)
				unpack_varlena(node, column, first, count, out, cxt);
			else
				unpack_converted(unpack, node, column, first, count, out, cxt);
			break;
		case SHUFFLE_REPR_BYTES:
			unpack_varlena(node, column, first, count, out, cxt);
			break;
		case SHUFFLE_REPR_NAME:
			unpack_name(unpack, column, first, count, out, cxt);
			break;
		case SHUFFLE_REPR_CSTRING:
			unpack_cstring(column, first, count, out, cxt);
			break;
		case SHUFFLE_REPR_ENUM:
			unpack_enum(node, column, first, count, out);
			break;
		case SHUFFLE_REPR_NUMERIC:
			unpack_numeric(node, column, first, count, out, cxt);
			break;
		case SHUFFLE_REPR_JSONB:
		case SHUFFLE_REPR_OUTPUT:
			unpack_input(unpack, node, column, first, count, out, cxt);
			break;
		case SHUFFLE_REPR_LIST:
		case SHUFFLE_REPR_STRUCT:
		case SHUFFLE_NREPRS:
			pg_unreachable();
	}
}
