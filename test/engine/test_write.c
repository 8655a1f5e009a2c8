/*
 * test_write.c
 *	  The writer: what it is given comes back, whatever the layout, codec, block size
 *	  and memory limit, and the limits of what it takes.
 *
 * test/interop reads the same kind of files with other Arrow implementations.
 */
#include "written.h"

#include <sys/mman.h>

/* ---------------------------------------------------------------- values */

static void
test_every_kind_in_every_codec_and_layout(void)
{
	static const ShfSchema *const schemas[] = {&sample_flat, &sample_nested};

	for (int s = 0; s < 2; s++)
	{
		for (int codec = 0; codec < NCODECS; codec++)
		{
			for (int l = 0; l < 2; l++)
			{
				Case c = new_case(schemas[s], layouts[l], 5, 4000);

				c.options.codec = codecs[codec];
				check_case(&c);
				close_case(&c);
			}
		}
	}
}

/* Sub-batch boundaries, bitmap tails, single rows. */
static void
test_block_sizes(void)
{
	static const uint32_t sizes[] = {1, 7, 8, 255, 256, 257, 1000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
	{
		Case c = new_case(&sample_flat, SHF_LAYOUT_LOG, 3, 2500);

		c.options.block_rows = sizes[i];
		check_case(&c);
		close_case(&c);
	}
}

static void
test_block_bytes_cut(void)
{
	static const ShfSchema *const schemas[] = {&sample_flat, &sample_nested, &sample_key};

	for (int s = 0; s < 3; s++)
	{
		Case c = new_case(schemas[s], SHF_LAYOUT_LOG, 3, 3000);

		c.options.block_bytes = 4096;
		c.options.codec = codecs[1];
		check_case(&c);
		CHECK(c.segments[0].blocks >= c.segments[0].raw_bytes / 12000);
		close_case(&c);
	}
}

static void
test_no_rows_leave_nothing(void)
{
	for (int l = 0; l < 2; l++)
	{
		Case c = new_case(&sample_flat, layouts[l], 10, 0);
		char path[300];

		check_case(&c);
		CHECK_INT(c.nsegments, 0);
		snprintf(path, sizeof(path), "%s-0", c.options.path);
		CHECK_INT(access(path, F_OK), -1);
		snprintf(path, sizeof(path), "%s-0.arrow", c.options.path);
		CHECK_INT(access(path, F_OK), -1);
		close_case(&c);
	}
}

static void
test_one_row(void)
{
	for (int codec = 0; codec < NCODECS; codec++)
	{
		Case c = new_case(&sample_flat, SHF_LAYOUT_LOG, 1000000, 1);

		c.options.codec = codecs[codec];
		c.options.memory_limit = 256 << 20;
		check_case(&c);
		CHECK_INT(c.segments[0].nextents, 1);
		close_case(&c);
	}
}

static void
test_no_columns(void)
{
	for (int l = 0; l < 2; l++)
	{
		Case c = new_case(&sample_empty, layouts[l], 7, 100000);

		check_case(&c);
		CHECK_INT(c.segments[0].rows, 100000);
		CHECK_INT(c.segments[0].raw_bytes, 0);
		CHECK(c.segments[0].blocks <= 7 * (100000 / 7 / 8192 + 2));
		close_case(&c);
	}
}

static void
test_wide_schema(void)
{
	ShfField		 *fields = calloc(1600, sizeof(ShfField));
	ShfSchema		  schema = {.nfields = 1600, .fields = fields};
	ShfWriterOptions  options;
	ShfWriter		 *w;
	const ShfSegment *segments;
	int				  nsegments;
	ShfReader		 *reader;
	ShfBatch		 *batch;
	const ShfColumn	 *column;
	Case			  c = new_case(&schema, SHF_LAYOUT_LOG, 2, 0);

	for (int i = 0; i < 1600; i++)
	{
		fields[i].name = "c";
		fields[i].kind = i % 3 == 0 ? SHF_INT16 : i % 3 == 1 ? SHF_BOOL : SHF_UTF8;
		fields[i].nullable = true;
	}
	options = c.options;
	options.codec = codecs[1];
	CHECK_OK(shf_writer_open(&w, &schema, &options, &err));
	for (int n = 0; n < 300; n++)
	{
		ShfRow			   *row = shf_writer_row(w);
		const ShfRowLayout *layout = shf_writer_layout(w);

		shf_row_clear(layout, row);
		for (int i = 0; i < 1600; i++)
		{
			int16_t value = (int16_t) (n + i);

			if ((n + i) % 5 == 0)
				shf_row_set_null(layout, row, i);
			else if (i % 3 == 0)
				memcpy(row->fixed + layout->slot[i], &value, 2);
			else if (i % 3 == 1)
				row->fixed[layout->slot[i]] = (uint8_t) (i / 3 + n) & 1;
			else
				row->var[layout->var[i]] = (ShfBytes){"abc", (size_t) (i + n) % 4};
		}
		CHECK_OK(shf_writer_append(w, 0, &err));
	}
	CHECK_OK(shf_writer_finish(w, &segments, &nsegments, &err));
	CHECK_OK(
		shf_verify_file(segment_file(&c, segments, 0), segments->id, segments->extents, 1, &err));
	CHECK_OK(shf_reader_open(&reader, segment_file(&c, segments, 0), &err));
	CHECK_OK(shf_batch_create(&batch, &schema, &err));
	CHECK_OK(
		shf_reader_block(reader, batch, segments->extents[0].offset, segments->bytes, 0, &err));
	for (int i = 0; i < 1600; i++)
	{
		CHECK_OK(shf_batch_column(batch, i, &column, &err));
		for (int n = 0; n < (int) shf_batch_rows(batch); n++)
		{
			bool	present = column->validity[n / 8] >> (n % 8) & 1;
			int16_t value = (int16_t) (n + i);

			CHECK_INT(present, (n + i) % 5 != 0);
			if (!present)
				continue;
			if (i % 3 == 0)
				CHECK_MEM(column->data + 2 * n, &value, 2);
			else if (i % 3 == 1)
				CHECK_INT(column->data[n / 8] >> (n % 8) & 1, (i / 3 + n) & 1);
			else
			{
				CHECK_INT(column->offsets[n + 1] - column->offsets[n], (i + n) % 4);
				CHECK_MEM(column->data + column->offsets[n], "abc", (size_t) (i + n) % 4);
			}
		}
	}
	shf_batch_free(batch);
	shf_reader_close(reader);
	shf_writer_close(w);
	close_case(&c);
	free(fields);
}

/* All values NULL, and texts all empty: buffers of no or one offset's length. */
static void
test_nulls_and_empty_texts(void)
{
	for (int empty = 0; empty < 2; empty++)
	{
		Case	   c = new_case(&sample_small, SHF_LAYOUT_LOG, 1, 0);
		ShfReader *reader;
		ShfBatch  *batch;

		CHECK_OK(shf_writer_open(&c.writer, c.schema, &c.options, &err));
		for (int n = 0; n < 1000; n++)
		{
			ShfRow *row = shf_writer_row(c.writer);

			shf_row_clear(shf_writer_layout(c.writer), row);
			for (int i = 0; i < 3 && !empty; i++)
				shf_row_set_null(shf_writer_layout(c.writer), row, i);
			CHECK_OK(shf_writer_append(c.writer, 0, &err));
		}
		CHECK_OK(shf_writer_finish(c.writer, &c.segments, &c.nsegments, &err));
		CHECK_OK(shf_verify_file(segment_file(&c, c.segments, 0), c.segments->id,
								 c.segments->extents, 1, &err));
		CHECK_OK(shf_reader_open(&reader, segment_file(&c, c.segments, 0), &err));
		CHECK_OK(shf_batch_create(&batch, c.schema, &err));
		CHECK_OK(shf_reader_block(reader, batch, c.segments->extents[0].offset, c.segments->bytes,
								  0, &err));
		for (int i = 0; i < 3; i++)
		{
			const ShfColumn *column;

			CHECK_OK(shf_batch_column(batch, i, &column, &err));
			CHECK_INT(column->length, 1000);
			CHECK_INT(column->null_count, empty ? 0 : 1000);
			if (i == 1)
				CHECK_INT(column->offsets[1000], 0);
		}
		shf_batch_free(batch);
		shf_reader_close(reader);
		close_case(&c);
	}
}

/* ---------------------------------------------------------------- runs and memory */

/* Many runs; retained rows keep their order; the accounted peak stays in the limit. */
static void
test_tiny_memory(void)
{
	for (int l = 0; l < 2; l++)
	{
		for (uint32_t min_rows = 1; min_rows <= 1000; min_rows *= 10)
		{
			Case c = new_case(&sample_small, layouts[l], 300, 60000);

			c.options.block_bytes = 16384;
			c.options.write_buffer_size = 16384;
			c.options.block_min_rows = min_rows;
			c.options.memory_limit = shf_writer_min_memory(c.schema, &c.options) + 600000;
			check_case(&c);
			CHECK(shf_writer_metrics(c.writer)->runs > 3);
			close_case(&c);
		}
	}
}

static void
test_smallest_memory(void)
{
	Case c = new_case(&sample_small, SHF_LAYOUT_LOG, 20, 20000);
	char needed[32];

	c.options.block_bytes = 8192;
	c.options.write_buffer_size = 4096;
	c.options.codec = codecs[1];
	c.options.memory_limit = shf_writer_min_memory(c.schema, &c.options);
	snprintf(needed, sizeof(needed), "%llu", (unsigned long long) c.options.memory_limit);
	c.options.memory_limit--;
	CHECK_ERR(shf_writer_open(&c.writer, c.schema, &c.options, &err), SHF_ERR_LIMIT, needed);
	CHECK(c.writer == NULL);

	/* A few runs' worth of index entries more, and it works. */
	c.options.memory_limit += 400000;
	check_case(&c);
	close_case(&c);
}

/* What waits for the next run makes larger blocks. */
static void
test_retained_rows_make_larger_blocks(void)
{
	uint64_t blocks[2];

	for (int i = 0; i < 2; i++)
	{
		Case c = new_case(&sample_small, SHF_LAYOUT_LOG, 2000, 200000);

		c.options.block_min_rows = i == 0 ? 1 : 64;
		c.options.memory_limit = 11 << 19;
		check_case(&c);
		blocks[i] = shf_writer_metrics(c.writer)->blocks;
		close_case(&c);
	}
	CHECK(blocks[1] < blocks[0] * 9 / 10);
}

static void
test_many_partitions(void)
{
	Case c = new_case(&sample_key, SHF_LAYOUT_LOG, 100000, 200000);

	check_case(&c);
	close_case(&c);
}

/* A log segment ends at 500,000 extents. */
static void
test_segment_rolls(void)
{
	Case c = new_case(&sample_empty, SHF_LAYOUT_LOG, 700000, 1500000);

	c.options.memory_limit = 512 << 20;
	CHECK_OK(write_case(&c));
	CHECK_INT(c.nsegments, 2);
	CHECK_INT(c.segments[0].nextents, SHF_SEGMENT_MAX_EXTENTS);
	CHECK_INT(c.segments[0].rows + c.segments[1].rows, 1500000);
	CHECK(memcmp(c.segments[0].id, c.segments[1].id, 16) != 0);
	for (int s = 0; s < 2; s++)
		CHECK_OK(shf_verify_file(segment_file(&c, &c.segments[s], 0), c.segments[s].id,
								 c.segments[s].extents, c.segments[s].nextents, &err));
	close_case(&c);
}

/*
 * With the least memory there is, writing goes on however much has been written: the index
 * leaves memory in time, and segments are complete without it.
 */
static void
test_index_leaves_memory(void)
{
	for (int l = 0; l < 2; l++)
	{
		for (int large = 0; large < 2; large++)
		{
			Case	 c = new_case(&sample_small, layouts[l], 50, 100000);
			int		 spilled = 0;
			uint64_t index = 0;

			struct stat st;
			char		path[300];

			c.options.block_bytes = 4096;
			c.options.block_rows = 10;
			c.options.block_min_rows = 1;
			c.options.write_buffer_size = 4096;
			c.options.memory_limit = shf_writer_min_memory(c.schema, &c.options);
			c.large_bytes = large ? 5000 : 0;
			check_case(&c);
			CHECK(c.nsegments > 3);
			for (int s = 0; s < c.nsegments; s++)
			{
				if (c.segments[s].extents != NULL)
					continue;
				spilled++;
				CHECK_INT(c.segments[s].index_offset, index);
				index += sizeof(ShfExtent) * c.segments[s].nextents;
			}
			CHECK(spilled >= c.nsegments - 1);
			snprintf(path, sizeof(path), "%s.index", c.options.path);
			CHECK_INT(stat(path, &st), 0);
			CHECK_INT((uint64_t) st.st_size, index);
			CHECK_INT(st.st_mode & 0777, 0600);

			/* The end of the file is missing. */
			if (spilled > 0)
			{
				ShfExtent *extents = malloc(sizeof(ShfExtent) * SHF_SEGMENT_MAX_EXTENTS);

				CHECK_INT(truncate(path, (off_t) index - 1), 0);
				CHECK_ERR(shf_segment_load_extents(&c.segments[spilled - 1], c.options.path,
												   extents, &err),
						  SHF_ERR_CORRUPT, "before 1 bytes");
				CHECK_INT(unlink(path), 0);
				CHECK_ERR(shf_segment_load_extents(&c.segments[0], c.options.path, extents, &err),
						  SHF_ERR_IO, "could not open");
				free(extents);
			}
			close_case(&c);
		}
	}
}

/* ---------------------------------------------------------------- large rows */

static void
test_large_rows_between_small_ones(void)
{
	for (int codec = 0; codec < NCODECS; codec++)
	{
		for (int l = 0; l < 2; l++)
		{
			for (int random = 0; random < 2; random++)
			{
				Case c = new_case(&sample_small, layouts[l], 3, 200);

				c.options.codec = codecs[codec];
				c.options.block_bytes = 65536;
				c.large_bytes = 300001;
				c.large_random = random;
				check_case(&c);
				close_case(&c);
			}
		}
	}
}

/* Just below and above the border, where the packed row is padded. */
static void
test_rows_at_the_border_of_large(void)
{
	for (size_t bytes = 4030; bytes <= 4100; bytes += 5)
	{
		Case c = new_case(&sample_small, SHF_LAYOUT_LOG, 2, 50);

		c.options.codec = codecs[1];
		c.options.block_bytes = 4096;
		c.large_bytes = bytes;
		check_case(&c);
		close_case(&c);
	}
}

/* Large rows of all kinds: every row is one when block_bytes is tiny. */
static void
test_large_rows_of_every_kind(void)
{
	static const ShfSchema *const schemas[] = {&sample_flat, &sample_nested};

	for (int s = 0; s < 2; s++)
	{
		for (int codec = 0; codec < NCODECS; codec++)
		{
			Case c = new_case(schemas[s], SHF_LAYOUT_LOG, 2, 150);

			c.options.codec = codecs[codec];
			c.options.block_bytes = 1;
			check_case(&c);
			CHECK_INT(c.segments[0].blocks, 150);
			close_case(&c);
		}
	}
}

/* Offsets are int32: the message names the column.  The bytes are never looked at. */
static void
test_value_too_long(void)
{
	size_t	len = (size_t) INT32_MAX + 1;
	void   *data = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	Case	c = new_case(&sample_small, SHF_LAYOUT_LOG, 1, 0);
	ShfRow *row;

	CHECK(data != MAP_FAILED);
	CHECK_OK(shf_writer_open(&c.writer, c.schema, &c.options, &err));
	row = shf_writer_row(c.writer);
	shf_row_clear(shf_writer_layout(c.writer), row);
	row->var[0] = (ShfBytes){data, len};
	CHECK_ERR(shf_writer_append(c.writer, 0, &err), SHF_ERR_LIMIT, "\"v\"");
	close_case(&c);
	munmap(data, len);
}

static void
test_malformed_nested_values(void)
{
	static const char *const values[] = {"",
										 "\1\0\0",
										 "\1\0\0\0",
										 "\1\0\0\0\2",
										 "\1\0\0\0\0abc",
										 "\0\0\0\0\0",
										 "\377\377\377\377\1"};
	static const size_t		 lengths[] = {0, 3, 4, 5, 8, 5, 5};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
	{
		Case	c = new_case(&sample_nested, SHF_LAYOUT_LOG, 1, 0);
		ShfRow *row;

		CHECK_OK(shf_writer_open(&c.writer, c.schema, &c.options, &err));
		row = shf_writer_row(c.writer);
		shf_row_clear(shf_writer_layout(c.writer), row);
		row->var[0] = (ShfBytes){values[i], lengths[i]};
		CHECK_OK(shf_writer_append(c.writer, 0, &err));
		CHECK_ERR(shf_writer_finish(c.writer, &c.segments, &c.nsegments, &err), SHF_ERR_INVALID,
				  "\"numbers\"");
		close_case(&c);
	}
}

int
main(void)
{
	RUN(test_every_kind_in_every_codec_and_layout);
	RUN(test_block_sizes);
	RUN(test_block_bytes_cut);
	RUN(test_no_rows_leave_nothing);
	RUN(test_one_row);
	RUN(test_no_columns);
	RUN(test_wide_schema);
	RUN(test_nulls_and_empty_texts);
	RUN(test_tiny_memory);
	RUN(test_smallest_memory);
	RUN(test_retained_rows_make_larger_blocks);
	RUN(test_many_partitions);
	RUN(test_segment_rolls);
	RUN(test_index_leaves_memory);
	RUN(test_large_rows_between_small_ones);
	RUN(test_rows_at_the_border_of_large);
	RUN(test_large_rows_of_every_kind);
	RUN(test_value_too_long);
	RUN(test_malformed_nested_values);
	return test_summary();
}
