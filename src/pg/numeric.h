/*
 * numeric.h
 *	  Conversion between PostgreSQL's stored numeric and Arrow's Decimal128.
 */
#ifndef SHUFFLE_NUMERIC_H
#define SHUFFLE_NUMERIC_H

#include "postgres.h"

/* Decimal128(precision, scale) with what both directions need of it. */
typedef struct ShuffleDecimal
{
	int			precision;		/* 1..38 */
	int			scale;			/* 0..precision */
	int			whole;			/* base-10000 digits that lie completely behind the point */
	int			partial;		/* decimal digits of the one that does so in part, 0..3 */
	uint32		mul;			/* 10^partial */
	uint32		div;			/* 10^(4 - partial), 1 when partial is 0 */
} ShuffleDecimal;

/* Most bytes that shuffle_numeric_from_decimal() writes, for any int128; aligned. */
#define SHUFFLE_NUMERIC_MAX_BYTES	32

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

#endif							/* SHUFFLE_NUMERIC_H */
