/*
 * test_codec.c
 *	  CRC-32C, compression frames, Schema and Footer flatbuffers.
 *
 * Expected values come from elsewhere: CRCs from RFC 3720 appendix B.4, frames are
 * decompressed by liblz4's and libzstd's own frame functions.
 */
#include <lz4frame.h>
#include <zstd.h>

#include "harness.h"

#include "../../src/engine/codec.h"
#include "../../src/engine/crc32c.h"
#include "../../src/engine/flatbuf.h"

/* ---------------------------------------------------------------- CRC-32C */

static void
test_crc_known_values(void)
{
	uint8_t block[32];

	CHECK_INT(shf_crc32c(0, "", 0), 0);
	CHECK_INT(shf_crc32c(0, "123456789", 9), 0xE3069283u);
	memset(block, 0, sizeof(block));
	CHECK_INT(shf_crc32c(0, block, 32), 0x8A9136AAu);
	memset(block, 0xFF, sizeof(block));
	CHECK_INT(shf_crc32c(0, block, 32), 0x62A8AB43u);
	for (int i = 0; i < 32; i++)
		block[i] = (uint8_t) i;
	CHECK_INT(shf_crc32c(0, block, 32), 0x46DD794Eu);
	for (int i = 0; i < 32; i++)
		block[i] = (uint8_t) (31 - i);
	CHECK_INT(shf_crc32c(0, block, 32), 0x113FDB5Cu);
}

/* One bit at a time, straight from the definition. */
static uint32_t
crc_by_bits(uint32_t crc, const uint8_t *p, size_t len)
{
	crc = ~crc;
	while (len-- > 0)
	{
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
	}
	return ~crc;
}

static void
test_crc_all_lengths_and_alignments(void)
{
	static const size_t large[] = {6143, 6144, 6145, 6912, 12288, 20000, 70001};
	size_t				cap = 80000;
	uint8_t			   *data = malloc(cap);

	for (size_t i = 0; i < cap; i++)
		data[i] = (uint8_t) test_random();
	for (size_t len = 0; len < 1700; len++)
	{
		size_t	 at = len % 17;
		uint32_t start = (uint32_t) test_random();
		uint32_t expected = crc_by_bits(start, data + at, len);

		CHECK_INT(shf_crc32c(start, data + at, len), expected);
		CHECK_INT(shf_crc32c_portable(start, data + at, len), expected);
	}
	for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
	{
		uint32_t expected = crc_by_bits(7, data + i, large[i]);

		CHECK_INT(shf_crc32c(7, data + i, large[i]), expected);
		CHECK_INT(shf_crc32c_portable(7, data + i, large[i]), expected);
	}
	free(data);
}

static void
test_crc_combine(void)
{
	size_t	 cap = 5000;
	uint8_t *data = malloc(cap);
	uint32_t crc;

	for (size_t i = 0; i < cap; i++)
		data[i] = (uint8_t) test_random();
	for (int i = 0; i < 500; i++)
	{
		size_t len = test_below(cap);
		size_t cut = test_below(len + 1);

		crc = shf_crc32c_combine(shf_crc32c(0, data, cut), shf_crc32c(0, data + cut, len - cut),
								 len - cut);
		CHECK_INT(crc, shf_crc32c(0, data, len));
	}
	free(data);

	/* Lengths beyond memory: appending 2^40 zeros twice is appending 2^41. */
	crc = shf_crc32c_combine(0x12345678, 0, UINT64_C(1) << 40);
	crc = shf_crc32c_combine(crc, 0, UINT64_C(1) << 40);
	CHECK_INT(crc, shf_crc32c_combine(0x12345678, 0, UINT64_C(1) << 41));
}

/* ---------------------------------------------------------------- frames */

/* Text-like bytes: compressible, but not trivially. */
static uint8_t *
make_text(size_t len)
{
	static const char *const words[] = {"carefully ",  "final ", "deposits ", "sleep ",
										"2026-11-30 ", "x",		 "quickly ",  "0.07 "};
	uint8_t					*data = malloc(len + 16);
	size_t					 at = 0;

	while (at < len)
	{
		const char *word = words[test_below(8)];
		size_t		n = strlen(word);

		if (n > len - at)
			n = len - at;
		memcpy(data + at, word, n);
		at += n;
	}
	return data;
}

static uint8_t *
make_noise(size_t len)
{
	uint8_t *data = malloc(len + 8);

	for (size_t i = 0; i < len; i += 8)
	{
		uint64_t r = test_random();

		memcpy(data + i, &r, 8);
	}
	return data;
}

/* Decompresses with the library's own frame decoder, which must end exactly. */
static void
check_foreign(ShfCodecKind kind, const uint8_t *frame, size_t frame_len, const uint8_t *raw,
			  size_t len)
{
	uint8_t *out = malloc(len + 1);

	if (kind == SHF_CODEC_ZSTD)
		CHECK_INT(ZSTD_decompress(out, len + 1, frame, frame_len), len);
	else
	{
		LZ4F_dctx *ctx;
		size_t	   in = 0;
		size_t	   done = 0;
		size_t	   hint = 1;

		CHECK(!LZ4F_isError(LZ4F_createDecompressionContext(&ctx, LZ4F_VERSION)));
		while (hint != 0 && in < frame_len)
		{
			size_t n_in = frame_len - in;
			size_t n_out = len + 1 - done;

			hint = LZ4F_decompress(ctx, out + done, &n_out, frame + in, &n_in, NULL);
			CHECK(!LZ4F_isError(hint));
			in += n_in;
			done += n_out;
		}
		CHECK_INT(hint, 0);
		CHECK_INT(in, frame_len);
		CHECK_INT(done, len);
		LZ4F_freeDecompressionContext(ctx);
	}
	CHECK_MEM(out, raw, len);
	free(out);
}

static void
check_ours(ShfDecompressor *d, ShfCodecKind kind, const uint8_t *frame, size_t frame_len,
		   const uint8_t *raw, size_t len)
{
	uint8_t *out = malloc(len);

	CHECK_OK(shf_decompress_frame(d, kind, frame, frame_len, out, len, &err));
	CHECK_MEM(out, raw, len);
	free(out);
}

static const size_t frame_sizes[] = {1,		 2,		  15,	   16,		17,		 40,
									 100,	 1000,	  65535,   65536,	65537,	 262144,
									 262145, 1048576, 1048577, 4194304, 4194305, 9000000};

#define NSIZES (sizeof(frame_sizes) / sizeof(frame_sizes[0]))

static void
check_codec(ShfCodec codec, size_t largest)
{
	ShfCompressor	*c;
	ShfDecompressor *d;

	CHECK_OK(shf_compressor_create(&c, codec, &err));
	CHECK_OK(shf_decompressor_create(&d, &err));
	for (size_t i = 0; i < NSIZES; i++)
	{
		size_t	 len = frame_sizes[i];
		size_t	 cap = shf_frame_bound(codec.kind, len);
		uint8_t *raw[2] = {make_text(len), make_noise(len)};
		uint8_t *frame = malloc(cap);

		/*
		 * Noise in between: a state that failed must serve the next buffer.  As bytes and
		 * as values, which need not be smaller where there are none.
		 */
		for (int j = 0; len <= largest && j < 4; j++)
		{
			unsigned	   width = j < 2 ? 0 : 4;
			const uint8_t *src = raw[j % 2];
			size_t		   written;

			CHECK_OK(shf_compress_frame(c, src, len, width, frame, cap, &written, &err));
			CHECK(written < len);
			CHECK(j % 2 == 0 ? written > 0 || len < 1000 || width > 0 : written == 0);
			if (written > 0)
			{
				check_foreign(codec.kind, frame, written, src, len);
				check_ours(d, codec.kind, frame, written, src, len);
			}
		}
		free(raw[0]);
		free(raw[1]);
		free(frame);
	}
	CHECK(shf_compressor_held(c) <= shf_compressor_memory(codec));
	shf_compressor_free(c);
	shf_decompressor_free(d);
}

static void
test_lz4_frames(void)
{
	check_codec((ShfCodec){SHF_CODEC_LZ4, 1}, SIZE_MAX);
	check_codec((ShfCodec){SHF_CODEC_LZ4, 2}, 1048576);
	check_codec((ShfCodec){SHF_CODEC_LZ4, 3}, SIZE_MAX);
	check_codec((ShfCodec){SHF_CODEC_LZ4, 9}, 262145);
	check_codec((ShfCodec){SHF_CODEC_LZ4, 12}, 65537);
}

static void
test_zstd_frames(void)
{
	check_codec((ShfCodec){SHF_CODEC_ZSTD, 1}, SIZE_MAX);
	check_codec((ShfCodec){SHF_CODEC_ZSTD, -5}, 1048577);
	check_codec((ShfCodec){SHF_CODEC_ZSTD, 3}, 1048577);
	check_codec((ShfCodec){SHF_CODEC_ZSTD, 19}, 65537);
}

/* Decoders allocate the declared block size: it must be the smallest that fits. */
static void
test_lz4_descriptors(void)
{
	static const struct
	{
		size_t	len;
		uint8_t header[7];
	} cases[] = {
		{65536, {0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82}},
		{65537, {0x04, 0x22, 0x4D, 0x18, 0x60, 0x50, 0xFB}},
		{262145, {0x04, 0x22, 0x4D, 0x18, 0x60, 0x60, 0x51}},
		{1048577, {0x04, 0x22, 0x4D, 0x18, 0x60, 0x70, 0x73}},
		{5000000, {0x04, 0x22, 0x4D, 0x18, 0x60, 0x70, 0x73}},
	};
	ShfCompressor *c;

	CHECK_OK(shf_compressor_create(&c, (ShfCodec){SHF_CODEC_LZ4, 1}, &err));
	for (int i = 0; i < 5; i++)
	{
		uint8_t *raw = make_text(cases[i].len);
		size_t	 cap = shf_frame_bound(SHF_CODEC_LZ4, cases[i].len);
		uint8_t *frame = malloc(cap);
		size_t	 written;

		CHECK_OK(shf_compress_frame(c, raw, cases[i].len, 0, frame, cap, &written, &err));
		CHECK_MEM(frame, cases[i].header, 7);
		free(raw);
		free(frame);
	}
	shf_compressor_free(c);
}

static void
test_stored_frames(void)
{
	ShfDecompressor *d;

	CHECK_OK(shf_decompressor_create(&d, &err));
	for (int kind = SHF_CODEC_LZ4; kind <= SHF_CODEC_ZSTD; kind++)
	{
		for (size_t i = 0; i < NSIZES; i++)
		{
			size_t	 len = frame_sizes[i];
			uint8_t *raw = make_noise(len);
			uint8_t *frame = malloc(shf_frame_bound(kind, len));
			size_t	 written = shf_store_frame(kind, raw, len, frame);

			CHECK(written <= shf_frame_bound(kind, len));
			check_foreign(kind, frame, written, raw, len);
			check_ours(d, kind, frame, written, raw, len);
			free(raw);
			free(frame);
		}
	}
	shf_decompressor_free(d);
}

static ShfCode
append(void *arg, const void *data, size_t len, ShfError *error)
{
	ShfBuffer *buf = arg;
	ShfCode	   code = shf_buffer_reserve(buf, len, error);

	if (code == SHF_OK)
	{
		memcpy(buf->data + buf->len, data, len);
		buf->len += len;
	}
	return code;
}

static ShfCode
refuse(void *arg, const void *data, size_t len, ShfError *error)
{
	return shf_error(error, SHF_ERR_IO, "no room");
}

static void
test_streamed_frames(void)
{
	static const ShfCodec codecs[] = {
		{SHF_CODEC_LZ4, 1}, {SHF_CODEC_LZ4, 4}, {SHF_CODEC_ZSTD, 1}, {SHF_CODEC_ZSTD, 7}};
	ShfDecompressor *d;

	CHECK_OK(shf_decompressor_create(&d, &err));
	for (int i = 0; i < 4; i++)
	{
		ShfCompressor *c;

		CHECK_OK(shf_compressor_create(&c, codecs[i], &err));
		for (size_t j = 0; j < NSIZES; j++)
		{
			size_t	 len = frame_sizes[j];
			uint8_t *raw[2] = {make_text(len), make_noise(len)};

			for (int k = 0; k < 2; k++)
			{
				ShfBuffer frame = {0};

				/* A stream that was given up must not disturb the next. */
				CHECK_ERR(shf_compress_stream(c, raw[k], len, refuse, NULL, &err), SHF_ERR_IO,
						  "no room");
				CHECK_OK(shf_compress_stream(c, raw[k], len, append, &frame, &err));
				check_foreign(codecs[i].kind, frame.data, frame.len, raw[k], len);
				check_ours(d, codecs[i].kind, frame.data, frame.len, raw[k], len);
				free(frame.data);
				free(raw[k]);
			}
		}
		CHECK(shf_compressor_held(c) <= shf_compressor_memory(codecs[i]));
		shf_compressor_free(c);
	}
	shf_decompressor_free(d);
}

/* Frames of other writers: checksums, content size, linked blocks. */
static void
test_foreign_lz4_frames(void)
{
	size_t			 len = 300000;
	uint8_t			*raw = make_text(len);
	ShfDecompressor *d;

	CHECK_OK(shf_decompressor_create(&d, &err));
	for (int variant = 0; variant < 4; variant++)
	{
		LZ4F_preferences_t prefs = LZ4F_INIT_PREFERENCES;
		uint8_t			  *frame;
		uint8_t			  *out = malloc(len);
		size_t			   cap;
		size_t			   written;

		prefs.frameInfo.blockMode = variant & 1 ? LZ4F_blockIndependent : LZ4F_blockLinked;
		prefs.frameInfo.contentChecksumFlag = variant & 2 ? LZ4F_contentChecksumEnabled : 0;
		prefs.frameInfo.contentSize = variant & 2 ? len : 0;
		cap = LZ4F_compressFrameBound(len, &prefs);
		frame = malloc(cap);
		written = LZ4F_compressFrame(frame, cap, raw, len, &prefs);
		CHECK(!LZ4F_isError(written));
		check_ours(d, SHF_CODEC_LZ4, frame, written, raw, len);
		CHECK_ERR(shf_decompress_frame(d, SHF_CODEC_LZ4, frame, written, out, len - 1, &err),
				  SHF_ERR_CORRUPT, "");
		CHECK_ERR(shf_decompress_frame(d, SHF_CODEC_LZ4, frame, written - 1, out, len, &err),
				  SHF_ERR_CORRUPT, "");
		free(frame);
		free(out);
	}
	free(raw);
	shf_decompressor_free(d);
}

/* Exactly one frame of exactly the length asked for, or an error; never past dst. */
static void
test_decompress_is_strict(void)
{
	static const ShfCodec codecs[] = {{SHF_CODEC_LZ4, 1}, {SHF_CODEC_ZSTD, 1}};
	size_t				  len = 3000;
	uint8_t				 *raw = make_text(len);
	ShfDecompressor		 *d;

	CHECK_OK(shf_decompressor_create(&d, &err));
	for (int i = 0; i < 2; i++)
	{
		ShfCodecKind   kind = codecs[i].kind;
		size_t		   cap = shf_frame_bound(kind, len);
		uint8_t		  *frame = malloc(2 * cap);
		uint8_t		  *out = malloc(len);
		uint8_t		  *shorter = malloc(len - 1);
		uint8_t		  *longer = malloc(len + 1);
		size_t		   written;
		ShfCompressor *c;

		CHECK_OK(shf_compressor_create(&c, codecs[i], &err));
		CHECK_OK(shf_compress_frame(c, raw, len, 0, frame, cap, &written, &err));
		CHECK_ERR(shf_decompress_frame(d, kind, frame, written, shorter, len - 1, &err),
				  SHF_ERR_CORRUPT, "");
		CHECK_ERR(shf_decompress_frame(d, kind, frame, written, longer, len + 1, &err),
				  SHF_ERR_CORRUPT, "");
		for (size_t cut = 0; cut < written; cut++)
		{
			uint8_t *part = malloc(cut + 1);

			memcpy(part, frame, cut);
			CHECK_ERR(shf_decompress_frame(d, kind, part, cut, out, len, &err), SHF_ERR_CORRUPT,
					  "");
			free(part);
		}

		/* Two frames, or a frame and a byte. */
		memcpy(frame + written, frame, written);
		CHECK_ERR(shf_decompress_frame(d, kind, frame, written + 1, out, len, &err),
				  SHF_ERR_CORRUPT, "");
		CHECK_ERR(shf_decompress_frame(d, kind, frame, 2 * written, out, len, &err),
				  SHF_ERR_CORRUPT, "");

		/* Stored blocks that hold more than was asked for. */
		{
			uint8_t *stored = malloc(cap);
			size_t	 stored_len = shf_store_frame(kind, raw, len, stored);

			CHECK_ERR(shf_decompress_frame(d, kind, stored, stored_len, shorter, len - 1, &err),
					  SHF_ERR_CORRUPT, "");
			free(stored);
		}

		/* Damage may go unnoticed (that is the CRC's task) but never out of bounds. */
		for (size_t bit = 0; bit < 8 * written; bit++)
		{
			frame[bit / 8] ^= (uint8_t) (1 << (bit & 7));
			shf_decompress_frame(d, kind, frame, written, out, len, &err);
			frame[bit / 8] ^= (uint8_t) (1 << (bit & 7));
		}
		check_ours(d, kind, frame, written, raw, len);
		shf_compressor_free(c);
		free(frame);
		free(out);
		free(shorter);
		free(longer);
	}
	free(raw);
	shf_decompressor_free(d);
}

static void
test_codec_levels(void)
{
	CHECK_OK(shf_codec_check((ShfCodec){SHF_CODEC_NONE, 0}, &err));
	CHECK_OK(shf_codec_check((ShfCodec){SHF_CODEC_LZ4, 12}, &err));
	CHECK_OK(shf_codec_check((ShfCodec){SHF_CODEC_ZSTD, ZSTD_minCLevel()}, &err));
	CHECK_ERR(shf_codec_check((ShfCodec){SHF_CODEC_LZ4, 0}, &err), SHF_ERR_INVALID, "1 to 12");
	CHECK_ERR(shf_codec_check((ShfCodec){SHF_CODEC_LZ4, 13}, &err), SHF_ERR_INVALID, "1 to 12");
	CHECK_ERR(shf_codec_check((ShfCodec){SHF_CODEC_ZSTD, 0}, &err), SHF_ERR_INVALID, "1 to 22");
	CHECK_ERR(shf_codec_check((ShfCodec){SHF_CODEC_ZSTD, 23}, &err), SHF_ERR_INVALID, "1 to 22");
}

/* The memory that is accounted for a compressor is never exceeded, at any level. */
static void
test_compressor_memory(void)
{
	size_t	 len = 3 * 1024 * 1024;
	uint8_t *raw = make_text(len);
	size_t	 cap = shf_frame_bound(SHF_CODEC_ZSTD, len);
	uint8_t *frame = malloc(cap);

	for (int level = -3; level <= ZSTD_maxCLevel(); level++)
	{
		ShfCodec	   codec = {SHF_CODEC_ZSTD, level};
		ShfCompressor *c;
		ShfBuffer	   out = {0};
		size_t		   written;
		size_t		   some = level > 12 ? 1200000 : len;

		if (level == 0)
			continue;
		CHECK_OK(shf_compressor_create(&c, codec, &err));
		CHECK_OK(shf_compress_frame(c, raw, some, 0, frame, cap, &written, &err));
		CHECK_OK(shf_compress_frame(c, raw, some, 4, frame, cap, &written, &err));
		CHECK_OK(shf_compress_stream(c, raw, some, append, &out, &err));
		CHECK(shf_compressor_held(c) <= shf_compressor_memory(codec));
		free(out.data);
		shf_compressor_free(c);
	}
	free(raw);
	free(frame);
}

/* ---------------------------------------------------------------- flatbuffers */

static ShfMeta some_meta[] = {{"pg:type", "numeric"}, {"pg:typmod", ""}};

/* Every kind once, nested ones included; release with shf_schema_release(). */
static void
make_schema(ShfSchema *schema)
{
	ShfMeta	 meta[] = {{"shuffle:segment_id", "00112233445566778899aabbccddeeff"},
					   {"k\xC3\xA9y", "v\xE2\x82\xAClue"}};
	ShfField pair[2] = {
		{.name = "x", .kind = SHF_DECIMAL128, .nullable = true, .precision = 38, .scale = 38},
		{.name = "", .kind = SHF_UTF8, .nmeta = 2, .meta = some_meta},
	};
	ShfField item = {
		.name = "item", .kind = SHF_STRUCT, .nullable = true, .nchildren = 2, .children = pair};
	ShfField  fields[SHF_NKINDS + 1] = {0};
	char	  names[SHF_NKINDS + 1][16];
	ShfSchema local = {SHF_NKINDS + 1, fields, 2, meta};

	for (int i = 0; i <= SHF_NKINDS; i++)
	{
		snprintf(names[i], sizeof(names[i]), "column %d", i);
		fields[i].name = names[i];
		fields[i].kind = i < SHF_NKINDS ? i : SHF_LIST;
		fields[i].nullable = i % 2;
		if (i % 3 == 0)
		{
			fields[i].nmeta = 2;
			fields[i].meta = some_meta;
		}
		if (i == SHF_FIXED_BINARY)
			fields[i].width = 16;
		if (i == SHF_DECIMAL128)
		{
			fields[i].precision = 15;
			fields[i].scale = 2;
		}
		if (fields[i].kind == SHF_LIST)
		{
			fields[i].nchildren = 1;
			fields[i].children = i < SHF_NKINDS ? &item : &pair[1];
		}
		if (i == SHF_STRUCT)
		{
			fields[i].nchildren = 2;
			fields[i].children = pair;
		}
	}
	CHECK_OK(shf_schema_copy(schema, &local, &err));
}

static void
test_schema_round_trip(void)
{
	ShfSchema schema;
	ShfSchema parsed;
	ShfBuffer a = {0};
	ShfBuffer b = {0};
	int32_t	  len;

	make_schema(&schema);
	CHECK_OK(shf_schema_message(&a, &schema, &err));
	CHECK_INT(a.len % 8, 0);
	CHECK_MEM(a.data, "\xFF\xFF\xFF\xFF", 4);
	memcpy(&len, a.data + 4, 4);
	CHECK_INT(len, a.len - 8);
	CHECK(shf_schema_message_bound(&schema) >= a.len);
	CHECK(shf_schema_message_bound(&schema) < 2 * a.len);
	CHECK_OK(shf_parse_schema_message(a.data + 8, a.len - 8, &parsed, &err));
	CHECK(shf_schema_equal(&schema, &parsed));
	CHECK_INT(parsed.nmeta, 2);
	CHECK_STR(parsed.meta[0].value, "00112233445566778899aabbccddeeff");
	CHECK_STR(parsed.meta[1].key, "k\xC3\xA9y");

	/* What was parsed builds the same bytes: verification depends on it. */
	CHECK_OK(shf_schema_message(&b, &parsed, &err));
	CHECK_INT(b.len, a.len);
	CHECK_MEM(b.data, a.data, a.len);
	shf_schema_release(&schema);
	shf_schema_release(&parsed);
	free(a.data);
	free(b.data);
}

static void
test_schema_of_no_columns(void)
{
	ShfSchema empty = {0};
	ShfSchema parsed;
	void	 *message;
	size_t	  len;

	CHECK_OK(shf_stream_schema(&empty, &message, &len, &err));
	CHECK_OK(shf_parse_schema_message((uint8_t *) message + 8, len - 8, &parsed, &err));
	CHECK_INT(parsed.nfields, 0);
	CHECK_INT(parsed.nmeta, 0);
	CHECK(shf_schema_message_bound(&empty) >= len);
	free(message);
}

static void
test_schema_nesting_limit(void)
{
	ShfField  levels[SHF_MAX_NESTING + 2];
	ShfSchema schema = {1, levels, 0, NULL};
	ShfSchema parsed;
	ShfBuffer buf = {0};

	for (int i = 0; i < SHF_MAX_NESTING + 2; i++)
		levels[i] = (ShfField){.name = "a",
							   .kind = SHF_LIST,
							   .nullable = true,
							   .nchildren = 1,
							   .children = &levels[i + 1]};
	levels[SHF_MAX_NESTING] = (ShfField){.name = "a", .kind = SHF_INT8};
	CHECK_OK(shf_schema_message(&buf, &schema, &err));
	CHECK(shf_schema_message_bound(&schema) >= buf.len);
	CHECK_OK(shf_parse_schema_message(buf.data + 8, buf.len - 8, &parsed, &err));
	CHECK(shf_schema_equal(&schema, &parsed));
	shf_schema_release(&parsed);
	levels[SHF_MAX_NESTING] = levels[0];
	levels[SHF_MAX_NESTING].children = &levels[SHF_MAX_NESTING + 1];
	levels[SHF_MAX_NESTING + 1] = (ShfField){.name = "a", .kind = SHF_INT8};
	CHECK_ERR(shf_schema_message(&buf, &schema, &err), SHF_ERR_LIMIT, "nested");
	free(buf.data);
}

/* No damage to a schema message crashes, and what still parses is a checked schema. */
static void
test_damaged_schema(void)
{
	ShfSchema schema;
	ShfBuffer buf = {0};
	size_t	  len;

	make_schema(&schema);
	CHECK_OK(shf_schema_message(&buf, &schema, &err));
	len = buf.len - 8;
	for (int i = 0; i < 60000; i++)
	{
		size_t	  cut = i % 4 == 0 ? test_below(len + 1) : len;
		uint8_t	 *copy = malloc(cut + 1);
		ShfSchema parsed;

		memcpy(copy, buf.data + 8, cut);
		for (uint64_t n = 1 + test_below(3); cut >= 8 && n > 0; n--)
		{
			size_t	 at = test_below(cut - 3);
			uint32_t word = (uint32_t) test_random();

			if (test_below(2) == 0)
				copy[at] ^= (uint8_t) (1 << test_below(8));
			else
			{
				/* Small numbers, also negative ones, look like offsets and counts. */
				word = test_below(2) == 0 ? word % 256 : -(word % 256);
				memcpy(copy + (at & ~(size_t) 3), &word, 4);
			}
		}
		if (shf_parse_schema_message(copy, cut, &parsed, &err) == SHF_OK)
		{
			CHECK_OK(shf_schema_check(&parsed, &err));
			shf_schema_release(&parsed);
		}
		else
			CHECK_INT(err.code, SHF_ERR_CORRUPT);
		free(copy);
	}
	shf_schema_release(&schema);
	free(buf.data);
}

/* Our tables lie at 4 mod 8 and have their vtable behind them. */
static bool
is_table(const ShfBuffer *buf, size_t at)
{
	int32_t vtable;

	if (at + 4 > buf->len || at % 8 != 4)
		return false;
	memcpy(&vtable, buf->data + at, 4);
	return vtable < 0 && at - (size_t) vtable < buf->len;
}

/*
 * Polars refuses a table whose vtable lies in front of the table's parent, which
 * happens as soon as vtables are shared and written first.
 */
static void
check_vtables_behind(const uint8_t *buf, size_t table, int depth, int *seen)
{
	int32_t	 vtable;
	uint16_t sizes[2];

	memcpy(&vtable, buf + table, 4);
	CHECK(vtable < 0);
	(*seen)++;
	memcpy(sizes, buf + table - vtable, 4);

	/* Schema: slot 1, Field: slot 5: vectors of Field. */
	for (int slot = 1; slot <= 5; slot += 4)
	{
		uint16_t at = 0;
		uint32_t offset;
		uint32_t count;

		if ((depth == 0) != (slot == 1) || sizes[0] <= 4 + 2 * slot)
			continue;
		memcpy(&at, buf + table - vtable + 4 + 2 * slot, 2);
		if (at == 0)
			continue;
		memcpy(&offset, buf + table + at, 4);
		memcpy(&count, buf + table + at + offset, 4);
		for (uint32_t i = 0; i < count; i++)
		{
			size_t	 element = table + at + offset + 4 + 4 * i;
			uint32_t child;

			memcpy(&child, buf + element, 4);
			check_vtables_behind(buf, element + child, depth + 1, seen);
		}
	}
}

static void
test_vtables_lie_behind_their_tables(void)
{
	ShfSchema schema;
	ShfBuffer buf = {0};
	uint16_t  header;
	uint32_t  root;
	uint32_t  offset;
	int32_t	  vtable;
	int		  seen = 0;
	int		  nnodes;
	int		  nbuffers;

	make_schema(&schema);
	shf_schema_count(&schema, &nnodes, &nbuffers);
	CHECK_OK(shf_schema_message(&buf, &schema, &err));
	memcpy(&root, buf.data + 8, 4);
	memcpy(&vtable, buf.data + 8 + root, 4);
	CHECK(vtable < 0);
	memcpy(&header, buf.data + 8 + root - vtable + 8, 2);
	memcpy(&offset, buf.data + 8 + root + header, 4);
	check_vtables_behind(buf.data + 8, root + header + offset, 0, &seen);
	CHECK_INT(seen, nnodes + 1);
	shf_schema_release(&schema);
	free(buf.data);
}

/*
 * Tables may be shared in a flatbuffer: 32 structs whose two children are both the
 * next one would be 2^32 fields in less than 2 KB.
 */
static void
test_schema_bomb(void)
{
	ShfField  levels[31];
	ShfField  leaves[31];
	ShfField  pairs[31][2];
	ShfSchema schema = {1, levels, 0, NULL};
	ShfSchema parsed;
	ShfBuffer buf = {0};
	int		  found = 0;

	for (int i = 30; i >= 0; i--)
	{
		leaves[i] = (ShfField){.name = "b", .kind = SHF_INT8};
		levels[i] = (ShfField){.name = "a", .kind = i < 30 ? SHF_STRUCT : SHF_INT8};
		if (i < 30)
		{
			pairs[i][0] = levels[i + 1];
			pairs[i][1] = leaves[i];
			levels[i].nchildren = 2;
			levels[i].children = pairs[i];
		}
	}
	CHECK_OK(shf_schema_message(&buf, &schema, &err));

	/* Point the second child of every vector at the first. */
	for (size_t at = 8; at + 12 <= buf.len; at += 4)
	{
		uint32_t words[3];

		memcpy(words, buf.data + at, 12);
		if (words[0] == 2 && is_table(&buf, at + 4 + words[1]) && is_table(&buf, at + 8 + words[2]))
		{
			words[2] = words[1] - 4;
			memcpy(buf.data + at, words, 12);
			found++;
		}
	}
	CHECK(found >= 30);
	CHECK_ERR(shf_parse_schema_message(buf.data + 8, buf.len - 8, &parsed, &err), SHF_ERR_CORRUPT,
			  "overlap");
	free(buf.data);
}

int
main(void)
{
	RUN(test_crc_known_values);
	RUN(test_crc_all_lengths_and_alignments);
	RUN(test_crc_combine);
	RUN(test_codec_levels);
	RUN(test_lz4_frames);
	RUN(test_lz4_descriptors);
	RUN(test_zstd_frames);
	RUN(test_stored_frames);
	RUN(test_streamed_frames);
	RUN(test_foreign_lz4_frames);
	RUN(test_decompress_is_strict);
	RUN(test_compressor_memory);
	RUN(test_schema_round_trip);
	RUN(test_schema_of_no_columns);
	RUN(test_schema_nesting_limit);
	RUN(test_damaged_schema);
	RUN(test_schema_bomb);
	RUN(test_vtables_lie_behind_their_tables);
	return test_summary();
}
