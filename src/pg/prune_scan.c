/*
 * prune_scan.c
 *	  Scans of some partitions of a table, where a query's conditions leave no others.
 *
 * Beside the sequential scan the planner gets a plan node of ours for a table with such
 * conditions (prune.c).  Their values are evaluated when the scan begins, and again when
 * a parameter in them has changed; they are also part of its filter, as in any scan.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "nodes/makefuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/restrictinfo.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/selfuncs.h"

#include "custom_scan.h"
#include "prune.h"
#include "read_state.h"

/* ---------------------------------------------------------------- executing the node */

/* The plan: custom_exprs has the clauses of the conditions. */
typedef struct PruneNode
{
	CustomScanState css;
	int				npartitions;
	PruneKeys		keys;
	Conditions		found;
	List		   *values; /* ExprState of each condition's value, or NULL */
	ShuffleRouter  *router;
	MemoryContext	cxt;  /* while partitions are found */
	TupleTableSlot *slot; /* of the table's own kind */
	int				last_column;
	TableScanDesc	scan;  /* NULL before the first row */
	int				nread; /* partitions of the last scan, or -1 */
} PruneNode;

static void
node_begin(CustomScanState *css, EState *estate, int eflags)
{
	PruneNode	   *node = (PruneNode *) css;
	CustomScan	   *cscan = (CustomScan *) css->ss.ps.plan;
	Relation		rel = css->ss.ss_currentRelation;
	ShuffleOptions *options;
	Bitmapset	   *columns = NULL;
	int				last = -1;
	ListCell	   *lc;

	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;

	/* They may have changed since the query was planned; then all partitions may be left. */
	options = shuffle_options_of(rel);
	node->npartitions = options->partitions;
	node->keys =
		shuffle_prune_keys(options->method, options->keys, options->nkeys, RelationGetDescr(rel));
	node->found = shuffle_prune_conditions(&node->keys, cscan->custom_exprs, cscan->scan.scanrelid);
	if (node->found.conditions != NIL)
		node->router = shuffle_router_create(options, RelationGetDescr(rel), 0);
	foreach(lc, node->found.conditions)
		node->values =
			lappend(node->values, ExecInitExpr(((Condition *) lfirst(lc))->value, &css->ss.ps));

	pull_varattnos((Node *) cscan->scan.plan.targetlist, cscan->scan.scanrelid, &columns);
	pull_varattnos((Node *) cscan->scan.plan.qual, cscan->scan.scanrelid, &columns);
	if (bms_is_member(-FirstLowInvalidHeapAttributeNumber, columns)) /* the whole row */
		node->last_column = RelationGetDescr(rel)->natts;
	else
	{
		while ((last = bms_next_member(columns, last)) >= 0)
			node->last_column = Max(last + FirstLowInvalidHeapAttributeNumber, 0); /* ascending */
	}
	node->slot = ExecInitExtraTupleSlot(estate, RelationGetDescr(rel), table_slot_callbacks(rel));
	node->cxt = AllocSetContextCreate(estate->es_query_cxt, "shuffle prune", ALLOCSET_SMALL_SIZES);
}

static void
start_scan(PruneNode *node)
{
	CustomScanState *css = &node->css;
	Relation		 rel = css->ss.ss_currentRelation;
	MemoryContext	 oldcxt = MemoryContextSwitchTo(node->cxt);
	Bitmapset		*set;
	bool			 all;
	uint32			*partitions;
	int				 n = 0;
	int				 p = -1;

	set = shuffle_prune_partitions(&node->keys, &node->found, node->values,
								   css->ss.ps.ps_ExprContext, node->router,
								   RelationGetDescr(rel)->natts, node->npartitions, &all);
	partitions = palloc(sizeof(uint32) * Max(bms_num_members(set), 1));
	while ((p = bms_next_member(set, p)) >= 0)
		partitions[n++] = (uint32) p;
	node->nread = all ? node->npartitions : n;

	MemoryContextSwitchTo(css->ss.ps.state->es_query_cxt);
	node->scan = shuffle_scan_begin_partitions(rel, css->ss.ps.state->es_snapshot,
											   all ? NULL : partitions, n);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextReset(node->cxt);
}

/* The executor of 15 wants a virtual slot. */
static TupleTableSlot *
node_next(ScanState *ss)
{
	PruneNode	   *node = (PruneNode *) ss;
	TupleTableSlot *slot = ss->ss_ScanTupleSlot;
	int				n = node->last_column;

	if (node->scan == NULL)
		start_scan(node);
	ExecClearTuple(slot);
	if (!shuffle_scan_getnextslot(node->scan, ForwardScanDirection, node->slot))
		return slot;

	slot_getsomeattrs(node->slot, n);
	memcpy(slot->tts_values, node->slot->tts_values, sizeof(Datum) * n);
	memcpy(slot->tts_isnull, node->slot->tts_isnull, sizeof(bool) * n);
	memset(slot->tts_isnull + n, true, sizeof(bool) * (slot->tts_tupleDescriptor->natts - n));
	slot->tts_tid = node->slot->tts_tid;
	slot->tts_tableOid = node->slot->tts_tableOid;
	return ExecStoreVirtualTuple(slot);
}

static TupleTableSlot *
node_exec(CustomScanState *css)
{
	return shuffle_custom_exec(css, node_next);
}

static void
end_scan(PruneNode *node)
{
	if (node->slot != NULL)
		ExecClearTuple(node->slot);
	if (node->scan != NULL)
		shuffle_scan_end(node->scan);
	node->scan = NULL;
}

static void
node_end(CustomScanState *css)
{
	ExecClearTuple(css->ss.ss_ScanTupleSlot);
	end_scan((PruneNode *) css);
}

static void
node_rescan(CustomScanState *css)
{
	PruneNode *node = (PruneNode *) css;

	ExecScanReScan(&css->ss);
	if (css->ss.ps.chgParam != NULL)
		end_scan(node);
	else if (node->scan != NULL)
		shuffle_scan_rescan(node->scan, NULL, false, false, false, false);
}

static void
node_explain(CustomScanState *css, List *ancestors, ExplainState *es)
{
	PruneNode  *node = (PruneNode *) css;
	CustomScan *cscan = (CustomScan *) css->ss.ps.plan;
	List	   *context = set_deparse_context_plan(es->deparse_cxt, css->ss.ps.plan, ancestors);
	bool		prefix = list_length(es->rtable) > 1 || es->verbose;

	ExplainPropertyText("Partition Cond",
						deparse_expression((Node *) make_ands_explicit(cscan->custom_exprs),
										   context, prefix, false),
						es);
	if (node->nread >= 0)
	{
		ExplainPropertyInteger("Partitions Read", NULL, node->nread, es);
		ExplainPropertyInteger("Partitions", NULL, node->npartitions, es);
	}
}

static const CustomExecMethods node_exec_methods = {
	.CustomName = "shuffle_scan",
	.BeginCustomScan = node_begin,
	.ExecCustomScan = node_exec,
	.EndCustomScan = node_end,
	.ReScanCustomScan = node_rescan,
	.ExplainCustomScan = node_explain,
};

static Node *
node_create(CustomScan *cscan)
{
	PruneNode *node = palloc0(sizeof(PruneNode));

	NodeSetTag(node, T_CustomScanState);
	node->nread = -1;
	node->css.methods = &node_exec_methods;
	return (Node *) node;
}

const CustomScanMethods shuffle_prune_methods = {
	.CustomName = "shuffle_scan",
	.CreateCustomScanState = node_create,
};

/* ---------------------------------------------------------------- planning */

static Plan *
plan_node(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
		  List *custom_plans)
{
	CustomScan *cscan = makeNode(CustomScan);

	cscan->scan.plan.targetlist = tlist;
	cscan->scan.plan.qual = extract_actual_clauses(clauses, false);
	cscan->scan.scanrelid = rel->relid;
	cscan->flags = path->flags;
	cscan->custom_exprs = path->custom_private;
	cscan->methods = &shuffle_prune_methods;
	return &cscan->scan.plan;
}

static const CustomPathMethods node_path_methods = {
	.CustomName = "shuffle_scan",
	.PlanCustomPath = plan_node,
};

/* Is a system column used that shuffle tables do not have?  The sequential scan says so. */
static bool
uses_refused_column(RelOptInfo *rel, List *quals)
{
	Bitmapset *attnos = NULL;
	int		   i = -1;

	pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &attnos);
	pull_varattnos((Node *) quals, rel->relid, &attnos);
	while ((i = bms_next_member(attnos, i)) >= 0)
	{
		int attno = i + FirstLowInvalidHeapAttributeNumber;

		if (attno < 0 && attno != SelfItemPointerAttributeNumber &&
			attno != TableOidAttributeNumber)
			return true;
	}
	return false;
}

/* What part of the partitions, and so of the rows, these conditions are likely to leave. */
static double
estimate_part(PlannerInfo *root, const Conditions *found, Index relid, int npartitions)
{
	double	  n = 1;
	ListCell *lc;

	if (!found->equal)
		return Min(1,
				   clauselist_selectivity(root, found->clauses, relid, JOIN_INNER, NULL) +
					   1.0 / npartitions);
	foreach(lc, found->conditions)
	{
		Condition *condition = lfirst(lc);

		if (condition->kind == CONDITION_ARRAY)
			n *= Max(shuffle_estimate_array_length(root, (Node *) condition->value), 1);
	}
	return Min(1, n / npartitions);
}

static Conditions
relation_conditions(Relation rel, Index relid, List *quals, int *npartitions)
{
	ShuffleReadOptions options = shuffle_read_options(rel);
	PruneKeys		   keys =
		shuffle_prune_keys(options.method, options.keys, options.nkeys, RelationGetDescr(rel));

	*npartitions = options.partitions;
	return shuffle_prune_conditions(&keys, quals, relid);
}

void
shuffle_prune_path(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	CustomPath *path;
	Path	   *seqscan = NULL;
	Relation	relation;
	Conditions	found = {0};
	List	   *quals;
	ListCell   *lc;
	double		part;
	int			npartitions = 1;

	if (!enable_partition_pruning || rte->relkind != RELKIND_RELATION || rte->tablesample != NULL ||
		rel->baserestrictinfo == NIL)
		return;
	foreach(lc, rel->pathlist)
	{
		if (((Path *) lfirst(lc))->pathtype == T_SeqScan)
			seqscan = lfirst(lc);
	}
	if (seqscan == NULL)
		return;

	quals = extract_actual_clauses(rel->baserestrictinfo, false);
	relation = table_open(rte->relid, NoLock);
	if (shuffle_is_table(relation))
		found = relation_conditions(relation, rti, quals, &npartitions);
	table_close(relation, NoLock);
	if (found.conditions == NIL || npartitions == 1 || uses_refused_column(rel, quals))
		return;

	path = shuffle_custom_path(rel, seqscan->param_info, &node_path_methods, found.clauses);
	part = estimate_part(root, &found, rti, npartitions);
	path->path.startup_cost = seqscan->startup_cost;
	path->path.total_cost =
		seqscan->startup_cost + part * (seqscan->total_cost - seqscan->startup_cost);
	add_path(rel, &path->path);
}
