/*
 * written.h
 *	  Writes rows of a sample schema and reads them back with the reader: each row must
 *	  come once, in its partition and in order.
 *
 * Values are a function of column and row number (sample.h), the partition one of the
 * row number.
 */
#ifndef WRITTEN_H
#define WRITTEN_H

#include "sample.h"

#include <sys/stat.h>

static const ShfCodec codecs[] = {
	{SHF_CODEC_NONE, 0}, {SHF_CODEC_LZ4, 1}, {SHF_CODEC_LZ4, 4}, {SHF_CODEC_ZSTD, 1}};

#define NCODECS ((int) (sizeof(codecs) / sizeof(codecs[0])))

static const ShfLayoutKind layouts[] = {SHF_LAYOUT_LOG, SHF_LAYOUT_PARTITION_FILES};

/* ---------------------------------------------------------------- a written segment list */

typedef struct Case
{
	const ShfSchema *schema;
	ShfWriterOptions options;
	uint64_t		 rows;

	/* Every tenth row gets a text of so many bytes in column 1, if not 0. */
	size_t large_bytes;
	bool   large_random; /* incompressible */

	/* Every so many rows the writer rests, or is drained, if not 0. */
	uint64_t rest_every;
	uint64_t drain_every;

	ShfWriter		 *writer;
	const ShfSegment *segments;
	int				  nsegments;
	uint64_t		 *next; /* [rows] next row of the same partition */
	uint64_t		 *head; /* [partitions] its first row not read yet */
} Case;

#define NO_ROW UINT64_MAX

static inline Case
new_case(const ShfSchema *schema, ShfLayoutKind layout, uint32_t partitions, uint64_t rows)
{
	static int serial;
	char	   name[32];
	Case	   c = {.schema = schema, .rows = rows};

	snprintf(name, sizeof(name), "case%d", serial++);
	c.options.partitions = partitions;
	c.options.layout = layout;
	c.options.memory_limit = 64 << 20;
	c.options.block_rows = 8192;
	c.options.block_bytes = 1 << 20;
	c.options.block_min_rows = 64;
	c.options.write_buffer_size = 1 << 20;
	c.options.path = strdup(test_path(name));
	c.options.file_mode = 0600;
	c.options.dir_mode = 0700;
	c.options.max_open_files = 16;
	return c;
}

static inline void
close_case(Case *c)
{
	shf_writer_close(c->writer);
	free((char *) c->options.path);
	free(c->next);
	free(c->head);
}

static inline uint32_t
partition_of(const Case *c, uint64_t n)
{
	return (uint32_t) (sample_mix(n, 77) % c->options.partitions);
}

static inline bool
is_large(const Case *c, uint64_t n)
{
	return c->large_bytes > 0 && n % 10 == 3;
}

/* Bytes of different large rows differ from the first on. */
static inline void
large_text(const Case *c, uint64_t n, uint8_t *text)
{
	uint64_t h = n;

	for (size_t i = 0; i < c->large_bytes; i += 8)
	{
		size_t left = c->large_bytes - i < 8 ? c->large_bytes - i : 8;

		h = c->large_random ? sample_mix(h, i) : n * UINT64_C(0x0101010101010101);
		for (size_t b = 0; b < left; b++)
			text[i + b] = (uint8_t) ('!' + (h >> (8 * b)) % 64);
	}
}

static inline ShfCode
write_case(Case *c)
{
	ShfBuffer scratch = {0};
	uint8_t	 *large = malloc(c->large_bytes + 1);
	ShfCode	  code = shf_writer_open(&c->writer, c->schema, &c->options, &err);

	for (uint64_t n = 0; n < c->rows && code == SHF_OK; n++)
	{
		ShfRow			   *row = shf_writer_row(c->writer);
		const ShfRowLayout *layout = shf_writer_layout(c->writer);

		sample_row(c->schema, layout, row, n, &scratch);
		if (is_large(c, n))
		{
			row->fixed[layout->null_offset] &= (uint8_t) ~2;
			large_text(c, n, large);
			row->var[layout->var[1]] = (ShfBytes){large, c->large_bytes};
		}
		code = shf_writer_append(c->writer, partition_of(c, n), &err);
		if (code == SHF_OK && c->drain_every > 0 && n % c->drain_every == 0)
			code = shf_writer_drain(c->writer, &err);
		if (code == SHF_OK && c->rest_every > 0 && n % c->rest_every == 0)
			code = shf_writer_rest(c->writer, &err);
	}
	if (code == SHF_OK)
		code = shf_writer_finish(c->writer, &c->segments, &c->nsegments, &err);
	free(scratch.data);
	free(large);
	return code;
}

/* Which rows are expected in which partition. */
static inline void
link_rows(Case *c)
{
	c->next = malloc(sizeof(uint64_t) * (c->rows + 1));
	c->head = malloc(sizeof(uint64_t) * c->options.partitions);
	for (uint32_t p = 0; p < c->options.partitions; p++)
		c->head[p] = NO_ROW;
	for (uint64_t n = c->rows; n-- > 0;)
	{
		c->next[n] = c->head[partition_of(c, n)];
		c->head[partition_of(c, n)] = n;
	}
}

static inline void
check_all_read(const Case *c)
{
	for (uint32_t p = 0; p < c->options.partitions; p++)
		CHECK_INT(c->head[p], NO_ROW);
}

/* Each block holds the next rows of its partition. */
static inline void
check_block(Case *c, ShfBatch *batch, uint32_t partition)
{
	uint32_t rows = shf_batch_rows(batch);
	uint8_t *large = malloc(c->large_bytes + 1);

	CHECK(rows > 0);
	CHECK(rows <= c->options.block_rows);
	for (uint32_t k = 0; k < rows; k++)
	{
		uint64_t n = c->head[partition];

		CHECK(n != NO_ROW);
		for (int i = 0; i < c->schema->nfields; i++)
		{
			const ShfColumn *column;

			CHECK_OK(shf_batch_column(batch, i, &column, &err));
			if (i == 1 && is_large(c, n))
			{
				large_text(c, n, large);
				CHECK_INT(column->offsets[k + 1] - column->offsets[k], c->large_bytes);
				CHECK_MEM(column->data + column->offsets[k], large, c->large_bytes);
			}
			else
				sample_check(column, k, sample_mix((uint64_t) i, n));
		}
		c->head[partition] = c->next[n];
	}
	free(large);
}

static inline const char *
segment_file(const Case *c, const ShfSegment *segment, uint32_t partition)
{
	static char path[512];

	if (segment->layout == SHF_LAYOUT_LOG)
		snprintf(path, sizeof(path), "%s-%u.arrow", c->options.path, segment->number);
	else
		snprintf(path, sizeof(path), "%s-%u/p%05u.arrow", c->options.path, segment->number,
				 partition);
	return path;
}

static inline void
check_extent(Case *c, const ShfSegment *segment, const ShfExtent *extent, ShfBatch *batch)
{
	uint64_t   at = extent->offset;
	uint64_t   rows = 0;
	uint64_t   raw = 0;
	ShfReader *reader;

	if (segment->image != NULL)
		CHECK_OK(shf_reader_open_memory(&reader, segment->image, segment->bytes, "image", &err));
	else
		CHECK_OK(shf_reader_open(&reader, segment_file(c, segment, extent->partition), &err));
	for (uint32_t b = 0; b < extent->blocks; b++)
	{
		CHECK_OK(shf_reader_block(reader, batch, at, extent->offset + extent->bytes,
								  extent->partition, &err));
		check_block(c, batch, extent->partition);
		at += shf_batch_message(batch).len;
		rows += shf_batch_rows(batch);
		raw += shf_batch_raw_bytes(batch);
	}
	CHECK_INT(at, extent->offset + extent->bytes);
	CHECK_INT(rows, extent->rows);
	CHECK_INT(raw, extent->raw_bytes);
	shf_reader_close(reader);
}

/* Extents are in order, add up to their segment, and their files verify. */
static inline void
check_segment(Case *c, const ShfSegment *segment)
{
	bool		is_log = segment->layout == SHF_LAYOUT_LOG;
	uint64_t	rows = 0;
	uint64_t	blocks = 0;
	uint64_t	raw = 0;
	uint64_t	bytes = 0;
	struct stat st;

	for (uint32_t i = 0; i < segment->nextents; i++)
	{
		const ShfExtent *e = &segment->extents[i];

		if (i > 0)
			CHECK(e[-1].partition < e->partition ||
				  (is_log && e[-1].partition == e->partition && e[-1].offset < e->offset));
		if (!is_log)
		{
			CHECK_INT(e->first_row, rows);
			CHECK_OK(
				shf_verify_file(segment_file(c, segment, e->partition), segment->id, e, 1, &err));
			CHECK_INT(stat(segment_file(c, segment, e->partition), &st), 0);
			bytes += (uint64_t) st.st_size;
		}
		CHECK(e->rows > 0);
		CHECK(e->blocks > 0);
		rows += e->rows;
		blocks += e->blocks;
		raw += e->raw_bytes;
	}
	if (segment->image != NULL)
	{
		CHECK_OK(shf_verify_memory(segment->image, segment->bytes, "image", segment->id,
								   segment->extents, segment->nextents, &err));
		CHECK_INT(access(segment_file(c, segment, 0), F_OK), -1);
		CHECK(segment->bytes <= c->options.inline_max);
		bytes = segment->bytes;
	}
	else if (is_log)
	{
		CHECK_OK(shf_verify_file(segment_file(c, segment, 0), segment->id, segment->extents,
								 segment->nextents, &err));
		CHECK_INT(stat(segment_file(c, segment, 0), &st), 0);
		bytes = (uint64_t) st.st_size;
	}
	CHECK_INT(segment->rows, rows);
	CHECK_INT(segment->blocks, blocks);
	CHECK_INT(segment->raw_bytes, raw);
	CHECK_INT(segment->bytes, bytes);
	CHECK_INT(segment->files, segment->image != NULL ? 0 : is_log ? 1 : segment->nextents);
}

/* A segment with its extents, which are the caller's if the writer has them in a file. */
static inline ShfSegment
with_extents(const Case *c, const ShfSegment *segment)
{
	ShfSegment copy = *segment;

	if (copy.extents == NULL)
	{
		copy.extents = malloc(sizeof(ShfExtent) * copy.nextents);
		CHECK_OK(shf_segment_load_extents(segment, c->options.path, copy.extents, &err));
	}
	return copy;
}

/* Writes the case, reads it back and compares everything. */
static inline void
check_case(Case *c)
{
	const ShfMetrics *metrics;
	ShfBatch		 *batch;
	uint64_t		  blocks = 0;
	uint64_t		  bytes = 0;

	CHECK_OK(write_case(c));
	metrics = shf_writer_metrics(c->writer);
	CHECK_INT(metrics->rows, c->rows);

	link_rows(c);
	CHECK_OK(shf_batch_create(&batch, c->schema, &err));
	for (int s = 0; s < c->nsegments; s++)
	{
		ShfSegment segment = with_extents(c, &c->segments[s]);

		CHECK_INT(segment.number, s);
		check_segment(c, &segment);
		for (uint32_t i = 0; i < segment.nextents; i++)
			check_extent(c, &segment, &segment.extents[i], batch);
		blocks += segment.blocks;
		bytes += segment.bytes;
		if (segment.extents != c->segments[s].extents)
			free(segment.extents);
	}
	shf_batch_free(batch);
	check_all_read(c);
	CHECK_INT(metrics->blocks, blocks);
	CHECK_INT(metrics->stored_bytes, bytes);
	if (c->large_bytes == 0)
		CHECK(metrics->memory_peak <= c->options.memory_limit);
}

#endif /* WRITTEN_H */
