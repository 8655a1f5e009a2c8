/*
 * test_output.c
 *	  Where blocks go: streams, partition files and their descriptors, how blocks are
 *	  stored, and everything that can go wrong with files, options and callbacks.
 */
#include "written.h"

#include "../../src/engine/codec.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

/* ---------------------------------------------------------------- streams */

static ShfCode
collect(void *arg, const void *data, size_t len, ShfError *e)
{
	ShfBuffer *out = arg;
	ShfCode	   code = shf_buffer_reserve(out, len, e);

	if (code == SHF_OK)
	{
		memcpy(out->data + out->len, data, len);
		out->len += len;
	}
	return code;
}

/* Offset of the message behind the one at offset at; 0 at the end of the stream. */
static size_t
next_message(const ShfBuffer *stream, size_t at, ShfBatchHeader *header)
{
	uint32_t prefix[2];

	CHECK(at + 8 <= stream->len);
	memcpy(prefix, stream->data + at, 8);
	CHECK_INT(prefix[0], 0xFFFFFFFF);
	if (prefix[1] == 0)
	{
		CHECK_INT(at + 8, stream->len);
		return 0;
	}
	CHECK_INT(prefix[1] % 8, 0);
	if (header == NULL)
		return at + 8 + prefix[1];
	CHECK_OK(shf_parse_batch_message(stream->data + at + 8, prefix[1], header, &err));
	return at + 8 + prefix[1] + (size_t) header->body_bytes;
}

/* A stream has the blocks of all rows, large ones included, between schema and end. */
static void
test_stream(void)
{
	for (int codec = 0; codec < NCODECS; codec++)
	{
		Case		   c = new_case(&sample_small, SHF_LAYOUT_STREAM, 4, 5000);
		ShfBuffer	   stream = {0};
		ShfReader	  *reader;
		ShfBatch	  *batch;
		ShfBatchHeader header;
		size_t		   at = 8;
		size_t		   next;

		c.options.write_stream = collect;
		c.options.write_arg = &stream;
		c.options.codec = codecs[codec];
		c.options.block_bytes = 16384;
		c.large_bytes = 20000;

		/* With the magic in front it is a file without footer. */
		CHECK_OK(collect(&stream, "ARROW1\0\0", 8, &err));
		CHECK_OK(write_case(&c));
		CHECK_INT(c.nsegments, 0);
		CHECK_INT(shf_writer_metrics(c.writer)->stored_bytes, stream.len - 8);
		link_rows(&c);
		CHECK_OK(shf_reader_open_memory(&reader, stream.data, stream.len, "stream", &err));
		CHECK_OK(shf_batch_create(&batch, c.schema, &err));
		at = next_message(&stream, at, NULL);
		while ((next = next_message(&stream, at, &header)) != 0)
		{
			CHECK_OK(shf_reader_block(reader, batch, at, next, header.partition, &err));
			check_block(&c, batch, header.partition);
			at = next;
		}
		check_all_read(&c);
		shf_batch_free(batch);
		shf_reader_close(reader);
		free(stream.data);
		close_case(&c);
	}
}

static void
test_empty_stream(void)
{
	Case	  c = new_case(&sample_small, SHF_LAYOUT_STREAM, 4, 0);
	ShfBuffer stream = {0};
	void	 *message;
	size_t	  len;

	c.options.write_stream = collect;
	c.options.write_arg = &stream;
	CHECK_OK(write_case(&c));
	CHECK_OK(shf_stream_schema(c.schema, &message, &len, &err));
	CHECK_INT(stream.len, len + 8);
	CHECK_MEM(stream.data, message, len);
	CHECK_MEM(stream.data + len, shf_stream_end, 8);
	free(message);
	free(stream.data);
	close_case(&c);
}

static ShfCode
fail_later(void *arg, const void *data, size_t len, ShfError *e)
{
	int *calls = arg;

	(void) data;
	(void) len;
	if (++*calls < 3)
		return SHF_OK;
	return shf_error(e, SHF_ERR_IO, "the other side went away");
}

static void
test_failing_stream(void)
{
	Case c = new_case(&sample_small, SHF_LAYOUT_STREAM, 4, 100000);
	int	 calls = 0;

	c.options.write_stream = fail_later;
	c.options.write_arg = &calls;
	c.options.write_buffer_size = 4096;
	CHECK_INT(write_case(&c), SHF_ERR_IO);
	CHECK_STR(err.message, "the other side went away");
	CHECK_INT(calls, 3);
	close_case(&c);
}

/* ---------------------------------------------------------------- how blocks are stored */

/* Calls visit for each block of a log of one extent. */
static void
visit_blocks(const Case *c, void (*visit)(const ShfBatchHeader *header, const uint8_t *body))
{
	const ShfExtent *extent = &c->segments[0].extents[0];
	ShfBuffer		 file = {0};
	size_t			 at = extent->offset;

	file.data = test_read_file(segment_file(c, &c->segments[0], 0), &file.len);
	for (uint32_t b = 0; b < extent->blocks; b++)
	{
		ShfBatchHeader header;
		size_t		   next = next_message(&file, at, &header);

		visit(&header, file.data + next - header.body_bytes);
		at = next;
	}
	free(file.data);
}

static int64_t
buffer_prefix(const ShfBatchHeader *header, const uint8_t *body, int b)
{
	int64_t span[2];
	int64_t prefix;

	memcpy(span, header->buffers + 16 * b, 16);
	if (span[1] == 0)
		return 0;
	memcpy(&prefix, body + span[0], 8);
	return prefix;
}

static int seen_raw;
static int seen_blocks;

/* Columns: int64 random, decimal random, decimal constant, text constant. */
static void
visit_decimals(const ShfBatchHeader *header, const uint8_t *body)
{
	seen_blocks++;
	CHECK(header->compressed);
	seen_raw += buffer_prefix(header, body, 1) == -1;
	CHECK_INT(buffer_prefix(header, body, 3), 16 * header->rows);
	CHECK_INT(buffer_prefix(header, body, 5), 16 * header->rows);
}

/* Decimals that do not shrink become stored frames, other values stay raw. */
static void
test_decimals_are_never_raw(void)
{
	static ShfField fields[] = {
		{.name = "random", .kind = SHF_INT64},
		{.name = "decimal", .kind = SHF_DECIMAL128, .precision = 38},
		{.name = "constant", .kind = SHF_DECIMAL128, .precision = 38},
		{.name = "text", .kind = SHF_UTF8},
	};
	static const ShfSchema schema = {.nfields = 4, .fields = fields};

	for (int codec = 1; codec < NCODECS; codec++)
	{
		Case c = new_case(&schema, SHF_LAYOUT_LOG, 1, 0);

		c.options.codec = codecs[codec];
		c.options.block_rows = 1000;
		CHECK_OK(shf_writer_open(&c.writer, &schema, &c.options, &err));
		for (int n = 0; n < 3000; n++)
		{
			ShfRow			   *row = shf_writer_row(c.writer);
			const ShfRowLayout *layout = shf_writer_layout(c.writer);
			uint64_t			random[3] = {test_random(), test_random(), test_random() >> 8};

			shf_row_clear(layout, row);
			memcpy(row->fixed + layout->slot[0], random, 8);
			memcpy(row->fixed + layout->slot[1], random + 1, 16);
			row->var[0] = (ShfBytes){"all of them are the same", 24};
			CHECK_OK(shf_writer_append(c.writer, 0, &err));
		}
		CHECK_OK(shf_writer_finish(c.writer, &c.segments, &c.nsegments, &err));
		CHECK_OK(shf_verify_file(segment_file(&c, c.segments, 0), c.segments->id,
								 c.segments->extents, 1, &err));
		seen_raw = seen_blocks = 0;
		visit_blocks(&c, visit_decimals);
		CHECK_INT(seen_blocks, 3);
		CHECK_INT(seen_raw, 3);
		close_case(&c);
	}
}

static void
visit_plain(const ShfBatchHeader *header, const uint8_t *body)
{
	(void) body;
	seen_blocks++;
	CHECK(!header->compressed);
}

/* Small bodies, and those that do not shrink, have no compression at all. */
static void
test_plain_blocks_in_compressed_files(void)
{
	for (int random = 0; random < 2; random++)
	{
		Case c = new_case(&sample_key, SHF_LAYOUT_LOG, 1, 0);
		int	 rows = random ? 5000 : 500;

		c.options.codec = codecs[1];
		CHECK_OK(shf_writer_open(&c.writer, c.schema, &c.options, &err));
		for (int n = 0; n < rows; n++)
		{
			ShfRow	*row = shf_writer_row(c.writer);
			uint64_t value = random ? test_random() : 0;

			shf_row_clear(shf_writer_layout(c.writer), row);
			memcpy(row->fixed + shf_writer_layout(c.writer)->slot[0], &value, 8);
			CHECK_OK(shf_writer_append(c.writer, 0, &err));
		}
		CHECK_OK(shf_writer_finish(c.writer, &c.segments, &c.nsegments, &err));
		seen_blocks = 0;
		visit_blocks(&c, visit_plain);
		CHECK_INT(seen_blocks, 1);
		close_case(&c);
	}
}

/* ---------------------------------------------------------------- partition files */

static int most_descriptors;

static void
count_descriptors(void *arg)
{
	DIR *dir = opendir("/proc/self/fd");
	int	 n = -3; /* ".", "..", and this directory */

	(void) arg;
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	if (n > most_descriptors)
		most_descriptors = n;
}

static void
test_bounded_descriptors(void)
{
	static const int limits[] = {1, 2, 8};
	int				 before;

	most_descriptors = 0;
	count_descriptors(NULL);
	before = most_descriptors;
	for (int i = 0; i < 3; i++)
	{
		for (int sync = 0; sync < 2; sync++)
		{
			Case c = new_case(&sample_key, SHF_LAYOUT_PARTITION_FILES, 100, 20000);

			most_descriptors = 0;
			c.options.max_open_files = limits[i];
			c.options.sync = sync;
			c.options.poll = count_descriptors;
			c.options.block_bytes = c.options.write_buffer_size = 4096;
			c.options.memory_limit = shf_writer_min_memory(c.schema, &c.options) + 100000;
			check_case(&c);
			CHECK(shf_writer_metrics(c.writer)->runs > 1);
			CHECK(most_descriptors > before);
			CHECK(most_descriptors <= before + limits[i]);
			close_case(&c);
		}
	}
	most_descriptors = 0;
	count_descriptors(NULL);
	CHECK_INT(most_descriptors, before);
}

static void
test_most_partition_files(void)
{
	Case c = new_case(&sample_key, SHF_LAYOUT_PARTITION_FILES, SHF_MAX_PARTITION_FILES, 20000);

	c.options.max_open_files = 8;
	check_case(&c);
	CHECK(c.segments[0].files > 4000);
	close_case(&c);
}

static void
test_modes_and_sync(void)
{
	for (int l = 0; l < 2; l++)
	{
		Case		c = new_case(&sample_small, layouts[l], 3, 100);
		struct stat st;
		char		path[300];

		c.options.sync = true;
		c.options.file_mode = 0640;
		c.options.dir_mode = 0750;
		check_case(&c);
		CHECK_INT(stat(segment_file(&c, c.segments, 1), &st), 0);
		CHECK_INT(st.st_mode & 0777, 0640);
		if (l == 1)
		{
			snprintf(path, sizeof(path), "%s-0", c.options.path);
			CHECK_INT(stat(path, &st), 0);
			CHECK_INT(st.st_mode & 0777, 0750);
		}
		close_case(&c);
	}
}

/* Exactly the limit may be written, in files or as an image, and not a byte more. */
static void
test_output_limit(void)
{
	static const uint32_t rows[] = {20000, 20000, 10, 10};

	for (int i = 0; i < 4; i++)
	{
		uint64_t bytes;
		Case	 c = new_case(&sample_key, layouts[i % 2], 7, rows[i]);

		c.options.block_bytes = c.options.write_buffer_size = 65536;
		c.options.memory_limit = shf_writer_min_memory(c.schema, &c.options) + 100000;
		c.options.inline_max = 65536;
		check_case(&c);
		bytes = c.segments[0].bytes;
		CHECK_INT(c.segments[0].image != NULL, rows[i] == 10);
		CHECK_INT(shf_writer_written(c.writer), bytes);
		close_case(&c);

		for (int less = 0; less < 2; less++)
		{
			struct stat st;
			uint64_t	stored = 0;

			c = new_case(&sample_key, layouts[i % 2], 7, rows[i]);
			c.options.block_bytes = c.options.write_buffer_size = 65536;
			c.options.memory_limit = shf_writer_min_memory(c.schema, &c.options) + 100000;
			c.options.inline_max = 65536;
			c.options.output_limit = bytes - (uint64_t) less;
			if (less == 0)
				check_case(&c);
			else
			{
				CHECK_ERR(write_case(&c), SHF_ERR_LIMIT, "is above the limit of");
				CHECK_INT(shf_writer_written(c.writer), bytes);
			}
			for (uint32_t p = 0; p < 7; p++)
			{
				char path[300];

				if (i % 2 == 0)
					snprintf(path, sizeof(path), "%s-0.arrow", c.options.path);
				else
					snprintf(path, sizeof(path), "%s-0/p%05u.arrow", c.options.path, p);
				if (stat(path, &st) == 0)
					stored += (uint64_t) st.st_size;
				if (i % 2 == 0)
					break;
			}
			if (rows[i] == 10)
				CHECK_INT(stored, 0);
			else if (less == 0)
				CHECK_INT(stored, bytes);
			else
				CHECK(stored > 0 && stored < bytes);
			close_case(&c);
		}
	}
}

/* It may be changed while rows are written. */
static void
test_changed_output_limit(void)
{
	Case	c = new_case(&sample_key, SHF_LAYOUT_LOG, 1, 0);
	ShfRow *row;

	c.options.output_limit = 1;
	CHECK_OK(shf_writer_open(&c.writer, c.schema, &c.options, &err));
	row = shf_writer_row(c.writer);
	shf_row_clear(shf_writer_layout(c.writer), row);
	CHECK_OK(shf_writer_append(c.writer, 0, &err));
	CHECK_INT(shf_writer_written(c.writer), 0);
	shf_writer_limit_output(c.writer, 10000);
	CHECK_OK(shf_writer_drain(c.writer, &err));
	shf_writer_limit_output(c.writer, 0);
	CHECK_ERR(shf_writer_finish(c.writer, &c.segments, &c.nsegments, &err), SHF_ERR_LIMIT,
			  "limit of 0 bytes");
	close_case(&c);
}

/* ---------------------------------------------------------------- images, rest, drain */

/* A small segment has no file, in either layout, unless a large row came first. */
static void
test_images(void)
{
	for (int l = 0; l < 2; l++)
	{
		for (uint64_t rows = 1; rows <= 10000; rows *= 10)
		{
			for (int large = 0; large < 2; large++)
			{
				Case c = new_case(&sample_small, layouts[l], 5, rows);

				c.options.inline_max = 16384;
				c.options.codec = codecs[1];
				c.options.block_bytes = 1024;
				c.options.sync = true;
				c.large_bytes = large ? 2000 : 0;
				check_case(&c);
				CHECK_INT(c.nsegments, 1);
				if (rows <= 10 && (l == 0 || !large))
					CHECK(c.segments[0].image != NULL);
				if (rows >= 1000)
					CHECK(c.segments[0].image == NULL);
				close_case(&c);
			}
		}
	}
}

/* Rows come back after any number of rests and drains, and a resting writer is small. */
static void
test_rest_and_drain(void)
{
	for (int l = 0; l < 2; l++)
	{
		for (int drain = 0; drain < 2; drain++)
		{
			for (int sync = 0; sync < 2; sync++)
			{
				Case c = new_case(&sample_flat, layouts[l], 70, 5000);
				int	 before;

				c.options.codec = codecs[1];
				c.options.max_open_files = 9;
				c.options.sync = sync;
				c.options.block_bytes = 8192;
				c.options.write_buffer_size = 8192;
				c.options.memory_limit = shf_writer_min_memory(c.schema, &c.options) + 200000;
				c.rest_every = 300;
				c.drain_every = drain ? 700 : 0;
				check_case(&c);
				close_case(&c);

				c = new_case(&sample_flat, layouts[l], 70, 0);
				CHECK_OK(shf_writer_open(&c.writer, c.schema, &c.options, &err));
				for (int n = 0; n < 100; n++)
				{
					shf_row_clear(shf_writer_layout(c.writer), shf_writer_row(c.writer));
					CHECK_OK(shf_writer_append(c.writer, n % 70, &err));
				}
				most_descriptors = 0;
				count_descriptors(NULL);
				before = most_descriptors;
				CHECK_OK(shf_writer_drain(c.writer, &err));
				CHECK(shf_writer_memory(c.writer) < 200000);
				most_descriptors = 0;
				count_descriptors(NULL);
				CHECK_INT(most_descriptors, before);
				close_case(&c);
			}
		}
	}
}

static int grants;

static int
grant_two(void *arg, int wanted)
{
	CHECK_INT(wanted, *(int *) arg);
	grants++;
	return 2;
}

/* The writer keeps to the descriptors it was granted, and asks again after a rest. */
static void
test_granted_descriptors(void)
{
	for (int l = 0; l < 2; l++)
	{
		Case c = new_case(&sample_key, layouts[l], 100, 20000);
		int	 before;

		most_descriptors = 0;
		count_descriptors(NULL);
		before = most_descriptors;
		most_descriptors = 0;
		grants = 0;
		c.options.open_files = grant_two;
		c.options.open_files_arg = &c.options.max_open_files;
		c.options.poll = count_descriptors;
		c.options.sync = true;
		c.drain_every = 5000;
		check_case(&c);
		CHECK(grants >= 4);
		CHECK(most_descriptors <= before + 2);
		close_case(&c);
	}
}

/* ---------------------------------------------------------------- errors */

static void
test_missing_directory(void)
{
	for (int l = 0; l < 2; l++)
	{
		Case c = new_case(&sample_small, layouts[l], 3, 100);

		free((char *) c.options.path);
		c.options.path = strdup(test_path("missing/segment"));
		CHECK_INT(write_case(&c), SHF_ERR_IO);
		CHECK_INT(err.sys_errno, ENOENT);
		CHECK(strstr(err.message, c.options.path) != NULL);
		close_case(&c);
	}
}

/* A file that is there already is never overwritten. */
static void
test_existing_file(void)
{
	Case	   c = new_case(&sample_small, SHF_LAYOUT_LOG, 3, 100);
	ShfSegment first = {.layout = SHF_LAYOUT_LOG};
	size_t	   len;
	uint8_t	  *data;

	test_write_file(segment_file(&c, &first, 0), "precious", 8);
	CHECK_INT(write_case(&c), SHF_ERR_IO);
	CHECK_INT(err.sys_errno, EEXIST);
	CHECK(strstr(err.message, segment_file(&c, &first, 0)) != NULL);
	data = test_read_file(segment_file(&c, &first, 0), &len);
	CHECK_INT(len, 8);
	CHECK_MEM(data, "precious", 8);
	free(data);
	close_case(&c);
}

/* A write that takes only a part, then none: what a full disk looks like. */
static void
test_file_size_limit(void)
{
	struct rlimit unlimited;
	struct rlimit limited;

	CHECK_INT(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
	signal(SIGXFSZ, SIG_IGN);
	for (int l = 0; l < 2; l++)
	{
		for (rlim_t limit = 100; limit < 300000; limit *= 10)
		{
			Case	c = new_case(&sample_flat, layouts[l], 2, 10000);
			ShfCode code;

			limited = unlimited;
			limited.rlim_cur = limit;
			c.options.write_buffer_size = 8192;
			CHECK_INT(setrlimit(RLIMIT_FSIZE, &limited), 0);
			code = write_case(&c);
			CHECK_INT(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
			CHECK_INT(code, SHF_ERR_IO);
			CHECK_INT(err.sys_errno, EFBIG);
			CHECK(strstr(err.message, c.options.path) != NULL);
			close_case(&c);
		}
	}
}

static void
test_invalid_options(void)
{
	static const struct
	{
		const char		*text;
		ShfWriterOptions options;
	} cases[] = {
		{"partitions", {.partitions = 0}},
		{"partitions", {.partitions = SHF_MAX_PARTITIONS + 1}},
		{"partitions", {.partitions = 4097, .layout = SHF_LAYOUT_PARTITION_FILES}},
		{"block_rows", {.partitions = 1}},
		{"block_bytes", {.partitions = 1, .block_rows = 1}},
		{"write_buffer_size", {.partitions = 1, .block_rows = 1, .block_bytes = 1}},
		{"path", {.partitions = 1, .block_rows = 1, .block_bytes = 1, .write_buffer_size = 1}},
		{"max_open_files",
		 {.partitions = 1, .block_rows = 1, .block_bytes = 1, .write_buffer_size = 1, .path = "x"}},
		{"stream",
		 {.partitions = 1,
		  .block_rows = 1,
		  .block_bytes = 1,
		  .write_buffer_size = 1,
		  .layout = SHF_LAYOUT_STREAM}},
		{"layout", {.partitions = 1, .layout = (ShfLayoutKind) 7}},
		{"lz4",
		 {.partitions = 1,
		  .block_rows = 1,
		  .block_bytes = 1,
		  .write_buffer_size = 1,
		  .path = "x",
		  .max_open_files = 1,
		  .codec = {SHF_CODEC_LZ4, 99}}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		ShfWriter *w;

		CHECK_ERR(shf_writer_open(&w, &sample_key, &cases[i].options, &err), SHF_ERR_INVALID,
				  cases[i].text);
		CHECK(w == NULL);
		CHECK_INT(shf_writer_min_memory(&sample_key, &cases[i].options), 0);
	}
}

static void
test_calls_out_of_order(void)
{
	Case c = new_case(&sample_small, SHF_LAYOUT_LOG, 3, 100);

	CHECK_OK(write_case(&c));
	CHECK_ERR(shf_writer_append(c.writer, 0, &err), SHF_ERR_INVALID, "finished");
	CHECK_ERR(shf_writer_finish(c.writer, &c.segments, &c.nsegments, &err), SHF_ERR_INVALID,
			  "finished");
	shf_writer_close(c.writer);
	CHECK_OK(shf_writer_open(&c.writer, c.schema, &c.options, &err));
	shf_row_clear(shf_writer_layout(c.writer), shf_writer_row(c.writer));
	CHECK_ERR(shf_writer_append(c.writer, 3, &err), SHF_ERR_INVALID, "partition 3");
	close_case(&c);
}

/* ---------------------------------------------------------------- jumps */

static jmp_buf poll_jump;
static int	   polls;

static void
jump_at_zero(void *arg)
{
	(void) arg;
	if (polls-- == 0)
		longjmp(poll_jump, 1);
}

/* Leaving by longjmp from any poll, then closing, frees everything. */
static void
test_jump_out_of_poll(void)
{
	for (volatile int l = 0; l < 2; l++)
	{
		for (volatile int at = 0; at < 60; at += 7)
		{
			static Case c;

			c = new_case(&sample_nested, layouts[l], 20, 8000);
			c.options.codec = codecs[1];
			c.options.poll = jump_at_zero;
			c.options.block_bytes = 4096;
			c.options.write_buffer_size = 4096;
			c.options.memory_limit = shf_writer_min_memory(c.schema, &c.options) + 300000;
			polls = at;
			CHECK_OK(shf_writer_open(&c.writer, c.schema, &c.options, &err));
			if (setjmp(poll_jump) == 0)
			{
				static uint8_t none[4];

				for (uint64_t n = 0; n < c.rows; n++)
				{
					ShfRow *row = shf_writer_row(c.writer);

					shf_row_clear(shf_writer_layout(c.writer), row);
					for (int i = 0; i < 4; i++)
						row->var[i] = (ShfBytes){none, 4};
					shf_row_set_null(shf_writer_layout(c.writer), row, 2);
					row->var[2].len = 0;
					CHECK_OK(shf_writer_append(c.writer, partition_of(&c, n), &err));
				}
				shf_writer_finish(c.writer, &c.segments, &c.nsegments, &err);
				FAIL("poll was not called %d times", at);
			}
			CHECK_ERR(shf_writer_append(c.writer, 0, &err), SHF_ERR_INVALID, "after an error");
			close_case(&c);
		}
	}
}

int
main(void)
{
	RUN(test_stream);
	RUN(test_empty_stream);
	RUN(test_failing_stream);
	RUN(test_decimals_are_never_raw);
	RUN(test_plain_blocks_in_compressed_files);
	RUN(test_bounded_descriptors);
	RUN(test_most_partition_files);
	RUN(test_modes_and_sync);
	RUN(test_output_limit);
	RUN(test_changed_output_limit);
	RUN(test_images);
	RUN(test_rest_and_drain);
	RUN(test_granted_descriptors);
	RUN(test_missing_directory);
	RUN(test_existing_file);
	RUN(test_file_size_limit);
	RUN(test_invalid_options);
	RUN(test_calls_out_of_order);
	RUN(test_jump_out_of_poll);
	return test_summary();
}
