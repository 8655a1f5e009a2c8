/*
 * numeric.c
 *	  Conversion between PostgreSQL's stored numeric and Arrow's Decimal128.
 *
 * The stored form of a numeric has been the same since 9.1 and cannot change while
 * pg_upgrade works, but no header shows it to extensions, so it is described here
 * (src/backend/utils/adt/numeric.c of the server is the source).  Behind the varlena
 * header lie, in host byte order:
 *
 *	  uint16 header
 *		11........ ......  NaN or an infinity, nothing follows
 *		10sDDDDD Dwwwwwww  short form: sign, display scale (6 bits), weight (7, signed)
 *		0s...... ......    long form: sign, display scale (14); int16 weight follows
 *	  int16 digits[]	   base 10000, most significant first
 *
 * value = sum of digits[i] * 10000^(weight - i).  The server strips leading and trailing
 * zero digits; zero has none.
 *
 * Both directions work on the digits, in 64 bits as long as the value has at most 19
 * decimal digits: no text form, no NumericVar.
 */
#include "postgres.h"

#include "shuffle.h"
#include "numeric.h"

#define NBASE				10000
#define DIGIT_BYTES			((int) sizeof(int16))
#define SHORT_FORM			0x8000
#define SPECIAL_FORM		0xC000
#define SHORT_NEGATIVE		0x2000
#define LONG_NEGATIVE		0x4000
#define SHORT_SCALE_SHIFT	7
#define SHORT_WEIGHT_MASK	0x007F
#define SHORT_WEIGHT_SIGN	0x0040

/* Decimal digits that always fit into an uint64. */
#define SAFE_DIGITS_64		19

/* Base-10000 digits of any int128: 39 decimal digits, up to two digits only in part used. */
#define MAX_DIGITS			12

static const uint32 pow10_small[] = {1, 10, 100, 1000, 10000};

void
shuffle_decimal_init(ShuffleDecimal *decimal, int precision, int scale)
{
	Assert(precision >= 1 && precision <= 38 && scale >= 0 && scale <= precision);

	decimal->precision = precision;
	decimal->scale = scale;
	decimal->whole = scale / 4;
	decimal->partial = scale % 4;
	decimal->mul = pow10_small[decimal->partial];
	decimal->div = decimal->partial == 0 ? 1 : pow10_small[4 - decimal->partial];
}

static inline int
load_digit(const char *p)
{
	int16		digit;

	memcpy(&digit, p, sizeof(digit));
	return digit;
}

static inline int
decimal_digits(int digit)
{
	return digit >= 100 ? (digit >= 1000 ? 4 : 3) : (digit >= 10 ? 2 : 1);
}

/*
 * Accumulates ndigits digits at p, the first of exponent "exponent" (base 10000), scaled
 * by 10^scale, in the given unsigned type.  The caller has made sure that it cannot
 * overflow.  Leaves exact false when digits behind the scale are not zero.
 */
#define ACCUMULATE(type, sum) \
do { \
	int			last = -decimal->whole; \
	type		acc = 0; \
	for (; ndigits > 0 && exponent >= last; ndigits--, exponent--, p += DIGIT_BYTES) \
		acc = acc * NBASE + (unsigned) load_digit(p); \
	for (; exponent >= last; exponent--) \
		acc *= NBASE; \
	if (decimal->partial > 0) \
	{ \
		acc *= decimal->mul; \
		/* digits begin further behind the point when exponent < last - 1 */ \
		if (ndigits > 0 && exponent == last - 1) \
		{ \
			unsigned	digit = (unsigned) load_digit(p); \
			acc += digit / decimal->div; \
			exact = digit % decimal->div == 0; \
			ndigits--; \
			p += DIGIT_BYTES; \
		} \
	} \
	for (; ndigits > 0; ndigits--, p += DIGIT_BYTES) \
		exact = exact && load_digit(p) == 0; \
	(sum) = acc; \
} while (0)

bool
shuffle_numeric_to_decimal(const struct varlena *value, const ShuffleDecimal *decimal,
						   int128 *result)
{
	const char *p = VARDATA_ANY(value);
	int			bytes = (int) VARSIZE_ANY_EXHDR(value);
	uint16		header;
	bool		negative;
	bool		exact = true;
	int			exponent;
	int			ndigits;
	int			total;

	memcpy(&header, p, sizeof(header));
	p += sizeof(header);
	bytes -= sizeof(header);
	if (header & SHORT_FORM)
	{
		if ((header & SPECIAL_FORM) == SPECIAL_FORM)
			return false;
		negative = (header & SHORT_NEGATIVE) != 0;
		exponent = header & SHORT_WEIGHT_MASK;
		if (exponent & SHORT_WEIGHT_SIGN)
			exponent -= SHORT_WEIGHT_MASK + 1;
	}
	else
	{
		negative = (header & LONG_NEGATIVE) != 0;
		exponent = load_digit(p);
		p += DIGIT_BYTES;
		bytes -= DIGIT_BYTES;
	}

	ndigits = bytes / DIGIT_BYTES;
	while (ndigits > 0 && load_digit(p) == 0)
	{
		p += DIGIT_BYTES;
		ndigits--;
		exponent--;
	}
	if (ndigits == 0)
	{
		*result = 0;
		return true;
	}

	/* Decimal digits of the scaled value: exactly so many, as the first is not 0. */
	total = exponent * 4 + decimal_digits(load_digit(p)) + decimal->scale;
	if (total > decimal->precision)
		return false;

	if (total <= SAFE_DIGITS_64)
	{
		uint64		sum;

		ACCUMULATE(uint64, sum);
		*result = negative ? -(int128) sum : (int128) sum;
	}
	else
	{
		uint128		sum;

		ACCUMULATE(uint128, sum);
		*result = negative ? -(int128) sum : (int128) sum;
	}
	return exact;
}

Size
shuffle_numeric_from_decimal(void *dst, int128 value, const ShuffleDecimal *decimal)
{
	int16		digits[MAX_DIGITS]; /* least significant first */
	int			n = 0;
	int			first = 0;
	int			weight;
	bool		negative = value < 0;
	uint128		rest = negative ? -(uint128) value : (uint128) value;
	uint64		low;
	uint16		header;
	char	   *p = (char *) dst + VARHDRSZ;
	Size		bytes;

	StaticAssertStmt(VARHDRSZ + sizeof(header) + sizeof(digits) <= SHUFFLE_NUMERIC_MAX_BYTES,
					 "bound of a numeric made from a decimal");

	/* The digit that lies behind the point in part. */
	if (decimal->partial > 0)
	{
		if (rest <= PG_UINT64_MAX)
		{
			low = (uint64) rest;
			digits[n++] = (int16) (low % decimal->mul * decimal->div);
			rest = low / decimal->mul;
		}
		else
		{
			digits[n++] = (int16) ((uint32) (rest % decimal->mul) * decimal->div);
			rest /= decimal->mul;
		}
	}
	while (rest > PG_UINT64_MAX)
	{
		const uint64 four_digits = UINT64CONST(10000000000000000);

		low = (uint64) (rest % four_digits);
		rest /= four_digits;
		for (int i = 0; i < 4; i++, low /= NBASE)
			digits[n++] = (int16) (low % NBASE);
	}
	for (low = (uint64) rest; low > 0; low /= NBASE)
		digits[n++] = (int16) (low % NBASE);

	/* The top one may be a zero of the loops above when all of rest was used up. */
	while (n > 0 && digits[n - 1] == 0)
		n--;
	while (first < n && digits[first] == 0)
		first++;

	weight = n == 0 ? 0 : n - 1 - decimal->whole - (decimal->partial > 0 ? 1 : 0);
	header = (uint16) (SHORT_FORM | (negative ? SHORT_NEGATIVE : 0) |
					   (decimal->scale << SHORT_SCALE_SHIFT) | (weight & SHORT_WEIGHT_MASK));
	memcpy(p, &header, sizeof(header));
	p += sizeof(header);
	while (n > first)
	{
		memcpy(p, &digits[--n], DIGIT_BYTES);
		p += DIGIT_BYTES;
	}
	bytes = p - (char *) dst;
	SET_VARSIZE(dst, bytes);
	return bytes;
}
