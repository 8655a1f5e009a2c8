/*
 * test_lz4_values.c
 *	  Blocks made by lz4_values.c are read by liblz4, fit where they must, and shrink
 *	  what can shrink; what the quicker ways of buffers cost, and what history does.
 */
#include "harness.h"

#include "../../src/engine/compress.h"
#include "../../src/engine/lz4_values.h"

#include <lz4.h>
#include <zstd.h>

/* Values of several shapes: number them, and the next call makes another mixture. */
static void
fill(uint8_t *data, size_t len, unsigned width, int shape)
{
	for (size_t at = 0; at < len; at += width)
	{
		uint64_t v[2] = {0, 0};

		switch (shape)
		{
			case 0: /* few values */
				v[0] = test_random() % 50 * 100;
				break;
			case 1: /* three bytes */
				v[0] = test_random() % 10000000;
				break;
			case 2: /* negative ones among them */
				v[0] = (uint64_t) ((int64_t) (test_random() % 2000) - 1000);
				v[1] = (int64_t) v[0] < 0 ? UINT64_MAX : 0;
				break;
			case 3: /* nothing in common */
				v[0] = test_random() << 20 ^ test_random();
				v[1] = test_random() << 20 ^ test_random();
				break;
			case 4: /* long runs */
				v[0] = at / width / 1000;
				break;
			case 5: /* times, microseconds */
				v[0] = UINT64_C(1700000000000000) + test_random() % 100000000;
				break;
			case 6: /* high half differs */
				v[0] = test_random() % 3;
				v[1] = test_random() % 3;
				break;
			default: /* period beyond the reach of a distance */
				v[0] = at / width % 20000 * 77777;
				break;
		}
		memcpy(data + at, v, len - at < width ? len - at : width);
	}
}

static void
round_trip(ShfLz4Values *state, size_t len, unsigned width, int shape)
{
	/* exactly as large as they have to be, for the sanitizer to watch */
	uint8_t *data = malloc(len);
	size_t	 bound = len + len / 200 + 64;
	uint8_t *packed = malloc(bound);
	uint8_t *back = malloc(len + 1);
	size_t	 bytes;

	fill(data, len, width, shape);
	bytes = shf_lz4_values(state, data, len, width, packed, bound);
	CHECK(bytes > 0);
	CHECK(LZ4_decompress_safe((char *) packed, (char *) back, (int) bytes, (int) len + 1) ==
		  (int) len);
	CHECK_MEM(back, data, len);

	/* what does not fit is given up, inside of its place */
	for (size_t cap = bytes < 40 ? 0 : bytes - 40; cap <= bytes + 40; cap += 1 + len / 100)
	{
		uint8_t *tight = malloc(cap + 1);
		size_t	 again = shf_lz4_values(state, data, len, width, tight, cap);

		CHECK(again <= cap);
		if (again > 0)
		{
			CHECK(LZ4_decompress_safe((char *) tight, (char *) back, (int) again, (int) len + 1) ==
				  (int) len);
			CHECK_MEM(back, data, len);
		}
		free(tight);
	}
	free(data);
	free(packed);
	free(back);
}

static void
test_round_trips(void)
{
	static const unsigned widths[] = {4, 8, 16};
	ShfLz4Values		 *state = calloc(1, sizeof(*state));

	for (int w = 0; w < 3; w++)
	{
		for (int shape = 0; shape < 8; shape++)
		{
			for (size_t len = 1; len < 150; len++)
				round_trip(state, len, widths[w], shape);
			for (size_t values = 100; values < 200000; values = values * 5 + 3)
				round_trip(state, values * widths[w], widths[w], shape);
		}
	}

	/* the numbers of values are near their end, and begin again */
	state->base = (UINT32_C(1) << 31) - 10;
	for (int shape = 0; shape < 8; shape++)
		round_trip(state, 40000, 8, shape);
	CHECK(state->base < UINT32_C(1) << 30);
	free(state);
}

static size_t
usual_size(ShfCodec codec, const uint8_t *data, size_t len, uint8_t *packed)
{
	if (codec.kind == SHF_CODEC_ZSTD)
		return ZSTD_compress(packed, ZSTD_compressBound(len), data, len, codec.level);
	return (size_t) LZ4_compress_default((const char *) data, (char *) packed, (int) len,
										 (int) (2 * len));
}

/* Whatever the data, at most an eighth larger than what the library makes of it. */
static void
test_size(void)
{
	static const unsigned widths[] = {4, 8, 16};
	static const struct
	{
		ShfCodec codec;
		size_t	 least; /* none of these is stored that could lose one part in so many */
	} cases[] = {{{SHF_CODEC_LZ4, 1}, 8}, {{SHF_CODEC_ZSTD, 1}, 32}};
	size_t	 len = 64000;
	uint8_t *data = malloc(len);
	uint8_t *packed = malloc(2 * len);

	for (int i = 0; i < 6; i++)
	{
		ShfCodec	   codec = cases[i / 3].codec;
		unsigned	   width = widths[i % 3];
		ShfCompressor *c;
		int			   quick = 0;

		CHECK_OK(shf_compressor_create(&c, codec, &err));
		for (int shape = 0; shape < 8; shape++)
		{
			ShfBufferHistory history = {0};
			size_t			 written;
			size_t			 other;

			fill(data, len, width, shape);
			CHECK_OK(
				shf_compress_buffer(c, codec, &history, data, len, width, packed, &written, &err));
			quick += history.large.way == SHF_WAY_VALUES;
			other = usual_size(codec, data, len, packed);
			if (written == 0 ? other < len - len / cases[i / 3].least :
							   written > other + other / 8 + 32)
				FAIL("codec %d, width %u, shape %d: %zu bytes instead of %zu", codec.kind, width,
					 shape, written, other);
		}
		CHECK(quick > 0);
		CHECK(shf_compressor_held(c) <= shf_compressor_memory(codec));
		shf_compressor_free(c);
	}
	free(data);
	free(packed);
}

/* Stored after one look, looked at again later, and then compressed again. */
static void
test_history(void)
{
	ShfCodec		 codec = {SHF_CODEC_LZ4, 1};
	ShfBufferHistory history = {0};
	ShfCompressor	*c;
	uint8_t			 data[8192];
	uint8_t			 frame[9000];
	size_t			 written;
	int				 stored = 0;

	CHECK_OK(shf_compressor_create(&c, codec, &err));
	fill(data, sizeof(data), 4, 3);
	CHECK_OK(shf_compress_buffer(c, codec, &history, data, sizeof(data), 4, frame, &written, &err));
	CHECK(written == 0);

	fill(data, sizeof(data), 4, 0);
	do
	{
		CHECK_OK(
			shf_compress_buffer(c, codec, &history, data, sizeof(data), 4, frame, &written, &err));
		stored++;
	} while (written == 0 && stored < 1000);
	CHECK(stored > 1 && stored < 100);

	/* a small buffer has its own history */
	CHECK_OK(shf_compress_buffer(c, codec, &history, data, 1000, 4, frame, &written, &err));
	CHECK(written > 0 && written < 1000);
	shf_compressor_free(c);
}

int
main(void)
{
	RUN(test_round_trips);
	RUN(test_size);
	RUN(test_history);
	return test_summary();
}
