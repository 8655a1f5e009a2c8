/*
 * test_ahead.c
 *	  Blocks that a thread reads ahead are those that the caller would have read.
 */
#include "harness.h"

#include "written.h"

#include "../../src/engine/reader.h"

#define MOST (2 * SHF_AHEAD_BLOCKS)

/* The blocks of a log segment, as arguments of shf_reader_block(). */
typedef struct Blocks
{
	int		 n;
	uint64_t offset[1000];
	uint64_t limit[1000];
	uint32_t partition[1000];
} Blocks;

static void
list_blocks(Blocks *blocks, ShfReader *r, const ShfSegment *segment)
{
	blocks->n = 0;
	for (uint32_t i = 0; i < segment->nextents; i++)
	{
		const ShfExtent *e = &segment->extents[i];
		uint64_t		 at = e->offset;

		for (uint32_t b = 0; b < e->blocks; b++)
		{
			uint32_t rows;
			uint64_t bytes;

			CHECK_OK(shf_reader_peek(r, at, e->offset + e->bytes, &rows, &bytes, &err));
			blocks->offset[blocks->n] = at;
			blocks->limit[blocks->n] = e->offset + e->bytes;
			blocks->partition[blocks->n++] = e->partition;
			at += bytes;
		}
	}
}

static void
add_block(ShfAhead *ahead, ShfBatch *batch, const Blocks *blocks, int i)
{
	shf_ahead_add(ahead, batch, blocks->offset[i], blocks->limit[i], blocks->partition[i]);
}

/* As a scan does it: a group is used while the next one is being read. */
static void
read_all_ahead(ShfCodec codec, uint32_t partitions)
{
	Case	   c = new_case(&sample_flat, SHF_LAYOUT_LOG, partitions, 60000);
	Blocks	   blocks;
	ShfReader *r;
	ShfAhead  *ahead = shf_ahead_create();
	ShfBatch  *batches[MOST];
	ShfBatch  *first;
	int		   done = 0;
	int		   half = 0;

	c.options.codec = codec;
	c.options.block_rows = 1000;
	CHECK_OK(write_case(&c));
	link_rows(&c);
	CHECK_INT(c.nsegments, 1);
	CHECK_OK(shf_reader_open(&r, segment_file(&c, c.segments, 0), &err));
	list_blocks(&blocks, r, c.segments);
	CHECK(blocks.n > 3 * SHF_AHEAD_BLOCKS);
	CHECK(ahead != NULL);
	for (int i = 0; i < MOST; i++)
		CHECK_OK(shf_batch_create(&batches[i], c.schema, &err));
	CHECK_OK(shf_batch_create(&first, c.schema, &err));
	CHECK_OK(
		shf_reader_block(r, first, blocks.offset[0], blocks.limit[0], blocks.partition[0], &err));
	check_block(&c, first, blocks.partition[0]);

	done = 1;
	for (int i = 0; i < SHF_AHEAD_BLOCKS; i++)
		add_block(ahead, batches[i], &blocks, done + i);
	shf_ahead_run(ahead, r, first);
	while (done < blocks.n)
	{
		int ready = blocks.n - done < SHF_AHEAD_BLOCKS ? blocks.n - done : SHF_AHEAD_BLOCKS;
		int next = done + ready;

		shf_ahead_wait(ahead);
		for (int i = 0; i < ready; i++)
			CHECK(shf_ahead_done(ahead, i));
		half = SHF_AHEAD_BLOCKS - half;
		for (int i = 0; i < SHF_AHEAD_BLOCKS && next + i < blocks.n; i++)
			add_block(ahead, batches[half + i], &blocks, next + i);
		if (next < blocks.n)
			shf_ahead_run(ahead, r, first);
		for (int i = 0; i < ready; i++)
		{
			ShfBatch *batch = batches[SHF_AHEAD_BLOCKS - half + i];

			/* as in the first block all columns were asked for */
			CHECK_INT(batch->decoded[0], true);
			CHECK_INT(batch->used[0], false);
			check_block(&c, batch, blocks.partition[done + i]);
		}
		done = next;
	}
	check_all_read(&c);

	shf_ahead_free(ahead);
	for (int i = 0; i < MOST; i++)
		shf_batch_free(batches[i]);
	shf_batch_free(first);
	shf_reader_close(r);
	close_case(&c);
}

static void
test_all_blocks(void)
{
	for (int i = 0; i < NCODECS; i++)
	{
		read_all_ahead(codecs[i], 1);
		read_all_ahead(codecs[i], 7);
	}
}

/* Only columns that were asked for are decoded, and they have the values of the file. */
static void
test_columns(void)
{
	Case			 c = new_case(&sample_flat, SHF_LAYOUT_LOG, 1, 5000);
	Blocks			 blocks;
	ShfReader		*r;
	ShfAhead		*ahead = shf_ahead_create();
	ShfBatch		*batches[2];
	const ShfColumn *column;

	c.options.codec = codecs[1];
	c.options.block_rows = 1000;
	CHECK_OK(write_case(&c));
	CHECK_OK(shf_reader_open(&r, segment_file(&c, c.segments, 0), &err));
	list_blocks(&blocks, r, c.segments);
	for (int i = 0; i < 2; i++)
		CHECK_OK(shf_batch_create(&batches[i], c.schema, &err));
	CHECK_OK(shf_reader_block(r, batches[0], blocks.offset[0], blocks.limit[0], 0, &err));
	CHECK_OK(shf_batch_column(batches[0], 2, &column, &err));

	/* like may be the batch that is read into */
	add_block(ahead, batches[0], &blocks, 1);
	add_block(ahead, batches[1], &blocks, 2);
	shf_ahead_run(ahead, r, batches[0]);
	shf_ahead_wait(ahead);
	for (int i = 0; i < 2; i++)
	{
		CHECK(shf_ahead_done(ahead, i));
		for (int f = 0; f < c.schema->nfields; f++)
		{
			CHECK_INT(batches[i]->decoded[f], f == 2);
			CHECK_INT(batches[i]->used[f], false);
		}
		CHECK_OK(shf_batch_column(batches[i], 2, &column, &err));
		for (int k = 0; k < 1000; k++)
			sample_check(column, k, sample_mix(2, (uint64_t) (1000 * (i + 1) + k)));
	}

	/* nothing has been asked for in the second since */
	shf_batch_clear(batches[1]);
	add_block(ahead, batches[0], &blocks, 3);
	shf_ahead_run(ahead, r, batches[1]);
	shf_ahead_wait(ahead);
	CHECK(shf_ahead_done(ahead, 0));
	CHECK_INT(batches[0]->decoded[2], false);

	shf_ahead_free(ahead);
	for (int i = 0; i < 2; i++)
		shf_batch_free(batches[i]);
	shf_reader_close(r);
	close_case(&c);
}

/* Of large blocks only the first are decoded; the rest are read, and wait for the caller. */
static void
test_large_blocks(void)
{
	Case	   c = new_case(&sample_small, SHF_LAYOUT_LOG, 1, 34);
	Blocks	   blocks;
	ShfReader *r;
	ShfAhead  *ahead = shf_ahead_create();
	ShfBatch  *batches[SHF_AHEAD_BLOCKS];
	ShfBatch  *like;
	uint64_t   decoded = 0;
	int		   waiting = 0;

	c.options.codec = codecs[1];
	c.large_bytes = 7 << 20;
	CHECK_OK(write_case(&c));
	link_rows(&c);
	CHECK_OK(shf_reader_open(&r, segment_file(&c, c.segments, 0), &err));
	list_blocks(&blocks, r, c.segments);
	CHECK(blocks.n <= SHF_AHEAD_BLOCKS);
	CHECK_OK(shf_batch_create(&like, c.schema, &err));
	CHECK_OK(shf_reader_block(r, like, blocks.offset[0], blocks.limit[0], 0, &err));
	for (int f = 0; f < c.schema->nfields; f++)
	{
		const ShfColumn *column;

		CHECK_OK(shf_batch_column(like, f, &column, &err));
	}

	for (int i = 0; i < blocks.n; i++)
	{
		CHECK_OK(shf_batch_create(&batches[i], c.schema, &err));
		add_block(ahead, batches[i], &blocks, i);
	}
	shf_ahead_run(ahead, r, like);
	shf_ahead_wait(ahead);
	for (int i = 0; i < blocks.n; i++)
	{
		CHECK(shf_ahead_done(ahead, i));
		for (int f = 1; f < c.schema->nfields; f++)
			CHECK_INT(batches[i]->decoded[f], batches[i]->decoded[0]);
		if (batches[i]->decoded[0])
			decoded += shf_batch_raw_bytes(batches[i]);
		else
		{
			CHECK(shf_batch_memory(batches[i]) < 1 << 20);
			waiting++;
		}
		check_block(&c, batches[i], 0);
	}
	CHECK(decoded >= 7 << 20 && decoded <= 16 << 20);
	CHECK(waiting >= 2);
	check_all_read(&c);

	shf_ahead_free(ahead);
	for (int i = 0; i < blocks.n; i++)
		shf_batch_free(batches[i]);
	shf_batch_free(like);
	shf_reader_close(r);
	close_case(&c);
}

/* A damaged block is left to the caller, who gets the error; the others are read. */
static void
test_damage(void)
{
	Case	   c = new_case(&sample_flat, SHF_LAYOUT_LOG, 1, 5000);
	Blocks	   blocks;
	ShfReader *r;
	ShfAhead  *ahead = shf_ahead_create();
	ShfBatch  *batches[4];
	FILE	  *f;
	int		   byte;

	c.options.block_rows = 1000;
	CHECK_OK(write_case(&c));
	CHECK_OK(shf_reader_open(&r, segment_file(&c, c.segments, 0), &err));
	list_blocks(&blocks, r, c.segments);
	f = fopen(segment_file(&c, c.segments, 0), "r+b");
	CHECK(f != NULL);
	CHECK_INT(fseek(f, (long) blocks.offset[3] - 100, SEEK_SET), 0);
	byte = fgetc(f);
	CHECK_INT(fseek(f, -1, SEEK_CUR), 0);
	fputc(byte ^ 1, f);
	CHECK_INT(fclose(f), 0);

	for (int i = 0; i < 4; i++)
	{
		CHECK_OK(shf_batch_create(&batches[i], c.schema, &err));
		add_block(ahead, batches[i], &blocks, i + 1);
	}
	shf_ahead_run(ahead, r, batches[0]);
	shf_ahead_wait(ahead);
	for (int i = 0; i < 4; i++)
		CHECK_INT(shf_ahead_done(ahead, i), i != 1);
	CHECK_INT(shf_reader_block(r, batches[1], blocks.offset[2], blocks.limit[2], 0, &err),
			  SHF_ERR_CORRUPT);

	shf_ahead_free(ahead);
	for (int i = 0; i < 4; i++)
		shf_batch_free(batches[i]);
	shf_reader_close(r);
	close_case(&c);
}

/* Freed before, while and after it runs. */
static void
test_early_end(void)
{
	Case	   c = new_case(&sample_flat, SHF_LAYOUT_LOG, 1, 5000);
	Blocks	   blocks;
	ShfReader *r;
	ShfBatch  *batches[4];

	c.options.block_rows = 1000;
	CHECK_OK(write_case(&c));
	CHECK_OK(shf_reader_open(&r, segment_file(&c, c.segments, 0), &err));
	list_blocks(&blocks, r, c.segments);
	for (int i = 0; i < 4; i++)
		CHECK_OK(shf_batch_create(&batches[i], c.schema, &err));
	shf_ahead_free(NULL);
	for (int round = 0; round < 100; round++)
	{
		ShfAhead *ahead = shf_ahead_create();

		for (int i = 0; i < 4 && round > 0; i++)
			add_block(ahead, batches[i], &blocks, i);
		if (round > 1)
			shf_ahead_run(ahead, r, batches[0]);
		if (round % 3 == 0)
			shf_ahead_wait(ahead);
		shf_ahead_free(ahead);
	}
	for (int i = 0; i < 4; i++)
		shf_batch_free(batches[i]);
	shf_reader_close(r);
	close_case(&c);
}

int
main(void)
{
	RUN(test_all_blocks);
	RUN(test_columns);
	RUN(test_large_blocks);
	RUN(test_damage);
	RUN(test_early_end);
	return test_summary();
}
