/*
 * crc32c.c
 *	  CRC-32C in hardware, three lanes at a time, with a table-driven fallback.
 *
 * Polynomials are bit-reflected as usual for CRCs: bit 31 is the coefficient of x^0.
 * The crc32 instruction has a latency of three cycles and a throughput of one, so
 * three independent stretches of the input are summed at once and joined afterwards:
 * moving a register over n more bytes is a multiplication by x^(8n) mod P, done with
 * one carry-less multiplication.
 *
 * Nothing is computed at start-up.  CRC tables are linear in their index, so the
 * fallback's eight tables are constant expressions over eight values each.
 */
#include "crc32c.h"

#include "bytes.h"

#define POLY 0x82F63B78u /* Castagnoli, reflected */

/* ---------------------------------------------------------------- tables */

#define BIT(i, b, v) (((i) >> (b)) & 1 ? (v) : 0u)
#define ENTRY(i, v0, v1, v2, v3, v4, v5, v6, v7) \
	(BIT(i, 0, v0) ^ BIT(i, 1, v1) ^ BIT(i, 2, v2) ^ BIT(i, 3, v3) ^ BIT(i, 4, v4) ^ \
	 BIT(i, 5, v5) ^ BIT(i, 6, v6) ^ BIT(i, 7, v7))
#define ROW4(i, ...) \
	ENTRY(i, __VA_ARGS__), ENTRY((i) + 1, __VA_ARGS__), ENTRY((i) + 2, __VA_ARGS__), \
		ENTRY((i) + 3, __VA_ARGS__)
#define ROW16(i, ...) \
	ROW4(i, __VA_ARGS__), ROW4((i) + 4, __VA_ARGS__), ROW4((i) + 8, __VA_ARGS__), \
		ROW4((i) + 12, __VA_ARGS__)
#define ROW64(i, ...) \
	ROW16(i, __VA_ARGS__), ROW16((i) + 16, __VA_ARGS__), ROW16((i) + 32, __VA_ARGS__), \
		ROW16((i) + 48, __VA_ARGS__)
#define TABLE(...) \
	{ \
		ROW64(0, __VA_ARGS__), ROW64(64, __VA_ARGS__), ROW64(128, __VA_ARGS__), \
			ROW64(192, __VA_ARGS__) \
	}

/* slices[k][b]: the register after byte b and k zero bytes, starting from 0. */
static const uint32_t slices[8][256] = {
	TABLE(0xF26B8303, 0xE13B70F7, 0xC79A971F, 0x8AD958CF, 0x105EC76F, 0x20BD8EDE, 0x417B1DBC,
		  0x82F63B78),
	TABLE(0x13A29877, 0x274530EE, 0x4E8A61DC, 0x9D14C3B8, 0x3FC5F181, 0x7F8BE302, 0xFF17C604,
		  0xFBC3FAF9),
	TABLE(0xA541927E, 0x4F6F520D, 0x9EDEA41A, 0x38513EC5, 0x70A27D8A, 0xE144FB14, 0xC76580D9,
		  0x8B277743),
	TABLE(0xDD45AAB8, 0xBF672381, 0x7B2231F3, 0xF64463E6, 0xE964B13D, 0xD725148B, 0xABA65FE7,
		  0x52A0C93F),
	TABLE(0x38116FAC, 0x7022DF58, 0xE045BEB0, 0xC5670B91, 0x8F2261D3, 0x1BA8B557, 0x37516AAE,
		  0x6EA2D55C),
	TABLE(0xEF306B19, 0xDB8CA0C3, 0xB2F53777, 0x6006181F, 0xC00C303E, 0x85F4168D, 0x0E045BEB,
		  0x1C08B7D6),
	TABLE(0x68032CC8, 0xD0065990, 0xA5E0C5D1, 0x4E2DFD53, 0x9C5BFAA6, 0x3D5B83BD, 0x7AB7077A,
		  0xF56E0EF4),
	TABLE(0x493C7D27, 0x9278FA4E, 0x211D826D, 0x423B04DA, 0x847609B4, 0x0D006599, 0x1A00CB32,
		  0x34019664),
};

/*
 * shift_bytes[k] = x^(8 * 2^k) mod P.  P is (x + 1) times a primitive polynomial of
 * degree 31, so x^(2^31) = x and the sequence repeats with period 31.
 */
static const uint32_t shift_bytes[31] = {
	0x00800000, 0x00008000, 0x82F63B78, 0x6EA2D55C, 0x18B8EA18, 0x510AC59A, 0xB82BE955, 0xB8FDB1E7,
	0x88E56F72, 0x74C360A4, 0xE4172B16, 0x0D65762A, 0x35D73A62, 0x28461564, 0xBF455269, 0xE2EA32DC,
	0xFE7740E6, 0xF946610B, 0x3C204F8F, 0x538586E3, 0x59726915, 0x734D5309, 0xBC1AC763, 0x7D0722CC,
	0xD289CABE, 0xE94CA9BC, 0x05B74F3F, 0xA51E1F42, 0x40000000, 0x20000000, 0x08000000,
};

/* These work on the raw register: the inversions at both ends are the caller's. */

static uint32_t
crc_table(uint32_t reg, const uint8_t *p, size_t len)
{
	while (len >= 8)
	{
		uint64_t v = shf_load64(p) ^ reg;

		reg = slices[7][v & 0xFF] ^ slices[6][(v >> 8) & 0xFF] ^ slices[5][(v >> 16) & 0xFF] ^
			slices[4][(v >> 24) & 0xFF] ^ slices[3][(v >> 32) & 0xFF] ^
			slices[2][(v >> 40) & 0xFF] ^ slices[1][(v >> 48) & 0xFF] ^ slices[0][v >> 56];
		p += 8;
		len -= 8;
	}
	while (len-- > 0)
		reg = (reg >> 8) ^ slices[0][(reg ^ *p++) & 0xFF];
	return reg;
}

/* ---------------------------------------------------------------- hardware */

#if defined(__x86_64__)
#define HAVE_CRC_HARDWARE

#include <immintrin.h>

#define TARGET __attribute__((target("sse4.2,pclmul")))

/*
 * The unreduced product reg * k.  Reading its 64 bits as a polynomial adds a factor x
 * and the final crc32 instruction one of x^32, so k for n bytes is x^(8n - 33) mod P.
 */
static inline TARGET uint64_t
clmul(uint64_t reg, uint32_t k)
{
	return (uint64_t) _mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128((long long) reg),
															 _mm_cvtsi64_si128((long long) k), 0));
}

/* Sums all whole groups of three stretches of n bytes (a multiple of 8). */
static inline TARGET uint32_t
crc_lanes(uint32_t reg, const uint8_t **pp, size_t *len, size_t n, uint32_t k1, uint32_t k2)
{
	const uint8_t *p = *pp;
	size_t		   left = *len;

	while (left >= 3 * n)
	{
		uint64_t a = reg;
		uint64_t b = 0;
		uint64_t c = 0;

		for (size_t i = 0; i < n; i += 8)
		{
			a = _mm_crc32_u64(a, shf_load64(p + i));
			b = _mm_crc32_u64(b, shf_load64(p + n + i));
			c = _mm_crc32_u64(c, shf_load64(p + 2 * n + i));
		}
		reg = (uint32_t) (_mm_crc32_u64(0, clmul(a, k2) ^ clmul(b, k1)) ^ c);
		p += 3 * n;
		left -= 3 * n;
	}
	*pp = p;
	*len = left;
	return reg;
}

static TARGET uint32_t
crc_hardware(uint32_t reg, const uint8_t *p, size_t len)
{
	uint64_t r;

	reg = crc_lanes(reg, &p, &len, 2048, 0xA51B6135, 0x82F89C77);
	reg = crc_lanes(reg, &p, &len, 256, 0xB9E02B86, 0xDD7E3B0C);
	reg = crc_lanes(reg, &p, &len, 64, 0x9E4ADDF8, 0x0D3B6092);
	r = reg;
	for (; len >= 8; p += 8, len -= 8)
		r = _mm_crc32_u64(r, shf_load64(p));
	for (reg = (uint32_t) r; len > 0; len--)
		reg = _mm_crc32_u8(reg, *p++);
	return reg;
}
#endif

/* ---------------------------------------------------------------- interface */

uint32_t
shf_crc32c(uint32_t crc, const void *data, size_t len)
{
#ifdef HAVE_CRC_HARDWARE
	if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
		return ~crc_hardware(~crc, data, len);
#endif
	return ~crc_table(~crc, data, len);
}

uint32_t
shf_crc32c_portable(uint32_t crc, const void *data, size_t len)
{
	return ~crc_table(~crc, data, len);
}

/* a * b mod P. */
static uint32_t
multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a != 0; a <<= 1)
	{
		if (a & 0x80000000u)
			product ^= b;
		b = (b >> 1) ^ (b & 1 ? POLY : 0);
	}
	return product;
}

uint32_t
shf_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b)
{
	/* The inversions at the ends of both cancel out. */
	for (int k = 0; len_b != 0; len_b >>= 1, k++)
	{
		if (len_b & 1)
			crc_a = multiply(shift_bytes[k % 31], crc_a);
	}
	return crc_a ^ crc_b;
}
