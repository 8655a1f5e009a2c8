/*
 * compress.h
 *	  How the buffers of a block are compressed, by what earlier blocks have shown.
 *
 * The same buffer of block after block holds the same kind of data, so what has paid
 * for it once is done again, and what does not shrink is only tried now and then.
 */
#ifndef SHF_COMPRESS_H
#define SHF_COMPRESS_H

#include "codec.h"

typedef enum ShfWay
{
	SHF_WAY_TRIAL, /* nothing known: try everything */
	SHF_WAY_BYTES,
	SHF_WAY_VALUES, /* as an array of fixed-width values */
	SHF_WAY_STORE	/* does not shrink enough to pay */
} ShfWay;

/* What is known about one buffer; all zero at first. */
typedef struct ShfHistory
{
	uint8_t way;
	uint8_t left; /* so many buffers until the next trial */
} ShfHistory;

/* Small buffers tell nothing about large ones, and the other way round. */
typedef struct ShfBufferHistory
{
	ShfHistory small;
	ShfHistory large;
} ShfBufferHistory;

/*
 * Compresses a buffer of len > 0 bytes into one frame at dst, of at least
 * shf_frame_bound() bytes.  *written is the frame's size, or 0 when it is not worth it.
 * width: as of shf_compress_frame().
 */
extern ShfCode
shf_compress_buffer(ShfCompressor *c, ShfCodec codec, ShfBufferHistory *history, const uint8_t *src,
					size_t len, unsigned width, uint8_t *dst, size_t *written, ShfError *err);

#endif
