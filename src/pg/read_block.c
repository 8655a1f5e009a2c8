/*
 * read_block.c
 *	  Counted pieces of reading: window, block, file, decoder (see read_state.h).
 *
 * All of them are allocated below TopMemoryContext, hold malloc memory of the engine
 * and, the file, a descriptor.  They are reached only from read states and slots,
 * which drop their references in memory context reset callbacks.
 */
#include "postgres.h"

#include "access/tupdesc.h"
#include "executor/instrument.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "read_block.h"

/*
 * A window holds about so many values: with 9 bytes each they stay in the first level
 * cache, though columns are written with the width of a row as stride.
 */
#define WINDOW_VALUES	4096
#define WINDOW_MIN_ROWS 32
#define WINDOW_MAX_ROWS 1024

void
shuffle_read_error(const char *relname, const ShfError *err)
{
	bool missing = err->code == SHF_ERR_IO && err->sys_errno == ENOENT;

	errno = err->sys_errno;
	ereport(ERROR,
			(shuffle_errcode(err), errmsg("could not read table \"%s\": %s", relname, err->message),
			 missing ? errhint("Files of shuffle tables are not in the write-ahead log: "
							   "a standby, a server restored without them, or a database "
							   "made by CREATE DATABASE ... TEMPLATE cannot read the table.") :
					   0,
			 err->code == SHF_ERR_CORRUPT ?
				 errhint("shuffle_verify() lists all damaged files of a table.") :
				 0));
}

/* ---------------------------------------------------------------- decoder */

static ShuffleDecoder *
create_decoder(const ShfSchema *schema, TupleDesc desc, const char *relname)
{
	ShuffleDecoder *decoder;
	MemoryContext	cxt;
	MemoryContext	oldcxt;
	ShfError		err;

	cxt = AllocSetContextCreate(TopMemoryContext, "shuffle decoder", ALLOCSET_SMALL_SIZES);
	decoder = MemoryContextAllocZero(cxt, sizeof(ShuffleDecoder));
	decoder->refs = 1;
	decoder->cxt = cxt;

	PG_TRY();
	{
		if (shf_schema_copy(&decoder->schema, schema, &err) != SHF_OK)
			shuffle_read_error(relname, &err);
		oldcxt = MemoryContextSwitchTo(cxt);
		decoder->desc = CreateTupleDescCopyConstr(desc);
		decoder->unpack = shuffle_unpack_create(&decoder->schema, decoder->desc);
		MemoryContextSwitchTo(oldcxt);
	}
	PG_CATCH();
	{
		shuffle_decoder_unpin(decoder);
		PG_RE_THROW();
	}
	PG_END_TRY();

	decoder->window_rows = WINDOW_VALUES / Max(desc->natts, 1);
	decoder->window_rows = Max(decoder->window_rows, WINDOW_MIN_ROWS);
	decoder->window_rows = Min(decoder->window_rows, WINDOW_MAX_ROWS);
	return decoder;
}

void
shuffle_decoder_unpin(ShuffleDecoder *decoder)
{
	Assert(decoder->refs > 0);
	if (--decoder->refs > 0)
		return;
	shf_schema_release(&decoder->schema);
	MemoryContextDelete(decoder->cxt);
}

/* ---------------------------------------------------------------- file */

/*
 * Opens a segment file.  Takes over the reference to *decoder if its schema is the
 * file's, else replaces it; on return *decoder is the file's decoder, with one
 * reference for the caller.
 */
ShuffleFile *
shuffle_file_open(const char *path, const ShuffleSegmentRow *segment, TupleDesc desc,
				  const char *relname, ShuffleDecoder **decoder)
{
	ShuffleFile		*file;
	const ShfSchema *schema;
	const char		*id;
	char			 expected[33];
	ShfError		 err;

	file = MemoryContextAllocZero(TopMemoryContext, sizeof(ShuffleFile));
	if (segment->files > 0 && !AcquireExternalFD())
	{
		pfree(file);
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not open file \"%s\" of table \"%s\": too many open files", path,
						relname),
				 errhint("Increase max_files_per_process, or read fewer shuffle tables in "
						 "one query.")));
	}
	file->refs = 1;
	file->counted = (segment->files > 0);
	file->storage = segment->storage;
	strlcpy(file->relname, relname, NAMEDATALEN);

	PG_TRY();
	{
		ShfCode code;

		if (segment->files > 0)
			code = shf_reader_open(&file->reader, path, &err);
		else
		{
			bytea *image = shuffle_catalog_image(segment);

			/* It outlives the caller's memory, and the engine reads it in place. */
			file->image = MemoryContextAlloc(TopMemoryContext, VARSIZE_ANY_EXHDR(image));
			memcpy(file->image, VARDATA_ANY(image), VARSIZE_ANY_EXHDR(image));
			code = shf_reader_open_memory(&file->reader, file->image, VARSIZE_ANY_EXHDR(image),
										  path, &err);
		}
		if (code != SHF_OK)
		{
			file->reader = NULL;
			shuffle_read_error(relname, &err);
		}

		schema = shf_reader_schema(file->reader);
		shf_segment_id_text(segment->id, expected);
		id = shf_meta_get(schema->meta, schema->nmeta, SHF_META_SEGMENT_ID);
		if (id == NULL || strcmp(id, expected) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("file \"%s\" of table \"%s\" has segment id %s, expected %s", path,
							relname, id ? id : "(none)", expected)));
		if (segment->layout == SHF_LAYOUT_LOG &&
			shf_reader_file_size(file->reader) != (uint64) segment->bytes)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("file \"%s\" of table \"%s\" has %llu bytes, expected %lld", path,
							relname, (unsigned long long) shf_reader_file_size(file->reader),
							(long long) segment->bytes)));

		if (*decoder == NULL || !shf_schema_equal(&(*decoder)->schema, schema))
		{
			ShuffleDecoder *fresh = create_decoder(schema, desc, relname);

			if (*decoder != NULL)
				shuffle_decoder_unpin(*decoder);
			*decoder = fresh;
		}
		file->decoder = *decoder;
		file->decoder->refs++;
	}
	PG_CATCH();
	{
		shuffle_file_unpin(file);
		PG_RE_THROW();
	}
	PG_END_TRY();

	return file;
}

void
shuffle_file_unpin(ShuffleFile *file)
{
	Assert(file->refs > 0);
	if (--file->refs > 0)
		return;
	shuffle_file_close(file);
	if (file->image != NULL)
	{
		shf_reader_close(file->reader);
		pfree(file->image);
	}
	if (file->decoder != NULL)
		shuffle_decoder_unpin(file->decoder);
	pfree(file);
}

/* Gives the descriptor back; all blocks of the file that are in use must be loaded. */
void
shuffle_file_close(ShuffleFile *file)
{
	if (!file->counted)
		return;
	if (file->reader != NULL)
		shf_reader_close(shuffle_file_reader(file));
	file->reader = NULL;
	ReleaseExternalFD();
	file->counted = false;
}

ShfReader *
shuffle_file_reader(ShuffleFile *file)
{
	if (file->ahead != NULL)
		shf_ahead_wait(file->ahead);
	file->ahead = NULL;
	return file->reader;
}

/* ---------------------------------------------------------------- block */

/*
 * An empty block of a file.  reuse, if not NULL, is a block whose only reference is
 * the caller's: its buffers serve again when the schema is the same.
 */
ShuffleBlock *
shuffle_block_create(ShuffleFile *file, ShuffleBlock *reuse)
{
	ShuffleBlock *block = reuse;
	ShfError	  err;

	Assert(reuse == NULL || reuse->refs == 1);

	if (block != NULL && block->file->decoder != file->decoder)
	{
		shuffle_block_unpin(block);
		block = NULL;
	}
	if (block == NULL)
	{
		ShfBatch *batch;

		block = MemoryContextAllocZero(TopMemoryContext, sizeof(ShuffleBlock));
		if (shf_batch_create(&batch, &file->decoder->schema, &err) != SHF_OK)
		{
			pfree(block);
			shuffle_read_error(file->relname, &err);
		}
		block->batch = batch;
		block->refs = 1;
	}
	else
		shuffle_file_unpin(block->file);

	block->file = file;
	file->refs++;
	block->loaded = block->wanted = false;
	return block;
}

void
shuffle_block_unpin(ShuffleBlock *block)
{
	Assert(block->refs > 0);
	if (--block->refs > 0)
		return;
	shf_batch_free(block->batch);
	shuffle_file_unpin(block->file);
	pfree(block);
}

/* Is this the block of that row? */
bool
shuffle_block_has_row(const ShuffleBlock *block, const ShuffleStorage *storage, int32 segment,
					  uint64 row)
{
	return shuffle_same_storage(&block->file->storage, storage) && block->segment == segment &&
		row >= block->first_row && row - block->first_row < block->rows;
}

/*
 * What EXPLAIN (BUFFERS) and pg_stat_statements show: the bytes read from files, in pages.
 * (Rows kept in the catalog are counted by the server, which reads them.)
 */
static void
count_read(const ShuffleBlock *block, instr_time start)
{
	pgBufferUsage.shared_blks_read +=
		(int64) ((shf_batch_message(block->batch).len + BLCKSZ - 1) / BLCKSZ);
	if (!INSTR_TIME_IS_ZERO(start))
	{
		instr_time end;

		INSTR_TIME_SET_CURRENT(end);
		INSTR_TIME_ACCUM_DIFF(pgBufferUsage.shared_blk_read_time, end, start);
	}
}

/*
 * The batch has read something: is it the block?  start is when reading began, or zero.
 */
bool
shuffle_block_accept(ShuffleBlock *block, instr_time start)
{
	if (shf_batch_rows(block->batch) != block->rows)
		return false;
	if (block->file->image == NULL)
		count_read(block, start);
	block->loaded = true;
	return true;
}

void
shuffle_block_load(ShuffleBlock *block)
{
	ShuffleFile *file = block->file;
	ShfError	 err;
	instr_time	 start;

	block->wanted = true;
	if (block->loaded)
		return;

	INSTR_TIME_SET_ZERO(start);
	if (track_io_timing)
		INSTR_TIME_SET_CURRENT(start);
	if (shf_reader_block(shuffle_file_reader(file), block->batch, block->offset, block->limit,
						 block->partition, &err) != SHF_OK)
		shuffle_read_error(file->relname, &err);
	if (!shuffle_block_accept(block, start))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("block at offset %llu of file \"%s\" of table \"%s\" has %u rows, "
						"expected %u",
						(unsigned long long) block->offset, shf_reader_name(file->reader),
						file->relname, shf_batch_rows(block->batch), block->rows)));
}

/* ---------------------------------------------------------------- window */

/*
 * A window of the block, which gets pinned.  reuse, if not NULL, is a window whose
 * only reference is the caller's.
 */
ShuffleWindow *
shuffle_window_create(ShuffleBlock *block, uint32 first, uint32 count, ShuffleWindow *reuse)
{
	ShuffleDecoder *decoder = block->file->decoder;
	ShuffleWindow  *window = reuse;
	int				natts = decoder->desc->natts;

	Assert(count > 0 && (uint64) first + count <= block->rows);
	Assert(reuse == NULL || reuse->refs == 1);

	if (window != NULL && (window->natts != natts || window->capacity < count))
	{
		shuffle_window_unpin(window);
		window = NULL;
	}
	if (window == NULL)
	{
		MemoryContext cxt;
		uint32		  capacity = (count == 1) ? 1 : Max(count, decoder->window_rows);

		/*
		 * A generation context keeps its first block over resets and takes allocations
		 * of up to an eighth of the largest block from it.
		 */
		cxt = GenerationContextCreate(TopMemoryContext, "shuffle window values",
									  capacity == 1 ? 8 * 1024 : 256 * 1024,
									  capacity == 1 ? 8 * 1024 : 256 * 1024, 8 * 1024 * 1024);
		window = MemoryContextAllocZero(TopMemoryContext, sizeof(ShuffleWindow));
		window->refs = 1;
		window->natts = natts;
		window->capacity = capacity;
		window->cxt = cxt;
		window->values =
			MemoryContextAlloc(TopMemoryContext, Max(sizeof(Datum) * capacity * natts, 1));
		window->isnull =
			MemoryContextAllocZero(TopMemoryContext, Max(sizeof(bool) * capacity * natts, 1));
	}
	else
	{
		MemoryContextReset(window->cxt);
		if (window->nulls)
			memset(window->isnull, false, sizeof(bool) * window->capacity * natts);
		window->nulls = false;
		if (window->block != NULL && window->block != block)
		{
			shuffle_block_unpin(window->block);
			window->block = NULL;
		}
	}

	if (window->block == NULL)
	{
		window->block = block;
		block->refs++;
	}
	window->first = first;
	window->count = count;
	window->ndecoded = 0;
	return window;
}

ShuffleWindow *
shuffle_window_pin(ShuffleWindow *window)
{
	window->refs++;
	return window;
}

void
shuffle_window_unpin(ShuffleWindow *window)
{
	Assert(window->refs > 0);
	if (--window->refs > 0)
		return;
	if (window->block != NULL)
		shuffle_block_unpin(window->block);
	MemoryContextDelete(window->cxt);
	pfree(window->values);
	pfree(window->isnull);
	pfree(window);
}

/* Lets go of the block, which the caller is about to read over. */
void
shuffle_window_detach(ShuffleWindow *window)
{
	Assert(window->refs == 1);
	if (window->block != NULL)
		shuffle_block_unpin(window->block);
	window->block = NULL;
	window->count = 0;
	window->ndecoded = 0;
}

void
shuffle_window_decode(ShuffleWindow *window, int natts)
{
	ShuffleBlock   *block = window->block;
	ShuffleDecoder *decoder = block->file->decoder;

	natts = Min(natts, window->natts);
	if (window->ndecoded >= natts)
		return;

	shuffle_block_load(block);

	while (window->ndecoded < natts)
	{
		int				 i = window->ndecoded;
		ShuffleValues	 out = {window->values + i, window->isnull + i, window->natts};
		const ShfColumn *column = NULL;
		int				 field = shuffle_unpack_field(decoder->unpack, i + 1);
		ShfError		 err;

		if (field >= 0 && shf_batch_column(block->batch, field, &column, &err) != SHF_OK)
			shuffle_read_error(block->file->relname, &err);
		if (column == NULL || column->validity != NULL)
			window->nulls = true;
		shuffle_unpack_column(decoder->unpack, i + 1, column, window->first, window->count, out,
							  window->cxt);
		window->ndecoded++;
	}
}
