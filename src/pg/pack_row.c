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

/* Powers of ten that short decimals are multiplied with, and what that is safe for. */
#define MAX_POWER		 18
#define MAX_TOP_EXPONENT 14 /* 9999 * 10^14 and what follows is below 2^63 */
#define MAX_SHORT_DIGITS 8

/* In the order in which they are done: one tight loop for the columns of each. */
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
	PACK_ANY,
	PACK_NSTEPS
} PackStep;

typedef struct PackColumn
{
	int16  att;	   /* index of its value */
	int16  column; /* of the map */
	uint32 slot;   /* offset in ShfRow.fixed, or index in ShfRow.var */
	uint32 width;  /* of the slot; 0: variable */
	bool   narrow; /* a decimal of 8 bytes */
	int	   scale;  /* PACK_DECIMAL */
	int64  limit;  /* PACK_DECIMAL: 10^precision, or more than any sum */
} PackColumn;

struct ShufflePackPlan
{
	int		   end[PACK_NSTEPS]; /* of the columns of each step; they begin where the last ends */
	PackColumn columns[FLEXIBLE_ARRAY_MEMBER];
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

/* What a digit is multiplied with, and shifted right by 32, to divide it by 10^i. */
static const uint64 reciprocals[4] = {UINT64CONST(1) << 32, 429496730, 42949673, 4294968};

static pg_noinline void
prepare_columns(ShuffleTypeMap *map, const ShfRowLayout *layout)
{
	ShufflePackPlan *plan;
	int				 n = 0;

	if (map->pack_plan != NULL)
		pfree(map->pack_plan);
	plan = MemoryContextAllocZero(GetMemoryChunkContext(map),
								  offsetof(ShufflePackPlan, columns) +
									  sizeof(PackColumn) * map->ncolumns);
	for (int step = 0; step < PACK_NSTEPS; step++)
	{
		for (int i = 0; i < map->ncolumns; i++)
		{
			const ShuffleNode *node = &map->columns[i];
			PackColumn		  *column = &plan->columns[n];
			bool			   variable = layout->var[i] >= 0;

			if (step_of(node) != (PackStep) step)
				continue;
			column->att = node->attnum - 1;
			column->column = i;
			column->slot = variable ? (uint32) layout->var[i] : layout->slot[i];
			column->width = variable ? 0 : layout->width[i];
			if (step == PACK_DECIMAL)
			{
				int precision = node->decimal.precision;

				column->narrow = column->width == sizeof(int64);
				column->scale = node->decimal.scale;
				column->limit = precision <= MAX_POWER ? powers[precision] : PG_INT64_MAX;
			}
			n++;
		}
		plan->end[step] = n;
	}
	map->pack_plan = plan;
	map->pack_layout = layout;
}

/*
 * A numeric of a few digits, with the short header.  False when it is anything else, or
 * has no exact form: see shuffle_numeric_to_decimal() for the format and for those.
 */
static pg_attribute_always_inline bool
short_decimal(const PackColumn *column, Datum value, int64 *result)
{
	const struct varlena *numeric = (const struct varlena *) DatumGetPointer(value);
	const char			 *p;
	int					  bytes;
	uint16				  header;
	int					  ndigits;
	int					  exponent;
	int64				  sum = 0;

	if (likely(VARATT_IS_1B(numeric)))
	{
		if (unlikely(VARATT_IS_1B_E(numeric)))
			return false;
		p = VARDATA_1B(numeric);
		bytes = (int) VARSIZE_1B(numeric) - VARHDRSZ_SHORT;
	}
	else
	{
		if (unlikely(!VARATT_IS_4B_U(numeric)))
			return false;
		p = VARDATA_4B(numeric);
		bytes = (int) VARSIZE_4B(numeric) - VARHDRSZ;
	}
	memcpy(&header, p, sizeof(header));
	p += sizeof(header);
	ndigits = (bytes - (int) sizeof(header)) / (int) sizeof(int16);

	/* 10sDDDDD Dwwwwwww: the weight is signed */
	if (unlikely((header & 0xC000) != 0x8000 || ndigits > MAX_SHORT_DIGITS))
		return false;
	exponent = 4 * (((header & 0x7F) ^ 0x40) - 0x40) + column->scale;
	if (unlikely(exponent > MAX_TOP_EXPONENT))
		return false;
	for (; ndigits > 0; ndigits--, exponent -= 4, p += sizeof(int16))
	{
		uint16 digit;

		memcpy(&digit, p, sizeof(digit));
		if (exponent >= 0)
			sum += digit * powers[exponent];
		else
		{
			/* the last one that counts: part of it lies behind the scale, as zeros */
			int64 whole;

			if (unlikely(exponent <= -4))
				return false;
			whole = (int64) (digit * reciprocals[-exponent] >> 32);
			if (unlikely(whole * powers[-exponent] != digit))
				return false;
			sum += whole;
		}
	}
	if (unlikely(sum >= column->limit))
		return false;
	*result = header & 0x2000 ? -sum : sum;
	return true;
}

/* The bytes of a value that is neither compressed nor out of line. */
static pg_attribute_always_inline bool
plain_bytes(Datum value, ShfBytes *bytes)
{
	const struct varlena *varlena = (const struct varlena *) DatumGetPointer(value);

	if (likely(VARATT_IS_1B(varlena)))
	{
		if (unlikely(VARATT_IS_1B_E(varlena)))
			return false;
		bytes->data = VARDATA_1B(varlena);
		bytes->len = VARSIZE_1B(varlena) - VARHDRSZ_SHORT;
	}
	else
	{
		if (unlikely(!VARATT_IS_4B_U(varlena)))
			return false;
		bytes->data = VARDATA_4B(varlena);
		bytes->len = VARSIZE_4B(varlena) - VARHDRSZ;
	}
	return true;
}

/* ---------------------------------------------------------------- columns of a row */

static pg_noinline void
pack_null(const PackColumn *column, const ShfRowLayout *layout, ShfRow *row)
{
	if (column->width == 0)
		memset(&row->var[column->slot], 0, sizeof(ShfBytes));
	else
		memset(row->fixed + column->slot, 0, column->width);
	shf_row_set_null(layout, row, column->column);
}

/* Whatever is not a usual value of a usual type; what it allocates is the row's. */
static pg_noinline void
pack_slowly(ShuffleTypeMap *map, const PackColumn *column, const ShfRowLayout *layout, ShfRow *row,
			Datum value)
{
	void		 *slot = row->fixed + column->slot;
	int128		  decimal;
	MemoryContext old = MemoryContextSwitchTo(map->row_cxt);

	map->row_cxt_used = true;
	if (column->width == 0)
		slot = &row->var[column->slot];
	else if (column->narrow)
		slot = &decimal;
	*map->nulled = false;
	if (!shuffle_pack_value(map, column->column, value, slot))
	{
		pack_null(column, layout, row);
		map->nulled_whole = bms_add_member(map->nulled_whole, column->att);
	}
	else
	{
		if (column->narrow)
			memcpy(row->fixed + column->slot, &decimal, column->width);
		if (unlikely(*map->nulled))
			map->nulled_inside = bms_add_member(map->nulled_inside, column->att);
	}
	MemoryContextSwitchTo(old);
}

/* The value of the column at hand, and its place in the fixed part of the row. */
#define VALUE (values[column->att])
#define SLOT  (fixed + column->slot)

#define STORE(at, type, value) \
	do \
	{ \
		type v_ = (value); \
		memcpy(at, &v_, sizeof(v_)); \
	} while (0)

/* Heads a statement that is executed for each column of a step whose value is not NULL. */
#define FOR_COLUMNS_OF(step) \
	for (const PackColumn *end = plan->columns + plan->end[step]; column < end; column++) \
		if (unlikely(isnull[column->att])) \
			pack_null(column, layout, row); \
		else

static void
pack_columns(ShuffleTypeMap *map, const ShfRowLayout *layout, ShfRow *row, const Datum *values,
			 const bool *isnull)
{
	const ShufflePackPlan *plan = map->pack_plan;
	const PackColumn	  *column = plan->columns;
	uint8_t				  *fixed = row->fixed;
	ShfBytes			  *var = row->var;

	shf_row_begin(layout, row);

	FOR_COLUMNS_OF(PACK_1)
	{
		*SLOT = (uint8_t) DatumGetChar(VALUE);
	}
	FOR_COLUMNS_OF(PACK_2)
	{
		STORE(SLOT, int16, DatumGetInt16(VALUE));
	}
	FOR_COLUMNS_OF(PACK_4)
	{
		STORE(SLOT, int32, DatumGetInt32(VALUE));
	}
	FOR_COLUMNS_OF(PACK_8)
	{
		STORE(SLOT, int64, DatumGetInt64(VALUE));
	}
	FOR_COLUMNS_OF(PACK_DATE)
	{
		DateADT date = DatumGetDateADT(VALUE);

		if (unlikely(DATE_NOT_FINITE(date)))
			pack_slowly(map, column, layout, row, VALUE);
		else
			STORE(SLOT, int32, date + UNIX_EPOCH_DAYS);
	}
	FOR_COLUMNS_OF(PACK_TIMESTAMP)
	{
		Timestamp ts = DatumGetTimestamp(VALUE);

		if (unlikely(TIMESTAMP_NOT_FINITE(ts) || pg_add_s64_overflow(ts, UNIX_EPOCH_US, &ts)))
			pack_slowly(map, column, layout, row, VALUE);
		else
			STORE(SLOT, int64, ts);
	}
	FOR_COLUMNS_OF(PACK_DECIMAL)
	{
		int64 decimal;

		if (unlikely(!short_decimal(column, VALUE, &decimal)))
			pack_slowly(map, column, layout, row, VALUE);
		else
		{
			STORE(SLOT, int64, decimal);
			if (!column->narrow)
				STORE(SLOT + sizeof(int64), int64, decimal >> 63);
		}
	}
	FOR_COLUMNS_OF(PACK_TEXT)
	{
		ShfBytes bytes;

		/* ASCII is valid in UTF-8 as in every server encoding */
		if (unlikely(!plain_bytes(VALUE, &bytes) || !shuffle_is_ascii(bytes.data, bytes.len)))
			pack_slowly(map, column, layout, row, VALUE);
		else
			var[column->slot] = bytes;
	}
	FOR_COLUMNS_OF(PACK_BYTES)
	{
		if (unlikely(!plain_bytes(VALUE, &var[column->slot])))
			pack_slowly(map, column, layout, row, VALUE);
	}
	FOR_COLUMNS_OF(PACK_ANY)
	{
		pack_slowly(map, column, layout, row, VALUE);
	}
}

void
shuffle_pack_row(ShuffleTypeMap *map, const ShfRowLayout *layout, ShfRow *row, const Datum *values,
				 const bool *isnull)
{
	if (unlikely(map->pack_layout != layout))
		prepare_columns(map, layout);
	if (map->row_cxt_used)
	{
		MemoryContextReset(map->row_cxt);
		map->row_cxt_used = false;
		map->nulled_whole = map->nulled_inside = NULL;
		if (unlikely(map->large_buffers))
			shuffle_pack_release(map);
	}
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
}
