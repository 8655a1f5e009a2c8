/*
 * fetch.c
 *	  Partitions as an Arrow stream (shuffle_fetch), and what it has in common with
 *	  shuffle_read: opening the table, and the list of partitions.
 *
 * It streams when called in a select list.  In FROM the executor collects the result of
 * any function before it goes on.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

#include "../engine/flatbuf.h"
#include "read_state.h"

#define FETCH_CHUNK_BYTES (1024 * 1024)		 /* of a bytea that shuffle_fetch returns */
#define FETCH_MEMORY	  (32 * 1024 * 1024) /* of the writer that re-encodes blocks */

/* ---------------------------------------------------------------- arguments */

Relation
shuffle_open_for_reading(Oid relid)
{
	Relation  rel = shuffle_open_relation(relid, AccessShareLock);
	AclResult acl;

	shuffle_require_table(rel);

	acl = pg_class_aclcheck(relid, GetUserId(), ACL_SELECT);
	if (acl != ACLCHECK_OK)
		acl = pg_attribute_aclcheck_all(relid, GetUserId(), ACL_SELECT, ACLMASK_ALL);
	if (acl != ACLCHECK_OK)
		aclcheck_error(acl, OBJECT_TABLE, RelationGetRelationName(rel));

	if (check_enable_rls(relid, InvalidOid, false) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("row-level security of table \"%s\" applies to you",
						RelationGetRelationName(rel)),
				 errhint("Use SELECT, which applies the table's policies.")));
	return rel;
}

static int
compare_uint32(const void *a, const void *b)
{
	uint32 x = *(const uint32 *) a;
	uint32 y = *(const uint32 *) b;

	return (x > y) - (x < y);
}

ShuffleReadState *
shuffle_partitions_begin(Relation rel, Datum list, bool isnull)
{
	ShuffleReadState *reading;
	Snapshot		  snapshot;
	Datum			 *elements;
	bool			 *nulls;
	int				  count;
	uint32			 *partitions;
	int				  npartitions = 0;
	int				  limit = shuffle_read_options(rel).partitions;

	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("list of partitions must not be NULL")));

	deconstruct_array(DatumGetArrayTypeP(list), INT4OID, sizeof(int32), true, TYPALIGN_INT,
					  &elements, &nulls, &count);
	partitions = palloc(sizeof(uint32) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		int32 partition = DatumGetInt32(elements[i]);

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("partition number must not be NULL")));
		if (partition < 0 || partition >= limit)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("partition %d of table \"%s\" does not exist", partition,
							RelationGetRelationName(rel)),
					 errdetail("The table has partitions 0 to %d.", limit - 1)));
		partitions[i] = (uint32) partition;
	}

	qsort(partitions, count, sizeof(uint32), compare_uint32);
	for (int i = 0; i < count; i++)
	{
		if (npartitions == 0 || partitions[npartitions - 1] != partitions[i])
			partitions[npartitions++] = partitions[i];
	}

	snapshot = shuffle_function_snapshot(rel);
	reading = shuffle_reading_begin(rel, RelationGetDescr(rel), snapshot, partitions, npartitions);
	UnregisterSnapshot(snapshot);
	return reading;
}

/* ---------------------------------------------------------------- shuffle_fetch */

/*
 * The stream is a sequence of pieces: the schema of the table, messages as they are
 * stored, or for blocks with another schema the output of a writer, and the
 * end of stream.  Calls cut it into chunks without regard to the pieces, so that
 * neither small nor huge messages need care.
 */
typedef struct FetchCall
{
	ShuffleReadState *reading;
	int64			  block; /* next block */
	bool			  ended; /* the end of the stream has been made a piece */

	const uint8 *piece; /* what is left of the current piece */
	size_t		 piece_len;

	/* the schema that all blocks must have, and the way to it */
	ShuffleTypeMap	*map;
	const ShfSchema *schema;
	int				 partitions;
	ShfCodec		 codec;
	TupleTableSlot	*slot;
	ShfWriter		*writer;	   /* NULL unless blocks are being re-encoded */
	size_t			 schema_left;  /* bytes of the writer's own schema message still to come */
	bool			 schema_known; /* is schema_left known? */
	ShfBuffer		 out;		   /* what the writer has written */

	int	   progress; /* token, or 0 */
	uint64 rows_sent;
	uint64 bytes_sent;

	MemoryContextCallback callback;
} FetchCall;

static void
fetch_release(void *arg)
{
	FetchCall *call = arg;

	if (call->writer != NULL)
		shf_writer_close(call->writer);
	call->writer = NULL;
	free(call->out.data);
	memset(&call->out, 0, sizeof(ShfBuffer));
	shuffle_progress_end(call->progress);
}

static ShfCode
fetch_write(void *arg, const void *data, size_t len, ShfError *err)
{
	FetchCall *call = arg;

	if (shf_buffer_reserve(&call->out, len, err) != SHF_OK)
		return err ? err->code : SHF_ERR_NOMEM;
	memcpy(call->out.data + call->out.len, data, len);
	call->out.len += len;
	return SHF_OK;
}

static void
fetch_poll(void *arg)
{
	CHECK_FOR_INTERRUPTS();
}

/* Takes the writer's schema message, which our stream has had, from the front of out. */
static void
fetch_strip_schema(FetchCall *call)
{
	if (!call->schema_known && call->out.len >= 8)
	{
		uint32 metadata;

		memcpy(&metadata, call->out.data + 4, sizeof(uint32));
		call->schema_left = 8 + (size_t) metadata;
		call->schema_known = true;
	}
	if (call->schema_known && call->schema_left > 0)
	{
		size_t n = Min(call->schema_left, call->out.len);

		memmove(call->out.data, call->out.data + n, call->out.len - n);
		call->out.len -= n;
		call->schema_left -= n;
	}
}

static void
fetch_writer_open(FetchCall *call)
{
	ShfWriterOptions options = {0};
	ShfError		 err;

	options.partitions = call->partitions;
	options.layout = SHF_LAYOUT_STREAM;
	options.codec = call->codec;
	options.block_rows = shuffle_setting_block_rows;
	options.block_bytes = shuffle_setting_block_bytes;
	options.block_min_rows = shuffle_setting_block_min_rows;
	options.write_buffer_size = 64 * 1024;
	options.path = "";
	options.max_open_files = 1;
	options.poll = fetch_poll;
	options.write_stream = fetch_write;
	options.write_arg = call;
	options.memory_limit = Max(FETCH_MEMORY, shf_writer_min_memory(call->schema, &options));
	call->schema_known = false;
	call->schema_left = 0;
	SHUFFLE_CHECK(shf_writer_open(&call->writer, call->schema, &options, &err), &err);
}

/* Appends the rows of the current block to the writer. */
static void
fetch_reencode(FetchCall *call, ShuffleBlock *block)
{
	const ShfRowLayout *layout = shf_writer_layout(call->writer);
	ShfError			err;

	for (uint32 row = 0; row < block->rows; row++)
	{
		TupleTableSlot *slot = call->slot;

		shuffle_slot_store(slot, shuffle_reading_window(call->reading, row, 0), row);
		slot_getallattrs(slot);
		shuffle_pack_row(call->map, layout, shf_writer_row(call->writer), slot->tts_values,
						 slot->tts_isnull);
		SHUFFLE_CHECK(shf_writer_append(call->writer, block->partition, &err), &err);
	}
	ExecClearTuple(call->slot);
}

/* Completes the writer; what is left of its output stays in out. */
static void
fetch_writer_end(FetchCall *call)
{
	const ShfSegment *segments;
	int				  nsegments;
	ShfError		  err;

	SHUFFLE_CHECK(shf_writer_finish(call->writer, &segments, &nsegments, &err), &err);
	fetch_strip_schema(call);
	if (call->out.len < sizeof(shf_stream_end) ||
		memcmp(call->out.data + call->out.len - sizeof(shf_stream_end), shf_stream_end,
			   sizeof(shf_stream_end)) != 0)
		elog(ERROR, "Arrow stream writer has not ended its stream");
	call->out.len -= sizeof(shf_stream_end);
	shf_writer_close(call->writer);
	call->writer = NULL;
}

/*
 * Takes the next block.  True: its message as stored is the next piece.  False: it has been
 * re-encoded, or must wait until those before it are complete; what there is lies in out.
 */
static bool
fetch_block(FetchCall *call)
{
	ShuffleBlock *block = shuffle_reading_seek(call->reading, call->block);
	bool		  as_stored = shf_schema_equal(shuffle_reading_schema(call->reading), call->schema);

	if (as_stored && call->writer != NULL)
	{
		fetch_writer_end(call);
		return false;
	}
	if (as_stored)
	{
		ShfBytes message;

		shuffle_block_load(block);
		message = shf_batch_message(block->batch);
		call->piece = message.data;
		call->piece_len = message.len;
	}
	else
	{
		if (call->writer == NULL)
			fetch_writer_open(call);
		fetch_reencode(call, block);
		fetch_strip_schema(call);
	}
	call->rows_sent += block->rows;
	call->block++;
	return as_stored;
}

/* Makes the next piece; false when the stream is complete. */
static bool
fetch_next_piece(FetchCall *call)
{
	do
	{
		call->out.len = 0;
		if (call->block < shuffle_reading_blocks(call->reading))
		{
			if (fetch_block(call))
				return true;
		}
		else if (call->writer != NULL)
			fetch_writer_end(call);
		else if (!call->ended)
		{
			call->ended = true;
			call->piece = shf_stream_end;
			call->piece_len = sizeof(shf_stream_end);
			return true;
		}
		else
			return false;
	} while (call->out.len == 0);

	call->piece = call->out.data;
	call->piece_len = call->out.len;
	return true;
}

/* Starts a call in the current memory context. */
static FetchCall *
fetch_begin(FunctionCallInfo fcinfo)
{
	FetchCall		  *call = palloc0(sizeof(FetchCall));
	ShuffleReadOptions options;
	TupleDesc		   desc;
	Relation		   rel;
	void			  *message;
	size_t			   len;
	ShfError		   err;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("relation must not be NULL")));

	rel = shuffle_open_for_reading(PG_GETARG_OID(0));
	options = shuffle_read_options(rel);
	call->reading = shuffle_partitions_begin(rel, PG_GETARG_DATUM(1), PG_ARGISNULL(1));
	desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));

	call->map = shuffle_typemap_create(desc, options.types, options.null_unrepresentable);
	call->schema = shuffle_typemap_schema(call->map);
	call->partitions = options.partitions;
	call->codec = options.codec;
	call->slot = MakeSingleTupleTableSlot(desc, &ShuffleSlotOps);
	call->callback.func = fetch_release;
	call->callback.arg = call;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &call->callback);

	call->progress =
		shuffle_progress_begin(SHUFFLE_OPERATION_FETCH, RelationGetRelid(rel), MyProcPid);
	shuffle_progress_expect(call->progress, (double) shuffle_reading_rows(call->reading));
	relation_close(rel, NoLock);

	/* The first piece lies in out; the first call of fetch_next_piece empties it. */
	SHUFFLE_CHECK(shf_stream_schema(call->schema, &message, &len, &err), &err);
	call->out.data = message;
	call->out.len = call->out.cap = len;
	call->piece = call->out.data;
	call->piece_len = len;
	return call;
}

/* SQL: shuffle_fetch(relation regclass, VARIADIC partitions int[]) RETURNS SETOF bytea */
PG_FUNCTION_INFO_V1(shuffle_fetch);

Datum
shuffle_fetch(PG_FUNCTION_ARGS)
{
	FuncCallContext *funcctx;
	FetchCall		*call;
	bytea			*chunk;
	size_t			 len = 0;

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext oldcxt;

		funcctx = SRF_FIRSTCALL_INIT();
		oldcxt = MemoryContextSwitchTo(funcctx->multi_call_memory_ctx);
		funcctx->user_fctx = fetch_begin(fcinfo);
		MemoryContextSwitchTo(oldcxt);
	}

	funcctx = SRF_PERCALL_SETUP();
	call = funcctx->user_fctx;

	chunk = palloc(VARHDRSZ + FETCH_CHUNK_BYTES);
	while (len < FETCH_CHUNK_BYTES)
	{
		size_t n;

		if (call->piece_len == 0)
		{
			MemoryContext oldcxt = MemoryContextSwitchTo(funcctx->multi_call_memory_ctx);
			bool		  more = fetch_next_piece(call);

			MemoryContextSwitchTo(oldcxt);
			if (!more)
				break;
		}
		n = Min(call->piece_len, FETCH_CHUNK_BYTES - len);
		memcpy(VARDATA(chunk) + len, call->piece, n);
		call->piece += n;
		call->piece_len -= n;
		len += n;
	}

	call->bytes_sent += len;
	shuffle_progress_report(call->progress, SHUFFLE_PHASE_SEND, call->rows_sent, call->bytes_sent);
	if (len > 0)
	{
		SET_VARSIZE(chunk, VARHDRSZ + len);
		SRF_RETURN_NEXT(funcctx, PointerGetDatum(chunk));
	}
	SRF_RETURN_DONE(funcctx);
}
