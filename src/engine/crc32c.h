/*
 * crc32c.h
 *	  CRC-32C (Castagnoli, RFC 3720 appendix B.4): hardware in three lanes where
 *	  the processor has it, chosen at run time, else tables.
 */
#ifndef SHF_CRC32C_H
#define SHF_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC of the bytes so far (0 for none) continued over data: crc("123456789") = 0xE3069283. */
extern uint32_t shf_crc32c(uint32_t crc, const void *data, size_t len);

/* The same from the tables only, whatever the processor has (for tests). */
extern uint32_t shf_crc32c_portable(uint32_t crc, const void *data, size_t len);

/* CRC of A followed by B, from crc(A), crc(B) and the length of B. */
extern uint32_t shf_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

#endif
