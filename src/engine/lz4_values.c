/*
 * lz4_values.c
 *	  See lz4_values.h.
 *
 * An LZ4 block is a list of sequences: a token (4 bits literal count, 4 bits match length
 * - 4; 15 means that bytes follow that are added up to and with the first below 255),
 * literals, a 16-bit little-endian distance.  The last sequence has literals only; a
 * match may not begin in the last 12 bytes nor reach into the last 5.
 *
 * Two tables give, by hash, the last value that was the same, and the last whose high
 * bytes were the same, from the highest one that is more than sign on.  Of decimals below
 * 2^24, for example, two bytes remain as literals, and 14 are a match.  Entries are
 * numbered on from buffer to buffer: those of earlier buffers are recognised by being
 * below the current base, so that nothing has to be cleared.
 */
#include "lz4_values.h"

#include <stdbool.h>

#include "bytes.h"

#define MIN_MATCH	 4
#define MATCH_MARGIN 12
#define MAX_DISTANCE 65535

/* Wild copies of short literals write so many bytes. */
#define LITERAL_CHUNK 16

/* Numbers of values must not wrap around within a buffer. */
#define MAX_BASE (UINT32_C(1) << 31)

static inline uint8_t *
put_length(uint8_t *op, size_t rest)
{
	for (; rest >= 255; rest -= 255)
		*op++ = 255;
	*op++ = (uint8_t) rest;
	return op;
}

/* The low bytes of a value; those of a 16-byte one are its low half. */
static inline uint64_t
load_low(const uint8_t *p, const unsigned width)
{
	return width == 4 ? shf_load32(p) : shf_load64(p);
}

static inline bool
same_value(const uint8_t *a, const uint8_t *b, const unsigned width)
{
	if (width == 16)
		return ((shf_load64(a) ^ shf_load64(b)) | (shf_load64(a + 8) ^ shf_load64(b + 8))) == 0;
	return load_low(a, width) == load_low(b, width);
}

static inline uint32_t
hash_value(uint64_t low, const unsigned width)
{
	if (width == 4)
		return ((uint32_t) low * 2654435761u) >> (32 - SHF_LZ4_VALUE_BITS);
	return (uint32_t) ((low * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - SHF_LZ4_VALUE_BITS));
}

/*
 * How many low bytes of a value are in front of its tail: as many as are below the highest
 * one that is more than sign, at least 1 and at most 4.
 */
static inline unsigned
tail_begin(uint64_t low)
{
	uint64_t bits = (low ^ (uint64_t) ((int64_t) low >> 63)) | 1;
	unsigned highest = (unsigned) (63 - __builtin_clzll(bits)) / 8;

	return highest == 0 ? 1 : (highest < 4 ? highest : 4);
}

static inline __attribute__((always_inline)) size_t
compress_values(ShfLz4Values *state, const uint8_t *src, const size_t len, const unsigned width,
				uint8_t *dst, const size_t cap)
{
	const uint32_t max_steps = MAX_DISTANCE / width;
	const uint32_t base = state->base;
	const uint8_t *anchor = src; /* first byte that is not written yet */
	const uint32_t n = len < width + MATCH_MARGIN ?
		0 :
		(uint32_t) ((len - MATCH_MARGIN) / width); /* values that may be part of a match */
	uint8_t		  *op = dst;
	uint8_t		  *end = dst + cap;
	uint32_t	   i = 0;
	size_t		   literals;

	state->base = base + n + 1;
	while (i < n)
	{
		const uint8_t *value = src + (size_t) i * width;
		const uint8_t *from = value;
		const uint8_t *to;
		const uint64_t low = load_low(value, width);
		uint32_t	  *entry = &state->values[hash_value(low, width)];
		uint32_t	   steps = base + i - *entry;
		size_t		   distance;
		size_t		   length;

		/* An entry of this buffer is at most i steps back. */
		*entry = base + i;
		if (steps > i || steps > max_steps ||
			!same_value(value, value - (size_t) steps * width, width))
		{
			unsigned skip;
			uint64_t tail;

			if (width == 4)
			{
				i++;
				continue;
			}
			skip = tail_begin(low);
			tail = low >> (8 * skip);
			entry = &state->tails[((uint32_t) (tail ^ tail >> 32) * 8 + skip) * 2654435761u >>
								  (32 - SHF_LZ4_TAIL_BITS)];
			steps = base + i - *entry;
			*entry = base + i;
			if (steps > i || steps > max_steps ||
				shf_load64(value - (size_t) steps * width) >> (8 * skip) != tail ||
				(width == 16 &&
				 shf_load64(value + 8) != shf_load64(value + 8 - (size_t) steps * width)))
			{
				i++;
				continue;
			}
			from += skip;
		}

		/* Forward value by value, then back into literals. */
		distance = (size_t) steps * width;
		i++;
		while (i < n &&
			   same_value(src + (size_t) i * width, src + (size_t) i * width - distance, width))
			i++;
		to = src + (size_t) i * width;
		while (from > anchor && from - src > (ptrdiff_t) distance &&
			   from[-1] == from[-1 - (ptrdiff_t) distance])
			from--;
		literals = (size_t) (from - anchor);
		length = (size_t) (to - from) - MIN_MATCH;

		/* Room for token, literals, both lengths, distance, and for what is copied too much. */
		if ((size_t) (end - op) < literals + literals / 255 + length / 255 + 8 + LITERAL_CHUNK)
			return 0;
		if (literals < 15)
		{
			/* there are so many bytes behind every place where a match begins */
			*op++ = (uint8_t) (literals << 4 | (length < 15 ? length : 15));
			memcpy(op, anchor, LITERAL_CHUNK);
		}
		else
		{
			*op++ = (uint8_t) (0xF0 | (length < 15 ? length : 15));
			op = put_length(op, literals - 15);
			memcpy(op, anchor, literals);
		}
		op += literals;
		*op++ = (uint8_t) distance;
		*op++ = (uint8_t) (distance >> 8);
		if (length >= 15)
			op = put_length(op, length - 15);
		anchor = to;
	}
	literals = (size_t) (src + len - anchor);
	if ((size_t) (end - op) < literals + literals / 255 + 2)
		return 0;
	if (literals < 15)
		*op++ = (uint8_t) (literals << 4);
	else
	{
		*op++ = 0xF0;
		op = put_length(op, literals - 15);
	}
	memcpy(op, anchor, literals);
	return (size_t) (op + literals - dst);
}

size_t
shf_lz4_values(ShfLz4Values *state, const uint8_t *src, size_t len, unsigned width, uint8_t *dst,
			   size_t cap)
{
	/* Entry 0 of a zeroed table must not look like one of this buffer. */
	if (state->base >= MAX_BASE)
		memset(state, 0, sizeof(*state));
	if (state->base == 0)
		state->base = 1;
	switch (width)
	{
		case 4:
			return compress_values(state, src, len, 4, dst, cap);
		case 8:
			return compress_values(state, src, len, 8, dst, cap);
		default:
			return compress_values(state, src, len, 16, dst, cap);
	}
}
