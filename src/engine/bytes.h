/*
 * bytes.h
 *	  Little-endian values at any address, and the padding of Arrow buffers.
 */
#ifndef SHF_BYTES_H
#define SHF_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint64_t
shf_pad8(uint64_t n)
{
	return (n + 7) & ~UINT64_C(7);
}

static inline uint32_t
shf_load32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint64_t
shf_load64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline void
shf_store32(void *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

#endif
