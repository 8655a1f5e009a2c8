/*
 * pack_row.c
 *	  Rows to their Arrow form (ShfRow): the loop over columns.
 *
 * What there is to know about a column is put together once, in a few bytes per column.
 * The usual values of the usual types are stored here; everything else, and every value
 * that is not quite usual, goes to shuffle_pack_value(), which knows all types.
 *
 * Slots are written, zeroes for NULL, and not cleared before: a row is made in memory
 * that is not in the cache yet, and should be written once.
 */
#include "postgres.h"

#include "common/int.h"
#include "datatype/timestamp.h"
#include "utils/date.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "typemap.h"

#define UNIX_EPOCH_DAYS (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE)
#define UNIX_EPOCH_US	((int64) UNIX_EPOCH_DAYS * USECS_PER_DAY)

/* Powers of ten that short decimals are multiplied with, and what that is safe for. */
#define MAX_POWER		 18
#define MAX_TOP_EXPONENT 14 /* 9999 * 10^14 and what follows is below 2^63 */
#define MAX_SHORT_DIGITS 8

typedef enum PackStep
{
	PACK_1,
	PACK_2,
	PACK_4,
	PACK_8,
	PACK_DATE,
	PACK_TIMESTAMP,
	PACK_DECIMAL,
	PACK_TEXT,
	PACK_BYTES,
	PACK_ANY
} PackStep;

struct ShufflePackColumn
{
	uint8  step;  /* PackStep */
	int16  att;	  /* index of its value */
	uint32 slot;  /* offset in ShfRow.fixed, or index in ShfRow.var */
	uint32 width; /* of the slot; 0: variable */
};

static const int64 powers[MAX_POWER + 1] = {INT64CONST(1),
											INT64CONST(10),
											INT64CONST(100),
											INT64CONST(1000),
											INT64CONST(10000),
											INT64CONST(100000),
											INT64CONST(1000000),
											INT64CONST(10000000),
											INT64CONST(100000000),
											INT64CONST(1000000000),
											INT64CONST(10000000000),
											INT64CONST(100000000000),
											INT64CONST(1000000000000),
											INT64CONST(10000000000000),
											INT64CONST(100000000000000),
											INT64CONST(1000000000000000),
											INT64CONST(10000000000000000),
											INT64CONST(100000000000000000),
											INT64CONST(1000000000000000000)};

static PackStep
step_of(const ShuffleNode *node)
{
	switch (node->repr)
	{
		case SHUFFLE_REPR_BYVAL1:
			return PACK_1;
		case SHUFFLE_REPR_INT2:
		case SHUFFLE_REPR_BYVAL2:
			return PACK_2;
		case SHUFFLE_REPR_INT4:
		case SHUFFLE_REPR_OID:
		case SHUFFLE_REPR_FLOAT4:
		case SHUFFLE_REPR_BYVAL4:
			return PACK_4;
		case SHUFFLE_REPR_INT8:
		case SHUFFLE_REPR_FLOAT8:
		case SHUFFLE_REPR_BYVAL8:
			return PACK_8;
		case SHUFFLE_REPR_DATE:
			return PACK_DATE;
		case SHUFFLE_REPR_TIMESTAMP:
		case SHUFFLE_REPR_TIMESTAMPTZ:
			return PACK_TIMESTAMP;
		case SHUFFLE_REPR_DECIMAL:
			return PACK_DECIMAL;
		case SHUFFLE_REPR_TEXT:
			return PACK_TEXT;
		case SHUFFLE_REPR_BYTES:
			return PACK_BYTES;
		default:
			return PACK_ANY;
	}
}

static pg_noinline void
prepare_columns(ShuffleTypeMap *map, const ShfRowLayout *layout)
{
	if (map->pack_columns != NULL)
		pfree(map->pack_columns);
	map->pack_columns = MemoryContextAllocZero(GetMemoryChunkContext(map),
											   sizeof(ShufflePackColumn) * Max(map->ncolumns, 1));
	map->pack_layout = layout;
	for (int i = 0; i < map->ncolumns; i++)
	{
		const ShuffleNode *node = &map->columns[i];
		ShufflePackColumn *column = &map->pack_columns[i];
		int				   width = shf_kinds[map->schema.fields[i].kind].width;

		column->step = (uint8) step_of(node);
		column->att = node->attnum - 1;
		column->slot = width < 0 ? (uint32) layout->var[i] : layout->slot[i];
		column->width = width > 0 ? (uint32) width : width == 0 ? (uint32) node->width : 0;
	}
}

/*
 * A numeric of a few digits, with the short header.  False when it is anything else, or
 * has no exact form: see shuffle_numeric_to_decimal() for the format and for those.
 */
static pg_attribute_always_inline bool
short_decimal(Datum value, const ShuffleDecimal *decimal, int64 *result)
{
	const struct varlena *numeric = (const struct varlena *) DatumGetPointer(value);
	const char			 *p;
	int					  bytes;
	uint16				  header;
	int					  ndigits;
	int					  exponent;
	int64				  sum = 0;

	if (VARATT_IS_EXTERNAL(numeric) || VARATT_IS_COMPRESSED(numeric))
		return false;
	p = VARDATA_ANY(numeric);
	bytes = (int) VARSIZE_ANY_EXHDR(numeric) - (int) sizeof(header);
	memcpy(&header, p, sizeof(header));
	p += sizeof(header);
	ndigits = bytes / (int) sizeof(int16);

	/* 10sDDDDD Dwwwwwww: the weight is signed */
	if ((header & 0xC000) != 0x8000 || ndigits > MAX_SHORT_DIGITS)
		return false;
	exponent = 4 * (((header & 0x7F) ^ 0x40) - 0x40) + decimal->scale;
	if (exponent > MAX_TOP_EXPONENT)
		return false;
	for (; ndigits > 0; ndigits--, exponent -= 4, p += sizeof(int16))
	{
		int16 digit;

		memcpy(&digit, p, sizeof(digit));
		if (likely(exponent >= 0))
			sum += digit * powers[exponent];
		else if (exponent > -4 && digit % (int) powers[-exponent] == 0)
			sum += digit / (int) powers[-exponent];
		else
			return false;
	}
	if (decimal->precision <= MAX_POWER && sum >= powers[decimal->precision])
		return false;
	*result = header & 0x2000 ? -sum : sum;
	return true;
}

/* The bytes of a value that is neither compressed nor out of line. */
static pg_attribute_always_inline bool
plain_bytes(Datum value, ShfBytes *bytes)
{
	const struct varlena *varlena = (const struct varlena *) DatumGetPointer(value);

	if (unlikely(VARATT_IS_EXTERNAL(varlena) || VARATT_IS_COMPRESSED(varlena)))
		return false;
	bytes->data = VARDATA_ANY(varlena);
	bytes->len = VARSIZE_ANY_EXHDR(varlena);
	return true;
}

static pg_noinline void
pack_null(const ShufflePackColumn *column, const ShfRowLayout *layout, ShfRow *row, int i)
{
	if (column->width == 0)
		memset(&row->var[column->slot], 0, sizeof(ShfBytes));
	else
		memset(row->fixed + column->slot, 0, column->width);
	shf_row_set_null(layout, row, i);
}

#define STORE(type, value) \
	do \
	{ \
		type v_ = (value); \
		memcpy(slot, &v_, sizeof(v_)); \
	} while (0)

static void
pack_columns(ShuffleTypeMap *map, const ShfRowLayout *layout, ShfRow *row, const Datum *values,
			 const bool *isnull)
{
	const int				 n = map->ncolumns;
	const ShufflePackColumn *column = map->pack_columns;
	uint8_t					*fixed = row->fixed;
	ShfBytes				*var = row->var;

	memset(fixed + layout->null_offset, 0, (size_t) (n + 31) / 32 * sizeof(uint32));
	for (int i = 0; i < n; i++, column++)
	{
		const Datum value = values[column->att];
		uint8_t	   *slot = fixed + column->slot;

		if (unlikely(isnull[column->att]))
		{
			pack_null(column, layout, row, i);
			continue;
		}
		switch (column->step)
		{
			case PACK_1:
				*slot = (uint8_t) DatumGetChar(value);
				continue;
			case PACK_2:
				STORE(int16, DatumGetInt16(value));
				continue;
			case PACK_4:
				STORE(int32, DatumGetInt32(value));
				continue;
			case PACK_8:
				STORE(int64, DatumGetInt64(value));
				continue;
			case PACK_DATE:
				if (unlikely(DATE_NOT_FINITE(DatumGetDateADT(value))))
					break;
				STORE(int32, DatumGetDateADT(value) + UNIX_EPOCH_DAYS);
				continue;
			case PACK_TIMESTAMP:
			{
				Timestamp ts = DatumGetTimestamp(value);

				if (unlikely(TIMESTAMP_NOT_FINITE(ts) ||
							 pg_add_s64_overflow(ts, UNIX_EPOCH_US, &ts)))
					break;
				STORE(int64, ts);
				continue;
			}
			case PACK_DECIMAL:
			{
				int64 decimal;

				if (unlikely(!short_decimal(value, &map->columns[i].decimal, &decimal)))
					break;
				STORE(int64, decimal);
				slot += sizeof(int64);
				STORE(int64, decimal >> 63);
				continue;
			}
			case PACK_TEXT:
			{
				ShfBytes bytes;

				/* ASCII is valid in UTF-8 as in every server encoding */
				if (unlikely(!plain_bytes(value, &bytes) ||
							 !shuffle_is_ascii(bytes.data, bytes.len)))
					break;
				var[column->slot] = bytes;
				continue;
			}
			case PACK_BYTES:
				if (unlikely(!plain_bytes(value, &var[column->slot])))
					break;
				continue;
			default:
				break;
		}
		if (!shuffle_pack_value(map, i, value,
								column->width == 0 ? (void *) &var[column->slot] : slot))
			pack_null(column, layout, row, i);
	}
}

void
shuffle_pack_row(ShuffleTypeMap *map, const ShfRowLayout *layout, ShfRow *row, const Datum *values,
				 const bool *isnull)
{
	MemoryContext old;

	if (unlikely(map->pack_layout != layout))
		prepare_columns(map, layout);
	MemoryContextReset(map->row_cxt);
	if (unlikely(map->large_buffers))
		shuffle_pack_release(map);
	old = MemoryContextSwitchTo(map->row_cxt);
	if (likely(map->settings == 0))
		pack_columns(map, layout, row, values, isnull);
	else
	{
		ShuffleSavedSettings saved;

		shuffle_settings_begin(&saved, map->settings);
		PG_TRY();
		{
			pack_columns(map, layout, row, values, isnull);
		}
		PG_FINALLY();
		{
			shuffle_settings_end(&saved);
		}
		PG_END_TRY();
	}
	MemoryContextSwitchTo(old);
}
