/*
 * lz4_values.h
 *	  LZ4 blocks made from arrays of fixed-width values.
 *
 * A general LZ4 compressor looks for matches byte by byte.  In an Arrow buffer of 4-, 8-
 * or 16-byte values nearly all worthwhile matches begin at a value, or at the highest
 * byte of one that is not zero, so one or two look-ups per value find them: two to five
 * times as fast, with blocks of about the same size.  The result is an ordinary LZ4
 * block.
 */
#ifndef SHF_LZ4_VALUES_H
#define SHF_LZ4_VALUES_H

#include <stddef.h>
#include <stdint.h>

#define SHF_LZ4_VALUE_BITS 12
#define SHF_LZ4_TAIL_BITS  10

/* Where values were seen last.  Zeroed before its first use, then kept. */
typedef struct ShfLz4Values
{
	uint32_t base;							  /* number of the current buffer's first value */
	uint32_t values[1 << SHF_LZ4_VALUE_BITS]; /* by hash of the whole value */
	uint32_t tails[1 << SHF_LZ4_TAIL_BITS];	  /* by hash of its high bytes */
} ShfLz4Values;

/*
 * Compresses len bytes, values of width 4, 8 or 16, into one independent LZ4 block at
 * dst.  Returns its bytes, or 0 when it would not fit into cap; up to cap bytes of dst
 * are overwritten in any case.  len at most 1 GB.
 */
extern size_t shf_lz4_values(ShfLz4Values *state, const uint8_t *src, size_t len, unsigned width,
							 uint8_t *dst, size_t cap);

#endif
