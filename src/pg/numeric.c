/*
 * numeric.c
 *	  Conversion of PostgreSQL's stored numeric to Arrow's Decimal128 and text, and back.
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
 * Everything works on these digits, decimals in 64 bits as long as the value has at most
 * 19 decimal digits.  Numerics without a fixed scale become the text that numeric_out()
 * prints, which is short work from the digits and a long way through its functions.
 */
#include "postgres.h"

#include "numeric.h"
#include "shuffle.h"

#define NBASE			  10000
#define DIGIT_BYTES		  ((int) sizeof(int16))
#define SHORT_FORM		  SHUFFLE_NUMERIC_SHORT_FORM
#define SPECIAL_FORM	  0xC000
#define SHORT_NEGATIVE	  SHUFFLE_NUMERIC_SHORT_NEGATIVE
#define LONG_NEGATIVE	  0x4000
#define LONG_SCALE_MASK	  0x3FFF
#define SHORT_SCALE_MASK  0x3F
#define MINUS_INFINITY	  0xF000
#define PLUS_INFINITY	  0xD000
#define SHORT_SCALE_SHIFT SHUFFLE_NUMERIC_SHORT_SCALE_SHIFT
#define SHORT_WEIGHT_MASK SHUFFLE_NUMERIC_SHORT_WEIGHT_MASK
#define SHORT_WEIGHT_SIGN 0x0040

/* Decimal digits that always fit into an uint64. */
#define SAFE_DIGITS_64 19

/* Base-10000 digits of any int128: 39 decimal digits, up to two digits only in part used. */
#define MAX_DIGITS 12

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
	int16 digit;

	memcpy(&digit, p, sizeof(digit));
	return digit;
}

typedef struct StoredNumeric
{
	bool		negative;
	int			scale; /* display scale */
	int			weight;
	int			ndigits;
	const char *digits; /* unaligned */
} StoredNumeric;

/* False for NaN and infinities. */
static inline bool
read_numeric(const struct varlena *value, StoredNumeric *num)
{
	const char *p = VARDATA_ANY(value);
	int			bytes = (int) VARSIZE_ANY_EXHDR(value);
	uint16		header;

	memcpy(&header, p, sizeof(header));
	p += sizeof(header);
	bytes -= sizeof(header);
	if (header & SHORT_FORM)
	{
		if ((header & SPECIAL_FORM) == SPECIAL_FORM)
			return false;
		num->negative = (header & SHORT_NEGATIVE) != 0;
		num->scale = (header >> SHORT_SCALE_SHIFT) & SHORT_SCALE_MASK;
		num->weight = header & SHORT_WEIGHT_MASK;
		if (num->weight & SHORT_WEIGHT_SIGN)
			num->weight -= SHORT_WEIGHT_MASK + 1;
	}
	else
	{
		num->negative = (header & LONG_NEGATIVE) != 0;
		num->scale = header & LONG_SCALE_MASK;
		num->weight = load_digit(p);
		p += DIGIT_BYTES;
		bytes -= DIGIT_BYTES;
	}
	num->ndigits = bytes / DIGIT_BYTES;
	num->digits = p;
	return true;
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
	do \
	{ \
		int	 last = -decimal->whole; \
		type acc = 0; \
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
				unsigned digit = (unsigned) load_digit(p); \
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
	StoredNumeric num;
	const char	 *p;
	bool		  exact = true;
	int			  exponent;
	int			  ndigits;
	int			  total;

	if (!read_numeric(value, &num))
		return false;
	p = num.digits;
	ndigits = num.ndigits;
	exponent = num.weight;
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
		uint64 sum;

		ACCUMULATE(uint64, sum);
		*result = num.negative ? -(int128) sum : (int128) sum;
	}
	else
	{
		uint128 sum;

		ACCUMULATE(uint128, sum);
		*result = num.negative ? -(int128) sum : (int128) sum;
	}
	return exact;
}

Size
shuffle_numeric_from_decimal(void *dst, int128 value, const ShuffleDecimal *decimal)
{
	int16	digits[MAX_DIGITS]; /* least significant first */
	int		n = 0;
	int		first = 0;
	int		weight;
	bool	negative = value < 0;
	uint128 rest = negative ? -(uint128) value : (uint128) value;
	uint64	low;
	uint16	header;
	char   *p = (char *) dst + VARHDRSZ;
	Size	bytes;

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

/* Writes the four decimal digits of a base-10000 digit. */
static inline char *
put_four(char *p, int digit)
{
	p[0] = (char) ('0' + digit / 1000);
	p[1] = (char) ('0' + digit / 100 % 10);
	p[2] = (char) ('0' + digit / 10 % 10);
	p[3] = (char) ('0' + digit % 10);
	return p + 4;
}

char *
shuffle_numeric_to_text(const struct varlena *value, size_t *len)
{
	StoredNumeric num;
	char		 *text;
	char		 *p;
	char		 *end;

	if (!read_numeric(value, &num))
	{
		uint16 header;

		memcpy(&header, VARDATA_ANY(value), sizeof(header));
		text = pstrdup(header == PLUS_INFINITY		? "Infinity" :
						   header == MINUS_INFINITY ? "-Infinity" :
													  "NaN");
		*len = strlen(text);
		return text;
	}

#define DIGIT(i) ((i) >= 0 && (i) < num.ndigits ? load_digit(num.digits + (i) *DIGIT_BYTES) : 0)

	/* sign, digits before the point, point, whole digits behind it */
	text = p = palloc(1 + Max(num.weight + 1, 1) * 4 + 1 + num.scale + 4);
	if (num.negative)
		*p++ = '-';
	if (num.weight < 0)
		*p++ = '0';
	for (int i = 0; i <= num.weight; i++)
	{
		int digit = DIGIT(i);

		if (i == 0)
		{
			/* the first one without leading zeros */
			char four[4];
			int	 n = decimal_digits(digit);

			put_four(four, digit);
			memcpy(p, four + 4 - n, n);
			p += n;
		}
		else
			p = put_four(p, digit);
	}
	if (num.scale > 0)
	{
		*p++ = '.';
		end = p + num.scale;
		for (int i = num.weight + 1; p < end; i++)
			p = put_four(p, DIGIT(i));
		p = end;
	}
#undef DIGIT

	*len = (size_t) (p - text);
	return text;
}

/* Base-10000 digit of n <= 4 decimal digits; *valid is cleared if they are none. */
static inline int
parse_digits(const char *text, int n, bool *valid)
{
	int digit = 0;

	for (int i = 0; i < n; i++)
	{
		unsigned c = (unsigned char) text[i] - (unsigned) '0';

		if (c > 9)
			*valid = false;
		digit = digit * 10 + (int) c;
	}
	return digit;
}

Size
shuffle_numeric_from_text(void *dst, const char *text, size_t len)
{
	bool		negative = len > 0 && text[0] == '-';
	const char *whole = text + (negative ? 1 : 0);
	const char *end = text + len;
	const char *point = memchr(whole, '.', (size_t) (end - whole));
	const char *fraction = point != NULL ? point + 1 : end;
	size_t		nwhole = (size_t) ((point != NULL ? point : end) - whole);
	size_t		nfraction = (size_t) (end - fraction);
	bool		valid = true;
	char	   *digits = (char *) dst + VARHDRSZ + sizeof(uint16) + DIGIT_BYTES;
	char	   *p = digits;
	char	   *first = digits;
	char	   *to;
	int			weight;
	int			part;
	int16		digit;
	Size		bytes;

	/* digits on both sides of a point, within the limits of the type */
	if (nwhole == 0 || nwhole > 4 * (size_t) PG_INT16_MAX || nfraction > LONG_SCALE_MASK ||
		(point != NULL && nfraction == 0))
		return 0;

	weight = (int) ((nwhole + 3) / 4) - 1;
	part = (int) (nwhole - 4 * (size_t) weight);
	for (const char *s = whole; s < whole + nwhole; s += part, part = 4)
	{
		digit = (int16) parse_digits(s, part, &valid);
		memcpy(p, &digit, DIGIT_BYTES);
		p += DIGIT_BYTES;
	}
	for (const char *s = fraction; s < end; s += 4)
	{
		part = (int) Min(end - s, 4);
		digit = (int16) (parse_digits(s, part, &valid) * (int) pow10_small[4 - part]);
		memcpy(p, &digit, DIGIT_BYTES);
		p += DIGIT_BYTES;
	}
	if (!valid)
		return 0;

	while (first < p && load_digit(first) == 0)
	{
		first += DIGIT_BYTES;
		weight--;
	}
	while (p > first && load_digit(p - DIGIT_BYTES) == 0)
		p -= DIGIT_BYTES;
	if (p == first)
	{
		weight = 0;
		negative = false;
	}

	to = (char *) dst + VARHDRSZ;
	if (nfraction <= SHORT_SCALE_MASK && weight >= -SHORT_WEIGHT_SIGN && weight < SHORT_WEIGHT_SIGN)
	{
		uint16 header = (uint16) (SHORT_FORM | (negative ? SHORT_NEGATIVE : 0) |
								  (nfraction << SHORT_SCALE_SHIFT) | (weight & SHORT_WEIGHT_MASK));

		memcpy(to, &header, sizeof(header));
		to += sizeof(header);
	}
	else
	{
		uint16 header = (uint16) ((negative ? LONG_NEGATIVE : 0) | nfraction);
		int16  long_weight = (int16) weight;

		memcpy(to, &header, sizeof(header));
		memcpy(to + sizeof(header), &long_weight, sizeof(long_weight));
		to += sizeof(header) + sizeof(long_weight);
	}
	memmove(to, first, (size_t) (p - first));
	bytes = (Size) (to - (char *) dst) + (Size) (p - first);
	SET_VARSIZE(dst, bytes);
	return bytes;
}
