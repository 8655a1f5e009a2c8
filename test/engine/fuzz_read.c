/*
 * fuzz_read.c
 *	  Fuzz target for everything that reads a segment file: open, all blocks, all
 *	  columns, verification.  No input may crash it, read out of bounds or allocate
 *	  without bound.
 *
 * With libFuzzer (make fuzz) as usual.  Compiled with -DSTANDALONE it is a program:
 *	  fuzz_read N			N seeded mutations of files that our writer wrote; in half of
 *							them the CRCs are put right again, so that the damage reaches
 *							what lies behind the CRC
 *	  fuzz_read DIRECTORY	writes those files there, as a corpus
 *	  fuzz_read FILE...		runs single inputs
 */
#include "sample.h"

#include "../../src/engine/crc32c.h"
#include "../../src/engine/reader.h"
#include "../../src/engine/template.h"

extern int	  LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
extern size_t LLVMFuzzerMutate(uint8_t *data, size_t len, size_t cap);
extern size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t len, size_t cap, unsigned int seed);

/* What the compiler must not optimise away. */
static volatile uint64_t sink;

/* Reads every byte that the column says is there. */
static void
touch(const ShfColumn *c)
{
	uint64_t sum = 0;

	if (c->validity != NULL)
	{
		for (int64_t i = 0; i < (c->length + 7) / 8; i++)
			sum += c->validity[i];
	}
	for (int64_t i = 0; i < c->data_bytes; i++)
		sum += c->data[i];
	if (c->offsets != NULL && c->field->kind != SHF_LIST)
	{
		for (int64_t i = 0; i < c->length; i++)
		{
			if (c->offsets[i + 1] > c->offsets[i])
				sum += c->data[c->offsets[i]] + c->data[c->offsets[i + 1] - 1];
		}
	}
	if (c->field->kind == SHF_LIST && c->offsets[c->length] > c->children[0].length)
		abort();
	for (int i = 0; i < c->field->nchildren; i++)
		touch(&c->children[i]);
	sink += sum;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	ShfReader *r;
	ShfBatch  *b;
	ShfError   error;
	uint64_t   at;

	if (shf_reader_open_memory(&r, data, len, "input", &error) != SHF_OK)
		return 0;
	if (shf_batch_create(&b, shf_reader_schema(r), &error) != SHF_OK)
		abort();
	at = SHF_FILE_HEADER_BYTES + r->schema_bytes;
	while (shf_reader_any_block(r, b, at, len, &error) == SHF_OK)
	{
		uint32_t rows;
		uint64_t bytes;

		if (shf_reader_peek(r, at, len, &rows, &bytes, &error) != SHF_OK ||
			rows != shf_batch_rows(b) || bytes != shf_batch_message(b).len)
			abort();
		for (int i = 0; i < shf_reader_schema(r)->nfields; i++)
		{
			const ShfColumn *column;

			if (shf_batch_column(b, i, &column, &error) == SHF_OK)
				touch(column);
		}
		sink += shf_batch_raw_bytes(b) + shf_batch_memory(b);
		at += bytes;
	}
	shf_batch_free(b);
	sink += (uint64_t) shf_verify_reader(r, NULL, NULL, 0, &error);
	shf_reader_close(r);
	return 0;
}

/* Puts the CRC of every block right, as far as the chain of messages can be followed. */
static void
patch_crcs(uint8_t *data, size_t len)
{
	size_t at = SHF_FILE_HEADER_BYTES;
	bool   schema = true;

	while (len >= at && len - at >= 8 + 160)
	{
		uint32_t metadata;
		int64_t	 body = 0;

		memcpy(&metadata, data + at + 4, 4);
		if (metadata == 0 || metadata > len - at - 8 || (metadata & 7) != 0)
			return;
		if (!schema)
		{
			if (metadata < 160)
				return;
			memcpy(&body, data + at + 8 + 24, 8);
			if (body < 0 || (uint64_t) body > len - at - 8 - metadata)
				return;
			memset(data + at + 8 + 152, '0', 8);
			shf_template_set_crc(data + at, shf_crc32c(0, data + at + 8, metadata + (size_t) body));
		}
		schema = false;
		at += 8 + metadata + (size_t) body;
	}
}

#ifndef STANDALONE

size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t len, size_t cap, unsigned int seed)
{
	size_t mutated = LLVMFuzzerMutate(data, len, cap);

	if (seed & 1)
		patch_crcs(data, mutated);
	return mutated;
}

#else

/* ---------------------------------------------------------------- mutations of our own */

#define MAX_SEEDS 32

static struct
{
	uint8_t *data;
	size_t	 len;
} seeds[MAX_SEEDS];
static int nseeds;

static void
make_seeds(void)
{
	static const ShfSchema *const schemas[] = {&sample_flat, &sample_nested, &sample_key,
											   &sample_small, &sample_empty};
	static const ShfCodec codecs[] = {{SHF_CODEC_NONE, 0}, {SHF_CODEC_LZ4, 1}, {SHF_CODEC_ZSTD, 3}};

	for (int s = 0; s < 5; s++)
	{
		for (int c = 0; c < 3; c++)
		{
			/* A few rows for headers, more for compressed blocks. */
			for (int large = 0; large < 2; large++)
			{
				const ShfSegment *segments;
				int				  nsegments;
				char			  name[64];
				ShfWriter		 *w;

				if (large == 0 && c > 0)
					continue;
				snprintf(name, sizeof(name), "seed%d", nseeds);
				w = sample_write(schemas[s], test_path(name), codecs[c], 2, large ? 400 : 12,
								 large ? 150 : 4, &segments, &nsegments);
				snprintf(name, sizeof(name), "seed%d-%u.arrow", nseeds, segments[0].number);
				seeds[nseeds].data = test_read_file(test_path(name), &seeds[nseeds].len);
				nseeds++;
				shf_writer_close(w);
			}
		}
	}
}

/* Places that structure depends on are hit more often than values. */
static size_t
pick_place(const uint8_t *data, size_t len)
{
	size_t at = SHF_FILE_HEADER_BYTES;

	if (test_below(3) == 0)
		return test_below(len);

	/* Walk to a random message and take a place in its metadata or at a frame's start. */
	for (uint64_t skip = test_below(6); len - at >= 8 + 160; skip--)
	{
		uint32_t metadata;
		int64_t	 body;

		memcpy(&metadata, data + at + 4, 4);
		if (metadata < 160 || metadata > len - at - 8)
			break;
		if (skip == 0)
			return at + test_below(8 + metadata + 16);
		memcpy(&body, data + at + 8 + 24, 8);
		if (at == SHF_FILE_HEADER_BYTES)
			body = 0;
		if (body < 0 || (uint64_t) body > len - at - 8 - metadata)
			break;
		at += 8 + metadata + (size_t) body;
	}
	return test_below(len);
}

static size_t
mutate(uint8_t *data, size_t len)
{
	for (uint64_t n = 1 + test_below(4); n > 0 && len > 16; n--)
	{
		size_t	 at = pick_place(data, len);
		uint64_t word;

		if (at >= len)
			at = len - 1;
		switch (test_below(6))
		{
			case 0:
				data[at] ^= (uint8_t) (1 << test_below(8));
				break;
			case 1:
				data[at] = (uint8_t) test_random();
				break;
			case 2: /* a small number, maybe negative */
			case 3:
				word = test_below(2) ? test_below(300) : -test_below(300);
				at &= ~(size_t) 3;
				memcpy(data + at, &word, len - at < 8 ? len - at : test_below(2) ? 8 : 4);
				break;
			case 4: /* a limit */
				word = test_below(2) ? UINT64_C(0x7FFFFFFFFFFFFFFF) >> test_below(40) :
									   UINT64_C(1) << test_below(64);
				at &= ~(size_t) 7;
				memcpy(data + at, &word, len - at < 8 ? len - at : 8);
				break;
			case 5:
				if (test_below(8) == 0)
					len = test_below(len) + 1;
				else
				{
					/* a word from elsewhere */
					size_t from = test_below(len - 8);

					at &= ~(size_t) 3;
					memmove(data + at, data + (from & ~(size_t) 3), len - at < 8 ? len - at : 8);
				}
				break;
		}
	}
	return len;
}

static void
run_mutations(long runs)
{
	for (long i = 0; i < runs; i++)
	{
		int		 s = (int) test_below((uint64_t) nseeds);
		uint8_t *copy = malloc(seeds[s].len);
		uint8_t *exact;
		size_t	 len;

		memcpy(copy, seeds[s].data, seeds[s].len);
		len = mutate(copy, seeds[s].len);
		if (i & 1)
			patch_crcs(copy, len);

		/* In memory of exactly its size, so that AddressSanitizer sees the end. */
		exact = malloc(len);
		memcpy(exact, copy, len);
		LLVMFuzzerTestOneInput(exact, len);
		free(exact);
		free(copy);
	}
}

static long runs;

static void
test_mutated_files_are_refused_cleanly(void)
{
	make_seeds();
	for (int s = 0; s < nseeds; s++)
	{
		ShfReader *r;

		CHECK_OK(shf_reader_open_memory(&r, seeds[s].data, seeds[s].len, "seed", &err));
		CHECK_OK(shf_verify_reader(r, NULL, NULL, 0, &err));
		shf_reader_close(r);
	}
	run_mutations(runs);
}

static int
write_corpus(const char *directory)
{
	if (setjmp(test_jump) != 0)
	{
		fprintf(stderr, "%s\n", test_message);
		return 1;
	}
	make_seeds();
	for (int s = 0; s < nseeds; s++)
	{
		char path[512];

		snprintf(path, sizeof(path), "%s/seed%d", directory, s);
		test_write_file(path, seeds[s].data, seeds[s].len);
	}
	return 0;
}

int
main(int argc, char **argv)
{
	if (argc == 2 && strspn(argv[1], "0123456789") == strlen(argv[1]))
	{
		runs = atol(argv[1]);
		RUN(test_mutated_files_are_refused_cleanly);
		for (int s = 0; s < nseeds; s++)
			free(seeds[s].data);
		return test_summary();
	}
	if (argc == 2 && strchr(argv[1], '/') != NULL && access(argv[1], W_OK | X_OK) == 0)
		return write_corpus(argv[1]);
	for (int i = 1; i < argc; i++)
	{
		size_t	 len;
		uint8_t *data;

		if (setjmp(test_jump) != 0)
		{
			fprintf(stderr, "%s\n", test_message);
			return 1;
		}
		data = test_read_file(argv[i], &len);
		LLVMFuzzerTestOneInput(data, len);
		free(data);
	}
	return 0;
}

#endif
