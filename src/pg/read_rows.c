/*
 * read_rows.c
 *	  shuffle_read: rows of some partitions of a table.
 *
 * In a select list it is a function that returns a row per call.  In FROM the executor
 * would collect all that a function returns before it goes on, whole rows on disk if
 * need be.  So there the planner gets a plan node of ours instead: it streams, and
 * takes only the columns that the query uses out of their blocks.
 *
 * The node stands for the function in every respect: EXECUTE on it is needed, the list of
 * partitions is evaluated once and again when a parameter in it has changed, and the rows
 * are those of the statement's snapshot.  The planner keeps the function where the node
 * would have to know more: WITH ORDINALITY and ROWS FROM with several functions, whole
 * rows, and statements that lock or change rows (custom_scan.h).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/restrictinfo.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"

#include "custom_scan.h"
#include "read_state.h"

/* ---------------------------------------------------------------- rows, one by one */

typedef struct RowCursor
{
	ShuffleReadState *reading;
	int64			  block;  /* current block, or -1 */
	uint32			  row;	  /* next row of it */
	uint32			  rows;	  /* that it has */
	ShuffleWindow	 *window; /* holds the current row, or NULL */
} RowCursor;

static void
cursor_rewind(RowCursor *cursor)
{
	cursor->block = -1;
	cursor->row = cursor->rows = 0;
	cursor->window = NULL;
}

/*
 * Goes to the next row: row - 1 of the window's block.  slot may hold the last one and
 * is cleared before memory that it points to changes.  Behind the last row file and thread
 * are given back: an Append keeps all its scans, and a query may have many of them.
 */
static bool
cursor_next(RowCursor *cursor, TupleTableSlot *slot)
{
	if (cursor->row >= cursor->rows)
	{
		ExecClearTuple(slot);
		cursor->window = NULL;
		if (cursor->block + 1 >= shuffle_reading_blocks(cursor->reading))
		{
			shuffle_reading_pause(cursor->reading);
			return false;
		}
		cursor->block++;
		cursor->rows = shuffle_reading_seek(cursor->reading, cursor->block)->rows;
		cursor->row = 0;
	}
	if (cursor->window == NULL || cursor->row - cursor->window->first >= cursor->window->count)
	{
		ExecClearTuple(slot);
		cursor->window = shuffle_reading_window(cursor->reading, cursor->row, 0);
	}
	cursor->row++;
	return true;
}

/* ---------------------------------------------------------------- the function */

typedef struct ReadCall
{
	RowCursor		cursor;
	TupleTableSlot *slot;
} ReadCall;

/* Stores the next row in call->slot. */
static bool
call_next(ReadCall *call)
{
	if (!cursor_next(&call->cursor, call->slot))
		return false;
	shuffle_slot_store(call->slot, call->cursor.window, call->cursor.row - 1);
	slot_getallattrs(call->slot);
	return true;
}

/* Starts a call in the current memory context. */
static ReadCall *
call_begin(FunctionCallInfo fcinfo)
{
	Oid		  type = get_fn_expr_argtype(fcinfo->flinfo, 0);
	Oid		  relid = OidIsValid(type) ? get_typ_typrelid(type) : InvalidOid;
	ReadCall *call;
	Relation  rel;

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("first argument of shuffle_read must be of the row type of a shuffle "
						"table"),
				 errhint("Write shuffle_read(NULL::the_table, ...).")));

	rel = shuffle_open_for_reading(relid);
	call = palloc0(sizeof(ReadCall));
	call->cursor.reading = shuffle_partitions_begin(rel, PG_GETARG_DATUM(1), PG_ARGISNULL(1));
	cursor_rewind(&call->cursor);
	call->slot =
		MakeSingleTupleTableSlot(CreateTupleDescCopyConstr(RelationGetDescr(rel)), &ShuffleSlotOps);
	relation_close(rel, NoLock);
	return call;
}

/* All rows into a tuplestore: what FROM makes of them anyway, without a copy each. */
static void
call_all(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext  cxt =
		AllocSetContextCreate(CurrentMemoryContext, "shuffle read", ALLOCSET_SMALL_SIZES);
	MemoryContext oldcxt;
	ReadCall	 *call;

	oldcxt = MemoryContextSwitchTo(cxt);
	call = call_begin(fcinfo);
	InitMaterializedSRF(fcinfo, 0);
	while (call_next(call))
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, call->slot->tts_values,
							 call->slot->tts_isnull);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
}

/* SQL: shuffle_read(prototype anyelement, VARIADIC partitions int[]) RETURNS SETOF anyelement */
PG_FUNCTION_INFO_V1(shuffle_read);

Datum
shuffle_read(PG_FUNCTION_ARGS)
{
	ReturnSetInfo	*rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	FuncCallContext *funcctx;
	ReadCall		*call;

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext oldcxt;

		if (rsinfo != NULL && IsA(rsinfo, ReturnSetInfo) &&
			(rsinfo->allowedModes & SFRM_Materialize_Preferred))
		{
			call_all(fcinfo);
			return (Datum) 0;
		}

		funcctx = SRF_FIRSTCALL_INIT();
		oldcxt = MemoryContextSwitchTo(funcctx->multi_call_memory_ctx);
		funcctx->user_fctx = call_begin(fcinfo);
		MemoryContextSwitchTo(oldcxt);
	}

	funcctx = SRF_PERCALL_SETUP();
	call = funcctx->user_fctx;
	if (call_next(call))
	{
		TupleTableSlot *slot = call->slot;
		HeapTuple		tuple;

		tuple = heap_form_tuple(slot->tts_tupleDescriptor, slot->tts_values, slot->tts_isnull);
		SRF_RETURN_NEXT(funcctx, HeapTupleGetDatum(tuple));
	}
	SRF_RETURN_DONE(funcctx);
}

/* ---------------------------------------------------------------- executing the node */

/*
 * The plan: custom_scan_tlist has the columns that are used, custom_exprs the list of
 * partitions, custom_private the function and the table.
 */
typedef struct ReadNode
{
	CustomScanState css;
	Relation		rel; /* NULL when only explained */
	ExprState	   *partitions;
	int				ncolumns;
	int			   *columns;	 /* of the table, from 0, of each column of the scan slot */
	int				last_column; /* the largest of them + 1, or 0 */
	MemoryContext	cxt;		 /* of the read state */
	RowCursor		cursor;		 /* reading is NULL before the first row */
} ReadNode;

/* EXECUTE on the function, as if it were called. */
static void
check_function(Oid funcid)
{
	AclResult acl = pg_proc_aclcheck(funcid, GetUserId(), ACL_EXECUTE);

	if (acl != ACLCHECK_OK)
		aclcheck_error(acl, OBJECT_FUNCTION, get_func_name(funcid));
	InvokeFunctionExecuteHook(funcid);
}

static void
node_begin(CustomScanState *css, EState *estate, int eflags)
{
	ReadNode   *node = (ReadNode *) css;
	CustomScan *cscan = (CustomScan *) css->ss.ps.plan;
	TupleDesc	desc;
	ListCell   *lc;

	check_function(linitial_oid(cscan->custom_private));
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	node->rel = shuffle_open_for_reading(lsecond_oid(cscan->custom_private));
	desc = RelationGetDescr(node->rel);
	node->partitions = ExecInitExpr(linitial(cscan->custom_exprs), &css->ss.ps);
	node->cxt = AllocSetContextCreate(estate->es_query_cxt, "shuffle read", ALLOCSET_SMALL_SIZES);

	node->columns = palloc(sizeof(int) * Max(list_length(cscan->custom_scan_tlist), 1));
	foreach(lc, cscan->custom_scan_tlist)
	{
		Var				 *var = castNode(Var, lfirst_node(TargetEntry, lc)->expr);
		Form_pg_attribute att;

		/* Nothing locked the table between planning and now. */
		if (var->varattno > desc->natts ||
			(att = TupleDescAttr(desc, var->varattno - 1))->attisdropped ||
			att->atttypid != var->vartype)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("columns of table \"%s\" have changed since the query was planned",
							RelationGetRelationName(node->rel)),
					 errhint("DISCARD PLANS lets all queries of the session be planned anew.")));
		node->columns[node->ncolumns++] = var->varattno - 1;
		node->last_column = Max(node->last_column, var->varattno);
	}
}

static void
node_start_reading(ReadNode *node)
{
	MemoryContext oldcxt;
	Datum		  list;
	bool		  isnull;

	MemoryContextReset(node->cxt);
	list = ExecEvalExprSwitchContext(node->partitions, node->css.ss.ps.ps_ExprContext, &isnull);
	oldcxt = MemoryContextSwitchTo(node->cxt);
	node->cursor.reading = shuffle_partitions_begin(node->rel, list, isnull);
	cursor_rewind(&node->cursor);
	MemoryContextSwitchTo(oldcxt);
}

static TupleTableSlot *
node_next(ScanState *ss)
{
	ReadNode	   *node = (ReadNode *) ss;
	TupleTableSlot *slot = ss->ss_ScanTupleSlot;
	ShuffleWindow  *window;
	Size			place;

	if (node->cursor.reading == NULL)
		node_start_reading(node);
	ExecClearTuple(slot);
	if (!cursor_next(&node->cursor, slot))
		return slot;

	window = node->cursor.window;
	if (window->ndecoded < node->last_column)
		shuffle_window_decode(window, node->last_column);
	place = (Size) (node->cursor.row - 1 - window->first) * window->natts;
	for (int i = 0; i < node->ncolumns; i++)
	{
		slot->tts_values[i] = window->values[place + node->columns[i]];
		slot->tts_isnull[i] = window->isnull[place + node->columns[i]];
	}
	return ExecStoreVirtualTuple(slot);
}

static TupleTableSlot *
node_exec(CustomScanState *css)
{
	return shuffle_custom_exec(css, node_next);
}

static void
node_end(CustomScanState *css)
{
	ReadNode *node = (ReadNode *) css;

	if (node->rel == NULL)
		return;
	ExecClearTuple(css->ss.ss_ScanTupleSlot);
	MemoryContextDelete(node->cxt);
	relation_close(node->rel, NoLock);
}

static void
node_rescan(CustomScanState *css)
{
	ReadNode *node = (ReadNode *) css;

	ExecScanReScan(&css->ss);
	cursor_rewind(&node->cursor);
	if (css->ss.ps.chgParam != NULL)
		node->cursor.reading = NULL;
}

static void
node_explain(CustomScanState *css, List *ancestors, ExplainState *es)
{
	CustomScan *cscan = (CustomScan *) css->ss.ps.plan;
	List	   *context = set_deparse_context_plan(es->deparse_cxt, css->ss.ps.plan, ancestors);
	const char *name = get_rel_name(lsecond_oid(cscan->custom_private));

	/* A kept plan may be explained when the table is gone: nothing ties it to the table. */
	ExplainPropertyText("Table", name != NULL ? name : "?", es);
	ExplainPropertyText(
		"Partitions", deparse_expression(linitial(cscan->custom_exprs), context, true, false), es);
}

static const CustomExecMethods node_exec_methods = {
	.CustomName = "shuffle_read",
	.BeginCustomScan = node_begin,
	.ExecCustomScan = node_exec,
	.EndCustomScan = node_end,
	.ReScanCustomScan = node_rescan,
	.ExplainCustomScan = node_explain,
};

static Node *
node_create(CustomScan *cscan)
{
	ReadNode *node = palloc0(sizeof(ReadNode));

	NodeSetTag(node, T_CustomScanState);
	node->css.methods = &node_exec_methods;
	return (Node *) node;
}

const CustomScanMethods shuffle_read_rows_methods = {
	.CustomName = "shuffle_read",
	.CreateCustomScanState = node_create,
};

/* ---------------------------------------------------------------- planning */

/* One entry for each column of the relation that is used in the expressions. */
static List *
used_columns(Index relid, List *exprs)
{
	List	  *result = NIL;
	Bitmapset *seen = NULL;
	ListCell  *lc;

	foreach(lc,
			pull_var_clause((Node *) exprs,
							PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS |
								PVC_RECURSE_PLACEHOLDERS))
	{
		Var *var = lfirst_node(Var, lc);

		if (var->varno != relid || bms_is_member(var->varattno, seen))
			continue;
		seen = bms_add_member(seen, var->varattno);
		result = lappend(
			result,
			makeTargetEntry((Expr *) copyObject(var), list_length(result) + 1, NULL, false));
	}
	return result;
}

static Plan *
plan_node(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
		  List *custom_plans)
{
	CustomScan *cscan = makeNode(CustomScan);
	FuncExpr   *call = linitial(path->custom_private);
	List	   *quals = extract_actual_clauses(clauses, false);

	cscan->scan.plan.targetlist = tlist;
	cscan->scan.plan.qual = quals;
	cscan->flags = path->flags;
	cscan->custom_exprs = list_make1(lsecond(call->args));
	cscan->custom_private =
		list_make2_oid(call->funcid, get_typ_typrelid(exprType(linitial(call->args))));
	/* tlist may be NIL, because the caller puts a list of its own in place. */
	cscan->custom_scan_tlist =
		used_columns(rel->relid, list_concat_copy(rel->reltarget->exprs, quals));
	cscan->methods = &shuffle_read_rows_methods;
	return &cscan->scan.plan;
}

static const CustomPathMethods node_path_methods = {
	.CustomName = "shuffle_read",
	.PlanCustomPath = plan_node,
};

/* The call of shuffle_read that is all of a range table entry, or NULL. */
static FuncExpr *
whole_call(const RangeTblEntry *rte)
{
	FuncExpr *call;
	FmgrInfo  flinfo;

	if (rte->funcordinality || list_length(rte->functions) != 1)
		return NULL;
	call = (FuncExpr *) linitial_node(RangeTblFunction, rte->functions)->funcexpr;
	if (call == NULL || !IsA(call, FuncExpr) || list_length(call->args) != 2 ||
		!IsA(linitial(call->args), Const) || !OidIsValid(get_func_support(call->funcid)) ||
		!OidIsValid(get_typ_typrelid(exprType(linitial(call->args)))))
		return NULL;
	fmgr_info(call->funcid, &flinfo);
	return flinfo.fn_addr == shuffle_read ? call : NULL;
}

/* Is a whole row of the relation or a system column used in the expressions? */
static bool
use_whole_row(Index relid, List *exprs)
{
	Bitmapset *attnos = NULL;
	int		   first;

	pull_varattnos((Node *) exprs, relid, &attnos);
	first = bms_next_member(attnos, -1);
	return first >= 0 && first + FirstLowInvalidHeapAttributeNumber <= 0;
}

void
shuffle_read_rows_path(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	FuncExpr	  *call;
	CustomPath	  *path;
	ParamPathInfo *param_info;
	List		  *quals;
	QualCost	   cost;

	call = whole_call(rte);
	if (call == NULL)
		return;

	param_info = get_baserel_parampathinfo(root, rel, rel->lateral_relids);
	quals = extract_actual_clauses(rel->baserestrictinfo, false);
	if (param_info != NULL)
		quals = list_concat(quals, extract_actual_clauses(param_info->ppi_clauses, false));
	if (use_whole_row(rti, list_concat_copy(quals, rel->reltarget->exprs)))
		return;

	path = shuffle_custom_path(rel, param_info, &node_path_methods, list_make1(call));

	/* As the scan of a function, but rows come at once. */
	cost_qual_eval(&cost, quals, root);
	path->path.startup_cost = cost.startup + rel->reltarget->cost.startup;
	path->path.total_cost = path->path.startup_cost +
		(cpu_tuple_cost + cost.per_tuple) * rel->tuples +
		rel->reltarget->cost.per_tuple * path->path.rows;

	rel->pathlist = NIL;
	add_path(rel, &path->path);
}
