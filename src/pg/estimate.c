/*
 * estimate.c
 *	  Tells the planner how many rows shuffle_read will return.
 *
 * Partitions count as equally large: looking up those asked for would cost the planner
 * more than a better guess is worth.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"
#include "utils/snapmgr.h"

#include "read_state.h"

/* How many elements an array argument has, as far as it can be told. */
static double
array_elements(PlannerInfo *root, Node *node)
{
	if (IsA(node, Const))
	{
		Const	  *constant = (Const *) node;
		ArrayType *array;

		if (constant->constisnull)
			return 0;
		array = DatumGetArrayTypeP(constant->constvalue);
		return ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	}
	return shuffle_estimate_array_length(root, node);
}

/* Totals of a shuffle table and its number of partitions; false if it is none. */
static bool
table_totals(Oid relid, ShuffleTotals *totals, int *partitions)
{
	Relation rel = try_relation_open(relid, AccessShareLock);
	bool	 found;

	if (rel == NULL)
		return false;
	found = shuffle_is_table(rel);
	if (found)
	{
		Snapshot snapshot = shuffle_latest_snapshot();

		shuffle_totals(rel, snapshot, totals);
		UnregisterSnapshot(snapshot);
		*partitions = shuffle_read_options(rel).partitions;
	}
	relation_close(rel, AccessShareLock);
	return found;
}

/* SQL: shuffle_read_support(internal) RETURNS internal, planner support of shuffle_read */
PG_FUNCTION_INFO_V1(shuffle_read_support);

Datum
shuffle_read_support(PG_FUNCTION_ARGS)
{
	Node			   *request = (Node *) PG_GETARG_POINTER(0);
	SupportRequestRows *rows;
	List			   *args;
	ShuffleTotals		totals;
	int					partitions;

	if (!IsA(request, SupportRequestRows))
		PG_RETURN_POINTER(NULL);
	rows = (SupportRequestRows *) request;
	if (!IsA(rows->node, FuncExpr) || list_length(((FuncExpr *) rows->node)->args) != 2)
		PG_RETURN_POINTER(NULL);

	args = ((FuncExpr *) rows->node)->args;
	if (!table_totals(get_typ_typrelid(exprType(linitial(args))), &totals, &partitions))
		PG_RETURN_POINTER(NULL);
	rows->rows =
		Min(array_elements(rows->root, lsecond(args)), partitions) * totals.rows / partitions;
	rows->rows = Max(rows->rows, 1);
	PG_RETURN_POINTER(rows);
}
