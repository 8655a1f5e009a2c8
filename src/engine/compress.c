/*
 * compress.c
 *	  See compress.h.
 */
#include "compress.h"

#define LARGE_BUFFER 4096

/*
 * How many buffers a decision holds for.  One that is stored is reconsidered sooner: a
 * trial costs little then, while a wrong decision costs space.
 */
#define KEEP_WAY	255
#define KEEP_STORED 31

/*
 * A buffer must lose so much to be worth the time of those who read it: with fast LZ4 a
 * quarter, with anything slower, where size is what is asked for, a 32nd.
 */
static size_t
least_gain(ShfCodec codec, size_t len)
{
	return len / (codec.kind == SHF_CODEC_LZ4 && shf_compresses_values(codec) ? 4 : 32);
}

static void
decide(ShfHistory *history, ShfWay way)
{
	history->way = (uint8_t) way;
	history->left = way == SHF_WAY_STORE ? KEEP_STORED : KEEP_WAY;
}

/* Tries both ways.  The quicker one of values wins if it is at most an eighth larger. */
static ShfCode
trial(ShfCompressor *c, ShfCodec codec, ShfHistory *history, const uint8_t *src, size_t len,
	  unsigned width, uint8_t *dst, size_t *written, ShfError *err)
{
	size_t	cap = shf_frame_bound(codec.kind, len);
	size_t	values = 0;
	ShfWay	way = SHF_WAY_BYTES;
	ShfCode code;

	if (width != 0 && shf_compresses_values(codec))
	{
		code = shf_compress_frame(c, src, len, width, dst, cap, &values, err);
		if (code != SHF_OK)
			return code;
	}
	code = shf_compress_frame(c, src, len, 0, dst, cap, written, err);
	if (code == SHF_OK && values > 0 && (*written == 0 || values <= *written + *written / 8))
	{
		way = SHF_WAY_VALUES;
		code = shf_compress_frame(c, src, len, width, dst, cap, written, err);
	}
	if (*written == 0 || *written > len - least_gain(codec, len))
		way = SHF_WAY_STORE;
	decide(history, way);
	return code;
}

ShfCode
shf_compress_buffer(ShfCompressor *c, ShfCodec codec, ShfBufferHistory *histories,
					const uint8_t *src, size_t len, unsigned width, uint8_t *dst, size_t *written,
					ShfError *err)
{
	ShfHistory *history = len < LARGE_BUFFER ? &histories->small : &histories->large;
	ShfCode		code;

	*written = 0;
	if (history->left == 0)
		return trial(c, codec, history, src, len, width, dst, written, err);
	history->left--;
	if (history->way == SHF_WAY_STORE)
		return SHF_OK;
	code = shf_compress_frame(c, src, len, history->way == SHF_WAY_VALUES ? width : 0, dst,
							  shf_frame_bound(codec.kind, len), written, err);
	if (code == SHF_OK && (*written == 0 || *written > len - least_gain(codec, len)))
		decide(history, SHF_WAY_STORE);
	return code;
}
