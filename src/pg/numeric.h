/*
 * numeric.h
 *	  Conversion of PostgreSQL's stored numeric to Arrow's Decimal128 and text, and back.
 */
#ifndef SHUFFLE_NUMERIC_H
#define SHUFFLE_NUMERIC_H

#include "postgres.h"

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
