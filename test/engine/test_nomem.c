/*
 * test_nomem.c
 *	  Out of memory anywhere: every allocation of the engine fails once, in its threads
 *	  too.  The call must say so (SHF_ERR_NOMEM), and what exists by then must be released
 *	  without leak or crash.
 *
 * Linked with --wrap for malloc and its kin, so that only the engine's own calls fail,
 * not those inside liblz4 and libzstd.
 */
#include "sample.h"

#include "../../src/engine/reader.h"
#include "../../src/engine/writer.h"

#include <poll.h>

extern void *__real_malloc(size_t size);
extern void *__real_calloc(size_t n, size_t size);
extern void *__real_realloc(void *p, size_t size);
extern void *__real_aligned_alloc(size_t align, size_t size);
extern char *__real_strdup(const char *s);

extern void *__wrap_malloc(size_t size);
extern void *__wrap_calloc(size_t n, size_t size);
extern void *__wrap_realloc(void *p, size_t size);
extern void *__wrap_aligned_alloc(size_t align, size_t size);
extern char *__wrap_strdup(const char *s);

static long countdown = -1; /* fails when it reaches 0; negative: never */

static _Thread_local bool exempt; /* the test's own allocations do not fail */

static bool
fails(void)
{
	if (exempt || __atomic_load_n(&countdown, __ATOMIC_RELAXED) < 0)
		return false;
	return __atomic_fetch_sub(&countdown, 1, __ATOMIC_RELAXED) == 0;
}

void *
__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *
__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

void *
__wrap_aligned_alloc(size_t align, size_t size)
{
	return fails() ? NULL : __real_aligned_alloc(align, size);
}

char *
__wrap_strdup(const char *s)
{
	return fails() ? NULL : __real_strdup(s);
}

/*
 * Runs scenario with the 1st, 2nd, ... allocation failing until it gets through.  With
 * tolerant, it may also do without the memory.
 */
static void
exhaust(ShfCode (*scenario)(const void *arg), const void *arg, bool tolerant)
{
	for (long n = 0;; n++)
	{
		ShfCode code;

		memset(&err, 0, sizeof(err));
		countdown = n;
		code = scenario(arg);
		if (countdown >= 0)
		{
			countdown = -1;
			CHECK_INT(code, SHF_OK);
			CHECK(n > 5);
			return;
		}
		if (code == SHF_OK && tolerant)
			continue;
		if (code != SHF_ERR_NOMEM || err.code != SHF_ERR_NOMEM)
			FAIL("allocation %ld failed: code %d, err.code %d: %s", n, code, err.code, err.message);
		CHECK(strstr(err.message, "out of memory") != NULL);
	}
}

#define ROWS 900

static int pools; /* writers that had other threads to encode */

typedef struct Case
{
	const ShfSchema *schema;
	ShfCodec		 codec;
	ShfLayoutKind	 layout;
	int				 threads; /* none, or more than one: with other ones that encode */
	const char		*path;
} Case;

static bool
may_start(void *arg)
{
	return true;
}

static void
wait_for(void *arg, int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};

	(void) poll(&ready, 1, -1);
}

static ShfCode
write_file(const void *arg)
{
	const Case		 *c = arg;
	ShfWriterOptions  options = {.partitions = 3,
								 .layout = c->layout,
								 .codec = c->codec,
								 .memory_limit = 64 << 20,
								 .block_rows = 200,
								 .block_bytes = 1 << 20,
								 .block_min_rows = 1,
								 .write_buffer_size = 64 << 10,
								 .path = c->path,
								 .file_mode = 0600,
								 .dir_mode = 0700,
								 .max_open_files = 2};
	uint64_t		  rows = ROWS;
	ShfWriter		 *w;
	ShfBuffer		  scratch = {0};
	const ShfSegment *segments;
	int				  nsegments;
	ShfCode			  code;
	char			  command[300];

	if (c->threads > 0)
	{
		/* Small enough to be full soon, and large enough for the other threads. */
		options.start_thread = may_start;
		options.wait = wait_for;
		options.threads = c->threads;
		options.block_bytes = options.write_buffer_size = 8 << 10;
		options.memory_limit = c->codec.kind == SHF_CODEC_ZSTD ? 20 << 20 : 6 << 20;
	}
	snprintf(command, sizeof(command), "rm -rf '%s'*", c->path);
	if (system(command) != 0)
		return SHF_ERR_IO;
	code = shf_writer_open(&w, c->schema, &options, &err);
	if (code != SHF_OK)
		return code;
	for (uint64_t n = 0; code == SHF_OK && n < rows; n++)
	{
		/* It starts, or does not, when the row buffer is full for the first time. */
		if (c->threads > 0 && w->thread == NULL && !w->no_thread)
			rows = n + ROWS;
		exempt = true;
		sample_row(c->schema, shf_writer_layout(w), shf_writer_row(w), n, &scratch);
		exempt = false;
		code = shf_writer_append(w, (uint32_t) (n % 3), &err);
	}
	if (c->threads > 0 && code == SHF_OK && w->pool != NULL)
		pools++;
	if (code == SHF_OK)
		code = shf_writer_finish(w, &segments, &nsegments, &err);
	shf_writer_close(w);
	free(scratch.data);
	return code;
}

static ShfCode
read_file(const void *arg)
{
	const Case *c = arg;
	ShfReader  *r;
	ShfBatch   *b = NULL;
	uint64_t	at;
	ShfCode		code = shf_reader_open(&r, c->path, &err);

	if (code != SHF_OK)
		return code;
	code = shf_batch_create(&b, shf_reader_schema(r), &err);
	at = SHF_FILE_HEADER_BYTES + r->schema_bytes;
	while (code == SHF_OK)
	{
		const uint8_t *data;

		code = shf_reader_bytes(r, at, 8, "a block", &data, &err);
		if (code != SHF_OK || memcmp(data, shf_stream_end, 8) == 0)
			break;
		code = shf_reader_any_block(r, b, at, r->size, &err);
		for (int i = 0; code == SHF_OK && i < shf_reader_schema(r)->nfields; i++)
		{
			const ShfColumn *column;

			code = shf_batch_column(b, i, &column, &err);
		}
		at += shf_batch_message(b).len;
	}
	shf_batch_free(b);
	shf_reader_close(r);
	return code;
}

static ShfCode
verify_file(const void *arg)
{
	return shf_verify_file(((const Case *) arg)->path, NULL, NULL, 0, &err);
}

static const Case cases[] = {
	{&sample_flat, {SHF_CODEC_LZ4, 1}, SHF_LAYOUT_LOG},
	{&sample_nested, {SHF_CODEC_ZSTD, 1}, SHF_LAYOUT_LOG},
	{&sample_small, {SHF_CODEC_LZ4, 9}, SHF_LAYOUT_LOG},
	{&sample_nested, {SHF_CODEC_NONE, 0}, SHF_LAYOUT_LOG},
	{&sample_small, {SHF_CODEC_LZ4, 1}, SHF_LAYOUT_PARTITION_FILES},
	{&sample_flat, {SHF_CODEC_LZ4, 1}, SHF_LAYOUT_LOG, 3},
	{&sample_flat, {SHF_CODEC_ZSTD, 1}, SHF_LAYOUT_PARTITION_FILES, 2},
};

#define NCASES ((int) (sizeof(cases) / sizeof(cases[0])))

static void
test_writer_out_of_memory(void)
{
	for (int i = 0; i < NCASES; i++)
	{
		Case c = cases[i];

		c.path = test_path("nomem");
		pools = 0;
		exhaust(write_file, &c, true);
		CHECK(c.threads == 0 || pools > 0);
	}
}

static void
test_reader_out_of_memory(void)
{
	for (int i = 0; i < NCASES; i++)
	{
		Case c = cases[i];
		char file[300];

		c.path = test_path("nomem");
		CHECK_INT(write_file(&c), SHF_OK);
		snprintf(file, sizeof(file),
				 c.layout == SHF_LAYOUT_LOG ? "%s-0.arrow" : "%s-0/p00000.arrow", c.path);
		c.path = file;
		exhaust(read_file, &c, false);
		exhaust(verify_file, &c, false);
	}
}

int
main(void)
{
	RUN(test_writer_out_of_memory);
	RUN(test_reader_out_of_memory);
	return test_summary();
}
