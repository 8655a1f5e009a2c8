/*
 * frame.h
 *	  LZ4 frames as codec.c writes and decompress.c reads them.
 *
 * An LZ4 frame (lz4 frame format 1.6) is the magic number, a descriptor of the bytes FLG
 * BD HC, blocks of u32 size (top bit: stored) and bytes, and u32 0.  FLG is always 0x60:
 * version 1, independent blocks, no checksums (the block's CRC covers them), no content
 * size (Arrow stores it).
 */
#ifndef SHF_FRAME_H
#define SHF_FRAME_H

#include <lz4frame.h>
#include <stddef.h>
#include <stdint.h>

#include "bytes.h"

#define LZ4_HEADER_BYTES 7 /* magic number and descriptor */
#define LZ4_END_BYTES	 4
#define LZ4_STORED		 0x80000000u
#define LZ4_FLG			 0x60
#define LZ4_MIN_BLOCK	 (64 * 1024)

/* BD and HC bytes by declared block size; HC is the second byte of XXH32(FLG BD). */
static const struct
{
	size_t	block;
	uint8_t bd;
	uint8_t hc;
} lz4_descriptors[] = {
	{LZ4_MIN_BLOCK, 0x40, 0x82},
	{256 * 1024, 0x50, 0xFB},
	{1024 * 1024, 0x60, 0x51},
	{4 * 1024 * 1024, 0x70, 0x73},
};

#define LZ4_NDESCRIPTORS (sizeof(lz4_descriptors) / sizeof(lz4_descriptors[0]))

#endif
