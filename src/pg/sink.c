/*
 * sink.c
 *	  The aggregate shuffle_sink: where the rows of a query go into segment files.
 *
 * The planner treats it as any parallel-safe aggregate: under Gather every process runs
 * a Partial Aggregate with a state of its own, and a state here is a ShuffleWriter.
 * When its rows end, the files are completed and only a summary travels: for each
 * segment its numbers and its extents.
 *
 *	  transition	(internal, job, columns...)	 routes and stores one row
 *	  serialize		(internal) -> bytea			 completes the files, gives the summary
 *	  deserialize	(bytea, internal) -> internal  a state that is only a summary
 *	  combine		(internal, internal)		 puts summaries together
 *	  final			(internal) -> bytea			 the same as serialize
 *
 * Columns that are plain attributes of the aggregate's input row are not arguments in the
 * executed plan: query.c takes them out, and the transition function finds the row where
 * the executor has it.  Evaluating an argument for each column of each row cost more than
 * everything else that a transition does before it looks at the values.
 *
 * The final function may run in a worker, and without serialize (a whole plan under
 * Gather, debug_parallel_query): so it must give self-contained bytes too.
 *
 * Nothing here may be called but through shuffle_write(), see job.c.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "deform.h"
#include "write.h"

PG_FUNCTION_INFO_V1(shuffle_sink_transition);
PG_FUNCTION_INFO_V1(shuffle_sink_row_transition);
PG_FUNCTION_INFO_V1(shuffle_sink_combine);
PG_FUNCTION_INFO_V1(shuffle_sink_serialize);
PG_FUNCTION_INFO_V1(shuffle_sink_deserialize);
PG_FUNCTION_INFO_V1(shuffle_sink_final);

typedef struct SinkState
{
	MemoryContext context;	 /* the aggregate's */
	List		 *summaries; /* of bytea *, of what has been completed */

	/* The writer and what feeds it; NULL in a state that is only a summary. */
	ShuffleWriter *writer;
	uint32		   number; /* the writer's */
	char		  *relname;
	TupleDesc	   desc;
	int			   nargs;
	AttrNumber	  *index;	/* [nargs] attribute number - 1 */
	bool		   dense;	/* index[i] is i: nothing is dropped */
	bool		  *notnull; /* [nargs], or NULL when NULL is welcome everywhere */
	Datum		  *values;	/* by attribute; dropped ones stay NULL */
	bool		  *isnull;

	/* Columns are attributes of the input row, not arguments. */
	AttrNumber	  *input;	   /* [nargs] attribute number - 1, or NULL */
	bool		   input_same; /* the row's values are what "values" would be */
	ShuffleDeform *deform;	   /* takes out those up to the last one needed */

	/* Row variant: the sink's argument taken apart. */
	Oid		  row_type;
	int32	  row_typmod;
	TupleDesc row_desc;
	Datum	 *row_values;
	bool	 *row_isnull;
} SinkState;

/* A segment in a summary; its extents follow, unless they are in the index file. */
typedef struct SummaryHeader
{
	uint32	   magic;
	uint32	   writer;
	uint32	   number;
	uint32	   layout;
	uint32	   nextents;
	uint16	   has_metrics;
	uint16	   has_extents;
	uint64	   index_offset;
	uint8	   id[16];
	uint64	   rows;
	uint64	   bytes;
	uint64	   raw_bytes;
	uint64	   blocks;
	uint64	   files;
	ShfMetrics metrics;
} SummaryHeader;

#define SUMMARY_MAGIC 0x53485347

/* The aggregate's context, or an error where there is none. */
static MemoryContext
aggregate_context(FunctionCallInfo fcinfo)
{
	MemoryContext context;
	int			  kind = AggCheckCallContext(fcinfo, &context);

	if (kind == AGG_CONTEXT_WINDOW)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("shuffle_sink cannot be used as a window function")));
	if (kind != AGG_CONTEXT_AGGREGATE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("shuffle_sink cannot be called outside an aggregate")));
	return context;
}

/* The row that the aggregate is being advanced with. */
static inline TupleTableSlot *
input_slot(FunctionCallInfo fcinfo)
{
	return castNode(AggState, fcinfo->context)->tmpcontext->ecxt_outertuple;
}

/* Columns are to be taken out of the input row: can they be what the job says? */
static void
begin_input(SinkState *state, FunctionCallInfo fcinfo, AttrNumber *input)
{
	TupleDesc row = input_slot(fcinfo)->tts_tupleDescriptor;
	int		  last = 0;

	state->input = input;
	state->input_same = state->dense;
	for (int i = 0; i < state->nargs; i++)
	{
		Form_pg_attribute to = TupleDescAttr(state->desc, state->index[i]);
		Form_pg_attribute from;

		if (input[i] < 1 || input[i] > row->natts)
			elog(ERROR, "shuffle_sink is to take attribute %d of %d", input[i], row->natts);
		from = TupleDescAttr(row, input[i] - 1);
		if (from->attlen != to->attlen || from->attbyval != to->attbyval ||
			from->attalign != to->attalign)
			elog(ERROR, "shuffle_sink is to take type %u for column \"%s\" of type %u",
				 from->atttypid, NameStr(to->attname), to->atttypid);
		last = Max(last, input[i]);
		state->input[i]--;
		if (state->input[i] != state->index[i])
			state->input_same = false;
	}
	state->deform = shuffle_deform_create(last);
}

static SinkState *
sink_begin(FunctionCallInfo fcinfo)
{
	MemoryContext context = aggregate_context(fcinfo);
	MemoryContext old = MemoryContextSwitchTo(context);
	SinkState	 *state = palloc0(sizeof(SinkState));
	ShuffleJob	 *job;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("shuffle_sink can only be called by shuffle_write")));
	job = shuffle_job_open(PG_GETARG_BYTEA_PP(1));

	state->context = context;
	state->number = job->spec.writer;
	state->relname = job->relname;
	state->desc = job->spec.desc;
	state->nargs = job->nargs;
	state->index = job->attnums;
	for (int i = 0; i < job->nargs; i++)
	{
		if (job->notnull[i])
			state->notnull = job->notnull;
		state->index[i]--;
	}
	state->dense = state->nargs == state->desc->natts;
	if (job->input != NULL)
		begin_input(state, fcinfo, job->input);
	state->values = palloc0(sizeof(Datum) * Max(state->desc->natts, 1));
	state->isnull = palloc(sizeof(bool) * Max(state->desc->natts, 1));
	memset(state->isnull, true, sizeof(bool) * Max(state->desc->natts, 1));
	state->writer = shuffle_writer_begin(&job->spec, context);

	MemoryContextSwitchTo(old);
	return state;
}

/* Is a value of this type what the job says about the attribute of argument i? */
static void
check_argument(const SinkState *state, int i, Oid type)
{
	Form_pg_attribute att = TupleDescAttr(state->desc, state->index[i]);

	if (att->atttypid != type)
		elog(ERROR, "shuffle_sink argument %d has type %u, column \"%s\" has type %u", i + 1, type,
			 NameStr(att->attname), att->atttypid);
}

/* Are the sink's arguments the job's columns? */
static void
check_arguments(const SinkState *state, FunctionCallInfo fcinfo)
{
	if (state->nargs != PG_NARGS() - 2)
		elog(ERROR, "shuffle_sink got %d columns instead of %d", PG_NARGS() - 2, state->nargs);
	for (int i = 0; i < state->nargs; i++)
		check_argument(state, i, get_fn_expr_argtype(fcinfo->flinfo, i + 2));
}

static void
null_violation(const SinkState *state, int i)
{
	Form_pg_attribute att = TupleDescAttr(state->desc, state->index[i]);

	ereport(ERROR,
			(errcode(ERRCODE_NOT_NULL_VIOLATION),
			 errmsg("null value in column \"%s\" of relation \"%s\" violates not-null constraint",
					NameStr(att->attname), state->relname)));
}

static void
check_not_null(const SinkState *state)
{
	for (int i = 0; i < state->nargs; i++)
	{
		if (state->notnull[i] && state->isnull[state->index[i]])
			null_violation(state, i);
	}
}

/* Stores the row in state->values. */
static inline void
put_values(SinkState *state)
{
	if (state->notnull != NULL)
		check_not_null(state);
	shuffle_writer_put(state->writer, state->values, state->isnull);
}

/* Stores the aggregate's input row. */
static inline void
put_input(SinkState *state, FunctionCallInfo fcinfo)
{
	TupleTableSlot *slot = input_slot(fcinfo);

	shuffle_deform(state->deform, slot);
	if (state->input_same && state->notnull == NULL)
	{
		shuffle_writer_put(state->writer, slot->tts_values, slot->tts_isnull);
		return;
	}
	for (int i = 0; i < state->nargs; i++)
	{
		state->values[state->index[i]] = slot->tts_values[state->input[i]];
		state->isnull[state->index[i]] = slot->tts_isnull[state->input[i]];
	}
	put_values(state);
}

/*
 * shuffle_sink(job bytea [, VARIADIC columns "any"])
 */
Datum
shuffle_sink_transition(PG_FUNCTION_ARGS)
{
	const NullableDatum *args = fcinfo->args + 2;
	SinkState			*state;

	if (likely(!PG_ARGISNULL(0)))
		state = (SinkState *) PG_GETARG_POINTER(0);
	else
	{
		state = sink_begin(fcinfo);
		if (state->input == NULL)
			check_arguments(state, fcinfo);
	}

	if (state->input != NULL)
	{
		put_input(state, fcinfo);
		PG_RETURN_POINTER(state);
	}
	for (int i = 0; i < state->nargs; i++)
	{
		state->values[state->index[i]] = args[i].value;
		state->isnull[state->index[i]] = args[i].isnull;
	}
	put_values(state);

	PG_RETURN_POINTER(state);
}

/* Learns the shape of the row values; they are all alike. */
static void
row_begin(SinkState *state, HeapTupleHeader row)
{
	MemoryContext old = MemoryContextSwitchTo(state->context);
	TupleDesc	  desc;

	state->row_type = HeapTupleHeaderGetTypeId(row);
	state->row_typmod = HeapTupleHeaderGetTypMod(row);
	desc = lookup_rowtype_tupdesc(state->row_type, state->row_typmod);
	state->row_desc = CreateTupleDescCopy(desc);
	ReleaseTupleDesc(desc);

	if (state->row_desc->natts != state->nargs)
		elog(ERROR, "shuffle_sink got %d columns instead of %d", state->row_desc->natts,
			 state->nargs);
	for (int i = 0; i < state->nargs; i++)
		check_argument(state, i, TupleDescAttr(state->row_desc, i)->atttypid);
	state->row_values = palloc(sizeof(Datum) * state->nargs);
	state->row_isnull = palloc(sizeof(bool) * state->nargs);
	MemoryContextSwitchTo(old);
}

/*
 * shuffle_sink_row(job bytea, columns record)
 */
Datum
shuffle_sink_row_transition(PG_FUNCTION_ARGS)
{
	SinkState	   *state;
	HeapTupleHeader row;
	HeapTupleData	tuple;

	state = PG_ARGISNULL(0) ? sink_begin(fcinfo) : (SinkState *) PG_GETARG_POINTER(0);
	if (state->input != NULL)
	{
		put_input(state, fcinfo);
		PG_RETURN_POINTER(state);
	}
	if (PG_ARGISNULL(2))
		elog(ERROR, "shuffle_sink_row got no row");
	row = PG_GETARG_HEAPTUPLEHEADER(2);
	if (state->row_desc == NULL)
		row_begin(state, row);
	if (HeapTupleHeaderGetTypeId(row) != state->row_type ||
		HeapTupleHeaderGetTypMod(row) != state->row_typmod)
		elog(ERROR, "shuffle_sink_row got rows of different types");

	tuple.t_len = HeapTupleHeaderGetDatumLength(row);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = row;
	heap_deform_tuple(&tuple, state->row_desc, state->row_values, state->row_isnull);

	for (int i = 0; i < state->nargs; i++)
	{
		state->values[state->index[i]] = state->row_values[i];
		state->isnull[state->index[i]] = state->row_isnull[i];
	}
	put_values(state);

	PG_RETURN_POINTER(state);
}

/* Bytes of the summaries together, checked against what one value can hold. */
static Size
summary_size(Size size, Size more)
{
	size += more;
	if (size > MaxAllocSize)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many extents for one call of shuffle_write"),
				 errdetail("Their index would be larger than 1 GB."),
				 errhint("Raise \"%s\", use fewer partitions, or write in several calls.",
						 "shuffle_ext.memory_limit")));
	return size;
}

/* Bytes of a segment's extents in a summary. */
static Size
extents_size(bool has_extents, uint32 nextents)
{
	return has_extents ? sizeof(ShfExtent) * (Size) nextents : 0;
}

/* Completes the writer's files and keeps only their summary. */
static void
sink_end(SinkState *state)
{
	MemoryContext	  old;
	const ShfSegment *segments;
	int				  nsegments;
	Size			  size = VARHDRSZ;
	bytea			 *summary;
	char			 *p;

	if (state->writer == NULL)
		return;
	segments = shuffle_writer_end(state->writer, &nsegments);
	for (int i = 0; i < nsegments; i++)
		size = summary_size(size,
							sizeof(SummaryHeader) +
								extents_size(segments[i].extents != NULL, segments[i].nextents));

	old = MemoryContextSwitchTo(state->context);
	summary = palloc(size);
	SET_VARSIZE(summary, size);
	p = VARDATA(summary);
	for (int i = 0; i < nsegments; i++)
	{
		const ShfSegment *segment = &segments[i];
		Size			  bytes = extents_size(segment->extents != NULL, segment->nextents);
		SummaryHeader	  header = {
				.magic = SUMMARY_MAGIC,
				.writer = state->number,
				.number = segment->number,
				.layout = segment->layout,
				.nextents = segment->nextents,
				.has_extents = segment->extents != NULL,
				.index_offset = segment->index_offset,
				.rows = segment->rows,
				.bytes = segment->bytes,
				.raw_bytes = segment->raw_bytes,
				.blocks = segment->blocks,
				.files = segment->files,
		};

		if (segment->metrics != NULL)
		{
			header.has_metrics = true;
			header.metrics = *segment->metrics;
		}
		memcpy(header.id, segment->id, sizeof(header.id));
		memcpy(p, &header, sizeof(header));
		p += sizeof(header);
		if (bytes > 0)
			memcpy(p, segment->extents, bytes);
		p += bytes;
	}
	state->summaries = lappend(state->summaries, summary);
	MemoryContextSwitchTo(old);

	shuffle_writer_free(state->writer);
	state->writer = NULL;
}

/* All summaries as one, in the current context. */
static bytea *
sink_summary(SinkState *state)
{
	Size	  size = VARHDRSZ;
	bytea	 *result;
	char	 *p;
	ListCell *lc;

	sink_end(state);
	foreach(lc, state->summaries)
		size = summary_size(size, VARSIZE_ANY_EXHDR(lfirst(lc)));

	result = palloc(size);
	SET_VARSIZE(result, size);
	p = VARDATA(result);
	foreach(lc, state->summaries)
	{
		Size len = VARSIZE_ANY_EXHDR(lfirst(lc));

		memcpy(p, VARDATA_ANY(lfirst(lc)), len);
		p += len;
	}
	return result;
}

Datum
shuffle_sink_combine(PG_FUNCTION_ARGS)
{
	MemoryContext context = aggregate_context(fcinfo);
	SinkState	 *state = PG_ARGISNULL(0) ? NULL : (SinkState *) PG_GETARG_POINTER(0);
	SinkState	 *other = PG_ARGISNULL(1) ? NULL : (SinkState *) PG_GETARG_POINTER(1);
	MemoryContext old;
	ListCell	 *lc;

	if (other == NULL)
	{
		if (state == NULL)
			PG_RETURN_NULL();
		PG_RETURN_POINTER(state);
	}

	sink_end(other);
	old = MemoryContextSwitchTo(context);
	if (state == NULL)
	{
		state = palloc0(sizeof(SinkState));
		state->context = context;
	}
	foreach(lc, other->summaries)
		state->summaries =
			lappend(state->summaries, DatumGetByteaPCopy(PointerGetDatum(lfirst(lc))));
	MemoryContextSwitchTo(old);
	shuffle_progress_refresh();

	PG_RETURN_POINTER(state);
}

Datum
shuffle_sink_serialize(PG_FUNCTION_ARGS)
{
	(void) aggregate_context(fcinfo);
	PG_RETURN_BYTEA_P(sink_summary((SinkState *) PG_GETARG_POINTER(0)));
}

Datum
shuffle_sink_deserialize(PG_FUNCTION_ARGS)
{
	SinkState *state = palloc0(sizeof(SinkState));

	(void) aggregate_context(fcinfo);
	state->context = CurrentMemoryContext;
	state->summaries = list_make1(PG_GETARG_BYTEA_P_COPY(0));
	PG_RETURN_POINTER(state);
}

Datum
shuffle_sink_final(PG_FUNCTION_ARGS)
{
	(void) aggregate_context(fcinfo);
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_BYTEA_P(sink_summary((SinkState *) PG_GETARG_POINTER(0)));
}

bool
shuffle_summary_next(bytea *result, Size *position, ShuffleSummary *summary)
{
	const char	 *p = VARDATA_ANY(result);
	Size		  len = VARSIZE_ANY_EXHDR(result);
	ShfSegment	 *segment = &summary->segment;
	SummaryHeader header;
	Size		  bytes;

	if (*position == len)
		return false;
	if (len - *position < sizeof(header))
		elog(ERROR, "malformed result of shuffle_sink");
	memcpy(&header, p + *position, sizeof(header));
	*position += sizeof(header);
	bytes = extents_size(header.has_extents, header.nextents);
	if (header.magic != SUMMARY_MAGIC || len - *position < bytes)
		elog(ERROR, "malformed result of shuffle_sink");

	memset(summary, 0, sizeof(*summary));
	summary->writer = header.writer;
	memcpy(segment->id, header.id, sizeof(segment->id));
	segment->number = header.number;
	segment->layout = header.layout;
	segment->rows = header.rows;
	segment->bytes = header.bytes;
	segment->raw_bytes = header.raw_bytes;
	segment->blocks = header.blocks;
	segment->files = header.files;
	if (header.has_metrics)
	{
		summary->metrics = header.metrics;
		segment->metrics = &summary->metrics;
	}
	segment->nextents = header.nextents;
	segment->index_offset = header.index_offset;
	if (header.has_extents)
	{
		segment->extents = palloc(Max(bytes, 1));
		memcpy(segment->extents, p + *position, bytes);
	}
	*position += bytes;
	return true;
}
