/*
 * codec.h
 *	  Compression of single Arrow buffers: LZ4 frames and Zstandard frames.
 *
 * One ShfCompressor and its state serve all buffers of a writer.  Frames are made
 * small for decoders: the declared LZ4 block size is the smallest that holds the
 * buffer and never above 4 MB, because decoders allocate it.
 */
#ifndef SHF_CODEC_H
#define SHF_CODEC_H

#include "shf.h"

typedef struct ShfCompressor ShfCompressor;

/* SHF_ERR_INVALID when the level is out of range; SHF_CODEC_NONE is not accepted. */
extern ShfCode shf_compressor_create(ShfCompressor **c, ShfCodec codec, ShfError *err);
extern void	   shf_compressor_free(ShfCompressor *c);

/* Bytes of state that a compressor of this codec holds at its most. */
extern size_t shf_compressor_memory(ShfCodec codec);

/* Bytes of state held now; never more than shf_compressor_memory(). */
extern size_t shf_compressor_held(const ShfCompressor *c);

/* Is this codec and level valid?  The message lists the valid range. */
extern ShfCode shf_codec_check(ShfCodec codec, ShfError *err);

/* Most bytes that one frame (stored or not) of len bytes takes. */
extern size_t shf_frame_bound(ShfCodecKind kind, size_t len);

/* Has this codec a quicker way for arrays of 4-, 8- and 16-byte values? */
extern bool shf_compresses_values(ShfCodec codec);

/*
 * Compresses len > 0 bytes into one frame at dst.  *written is the frame's size, or
 * 0 when it would not have been smaller than len (dst is then garbage).
 * cap >= shf_frame_bound().  width 4, 8 or 16: an array of such values, in the quicker way
 * if the codec has one; 0: bytes.
 */
extern ShfCode shf_compress_frame(ShfCompressor *c, const void *src, size_t len, unsigned width,
								  void *dst, size_t cap, size_t *written, ShfError *err);

/* A valid frame whose blocks are all stored (for kinds that must not be raw). */
extern size_t shf_store_frame(ShfCodecKind kind, const void *src, size_t len, void *dst);

/*
 * Compresses a large buffer piece by piece: emit gets consecutive parts of one frame.
 * Holds no more than a few MB whatever len is.  Never fails to "shrink": incompressible
 * pieces are stored inside the frame.
 */
typedef ShfCode (*ShfEmit)(void *arg, const void *data, size_t len, ShfError *err);
extern ShfCode shf_compress_stream(ShfCompressor *c, const void *src, size_t len, ShfEmit emit,
								   void *arg, ShfError *err);

/*
 * Decompresses one whole frame of exactly raw_len bytes into dst.  Anything else is
 * SHF_ERR_CORRUPT.  A ShfDecompressor keeps the library states between calls.
 */
typedef struct ShfDecompressor ShfDecompressor;
extern ShfCode				   shf_decompressor_create(ShfDecompressor **d, ShfError *err);
extern void					   shf_decompressor_free(ShfDecompressor *d);
extern size_t				   shf_decompressor_held(const ShfDecompressor *d); /* bytes of state */
extern ShfCode shf_decompress_frame(ShfDecompressor *d, ShfCodecKind kind, const void *src,
									size_t len, void *dst, size_t raw_len, ShfError *err);

#endif
