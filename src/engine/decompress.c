/*
 * decompress.c
 *	  The decompressor: LZ4 and Zstandard frames of Arrow buffers.
 *
 * LZ4 frames of the form that we write (frame.h) are taken apart here, without a state.
 * Any other LZ4 frame goes through liblz4, so that files whose buffers another program
 * has compressed can be read, too.
 */
#include "codec.h"

#include "frame.h"

#include <lz4.h>
#include <stdlib.h>
#include <zstd.h>
#include <zstd_errors.h>

struct ShfDecompressor
{
	LZ4F_dctx *lz4f; /* both made when needed */
	ZSTD_DCtx *zstd;
};

ShfCode
shf_decompressor_create(ShfDecompressor **d, ShfError *err)
{
	*d = calloc(1, sizeof(ShfDecompressor));
	if (*d == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a decompressor");
	return SHF_OK;
}

void
shf_decompressor_free(ShfDecompressor *d)
{
	if (d == NULL)
		return;
	LZ4F_freeDecompressionContext(d->lz4f);
	ZSTD_freeDCtx(d->zstd);
	free(d);
}

size_t
shf_decompressor_held(const ShfDecompressor *d)
{
	return sizeof(ShfDecompressor) + (d->zstd != NULL ? ZSTD_sizeof_DCtx(d->zstd) : 0);
}

static ShfCode
lz4_check_end(size_t left, size_t done, size_t raw_len, ShfError *err)
{
	if (left != 0)
		return shf_error(err, SHF_ERR_CORRUPT, "%zu bytes follow the LZ4 frame", left);
	if (done != raw_len)
		return shf_error(err, SHF_ERR_CORRUPT, "LZ4 frame holds %zu bytes, expected %zu", done,
						 raw_len);
	return SHF_OK;
}

/*
 * Frames as we write them: no state needed.  *ours is false when the descriptor is
 * not one of ours; then nothing was done.
 */
static ShfCode
lz4_decompress_ours(const uint8_t *src, size_t len, uint8_t *dst, size_t raw_len, bool *ours,
					ShfError *err)
{
	size_t block = 0;
	size_t at = LZ4_HEADER_BYTES;
	size_t done = 0;

	*ours = false;
	if (len < LZ4_HEADER_BYTES + LZ4_END_BYTES || shf_load32(src) != LZ4F_MAGICNUMBER ||
		src[4] != LZ4_FLG)
		return SHF_OK;
	for (size_t i = 0; i < LZ4_NDESCRIPTORS; i++)
	{
		if (src[5] == lz4_descriptors[i].bd && src[6] == lz4_descriptors[i].hc)
			block = lz4_descriptors[i].block;
	}
	if (block == 0)
		return SHF_OK;
	*ours = true;

	for (;;)
	{
		uint32_t header;
		size_t	 size;
		size_t	 room = raw_len - done < block ? raw_len - done : block;

		if (len - at < 4)
			return shf_error(err, SHF_ERR_CORRUPT, "LZ4 frame ends early");
		header = shf_load32(src + at);
		at += 4;
		if (header == 0)
			break;
		size = header & ~LZ4_STORED;
		if (size > block || size > len - at)
			return shf_error(err, SHF_ERR_CORRUPT,
							 "LZ4 block of %zu bytes is larger than its frame allows", size);
		if (header & LZ4_STORED)
		{
			if (size > room)
				return shf_error(err, SHF_ERR_CORRUPT, "LZ4 frame holds more than %zu bytes",
								 raw_len);
			memcpy(dst + done, src + at, size);
			done += size;
		}
		else
		{
			int got = LZ4_decompress_safe((const char *) src + at, (char *) dst + done, (int) size,
										  (int) room);

			if (got < 0)
				return shf_error(err, SHF_ERR_CORRUPT,
								 "LZ4 block is damaged or holds more than %zu bytes", room);
			done += (size_t) got;
		}
		at += size;
	}
	return lz4_check_end(len - at, done, raw_len, err);
}

/* Any other LZ4 frame, through liblz4. */
static ShfCode
lz4_decompress_any(ShfDecompressor *d, const uint8_t *src, size_t len, uint8_t *dst, size_t raw_len,
				   ShfError *err)
{
	size_t in = 0;
	size_t done = 0;
	size_t hint = 1;

	if (d->lz4f == NULL && LZ4F_isError(LZ4F_createDecompressionContext(&d->lz4f, LZ4F_VERSION)))
	{
		d->lz4f = NULL;
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a decompressor");
	}
	LZ4F_resetDecompressionContext(d->lz4f);
	while (hint != 0)
	{
		size_t n_in = len - in;
		size_t n_out = raw_len - done;

		hint = LZ4F_decompress(d->lz4f, dst + done, &n_out, src + in, &n_in, NULL);
		if (LZ4F_isError(hint))
			return shf_error(err, SHF_ERR_CORRUPT, "LZ4 frame is damaged: %s",
							 LZ4F_getErrorName(hint));
		in += n_in;
		done += n_out;
		if (hint != 0 && n_in == 0 && n_out == 0)
			return shf_error(err, SHF_ERR_CORRUPT,
							 "LZ4 frame ends early or holds more than %zu bytes", raw_len);
	}
	return lz4_check_end(len - in, done, raw_len, err);
}

static ShfCode
zstd_decompress(ShfDecompressor *d, const uint8_t *src, size_t len, uint8_t *dst, size_t raw_len,
				ShfError *err)
{
	size_t got;

	if (d->zstd == NULL)
	{
		d->zstd = ZSTD_createDCtx();
		if (d->zstd == NULL)
			return shf_error(err, SHF_ERR_NOMEM, "out of memory for a decompressor");
	}

	/* ZSTD_decompressDCtx() accepts several frames in a row and skippable ones. */
	if (len < 4 || shf_load32(src) != ZSTD_MAGICNUMBER ||
		ZSTD_findFrameCompressedSize(src, len) != len)
		return shf_error(err, SHF_ERR_CORRUPT, "not one zstd frame of %zu bytes", len);
	got = ZSTD_decompressDCtx(d->zstd, dst, raw_len, src, len);
	if (ZSTD_isError(got))
		return shf_error(err,
						 ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation ? SHF_ERR_NOMEM :
																				  SHF_ERR_CORRUPT,
						 "zstd frame is damaged: %s", ZSTD_getErrorName(got));
	if (got != raw_len)
		return shf_error(err, SHF_ERR_CORRUPT, "zstd frame holds %zu bytes, expected %zu", got,
						 raw_len);
	return SHF_OK;
}

ShfCode
shf_decompress_frame(ShfDecompressor *d, ShfCodecKind kind, const void *src, size_t len, void *dst,
					 size_t raw_len, ShfError *err)
{
	bool	ours;
	ShfCode code;

	if (kind == SHF_CODEC_ZSTD)
		return zstd_decompress(d, src, len, dst, raw_len, err);
	if (kind != SHF_CODEC_LZ4)
		return shf_error(err, SHF_ERR_INVALID, "unknown codec %d", (int) kind);
	code = lz4_decompress_ours(src, len, dst, raw_len, &ours, err);
	if (ours || code != SHF_OK)
		return code;
	return lz4_decompress_any(d, src, len, dst, raw_len, err);
}
