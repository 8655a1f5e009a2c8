/*
 * numeric.h
 *	  Conversion of PostgreSQL's stored numeric to Arrow's Decimal128 and text, and back.
 */
#ifndef SHUFFLE_NUMERIC_H
#define SHUFFLE_NUMERIC_H

#include "postgres.h"

#include "compat.h"

/* Header of a stored numeric in the short form; numeric.c describes all of it. */
#define SHUFFLE_NUMERIC_SHORT_FORM		  0x8000
#define SHUFFLE_NUMERIC_SHORT_NEGATIVE	  0x2000
#define SHUFFLE_NUMERIC_SHORT_SCALE_SHIFT 7
#define SHUFFLE_NUMERIC_SHORT_WEIGHT_MASK 0x007F

/* Decimal128(precision, scale) with what both directions need of it. */
typedef struct ShuffleDecimal
{
	int	   precision; /* 1..38 */
	int	   scale;	  /* 0..precision */
	int	   whole;	  /* base-10000 digits that lie completely behind the point */
	int	   partial;	  /* decimal digits of the one that does so in part, 0..3 */
	uint32 mul;		  /* 10^partial */
	uint32 div;		  /* 10^(4 - partial), 1 when partial is 0 */
} ShuffleDecimal;

/* Most bytes that shuffle_numeric_from_decimal() writes, for any int128; aligned. */
#define SHUFFLE_NUMERIC_MAX_BYTES 32

extern void shuffle_decimal_init(ShuffleDecimal *decimal, int precision, int scale);

/*
 * value (not compressed, not external, any header and alignment) times 10^scale.
 * False when that is not an integer of at most precision digits: NaN and infinities,
 * too many digits on either side of the point.
 */
extern bool shuffle_numeric_to_decimal(const struct varlena *value, const ShuffleDecimal *decimal,
									   int128 *result);

/*
 * Writes the numeric value * 10^-scale, with display scale = scale, as a varlena with a
 * 4-byte header at dst (4-byte aligned).  Returns its bytes.
 */
extern Size shuffle_numeric_from_decimal(void *dst, int128 value, const ShuffleDecimal *decimal);

/*
 * The same for a value of up to twelve decimal digits before those of the last base-10000
 * digit; 0, and nothing written, for others and on machines that are not little-endian.
 * Touches up to 16 bytes at dst.
 *
 * All four base-10000 digits are made, in the byte order of memory in one word, which is
 * then cut to what lies between its zeros at both ends.  Branches depend on the size of
 * the value only, which the values of a column mostly share.
 */
static inline Size
shuffle_numeric_from_small(char *dst, int128 value, const ShuffleDecimal *decimal)
{
#ifdef WORDS_BIGENDIAN
	return 0;
#else
	int64	 low = (int64) value;
	uint64	 rest = low < 0 ? -(uint64) low : (uint64) low;
	uint64	 last;
	uint64	 digits;
	unsigned first; /* how many zero bits come before the first digit */
	unsigned bytes;
	int		 weight = (decimal->partial > 0 ? 2 : 3) - decimal->whole; /* of the first of four */
	uint16	 header;

	if ((int64) (value >> 64) != (low >> 63))
		return 0;

	/* divisions by constants */
	switch (decimal->partial)
	{
		case 0:
			last = rest % 10000;
			rest /= 10000;
			break;
		case 1:
			last = rest % 10 * 1000;
			rest /= 10;
			break;
		case 2:
			last = rest % 100 * 100;
			rest /= 100;
			break;
		default:
			last = rest % 1000 * 10;
			rest /= 1000;
			break;
	}
	digits = last << 48;
	if (rest < 10000)
		digits |= rest << 32;
	else if (rest < UINT64CONST(1000000000000))
		digits |= rest / 100000000 | rest / 10000 % 10000 << 16 | rest % 10000 << 32;
	else
		return 0;

	/* A zero has no digits and weight 0. */
	first = (unsigned) __builtin_ctzll(digits | UINT64CONST(1) << 63) & ~15U;
	bytes = VARHDRSZ + sizeof(header) + 4 * sizeof(int16) - first / 8 -
		(unsigned) __builtin_clzll(digits | 1) / 16 * sizeof(int16);
	weight -= (int) (first / 16);
	bytes = digits == 0 ? VARHDRSZ + sizeof(header) : bytes;
	weight = digits == 0 ? 0 : weight;

	digits >>= first;
	header = (uint16) (SHUFFLE_NUMERIC_SHORT_FORM | (low < 0 ? SHUFFLE_NUMERIC_SHORT_NEGATIVE : 0) |
					   decimal->scale << SHUFFLE_NUMERIC_SHORT_SCALE_SHIFT |
					   (weight & SHUFFLE_NUMERIC_SHORT_WEIGHT_MASK));
	SET_VARSIZE(dst, bytes);
	memcpy(dst + VARHDRSZ, &header, sizeof(header));
	memcpy(dst + VARHDRSZ + sizeof(header), &digits, sizeof(digits));
	return bytes;
#endif
}

/* What numeric_out() prints; palloc'd, not terminated. */
extern char *shuffle_numeric_to_text(const struct varlena *value, size_t *len);

/*
 * Most bytes that shuffle_numeric_from_text() touches for len bytes of text, padding to the
 * next value included.
 */
#define SHUFFLE_NUMERIC_TEXT_BYTES(len) ((len) / 2 + 16)

/*
 * Writes the numeric that numeric_in() makes of text, with a 4-byte header, at dst (4-byte
 * aligned).  Returns its bytes, or 0 for what is not a plain decimal number (NaN,
 * infinities, anything foreign): that is left to numeric_in().
 */
extern Size shuffle_numeric_from_text(void *dst, const char *text, size_t len);

#endif /* SHUFFLE_NUMERIC_H */
