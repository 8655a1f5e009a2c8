/*
 * custom_scan.h
 *	  What the plan nodes of read_rows.c and prune_scan.c have in common.
 *
 * Both stand where the planner would put a scan of a function or a table.  They cannot
 * check a row again that the statement has read before (EvalPlanQual), so statements that
 * lock or change rows do not get them.
 */
#ifndef SHUFFLE_CUSTOM_SCAN_H
#define SHUFFLE_CUSTOM_SCAN_H

#include "executor/executor.h"
#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

/* A path for the whole of rel, costs not set. */
extern CustomPath *shuffle_custom_path(RelOptInfo *rel, ParamPathInfo *param_info,
									   const CustomPathMethods *methods, List *private_data);

/* ExecCustomScan of a node whose next row is stored by next. */
extern TupleTableSlot *shuffle_custom_exec(CustomScanState *css, ExecScanAccessMtd next);

/*
 * Called for each relation that a query scans, after the planner's own paths have been made:
 * they add a path of theirs, or put it in place of these.
 */
extern void
shuffle_read_rows_path(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte);
extern void shuffle_prune_path(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte);

extern const CustomScanMethods shuffle_read_rows_methods;
extern const CustomScanMethods shuffle_prune_methods;

#endif /* SHUFFLE_CUSTOM_SCAN_H */
