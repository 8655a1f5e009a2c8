/*
 * test_read.c
 *	  Reading and verifying segment files: right values from good files, and a clean
 *	  error naming file and offset from every bad one.
 */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sample.h"

#include "../../src/engine/crc32c.h"
#include "../../src/engine/reader.h"
#include "../../src/engine/template.h"

#define PARTITIONS 5

static const ShfSchema *const schemas[] = {&sample_flat, &sample_nested, &sample_key, &sample_small,
										   &sample_empty};
static const ShfCodec		  codecs[] = {
			{SHF_CODEC_NONE, 0}, {SHF_CODEC_LZ4, 1}, {SHF_CODEC_LZ4, 9}, {SHF_CODEC_ZSTD, 1}};

#define NSCHEMAS ((int) (sizeof(schemas) / sizeof(schemas[0])))
#define NCODECS	 ((int) (sizeof(codecs) / sizeof(codecs[0])))

/* A file of one segment with its bytes; release with sample_release(). */
typedef struct File
{
	char			  path[256];
	ShfWriter		 *writer;
	const ShfSegment *segment;
	uint8_t			 *data;
	size_t			  len;
} File;

static void
file_make(File *f, const ShfSchema *schema, ShfCodec codec, uint64_t rows, uint32_t block_rows)
{
	static int serial;
	char	   name[64];
	int		   nsegments;

	snprintf(name, sizeof(name), "file%d", serial++);
	snprintf(f->path, sizeof(f->path), "%s", test_path(name));
	f->writer =
		sample_write(schema, f->path, codec, PARTITIONS, rows, block_rows, &f->segment, &nsegments);
	CHECK_INT(nsegments, 1);
	CHECK_INT(f->segment->rows, rows);
	snprintf(f->path + strlen(f->path), 32, "-%u.arrow", f->segment->number);
	f->data = test_read_file(f->path, &f->len);
	CHECK_INT(f->segment->bytes, f->len);
}

static void
file_release(File *f)
{
	shf_writer_close(f->writer);
	free(f->data);
}

/* Calls visit for every block of the segment's extents, in their order. */
static uint64_t
read_extents(ShfReader *r, ShfBatch *b, const ShfSegment *segment,
			 void (*visit)(ShfBatch *b, uint32_t partition, uint64_t nth_row))
{
	uint64_t rows = 0;
	uint64_t partition_rows = 0;

	for (uint32_t i = 0; i < segment->nextents; i++)
	{
		const ShfExtent *e = &segment->extents[i];
		uint64_t		 at = e->offset;
		uint64_t		 seen = 0;
		uint64_t		 raw = 0;

		if (i > 0 && e->partition != e[-1].partition)
			partition_rows = 0;
		for (uint32_t k = 0; k < e->blocks; k++)
		{
			uint32_t peeked;
			uint64_t bytes;

			CHECK_OK(shf_reader_peek(r, at, e->offset + e->bytes, &peeked, &bytes, &err));
			CHECK_OK(shf_reader_block(r, b, at, e->offset + e->bytes, e->partition, &err));
			CHECK_INT(peeked, shf_batch_rows(b));
			CHECK_INT(bytes, shf_batch_message(b).len);
			if (visit != NULL)
				visit(b, e->partition, partition_rows);
			partition_rows += shf_batch_rows(b);
			seen += shf_batch_rows(b);
			raw += shf_batch_raw_bytes(b);
			at += bytes;
		}
		CHECK_INT(at, e->offset + e->bytes);
		CHECK_INT(seen, e->rows);
		CHECK_INT(raw, e->raw_bytes);
		rows += seen;
	}
	return rows;
}

/* Row n of a partition is row n * PARTITIONS + partition of the sample. */
static void
check_block(ShfBatch *b, uint32_t partition, uint64_t nth_row)
{
	for (int i = 0; i < b->schema.nfields; i++)
	{
		const ShfColumn *c;

		CHECK_OK(shf_batch_column(b, i, &c, &err));
		CHECK_INT(c->length, shf_batch_rows(b));
		CHECK_STR(c->field->name, b->schema.fields[i].name);
		for (int64_t k = 0; k < c->length; k++)
			sample_check(
				c, k, sample_mix((uint64_t) i, (nth_row + (uint64_t) k) * PARTITIONS + partition));
	}
}

/* ---------------------------------------------------------------- good files */

static void
test_values_come_back(void)
{
	for (int s = 0; s < NSCHEMAS; s++)
	{
		for (int c = 0; c < NCODECS; c++)
		{
			File	   f;
			ShfReader *r;
			ShfBatch  *b;

			file_make(&f, schemas[s], codecs[c], 3001, 256);
			CHECK_OK(shf_reader_open(&r, f.path, &err));
			CHECK(shf_schema_equal(shf_reader_schema(r), schemas[s]));
			CHECK_INT(shf_reader_file_size(r), f.len);
			CHECK_OK(shf_batch_create(&b, shf_reader_schema(r), &err));
			CHECK_INT(read_extents(r, b, f.segment, check_block), 3001);
			shf_reader_close(r);

			/* A batch outlives its reader; memory reads like a file, aligned or not. */
			for (int shift = 0; shift < 2; shift++)
			{
				uint8_t *copy = malloc(f.len + 1);

				memcpy(copy + shift, f.data, f.len);
				CHECK_OK(shf_reader_open_memory(&r, copy + shift, f.len, "memory", &err));
				CHECK_INT(read_extents(r, b, f.segment, check_block), 3001);
				shf_reader_close(r);
				free(copy);
			}
			shf_batch_free(b);
			file_release(&f);
		}
	}
}

/* Blocks larger than the read-ahead and smaller ones, forwards and backwards. */
static void
test_block_sizes_and_order(void)
{
	static const uint32_t sizes[] = {1, 7, 1000, 8192};

	for (int i = 0; i < 4; i++)
	{
		File	   f;
		ShfReader *r;
		ShfBatch  *b;

		file_make(&f, &sample_flat, codecs[i % 2], sizes[i] < 10 ? 400 : 20000, sizes[i]);
		CHECK_OK(shf_reader_open(&r, f.path, &err));
		CHECK_OK(shf_batch_create(&b, shf_reader_schema(r), &err));
		read_extents(r, b, f.segment, check_block);
		for (uint32_t k = f.segment->nextents; k-- > 0;)
		{
			const ShfExtent *e = &f.segment->extents[k];

			CHECK_OK(shf_reader_block(r, b, e->offset, e->offset + e->bytes, e->partition, &err));
		}
		shf_batch_free(b);
		shf_reader_close(r);
		file_release(&f);
	}
}

/* After one pass over a file a second one allocates nothing. */
static void
test_batch_memory_is_reused(void)
{
	File	   f;
	ShfReader *r;
	ShfBatch  *b;
	size_t	   memory;

	file_make(&f, &sample_flat, codecs[1], 20000, 1000);
	CHECK_OK(shf_reader_open(&r, f.path, &err));
	CHECK_OK(shf_batch_create(&b, shf_reader_schema(r), &err));
	read_extents(r, b, f.segment, check_block);
	memory = shf_batch_memory(b);
	CHECK(memory > 0 && memory < 4 << 20);
	read_extents(r, b, f.segment, check_block);
	CHECK_INT(shf_batch_memory(b), memory);
	shf_batch_free(b);
	shf_reader_close(r);
	file_release(&f);
}

static void
test_stream_of_stored_messages(void)
{
	File			 f;
	ShfReader		*r;
	ShfBatch		*b;
	void			*schema;
	size_t			 len;
	const ShfExtent *e;

	file_make(&f, &sample_small, codecs[1], 1000, 100);
	CHECK_OK(shf_reader_open(&r, f.path, &err));
	CHECK_OK(shf_batch_create(&b, shf_reader_schema(r), &err));
	CHECK_OK(shf_stream_schema(shf_reader_schema(r), &schema, &len, &err));
	CHECK_MEM(f.data + 8, schema, len);
	e = &f.segment->extents[0];
	CHECK_OK(shf_reader_block(r, b, e->offset, e->offset + e->bytes, e->partition, &err));
	CHECK_INT(shf_batch_message(b).len % 8, 0);
	CHECK_MEM(shf_batch_message(b).data, f.data + e->offset, shf_batch_message(b).len);
	free(schema);
	shf_batch_free(b);
	shf_reader_close(r);
	file_release(&f);
}

/* ---------------------------------------------------------------- verification */

static void
test_verify_good_files(void)
{
	for (int s = 0; s < NSCHEMAS; s++)
	{
		for (int c = 0; c < NCODECS; c++)
		{
			File f;

			file_make(&f, schemas[s], codecs[c], 2000, 64);
			CHECK_OK(shf_verify_file(f.path, NULL, NULL, 0, &err));
			CHECK_OK(shf_verify_file(f.path, f.segment->id, f.segment->extents, f.segment->nextents,
									 &err));
			file_release(&f);
		}
	}
}

static bool
stop_at_third(void *arg)
{
	return ++*(int *) arg == 3;
}

static void
test_verify_stops_when_asked(void)
{
	File f;
	int	 calls = 0;

	file_make(&f, &sample_small, codecs[1], 1000, 64);
	CHECK_ERR(shf_verify_file_until(f.path, NULL, NULL, 0, stop_at_third, &calls, &err),
			  SHF_ERR_STOPPED, "stopped");
	CHECK(calls == 3);

	/* once per block, and never again after the end */
	calls = 10;
	CHECK_OK(shf_verify_file_until(f.path, NULL, NULL, 0, stop_at_third, &calls, &err));
	CHECK(calls > 13);
	file_release(&f);
}

static void
test_verify_compares_the_index(void)
{
	File	   f;
	uint8_t	   id[16];
	ShfExtent *e;
	uint32_t   n;

	file_make(&f, &sample_small, codecs[1], 1000, 64);
	n = f.segment->nextents;
	CHECK(n >= 3);
	memcpy(id, f.segment->id, 16);
	id[15] ^= 1;
	CHECK_ERR(shf_verify_file(f.path, id, NULL, 0, &err), SHF_ERR_CORRUPT, "segment id");

	e = malloc(sizeof(ShfExtent) * (n + 1));
	for (int change = 0; change < 9; change++)
	{
		ShfExtent *last = &e[n - 1];
		uint32_t   given = n;

		memcpy(e, f.segment->extents, sizeof(ShfExtent) * n);
		switch (change)
		{
			case 0:
				last->partition++;
				break;
			case 1:
				last->blocks++;
				break;
			case 2:
				last->offset += 8;
				break;
			case 3:
				last->bytes += 8;
				break;
			case 4:
				last->raw_bytes += 8;
				break;
			case 5:
				last->rows++;
				break;
			case 6:
				last->first_row++;
				break;
			case 7:
				given--;
				break;
			case 8:
				e[n] = *last;
				given++;
				break;
		}
		CHECK_ERR(shf_verify_file(f.path, NULL, e, given, &err), SHF_ERR_CORRUPT, "index");
	}
	free(e);
	file_release(&f);
}

/* Every file of a segment of partition files is a file of its own with its own extents. */
static void
test_verify_partition_files(void)
{
	ShfWriterOptions  options = {.partitions = 4,
								 .layout = SHF_LAYOUT_PARTITION_FILES,
								 .codec = codecs[1],
								 .memory_limit = 64 << 20,
								 .block_rows = 50,
								 .block_bytes = 1 << 20,
								 .block_min_rows = 1,
								 .write_buffer_size = 64 << 10,
								 .path = test_path("parts"),
								 .file_mode = 0600,
								 .dir_mode = 0700,
								 .max_open_files = 2};
	ShfWriter		 *w;
	ShfBuffer		  scratch = {0};
	const ShfSegment *segments;
	int				  nsegments;
	uint32_t		  done = 0;

	CHECK_OK(shf_writer_open(&w, &sample_small, &options, &err));
	for (uint64_t n = 0; n < 1000; n++)
	{
		sample_row(&sample_small, shf_writer_layout(w), shf_writer_row(w), n, &scratch);
		CHECK_OK(shf_writer_append(w, (uint32_t) (n % 3), &err));
	}
	CHECK_OK(shf_writer_finish(w, &segments, &nsegments, &err));
	CHECK_INT(nsegments, 1);
	CHECK_INT(segments->files, 3);
	for (uint32_t partition = 0; partition < 3; partition++)
	{
		const ShfExtent *e = &segments->extents[done];
		uint32_t		 n = 0;
		char			 path[300];

		while (done + n < segments->nextents && e[n].partition == partition)
			n++;
		CHECK(n > 0);
		snprintf(path, sizeof(path), "%s-%u/p%05u.arrow", test_path("parts"), segments->number,
				 partition);
		CHECK_OK(shf_verify_file(path, segments->id, e, n, &err));
		CHECK_ERR(shf_verify_file(path, segments->id, segments->extents, segments->nextents, &err),
				  SHF_ERR_CORRUPT, "index");
		done += n;
	}
	CHECK_INT(done, segments->nextents);
	shf_writer_close(w);
	free(scratch.data);
}

/* The property that shuffle_verify promises: no bit of a file may change unnoticed. */
static void
flip_every_bit(const ShfSchema *schema, ShfCodec codec, uint64_t rows, uint32_t block_rows)
{
	File	   f;
	ShfReader *r;

	file_make(&f, schema, codec, rows, block_rows);
	CHECK_OK(shf_reader_open_memory(&r, f.data, f.len, "memory", &err));
	CHECK_OK(shf_verify_reader(r, NULL, NULL, 0, &err));
	shf_reader_close(r);
	for (size_t bit = 0; bit < 8 * f.len; bit++)
	{
		ShfCode code;

		f.data[bit / 8] ^= (uint8_t) (1 << (bit & 7));
		code = shf_reader_open_memory(&r, f.data, f.len, "memory", &err);
		if (code == SHF_OK)
		{
			code = shf_verify_reader(r, NULL, NULL, 0, &err);
			shf_reader_close(r);
		}
		if (code != SHF_ERR_CORRUPT)
			FAIL("bit %d of byte %zu of %zu: code %d", (int) (bit & 7), bit / 8, f.len, code);
		CHECK(strstr(err.message, "memory") != NULL);
		f.data[bit / 8] ^= (uint8_t) (1 << (bit & 7));
	}
	file_release(&f);
}

static void
test_every_flipped_bit_is_found(void)
{
	flip_every_bit(&sample_key, codecs[0], 20, 8);
	flip_every_bit(&sample_small, codecs[0], 20, 8);
	flip_every_bit(&sample_nested, codecs[0], 6, 8);
	flip_every_bit(&sample_flat, codecs[0], 6, 8);
	flip_every_bit(&sample_empty, codecs[0], 20, 8);
}

/* Blocks below 4 KB are stored plain: larger ones, and so a sample of their bits. */
static void
flip_some_bits(const ShfSchema *schema, ShfCodec codec)
{
	File			 f;
	ShfReader		*r;
	ShfBatch		*b;
	const ShfExtent *e;

	file_make(&f, schema, codec, 2500, 500);
	CHECK_OK(shf_reader_open_memory(&r, f.data, f.len, "memory", &err));
	CHECK_OK(shf_batch_create(&b, shf_reader_schema(r), &err));
	e = &f.segment->extents[0];
	CHECK_OK(shf_reader_block(r, b, e->offset, e->offset + e->bytes, e->partition, &err));
	CHECK(b->header.compressed && b->header.codec == codec.kind);
	shf_batch_free(b);
	shf_reader_close(r);
	for (int i = 0; i < 6000; i++)
	{
		size_t	bit = test_below(8 * f.len);
		ShfCode code;

		f.data[bit / 8] ^= (uint8_t) (1 << (bit & 7));
		code = shf_reader_open_memory(&r, f.data, f.len, "memory", &err);
		if (code == SHF_OK)
		{
			code = shf_verify_reader(r, NULL, NULL, 0, &err);
			shf_reader_close(r);
		}
		if (code != SHF_ERR_CORRUPT)
			FAIL("bit %d of byte %zu of %zu: code %d", (int) (bit & 7), bit / 8, f.len, code);
		f.data[bit / 8] ^= (uint8_t) (1 << (bit & 7));
	}
	file_release(&f);
}

static void
test_flipped_bits_of_compressed_files(void)
{
	flip_some_bits(&sample_flat, codecs[1]);
	flip_some_bits(&sample_nested, codecs[1]);
	flip_some_bits(&sample_small, codecs[2]);
	flip_some_bits(&sample_flat, codecs[3]);
}

static void
test_every_truncation_is_found(void)
{
	File f;
	char path[256];

	file_make(&f, &sample_small, codecs[0], 20, 8);
	snprintf(path, sizeof(path), "%s", test_path("cut.arrow"));
	for (size_t len = 0; len < f.len; len += len < f.len - 64 ? 7 : 1)
	{
		ShfReader *r;
		uint8_t	  *copy = malloc(len + 1);

		memcpy(copy, f.data, len);
		if (shf_reader_open_memory(&r, copy, len, "memory", &err) == SHF_OK)
		{
			CHECK_ERR(shf_verify_reader(r, NULL, NULL, 0, &err), SHF_ERR_CORRUPT, "memory");
			shf_reader_close(r);
		}
		free(copy);
		test_write_file(path, f.data, len);
		CHECK_ERR(shf_verify_file(path, NULL, NULL, 0, &err), SHF_ERR_CORRUPT, "cut.arrow");
	}

	/* And what is behind the end. */
	test_write_file(path, f.data, f.len + 1);
	CHECK_ERR(shf_verify_file(path, NULL, NULL, 0, &err), SHF_ERR_CORRUPT, "behind its end");
	file_release(&f);
}

/* ---------------------------------------------------------------- bad calls and files */

static void
test_open_errors(void)
{
	ShfReader  *r;
	const char *path = test_path("open.arrow");

	CHECK_ERR(shf_reader_open(&r, test_path("missing.arrow"), &err), SHF_ERR_IO, "missing.arrow");
	CHECK_INT(err.sys_errno, ENOENT);
	CHECK(r == NULL);
	CHECK_ERR(shf_verify_file(test_path("missing.arrow"), NULL, NULL, 0, &err), SHF_ERR_IO,
			  "missing.arrow");
	CHECK_ERR(shf_reader_open(&r, "/tmp", &err), SHF_ERR_CORRUPT, "not a regular file");

	/* a FIFO without a writer: an error, and no waiting */
	unlink(path);
	CHECK(mkfifo(path, 0600) == 0);
	alarm(10);
	CHECK_ERR(shf_reader_open(&r, path, &err), SHF_ERR_CORRUPT, "not a regular file");
	alarm(0);
	unlink(path);
	test_write_file(path, "", 0);
	CHECK_ERR(shf_reader_open(&r, path, &err), SHF_ERR_CORRUPT, "ends at byte 0");
	test_write_file(path, "PAR1 and then something else", 28);
	CHECK_ERR(shf_reader_open(&r, path, &err), SHF_ERR_CORRUPT, "does not begin with");
	test_write_file(path, "ARROW1\0\0\xFF\xFF\xFF\xFF\xF8\xFF\xFF\x7F 12345678", 25);
	CHECK_ERR(shf_reader_open(&r, path, &err), SHF_ERR_CORRUPT, "ends at byte 25");
	CHECK_INT(shf_reader_open(&r, path, NULL), SHF_ERR_CORRUPT);
}

static void
test_block_errors(void)
{
	File			 f;
	ShfReader		*r;
	ShfBatch		*b;
	const ShfExtent *e;
	const ShfColumn *column;
	uint64_t		 end;
	uint32_t		 rows;
	uint64_t		 bytes;

	file_make(&f, &sample_small, codecs[1], 1000, 100);
	CHECK_OK(shf_reader_open(&r, f.path, &err));
	CHECK_OK(shf_batch_create(&b, shf_reader_schema(r), &err));
	e = &f.segment->extents[0];
	end = e->offset + e->bytes;

	CHECK_ERR(shf_batch_column(b, 0, &column, &err), SHF_ERR_INVALID, "column 0");
	CHECK_ERR(shf_reader_block(r, b, e->offset, end, e->partition + 1, &err), SHF_ERR_CORRUPT,
			  "partition");
	CHECK_ERR(shf_batch_column(b, 0, &column, &err), SHF_ERR_INVALID, "column 0");
	CHECK_ERR(shf_reader_block(r, b, e->offset + 8, end, e->partition, &err), SHF_ERR_CORRUPT,
			  "no message begins here");
	CHECK_ERR(shf_reader_block(r, b, e->offset + 4, end, e->partition, &err), SHF_ERR_INVALID,
			  f.path);
	CHECK_ERR(shf_reader_block(r, b, e->offset, e->offset + 64, e->partition, &err),
			  SHF_ERR_CORRUPT, f.path);
	CHECK_ERR(shf_reader_block(r, b, e->offset, e->offset, e->partition, &err), SHF_ERR_INVALID,
			  f.path);
	CHECK_OK(shf_reader_peek(r, e->offset, end, &rows, &bytes, &err));
	CHECK_ERR(shf_reader_block(r, b, e->offset, e->offset + bytes - 8, e->partition, &err),
			  SHF_ERR_CORRUPT, "runs beyond");
	CHECK_ERR(shf_reader_peek(r, e->offset, e->offset + bytes - 8, &rows, &bytes, &err),
			  SHF_ERR_CORRUPT, "runs beyond");
	CHECK_ERR(shf_reader_block(r, b, f.len + 8, f.len + 800, e->partition, &err), SHF_ERR_CORRUPT,
			  "ends at byte");
	CHECK_ERR(shf_reader_block(r, b, 0, end, 0, &err), SHF_ERR_CORRUPT, "no message");

	/* The schema message, and the end of the stream. */
	CHECK_ERR(shf_reader_block(r, b, 8, end, 0, &err), SHF_ERR_CORRUPT, "type 1");
	for (uint64_t at = (f.len - 8) & ~UINT64_C(7);; at -= 8)
	{
		if (memcmp(f.data + at, shf_stream_end, 8) == 0)
		{
			CHECK_ERR(shf_reader_block(r, b, at, f.len, 0, &err), SHF_ERR_CORRUPT,
					  "no message begins here");
			break;
		}
	}
	CHECK_ERR(shf_batch_column(b, 3, &column, &err), SHF_ERR_INVALID, "column 3");
	shf_batch_free(b);

	/* The batch of another schema. */
	CHECK_OK(shf_batch_create(&b, &sample_flat, &err));
	CHECK_ERR(shf_reader_block(r, b, e->offset, end, e->partition, &err), SHF_ERR_CORRUPT,
			  "the schema has");
	shf_batch_free(b);
	shf_reader_close(r);
	file_release(&f);
}

/* A file that shrinks or changes after it was opened. */
static void
test_file_replaced_under_the_reader(void)
{
	File			 f;
	ShfReader		*r;
	ShfBatch		*b;
	const ShfExtent *e;

	file_make(&f, &sample_flat, codecs[1], 20000, 4000);
	e = &f.segment->extents[f.segment->nextents - 1];
	CHECK_OK(shf_reader_open(&r, f.path, &err));
	CHECK_OK(shf_batch_create(&b, shf_reader_schema(r), &err));
	CHECK_INT(truncate(f.path, (off_t) (e->offset + e->bytes / 2)), 0);
	CHECK_ERR(shf_reader_block(r, b, e->offset, e->offset + e->bytes, e->partition, &err),
			  SHF_ERR_CORRUPT, "ends at byte");
	CHECK(strstr(err.message, f.path) != NULL);
	shf_batch_free(b);
	shf_reader_close(r);
	file_release(&f);
}

/* ---------------------------------------------------------------- lies behind a right CRC */

/* A block in memory whose header and body can be changed. */
typedef struct Forgery
{
	File			 file;
	uint8_t			*message; /* the first block of the file */
	uint8_t			*nodes;
	uint8_t			*buffers;
	uint8_t			*body;
	const ShfExtent *extent;
	size_t			 bytes;
	uint8_t			*saved;
} Forgery;

static void
forgery_begin(Forgery *g, const ShfSchema *schema, ShfCodec codec, uint32_t rows)
{
	int32_t metadata;
	int		nnodes;
	int		nbuffers;

	file_make(&g->file, schema, codec, rows * PARTITIONS, rows);
	g->extent = &g->file.segment->extents[0];
	g->bytes = g->extent->bytes;
	g->message = g->file.data + g->extent->offset;
	memcpy(&metadata, g->message + 4, 4);
	shf_schema_count(schema, &nnodes, &nbuffers);
	g->nodes = g->message + 8 + 224; /* formats: the template of a RecordBatch */
	g->buffers = g->nodes + 16 * nnodes + 8;
	g->body = g->message + 8 + metadata;
	CHECK_INT(g->body - g->buffers, 16 * nbuffers);
	g->saved = malloc(g->file.len);
	memcpy(g->saved, g->file.data, g->file.len);
}

static void
forgery_end(Forgery *g)
{
	free(g->saved);
	file_release(&g->file);
}

static void
put64(uint8_t *p, int64_t v)
{
	memcpy(p, &v, 8);
}

static int64_t
get64(const uint8_t *p)
{
	int64_t v;

	memcpy(&v, p, 8);
	return v;
}

/* Reads the block with its CRC put right and decodes all columns; restores the bytes. */
static ShfCode
forgery_read(Forgery *g, ShfError *error)
{
	ShfReader		*r;
	ShfBatch		*b;
	ShfCode			 code;
	const ShfColumn *column;

	memset(g->message + 8 + 152, '0', 8);
	shf_template_set_crc(g->message, shf_crc32c(0, g->message + 8, g->bytes - 8));
	CHECK_OK(shf_reader_open_memory(&r, g->file.data, g->file.len, "memory", &err));
	CHECK_OK(shf_batch_create(&b, shf_reader_schema(r), &err));
	code = shf_reader_block(r, b, g->extent->offset, g->extent->offset + g->bytes,
							g->extent->partition, error);
	for (int i = 0; code == SHF_OK && i < shf_reader_schema(r)->nfields; i++)
		code = shf_batch_column(b, i, &column, error);
	CHECK(shf_batch_memory(b) < 64 << 20);
	shf_batch_free(b);
	shf_reader_close(r);
	memcpy(g->file.data, g->saved, g->file.len);
	return code;
}

#define BUFFER_AT(g, i)		   ((g).body + get64((g).buffers + 16 * (i)))
#define CHECK_FORGERY(g, text) CHECK_ERR(forgery_read(&(g), &err), SHF_ERR_CORRUPT, text)

static void
test_forged_headers(void)
{
	Forgery g;

	/* Columns k (validity 0, values 1), v (2, offsets 3, bytes 4), d (5, values 6). */
	forgery_begin(&g, &sample_small, codecs[0], 50);
	CHECK_OK(forgery_read(&g, &err));

	put64(g.message + 8 + 184, 51);
	CHECK_FORGERY(g, "has 50 values, the block 51 rows");
	put64(g.message + 8 + 184, -1);
	CHECK_FORGERY(g, "impossible number of rows");
	put64(g.message + 8 + 184, INT64_C(1) << 40);
	CHECK_FORGERY(g, "impossible number of rows");
	put64(g.nodes, 49);
	CHECK_FORGERY(g, "has 49 values");
	put64(g.nodes + 8, get64(g.nodes + 8) + 1);
	CHECK_FORGERY(g, "NULLs, its header says");
	put64(g.nodes + 8, -1);
	CHECK_FORGERY(g, "has 50 values and -1 NULLs");
	put64(g.nodes + 8, 51);
	CHECK_FORGERY(g, "has 50 values and 51 NULLs");
	put64(g.nodes + 8, 0);
	CHECK_FORGERY(g, "expected 0");

	put64(g.buffers, 8);
	CHECK_FORGERY(g, "expected offset 0");
	put64(g.buffers + 8, -8);
	CHECK_FORGERY(g, "buffer 0");
	put64(g.buffers + 8, INT64_MAX);
	CHECK_FORGERY(g, "buffer 0");
	put64(g.buffers + 16, get64(g.buffers + 16) + 1);
	CHECK_FORGERY(g, "expected offset 8");
	put64(g.buffers + 16 * 6 + 8, get64(g.buffers + 16 * 6 + 8) - 16);
	CHECK_FORGERY(g, "of a body of");
	put64(g.buffers + 16 + 8, get64(g.buffers + 16 + 8) - 4);
	CHECK_FORGERY(g, "holds 196 bytes, expected 200");
	put64(g.message + 8 + 24, 12);
	CHECK_FORGERY(g, "impossible body");
	put64(g.message + 8 + 24, get64(g.message + 8 + 24) - 8);
	CHECK_FORGERY(g, "memory");
	memcpy(g.message + 8 + 116, "00000000x0", 10);
	CHECK_FORGERY(g, "shuffle:partition");
	memcpy(g.message + 8 + 116, "9999999999", 10);
	CHECK_FORGERY(g, "shuffle:partition");
	g.message[8 + 40] = 3;
	CHECK_FORGERY(g, "version");
	g.message[8 + 42] = 1;
	CHECK_FORGERY(g, "type 1");
	forgery_end(&g);

	/* key must not be NULL */
	forgery_begin(&g, &sample_key, codecs[0], 50);
	put64(g.nodes + 8, 1);
	CHECK_FORGERY(g, "must have none");
	forgery_end(&g);
}

static void
test_forged_values(void)
{
	Forgery	 g;
	uint8_t *offsets;
	uint8_t *decimals;
	int32_t	 word;

	forgery_begin(&g, &sample_small, codecs[0], 50);
	offsets = BUFFER_AT(g, 3);
	decimals = BUFFER_AT(g, 6);
	word = 1;
	memcpy(offsets, &word, 4);
	CHECK_FORGERY(g, "do not ascend from 0");
	word = -1;
	memcpy(offsets + 4 * 20, &word, 4);
	CHECK_FORGERY(g, "do not ascend from 0");
	word = INT32_MAX;
	memcpy(offsets + 4 * 50, &word, 4);
	CHECK_FORGERY(g, "values of column \"v\" end at byte 2147483647");
	BUFFER_AT(g, 0)[0] ^= 1;
	CHECK_FORGERY(g, "NULLs, its header says");

	/* Decimal(12, 2): 10^12 has 13 digits, also negative, also in the upper half. */
	put64(decimals, INT64_C(999999999999));
	put64(decimals + 8, 0);
	CHECK_OK(forgery_read(&g, &err));
	put64(decimals, INT64_C(-999999999999));
	put64(decimals + 8, -1);
	CHECK_OK(forgery_read(&g, &err));
	put64(decimals, INT64_C(1000000000000));
	put64(decimals + 8, 0);
	CHECK_FORGERY(g, "more than 12 digits");
	put64(decimals, INT64_C(-1000000000000));
	put64(decimals + 8, -1);
	CHECK_FORGERY(g, "more than 12 digits");
	put64(decimals, 5);
	put64(decimals + 8, 1);
	CHECK_FORGERY(g, "more than 12 digits");
	put64(decimals, 5);
	put64(decimals + 8, -1);
	CHECK_FORGERY(g, "more than 12 digits");
	forgery_end(&g);
}

static void
test_forged_nesting(void)
{
	Forgery	 g;
	int		 lies = 0;
	uint8_t *offsets;
	int32_t	 word;

	/* numbers: node 0, its items node 1; points: 2, its structs 3, label 4. */
	forgery_begin(&g, &sample_nested, codecs[0], 50);
	CHECK_OK(forgery_read(&g, &err));
	offsets = BUFFER_AT(g, 1);
	memcpy(&word, offsets + 4 * 50, 4);
	word++;
	memcpy(offsets + 4 * 50, &word, 4);
	CHECK_FORGERY(g, "lists of column \"numbers\" end at element");
	put64(g.nodes + 16 * 1, get64(g.nodes + 16 * 1) - 1);
	CHECK_FORGERY(g, "");
	put64(g.nodes + 16 * 4, get64(g.nodes + 16 * 4) - 1);
	CHECK_FORGERY(g, "its struct");
	put64(g.nodes + 16 * 1, INT64_C(1) << 31);
	CHECK_FORGERY(g, "values and");

	/*
	 * pair: node 7, its field id that is never NULL: node 8 with buffers 15 and 16.  It
	 * is absent where the struct is NULL; a NULL elsewhere is a lie.
	 */
	CHECK(get64(g.nodes + 16 * 7 + 8) > 0);
	CHECK_INT(get64(g.nodes + 16 * 8 + 8), get64(g.nodes + 16 * 7 + 8));
	for (int i = 0; i < 50; i++)
	{
		if (BUFFER_AT(g, 15)[i / 8] >> (i & 7) & 1)
		{
			BUFFER_AT(g, 15)[i / 8] ^= (uint8_t) (1 << (i & 7));
			put64(g.nodes + 16 * 8 + 8, get64(g.nodes + 16 * 8 + 8) + 1);
			CHECK_FORGERY(g, "column \"id\" has NULLs but must have none");
			lies++;
		}
	}
	CHECK_INT(lies, 50 - get64(g.nodes + 16 * 7 + 8));
	forgery_end(&g);
}

/* Lengths that a frame claims cost no memory before they are found impossible. */
static void
test_forged_compression(void)
{
	for (int c = 1; c < NCODECS; c++)
	{
		Forgery g;
		int64_t len;

		forgery_begin(&g, &sample_small, codecs[c], 2000);
		CHECK_OK(forgery_read(&g, &err));
		put64(BUFFER_AT(g, 1), 7999);
		CHECK_FORGERY(g, "expected 8000");
		put64(BUFFER_AT(g, 1), INT64_MAX);
		CHECK_FORGERY(g, "claims to hold");
		put64(BUFFER_AT(g, 1), -2);
		CHECK_FORGERY(g, "claims to hold");
		put64(BUFFER_AT(g, 1), 0);
		CHECK_FORGERY(g, "claims to hold");
		len = get64(BUFFER_AT(g, 4));
		put64(BUFFER_AT(g, 4), len + 1);
		CHECK_FORGERY(g, "buffer 2");
		put64(BUFFER_AT(g, 4), len - 1);
		CHECK_FORGERY(g, "buffer 2");
		put64(BUFFER_AT(g, 4), INT32_MAX);
		if (codecs[c].kind == SHF_CODEC_LZ4)
			CHECK_FORGERY(g, "claims to hold 2147483647");

		/* Fewer rows in a frame than the header says. */
		BUFFER_AT(g, 1)[8] ^= 1;
		CHECK_FORGERY(g, "frame");
		forgery_end(&g);
	}
}

/* Reads well with its CRC put right, but is not verified; restores the bytes. */
static void
check_only_verify_finds(Forgery *g, const char *text)
{
	uint8_t	  *forged = malloc(g->file.len);
	ShfReader *r;

	memcpy(forged, g->file.data, g->file.len);
	CHECK_OK(forgery_read(g, &err));
	memcpy(g->file.data, forged, g->file.len);
	free(forged);
	memset(g->message + 8 + 152, '0', 8);
	shf_template_set_crc(g->message, shf_crc32c(0, g->message + 8, g->bytes - 8));
	CHECK_OK(shf_reader_open_memory(&r, g->file.data, g->file.len, "memory", &err));
	CHECK_ERR(shf_verify_reader(r, NULL, NULL, 0, &err), SHF_ERR_CORRUPT, text);
	shf_reader_close(r);
	memcpy(g->file.data, g->saved, g->file.len);
}

static void
test_what_only_verify_finds(void)
{
	Forgery g;
	int32_t offset;
	int		i;

	forgery_begin(&g, &sample_small, codecs[0], 50);
	BUFFER_AT(g, 4)[0] = 0xFF;
	check_only_verify_finds(&g, "column \"v\" has a value that is not valid UTF-8");

	/* Text that is valid as a whole, cut inside a character. */
	for (i = 0; i < 50; i++)
	{
		memcpy(&offset, BUFFER_AT(g, 3) + 4 * i, 4);
		if (i > 0 && BUFFER_AT(g, 4)[offset] == 0xE2)
			break;
	}
	CHECK(i < 50);
	offset++;
	memcpy(BUFFER_AT(g, 3) + 4 * i, &offset, 4);
	check_only_verify_finds(&g, "column \"v\" has a value that is not valid UTF-8");

	/* 50 validity bits in 7 bytes, then one byte of padding. */
	BUFFER_AT(g, 0)[6] |= 0x80;
	check_only_verify_finds(&g, "validity bits behind its last value");
	BUFFER_AT(g, 0)[7] = 1;
	check_only_verify_finds(&g, "padding behind buffer 0");
	forgery_end(&g);

	/* time: the 12th column of 19, each with two buffers before it. */
	forgery_begin(&g, &sample_flat, codecs[0], 50);
	put64(BUFFER_AT(g, 23), INT64_C(86400000000));
	check_only_verify_finds(&g, "column \"time\" has a time outside the day");
	put64(BUFFER_AT(g, 23), -1);
	check_only_verify_finds(&g, "column \"time\" has a time outside the day");
	forgery_end(&g);
}

int
main(void)
{
	RUN(test_values_come_back);
	RUN(test_block_sizes_and_order);
	RUN(test_batch_memory_is_reused);
	RUN(test_stream_of_stored_messages);
	RUN(test_verify_good_files);
	RUN(test_verify_stops_when_asked);
	RUN(test_verify_compares_the_index);
	RUN(test_verify_partition_files);
	RUN(test_every_flipped_bit_is_found);
	RUN(test_flipped_bits_of_compressed_files);
	RUN(test_every_truncation_is_found);
	RUN(test_open_errors);
	RUN(test_block_errors);
	RUN(test_file_replaced_under_the_reader);
	RUN(test_forged_headers);
	RUN(test_forged_values);
	RUN(test_forged_nesting);
	RUN(test_forged_compression);
	RUN(test_what_only_verify_finds);
	return test_summary();
}
