/*
 * custom_scan.c
 *	  See custom_scan.h.
 *
 * The planner's hook is in place in time: planning a call of shuffle_read loads this library,
 * because of its support function (estimate.c), and opening a shuffle table does.
 */
#include "postgres.h"

#include "optimizer/pathnode.h"
#include "optimizer/paths.h"

#include "custom_scan.h"
#include "read_state.h"

static set_rel_pathlist_hook_type previous_hook;

/* Only for EvalPlanQual, whose statements get no such node. */
static bool
no_recheck(ScanState *ss, TupleTableSlot *slot)
{
	elog(ERROR, "a row of a custom scan of shuffle_ext cannot be checked again");
	return false; /* keep compiler quiet */
}

TupleTableSlot *
shuffle_custom_exec(CustomScanState *css, ExecScanAccessMtd next)
{
	return ExecScan(&css->ss, next, no_recheck);
}

CustomPath *
shuffle_custom_path(RelOptInfo *rel, ParamPathInfo *param_info, const CustomPathMethods *methods,
					List *private_data)
{
	CustomPath *path = makeNode(CustomPath);

	path->path.pathtype = T_CustomScan;
	path->path.parent = rel;
	path->path.pathtarget = rel->reltarget;
	path->path.param_info = param_info;
	path->path.parallel_safe = rel->consider_parallel;
	path->path.rows = param_info != NULL ? param_info->ppi_rows : rel->rows;
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	path->custom_private = private_data;
	path->methods = methods;
	return path;
}

/* Can rows that the statement has read be checked again? */
static bool
may_recheck(const PlannerInfo *root)
{
	for (; root != NULL; root = root->parent_root)
	{
		CmdType command = root->parse->commandType;

		if (root->parse->rowMarks != NIL || (command != CMD_SELECT && command != CMD_INSERT))
			return true;
	}
	return false;
}

static void
add_paths(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	if (previous_hook != NULL)
		previous_hook(root, rel, rti, rte);

	if (IS_DUMMY_REL(rel) || may_recheck(root))
		return;
	if (rte->rtekind == RTE_FUNCTION)
		shuffle_read_rows_path(root, rel, rti, rte);
	else if (rte->rtekind == RTE_RELATION)
		shuffle_prune_path(root, rel, rti, rte);
}

void
shuffle_custom_scans_init(void)
{
	RegisterCustomScanMethods(&shuffle_read_rows_methods);
	RegisterCustomScanMethods(&shuffle_prune_methods);
	previous_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = add_paths;
}
