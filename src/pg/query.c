/*
 * query.c
 *	  The user's query: parsing, checks, the wrapping in shuffle_sink, planning, running.
 *
 * The text is parsed once.  A copy of the raw tree is analysed for the columns and the
 * errors; the raw tree itself becomes the FROM item of
 *
 *	  SELECT shuffle_sink(job, q.c1, ..., q.cn) FROM (<query>) q(c1, ..., cn)
 *
 * without any text being pasted, so that locations in it still are offsets into the
 * user's text.  Both analyses happen before the target is created: a name in the query
 * never means a table that came into being in between.  What is not known yet, the job
 * and casts to the columns of an existing table, is put into the analysed tree later.
 *
 * Above 90 columns the sink takes one row value instead (functions have at most 100
 * arguments), without columns only the job.  In the plan that is run the job is the only
 * argument wherever the sink can take its columns out of its input row.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "jit/jit.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/analyze.h"
#include "parser/parse_coerce.h"
#include "parser/parse_collate.h"
#include "parser/parse_func.h"
#include "parser/parse_node.h"
#include "parser/parser.h"
#include "parser/scansup.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "write.h"

#define SINK_MAX_ARGS 90 /* columns passed one by one; 18 allows 99 arguments */

/*
 * Positions in errors are positions in the user's query, which is not what the client
 * sent: they move to the internal query, as in any function that runs SQL.
 */
static void
query_error_callback(void *arg)
{
	const char *text = arg;
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(text);
	}
	else
		errcontext("SQL statement \"%s\"", text);
}

static ParseState *
text_parse_state(const char *text)
{
	ParseState *pstate = make_parsestate(NULL);

	pstate->p_sourcetext = text;
	return pstate;
}

/* Refuses everything but one SELECT, VALUES, TABLE or WITH ... SELECT. */
static SelectStmt *
check_statement(ParseState *pstate, List *statements)
{
	const char *text = pstate->p_sourcetext;
	Node	   *stmt;
	SelectStmt *select;
	SelectStmt *leftmost;

	if (statements == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR), errmsg("the query is empty"),
				 errhint("Pass one SELECT, VALUES, TABLE or WITH query.")));
	if (list_length(statements) > 1)
	{
		int second = lsecond_node(RawStmt, statements)->stmt_location;

		while (scanner_isspace(text[second]))
			second++;
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR), errmsg("the query has more than one statement"),
				 errhint("Pass one SELECT, VALUES, TABLE or WITH query."),
				 parser_errposition(pstate, second)));
	}

	stmt = linitial_node(RawStmt, statements)->stmt;
	if (!IsA(stmt, SelectStmt))
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s is not supported as the query of shuffle_write", CreateCommandName(stmt)),
			 errhint("Pass one SELECT, VALUES, TABLE or WITH query.")));
	select = (SelectStmt *) stmt;

	for (leftmost = select; leftmost->op != SETOP_NONE;)
		leftmost = leftmost->larg;
	if (leftmost->intoClause != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("SELECT INTO is not supported as the query of shuffle_write"),
				 errhint("Leave INTO out: the rows go to the target table."),
				 parser_errposition(pstate, exprLocation((Node *) leftmost->intoClause))));

	if (select->withClause != NULL)
	{
		ListCell *lc;

		foreach(lc, select->withClause->ctes)
		{
			CommonTableExpr *cte = lfirst_node(CommonTableExpr, lc);

			if (!IsA(cte->ctequery, SelectStmt))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("data-modifying statements in WITH are not supported in the query "
								"of shuffle_write"),
						 parser_errposition(pstate, cte->location)));
		}
	}
	return select;
}

/* Output columns as a descriptor; refuses those that a table could not have. */
static TupleDesc
query_columns(ParseState *pstate, Query *query)
{
	int		   natts = ExecCleanTargetListLength(query->targetList);
	TupleDesc  desc;
	AttrNumber attno = 0;
	ListCell  *lc;

	if (natts > MaxHeapAttributeNumber)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("tables can have at most %d columns", MaxHeapAttributeNumber),
				 errdetail("The query returns %d columns.", natts)));

	desc = CreateTemplateTupleDesc(natts);
	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		Node		*expr = (Node *) tle->expr;
		Oid			 type = exprType(expr);
		Oid			 collation = exprCollation(expr);

		if (tle->resjunk)
			continue;
		for (int i = 0; i < attno; i++)
		{
			if (strcmp(NameStr(TupleDescAttr(desc, i)->attname), tle->resname) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("column name \"%s\" appears more than once in the query's output",
								tle->resname),
						 errdetail("Columns %d and %d of the output have it.", i + 1, attno + 1),
						 errhint("Give each column its own name with AS."),
						 parser_errposition(pstate, exprLocation(expr))));
		}
		if (get_typtype(type) == TYPTYPE_PSEUDO)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
					 errmsg("column \"%s\" has pseudo-type %s", tle->resname, format_type_be(type)),
					 errhint("Cast the column to a type that a table can store."),
					 parser_errposition(pstate, exprLocation(expr))));
		if (!OidIsValid(collation) && type_is_collatable(type))
			ereport(ERROR,
					(errcode(ERRCODE_INDETERMINATE_COLLATION),
					 errmsg("no collation was derived for column \"%s\" with collatable type %s",
							tle->resname, format_type_be(type)),
					 errhint("Use the COLLATE clause to set the collation explicitly."),
					 parser_errposition(pstate, exprLocation(expr))));

		attno++;
		TupleDescInitEntry(desc, attno, tle->resname, type, exprTypmod(expr), 0);
		TupleDescInitEntryCollation(desc, attno, collation);
	}
	return desc;
}

/* SELECT namespace.shuffle_sink('', q.c1, ...) FROM (select) q(c1, ...) */
static RawStmt *
wrap_statement(SelectStmt *select, int ncolumns, const char *namespace, const char *sink)
{
	SelectStmt	   *outer = makeNode(SelectStmt);
	RangeSubselect *from = makeNode(RangeSubselect);
	ResTarget	   *output = makeNode(ResTarget);
	RawStmt		   *raw = makeNode(RawStmt);
	A_Const		   *job = makeNode(A_Const);
	List		   *names = NIL;
	List		   *columns = NIL;
	List		   *args;

	for (int i = 1; i <= ncolumns; i++)
	{
		ColumnRef *column = makeNode(ColumnRef);
		char	  *name = psprintf("c%d", i);

		column->fields = list_make2(makeString("q"), makeString(name));
		column->location = -1;
		names = lappend(names, makeString(name));
		columns = lappend(columns, column);
	}

	job->val.sval.type = T_String;
	job->val.sval.sval = "";
	job->location = -1;
	if (ncolumns > SINK_MAX_ARGS)
	{
		RowExpr *row = makeNode(RowExpr);

		row->args = columns;
		row->row_format = COERCE_EXPLICIT_CALL;
		row->location = -1;
		args = list_make2(job, row);
	}
	else
		args = lcons(job, columns);

	output->val =
		(Node *) makeFuncCall(list_make2(makeString(pstrdup(namespace)), makeString(pstrdup(sink))),
							  args, COERCE_EXPLICIT_CALL, -1);
	output->location = -1;

	from->subquery = (Node *) select;
	from->alias = makeAlias("q", names);

	outer->targetList = list_make1(output);
	outer->fromClause = list_make1(from);

	raw->stmt = (Node *) outer;
	return raw;
}

static Aggref *
sink_call(const ShuffleQuery *query)
{
	return castNode(Aggref, linitial_node(TargetEntry, query->wrapped->targetList)->expr);
}

/*
 * The expressions of the query's columns inside the sink's arguments, for reading and
 * replacing: TargetEntries of the Aggref, or the fields of the row value.
 */
static void
transform_columns(ShuffleQuery *query, Node *(*transform)(void *arg, int column, Node *expr),
				  void		   *arg)
{
	Aggref	 *sink = sink_call(query);
	ListCell *lc;
	int		  i = 0;

	if (query->desc->natts > SINK_MAX_ARGS)
	{
		RowExpr *row = castNode(RowExpr, lsecond_node(TargetEntry, sink->args)->expr);

		foreach(lc, row->args)
			lfirst(lc) = transform(arg, i++, lfirst(lc));
	}
	else
	{
		for_each_from(lc, sink->args, 1)
		{
			TargetEntry *tle = lfirst_node(TargetEntry, lc);

			tle->expr = (Expr *) transform(arg, i, (Node *) tle->expr);
			lfirst_oid(list_nth_cell(sink->aggargtypes, i + 1)) = exprType((Node *) tle->expr);
			i++;
		}
	}
}

ShuffleQuery *
shuffle_query_parse(const char *text, Oid sink_namespace)
{
	ShuffleQuery		*query = palloc0(sizeof(ShuffleQuery));
	ParseState			*pstate = text_parse_state(text);
	ErrorContextCallback callback;
	List				*statements;
	List				*rewritten;
	RawStmt				*raw;
	SelectStmt			*select;
	const char			*sink;
	Oid					 argtypes[2] = {BYTEAOID, InvalidOid};
	int					 nargs = 1;
	char *namespace = get_namespace_name(sink_namespace);

	callback.callback = query_error_callback;
	callback.arg = unconstify(char *, text);
	callback.previous = error_context_stack;
	error_context_stack = &callback;

	query->text = text;
	statements = pg_parse_query(text);
	select = check_statement(pstate, statements);

	/* Analysis scribbles on its input: the copy is for it, the original to be wrapped. */
	raw = copyObject(linitial_node(RawStmt, statements));
	query->analysed = parse_analyze_fixedparams(raw, text, NULL, 0, NULL);
	query->desc = query_columns(pstate, query->analysed);

	sink = "shuffle_sink";
	if (query->desc->natts > SINK_MAX_ARGS)
	{
		sink = "shuffle_sink_row";
		argtypes[nargs++] = RECORDOID;
	}
	else if (query->desc->natts > 0)
		argtypes[nargs++] = ANYOID;

	raw = wrap_statement(select, query->desc->natts, namespace, sink);
	rewritten = pg_analyze_and_rewrite_fixedparams(raw, text, NULL, 0, NULL);
	query->wrapped = linitial_node(Query, rewritten);

	/* Somebody's shuffle_sink(bytea, integer) must not take the place of ours. */
	if (list_length(rewritten) != 1 || query->wrapped->commandType != CMD_SELECT ||
		!IsA(linitial_node(TargetEntry, query->wrapped->targetList)->expr, Aggref) ||
		sink_call(query)->aggfnoid !=
			LookupFuncName(list_make2(makeString(namespace), makeString(unconstify(char *, sink))),
						   nargs, argtypes, false))
		ereport(ERROR,
				(errcode(ERRCODE_AMBIGUOUS_FUNCTION),
				 errmsg("another function hides the aggregate %s.%s", quote_identifier(namespace),
						sink),
				 errhint("Drop functions of that name that do not belong to the extension.")));

	error_context_stack = callback.previous;
	free_parsestate(pstate);
	return query;
}

typedef struct CoerceState
{
	ParseState		 *pstate;
	TupleDesc		  source;
	TupleDesc		  target;
	const AttrNumber *attnums;
} CoerceState;

static Node *
coerce_column(void *arg, int column, Node *expr)
{
	CoerceState		 *state = arg;
	Form_pg_attribute att = TupleDescAttr(state->target, state->attnums[column] - 1);
	Oid				  type = exprType(expr);
	Node			 *result;

	result = coerce_to_target_type(state->pstate, expr, type, att->atttypid, att->atttypmod,
								   COERCION_ASSIGNMENT, COERCE_IMPLICIT_CAST, -1);
	if (result == NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("column \"%s\" is of type %s but the query's column \"%s\" is of type %s",
					NameStr(att->attname), format_type_be(att->atttypid),
					NameStr(TupleDescAttr(state->source, column)->attname), format_type_be(type)),
			 errhint("You will need to rewrite or cast the expression.")));
	assign_expr_collations(state->pstate, result);
	return result;
}

void
shuffle_query_coerce(ShuffleQuery *query, TupleDesc target, const AttrNumber *attnums)
{
	CoerceState state;

	state.pstate = text_parse_state(query->text);
	state.source = query->desc;
	state.target = target;
	state.attnums = attnums;
	transform_columns(query, coerce_column, &state);
	free_parsestate(state.pstate);
}

typedef struct SinkResult
{
	MemoryContext context;
	bytea		 *summary; /* NULL: there were no rows */
} SinkResult;

static void
keep_summary(TupleTableSlot *slot, void *arg)
{
	SinkResult *result = arg;
	bool		isnull;
	Datum		value = slot_getattr(slot, 1, &isnull);

	if (!isnull)
	{
		MemoryContext old = MemoryContextSwitchTo(result->context);

		result->summary = DatumGetByteaPCopy(value);
		MemoryContextSwitchTo(old);
	}
}

static void
set_planner_option(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
}

/*
 * Settings for planning only: the workers and the functions of the query see the
 * session's.  Partitionwise aggregation would make one sink per partition of the source,
 * each with buffers of its own.
 */
static PlannedStmt *
plan_query(ShuffleQuery *query, int workers)
{
	int			 nestlevel = NewGUCNestLevel();
	PlannedStmt *plan;

	set_planner_option("enable_partitionwise_aggregate", "off");
	if (workers > 0)
	{
		char number[16];

		snprintf(number, sizeof(number), "%d", workers);
		set_planner_option("max_parallel_workers_per_gather", number);
		set_planner_option("min_parallel_table_scan_size", "0");
		set_planner_option("parallel_setup_cost", "0");
		set_planner_option("parallel_tuple_cost", "0");
	}
	plan =
		pg_plan_query(query->wrapped, query->text, workers == 0 ? 0 : CURSOR_OPT_PARALLEL_OK, NULL);
	AtEOXact_GUC(true, nestlevel);
	return plan;
}

/*
 * The node with the sink, or with its partial instances, in so many processes.  NULL when
 * nothing of the kind is there: an input that is known to be empty.
 */
static Agg *
find_sink(const PlannedStmt *plan, double *processes)
{
	Plan *node = plan->planTree;

	*processes = 1;
	while (!IsA(node, Agg) || DO_AGGSPLIT_COMBINE(((const Agg *) node)->aggsplit))
	{
		if (IsA(node, Gather) && !((const Gather *) node)->single_copy)
		{
			*processes = ((const Gather *) node)->num_workers;
			if (parallel_leader_participation)
				*processes += Max(1 - 0.3 * *processes, 0);
		}
		node = outerPlan(node);
		if (node == NULL)
			return NULL;
	}
	return (Agg *) node;
}

/* The number of the aggregate's input attribute that an argument is, or 0. */
static AttrNumber
input_attribute(const Node *argument)
{
	while (IsA(argument, RelabelType))
		argument = (const Node *) ((const RelabelType *) argument)->arg;
	if (IsA(argument, Var) && ((const Var *) argument)->varno == OUTER_VAR)
		return Max(((const Var *) argument)->varattno, 0);
	return 0;
}

/*
 * When all columns are attributes of the sink's input row as they are, the sink takes
 * them out of the row by itself: the job says which, and is the only argument left.
 * False if they are not.
 */
static bool
take_out_arguments(Aggref *sink, int ncolumns)
{
	TargetEntry *job = linitial_node(TargetEntry, sink->args);
	TargetEntry *last = lsecond_node(TargetEntry, sink->args);
	List		*columns = NIL;
	AttrNumber	*input = palloc(sizeof(AttrNumber) * ncolumns);
	Const		*value;
	ListCell	*lc;
	int			 i = 0;

	if (ncolumns <= SINK_MAX_ARGS)
	{
		for_each_from(lc, sink->args, 1)
			columns = lappend(columns, lfirst_node(TargetEntry, lc)->expr);
	}
	else if (IsA(last->expr, RowExpr))
		columns = ((RowExpr *) last->expr)->args;
	if (list_length(columns) != ncolumns || !IsA(job->expr, Const))
		return false;
	foreach(lc, columns)
	{
		AttrNumber attribute = input_attribute(lfirst(lc));

		if (attribute == 0)
			return false;
		input[i++] = attribute;
	}

	value = (Const *) job->expr;
	value->constvalue = PointerGetDatum(
		shuffle_job_direct_argument(DatumGetByteaPP(value->constvalue), input, ncolumns));
	sink->args = list_make1(job);
	sink->aggargtypes = list_make1_oid(BYTEAOID);
	return true;
}

/* Does a node only hand on rows of a table as they are? */
static bool
is_plain_scan(const Plan *node)
{
	ListCell *lc;

	if (!IsA(node, SeqScan) || node->qual != NIL)
		return false;
	foreach(lc, node->targetlist)
	{
		if (!IsA(lfirst_node(TargetEntry, lc)->expr, Var))
			return false;
	}
	return true;
}

/*
 * The high cost of the sink is there for the planner to choose workers; it must not make
 * the server compile what the query alone would not be worth.  Where the sink takes its
 * columns out of the rows of a table there is nothing to compile at all.
 */
static void
limit_jit(PlannedStmt *plan, const Agg *agg, bool taken_out)
{
	Cost cost = outerPlan(agg)->total_cost;

	if (cost <= jit_above_cost || (taken_out && is_plain_scan(outerPlan(agg))))
		plan->jitFlags = PGJIT_NONE;
	if (cost <= jit_inline_above_cost)
		plan->jitFlags &= ~PGJIT_INLINE;
	if (cost <= jit_optimize_above_cost)
		plan->jitFlags &= ~PGJIT_OPT3;
}

bytea *
shuffle_query_run(ShuffleQuery *query, bytea *job, int workers, int progress)
{
	ErrorContextCallback callback;
	SinkResult			 result = {CurrentMemoryContext, NULL};
	PlannedStmt			*plan;
	Agg					*agg;
	double				 processes;

	linitial_node(TargetEntry, sink_call(query)->args)->expr =
		(Expr *) makeConst(BYTEAOID, -1, InvalidOid, -1, PointerGetDatum(job), false, false);

	callback.callback = query_error_callback;
	callback.arg = unconstify(char *, query->text);
	callback.previous = error_context_stack;
	error_context_stack = &callback;

	/* As a statement of its own: it sees what the transaction has done so far. */
	PushActiveSnapshot(GetTransactionSnapshot());
	CommandCounterIncrement();
	UpdateActiveSnapshotCommandId();

	plan = plan_query(query, workers);
	agg = find_sink(plan, &processes);
	if (agg != NULL)
	{
		Expr *sink = linitial_node(TargetEntry, agg->plan.targetlist)->expr;
		bool  taken_out = IsA(sink, Aggref) && query->desc->natts > 0 &&
			take_out_arguments((Aggref *) sink, query->desc->natts);

		limit_jit(plan, agg, taken_out);
		shuffle_progress_expect(progress, outerPlan(agg)->plan_rows * processes);
	}
	shuffle_progress_phase(progress, SHUFFLE_PHASE_INPUT);

	shuffle_execute(plan, query->text, keep_summary, &result);

	PopActiveSnapshot();
	error_context_stack = callback.previous;
	return result.summary;
}
