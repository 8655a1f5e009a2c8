/*
 * codec.c
 *	  The compressor: Arrow buffers become LZ4 and Zstandard frames.
 *
 * LZ4 frames (frame.h) are put together here: liblz4's frame functions prepare a whole
 * new state for each of them, while LZ4_resetStream_fast() keeps the hash table, which
 * halves the cost of buffers of a few KB.
 *
 * Zstandard frame (RFC 8878): the window is held to 1 MB, the usual size of a whole block,
 * so that the memory of the high levels stays bounded.  Keys, dates and prices have next to
 * no matches that save anything; what makes them smaller is that some bytes are frequent.
 * So at the fast levels a second context, with the smallest hash table there is, offers to
 * find only what can hardly be missed: dates become 6 % larger in half the time.
 */
#include "codec.h"

#include "frame.h"
#include "lz4_values.h"

#include <lz4.h>
#include <lz4hc.h>
#include <stdlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#define LZ4_MAX_LEVEL	  12
#define LZ4_VALUES_LEVEL  1				/* arrays of values by lz4_values.c */
#define LZ4_HC_LEVEL	  3				/* from here on LZ4HC, as in the lz4 program */
#define LZ4_PIECE		  (1024 * 1024) /* of shf_compress_stream() */

#define ZSTD_VALUES_LEVEL 2 /* from 1 to here arrays of values with little search: */
#define ZSTD_VALUES_MATCH 7 /* only matches of so many bytes */
#define ZSTD_WINDOW_LOG	  20
#define ZSTD_BLOCK		  (128 * 1024) /* Block_Maximum_Size */
#define ZSTD_MAX_HEADER	  14		   /* magic, descriptor, window, content size */

struct ShfCompressor
{
	ShfCodec		codec;
	LZ4_stream_t   *lz4; /* levels below LZ4_HC_LEVEL */
	LZ4_streamHC_t *lz4hc;
	ShfLz4Values   *values; /* level 1 only */
	ZSTD_CCtx	   *zstd;
	ZSTD_CCtx	   *zstd_values; /* levels 1 to ZSTD_VALUES_LEVEL only */
	uint8_t		   *piece;		 /* scratch of shf_compress_stream(), made when needed */
	size_t			piece_cap;
};

static inline uint8_t *
zstd_put_block_header(uint8_t *p, size_t len, bool last)
{
	uint32_t header = (uint32_t) (len << 3) | (last ? 1 : 0); /* type 0: raw */

	p[0] = (uint8_t) header;
	p[1] = (uint8_t) (header >> 8);
	p[2] = (uint8_t) (header >> 16);
	return p + 3;
}

/* Writes the frame header for the smallest declared size that holds len. */
static size_t
lz4_put_header(uint8_t *dst, size_t len, size_t *block)
{
	size_t i = 0;

	while (i < LZ4_NDESCRIPTORS - 1 && lz4_descriptors[i].block < len)
		i++;
	shf_store32(dst, LZ4F_MAGICNUMBER);
	dst[4] = LZ4_FLG;
	dst[5] = lz4_descriptors[i].bd;
	dst[6] = lz4_descriptors[i].hc;
	*block = lz4_descriptors[i].block;
	return LZ4_HEADER_BYTES;
}

ShfCode
shf_codec_check(ShfCodec codec, ShfError *err)
{
	switch (codec.kind)
	{
		case SHF_CODEC_NONE:
			return SHF_OK;
		case SHF_CODEC_LZ4:
			if (codec.level < 1 || codec.level > LZ4_MAX_LEVEL)
				return shf_error(err, SHF_ERR_INVALID,
								 "lz4 level %d is outside the valid range 1 to %d", codec.level,
								 LZ4_MAX_LEVEL);
			return SHF_OK;
		case SHF_CODEC_ZSTD:
			if (codec.level < ZSTD_minCLevel() || codec.level > ZSTD_maxCLevel() ||
				codec.level == 0)
				return shf_error(err, SHF_ERR_INVALID,
								 "zstd level %d is outside the valid range %d to -1 and 1 to %d",
								 codec.level, ZSTD_minCLevel(), ZSTD_maxCLevel());
			return SHF_OK;
	}
	return shf_error(err, SHF_ERR_INVALID, "unknown codec %d", (int) codec.kind);
}

bool
shf_compresses_values(ShfCodec codec)
{
	if (codec.kind == SHF_CODEC_ZSTD)
		return codec.level >= 1 && codec.level <= ZSTD_VALUES_LEVEL;
	return codec.kind == SHF_CODEC_LZ4 && codec.level == LZ4_VALUES_LEVEL;
}

static void
zstd_set(ZSTD_CCtx *zstd, ZSTD_cParameter parameter, int value, bool *accepted)
{
	if (zstd != NULL && ZSTD_isError(ZSTD_CCtx_setParameter(zstd, parameter, value)))
		*accepted = false;
}

static ZSTD_CCtx *
zstd_context(int level, bool *accepted)
{
	ZSTD_CCtx *zstd = ZSTD_createCCtx();

	zstd_set(zstd, ZSTD_c_compressionLevel, level, accepted);
	zstd_set(zstd, ZSTD_c_windowLog, ZSTD_WINDOW_LOG, accepted);
	return zstd;
}

ShfCode
shf_compressor_create(ShfCompressor **result, ShfCodec codec, ShfError *err)
{
	ShfCompressor *c;
	ShfCode		   code;

	*result = NULL;
	if (codec.kind == SHF_CODEC_NONE)
		return shf_error(err, SHF_ERR_INVALID, "codec \"none\" has no compressor");
	code = shf_codec_check(codec, err);
	if (code != SHF_OK)
		return code;

	c = calloc(1, sizeof(ShfCompressor));
	if (c == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a compressor");
	c->codec = codec;
	if (codec.kind == SHF_CODEC_ZSTD)
	{
		bool accepted = true;

		c->zstd = zstd_context(codec.level, &accepted);
		if (c->zstd != NULL && shf_compresses_values(codec))
		{
			c->zstd_values = zstd_context(1, &accepted);
			zstd_set(c->zstd_values, ZSTD_c_minMatch, ZSTD_VALUES_MATCH, &accepted);
			zstd_set(c->zstd_values, ZSTD_c_hashLog,
					 ZSTD_cParam_getBounds(ZSTD_c_hashLog).lowerBound, &accepted);
		}
		if (!accepted)
		{
			shf_compressor_free(c);
			return shf_error(err, SHF_ERR_INVALID, "zstd does not accept level %d", codec.level);
		}
	}
	else if (codec.level >= LZ4_HC_LEVEL)
		c->lz4hc = LZ4_createStreamHC();
	else
	{
		c->lz4 = LZ4_createStream();
		if (codec.level == LZ4_VALUES_LEVEL)
			c->values = calloc(1, sizeof(ShfLz4Values));
	}
	if ((c->zstd == NULL && c->lz4hc == NULL && c->lz4 == NULL) ||
		(shf_compresses_values(codec) && c->values == NULL && c->zstd_values == NULL))
	{
		shf_compressor_free(c);
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a compressor");
	}
	*result = c;
	return SHF_OK;
}

void
shf_compressor_free(ShfCompressor *c)
{
	if (c == NULL)
		return;
	if (c->lz4 != NULL)
		LZ4_freeStream(c->lz4);
	if (c->lz4hc != NULL)
		LZ4_freeStreamHC(c->lz4hc);
	ZSTD_freeCCtx(c->zstd);
	ZSTD_freeCCtx(c->zstd_values);
	free(c->values);
	free(c->piece);
	free(c);
}

size_t
shf_compressor_memory(ShfCodec codec)
{
	if (codec.kind == SHF_CODEC_NONE)
		return 0;
	if (codec.kind == SHF_CODEC_LZ4)
		return (codec.level >= LZ4_HC_LEVEL ? sizeof(LZ4_streamHC_t) : sizeof(LZ4_stream_t)) +
			(shf_compresses_values(codec) ? sizeof(ShfLz4Values) : 0) + LZ4_PIECE + LZ4_END_BYTES;

	/*
	 * Window, hash and chain tables at ZSTD_WINDOW_LOG, input and output buffers.
	 * libzstd tells the exact size only after the fact; these are upper bounds of
	 * what it told, and a test compares them with every level of the library in use.
	 */
	if (codec.level > 12)
		return 24 * 1024 * 1024;
	if (codec.level > 8)
		return 18 * 1024 * 1024;
	if (codec.level > 6)
		return 10 * 1024 * 1024;
	if (codec.level > 3)
		return 6 * 1024 * 1024;
	return 3 * 1024 * 1024;
}

size_t
shf_compressor_held(const ShfCompressor *c)
{
	return c->piece_cap + ZSTD_sizeof_CCtx(c->zstd) + ZSTD_sizeof_CCtx(c->zstd_values) +
		(c->lz4 != NULL ? sizeof(LZ4_stream_t) : 0) +
		(c->lz4hc != NULL ? sizeof(LZ4_streamHC_t) : 0) +
		(c->values != NULL ? sizeof(ShfLz4Values) : 0);
}

size_t
shf_frame_bound(ShfCodecKind kind, size_t len)
{
	if (kind == SHF_CODEC_LZ4)
		return len + LZ4_HEADER_BYTES + 4 * (len / LZ4_MIN_BLOCK + 1) + LZ4_END_BYTES;
	return ZSTD_compressBound(len) + ZSTD_MAX_HEADER + 3 * (len / ZSTD_BLOCK + 1);
}

/*
 * One independent LZ4 block of at most cap bytes at dst; 0 when it does not fit.
 * LZ4HC finds the dirty state after a miss by itself, the fast compressor does not.
 */
static size_t
lz4_block(ShfCompressor *c, const uint8_t *src, size_t len, uint8_t *dst, size_t cap)
{
	int got;

	if (c->lz4hc != NULL)
	{
		LZ4_resetStreamHC_fast(c->lz4hc, c->codec.level);
		got = LZ4_compress_HC_continue(c->lz4hc, (const char *) src, (char *) dst, (int) len,
									   (int) cap);
	}
	else
	{
		LZ4_resetStream_fast(c->lz4);
		got = LZ4_compress_fast_continue(c->lz4, (const char *) src, (char *) dst, (int) len,
										 (int) cap, 1);
		if (got <= 0)
			LZ4_initStream(c->lz4, sizeof(LZ4_stream_t));
	}
	return got > 0 ? (size_t) got : 0;
}

/* Block header and block, stored when it does not shrink; up to 4 + len bytes. */
static size_t
lz4_put_block(ShfCompressor *c, const uint8_t *src, size_t len, uint8_t *dst)
{
	size_t got = lz4_block(c, src, len, dst + 4, len - 1);

	if (got > 0)
	{
		shf_store32(dst, (uint32_t) got);
		return 4 + got;
	}
	shf_store32(dst, (uint32_t) len | LZ4_STORED);
	memcpy(dst + 4, src, len);
	return 4 + len;
}

/*
 * One frame of len bytes, or *written = 0 when it would not be smaller.  width: of the
 * values when they are to be compressed as such, else 0.
 */
static void
lz4_frame(ShfCompressor *c, const uint8_t *in, size_t len, unsigned width, uint8_t *out,
		  size_t *written)
{
	size_t block;
	size_t used = lz4_put_header(out, len, &block);

	*written = 0;
	if (len <= block)
	{
		size_t frame = used + 4 + LZ4_END_BYTES;
		size_t got;

		/* Give up as soon as the frame cannot become smaller than the buffer. */
		if (len <= frame + 1)
			return;
		if (width != 0)
			got = shf_lz4_values(c->values, in, len, width, out + used + 4, len - frame - 1);
		else
			got = lz4_block(c, in, len, out + used + 4, len - frame - 1);
		if (got == 0)
			return;
		shf_store32(out + used, (uint32_t) got);
		used += 4 + got;
	}
	else
	{
		for (size_t at = 0; at < len; at += block)
			used += lz4_put_block(c, in + at, len - at < block ? len - at : block, out + used);
	}
	shf_store32(out + used, 0);
	used += LZ4_END_BYTES;
	if (used < len)
		*written = used;
}

static ShfCode
zstd_frame(ZSTD_CCtx *zstd, const void *src, size_t len, void *dst, size_t cap, size_t *written,
		   ShfError *err)
{
	size_t used = ZSTD_compress2(zstd, dst, cap, src, len);

	*written = 0;
	if (ZSTD_isError(used))
		return shf_error(err,
						 ZSTD_getErrorCode(used) == ZSTD_error_memory_allocation ? SHF_ERR_NOMEM :
																				   SHF_ERR_INVALID,
						 "zstd could not compress %zu bytes: %s", len, ZSTD_getErrorName(used));
	if (used < len)
		*written = used;
	return SHF_OK;
}

ShfCode
shf_compress_frame(ShfCompressor *c, const void *src, size_t len, unsigned width, void *dst,
				   size_t cap, size_t *written, ShfError *err)
{
	*written = 0;
	if (len == 0 || cap < shf_frame_bound(c->codec.kind, len))
		return shf_error(err, SHF_ERR_INVALID, "no room for a compressed frame of %zu bytes", len);
	if (c->codec.kind == SHF_CODEC_ZSTD)
		return zstd_frame(width != 0 && c->zstd_values != NULL ? c->zstd_values : c->zstd, src, len,
						  dst, cap, written, err);
	lz4_frame(c, src, len, c->values != NULL ? width : 0, dst, written);
	return SHF_OK;
}

size_t
shf_store_frame(ShfCodecKind kind, const void *src, size_t len, void *dst)
{
	const uint8_t *in = src;
	uint8_t		  *out = dst;
	size_t		   block = LZ4_MIN_BLOCK;

	if (kind == SHF_CODEC_LZ4)
	{
		out += lz4_put_header(out, 0, &block);
		for (size_t at = 0; at < len; at += block)
		{
			size_t n = len - at < block ? len - at : block;

			shf_store32(out, (uint32_t) n | LZ4_STORED);
			memcpy(out + 4, in + at, n);
			out += 4 + n;
		}
		shf_store32(out, 0);
		return (size_t) (out + LZ4_END_BYTES - (uint8_t *) dst);
	}

	/* Single segment, so without window descriptor; content size in 4 or 8 bytes. */
	shf_store32(out, ZSTD_MAGICNUMBER);
	if (len <= UINT32_MAX)
	{
		out[4] = 2 << 6 | 1 << 5;
		shf_store32(out + 5, (uint32_t) len);
		out += 9;
	}
	else
	{
		uint64_t len64 = len;

		out[4] = 3 << 6 | 1 << 5;
		memcpy(out + 5, &len64, 8);
		out += 13;
	}
	if (len == 0)
		out = zstd_put_block_header(out, 0, true);
	for (size_t at = 0; at < len; at += ZSTD_BLOCK)
	{
		size_t n = len - at < ZSTD_BLOCK ? len - at : ZSTD_BLOCK;

		out = zstd_put_block_header(out, n, at + n == len);
		memcpy(out, in + at, n);
		out += n;
	}
	return (size_t) (out - (uint8_t *) dst);
}

/* ---------------------------------------------------------------- streams */

static ShfCode
lz4_stream(ShfCompressor *c, const uint8_t *src, size_t len, ShfEmit emit, void *arg, ShfError *err)
{
	uint8_t small[LZ4_HEADER_BYTES];
	size_t	block;
	ShfCode code;

	/* Beyond one piece the declared size stays that of a piece, not of the buffer. */
	lz4_put_header(small, len < LZ4_PIECE ? len : LZ4_PIECE, &block);
	code = emit(arg, small, LZ4_HEADER_BYTES, err);
	for (size_t at = 0; code == SHF_OK && at < len; at += block)
	{
		size_t n = len - at < block ? len - at : block;

		code = emit(arg, c->piece, lz4_put_block(c, src + at, n, c->piece), err);
	}
	if (code != SHF_OK)
		return code;
	shf_store32(small, 0);
	return emit(arg, small, LZ4_END_BYTES, err);
}

static ShfCode
zstd_stream(ShfCompressor *c, const uint8_t *src, size_t len, ShfEmit emit, void *arg,
			ShfError *err)
{
	ZSTD_inBuffer in = {src, len, 0};
	size_t		  left;

	ZSTD_CCtx_reset(c->zstd, ZSTD_reset_session_only);
	do
	{
		ZSTD_outBuffer out = {c->piece, c->piece_cap, 0};

		left = ZSTD_compressStream2(c->zstd, &out, &in, ZSTD_e_end);
		if (ZSTD_isError(left))
		{
			ZSTD_CCtx_reset(c->zstd, ZSTD_reset_session_only);
			return shf_error(err,
							 ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation ?
								 SHF_ERR_NOMEM :
								 SHF_ERR_INVALID,
							 "zstd could not compress %zu bytes: %s", len, ZSTD_getErrorName(left));
		}
		if (out.pos > 0)
		{
			ShfCode code = emit(arg, c->piece, out.pos, err);

			if (code != SHF_OK)
			{
				ZSTD_CCtx_reset(c->zstd, ZSTD_reset_session_only);
				return code;
			}
		}
	} while (left != 0);
	return SHF_OK;
}

ShfCode
shf_compress_stream(ShfCompressor *c, const void *src, size_t len, ShfEmit emit, void *arg,
					ShfError *err)
{
	if (c->piece == NULL)
	{
		size_t cap = c->codec.kind == SHF_CODEC_ZSTD ? ZSTD_CStreamOutSize() : LZ4_PIECE + 4;

		c->piece = malloc(cap);
		if (c->piece == NULL)
			return shf_error(err, SHF_ERR_NOMEM, "out of memory for compressing a large value");
		c->piece_cap = cap;
	}
	if (c->codec.kind == SHF_CODEC_ZSTD)
		return zstd_stream(c, src, len, emit, arg, err);
	return lz4_stream(c, src, len, emit, arg, err);
}
