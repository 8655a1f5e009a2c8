/*
 * write_hooks.c
 *	  Tells write states when statements begin and end.
 *
 * The table access method is not told: COPY row by row and logical replication just stop
 * inserting, and what it is told (finish_bulk_insert) comes in the middle of a COPY
 * into many partitions.  So every executor run and every utility command counts as one
 * level, a write state remembers the level it was made at, and whatever was made
 * above the level that is returned to belongs to a statement that has ended.
 *
 * Rows are published before the standard ExecutorFinish, which fires AFTER triggers, and
 * once more after the standard ExecutorEnd, because ExecutorFinish also completes
 * data-modifying CTEs.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "tcop/utility.h"

#include "alter.h"
#include "write_state.h"

static ExecutorStart_hook_type	previous_ExecutorStart = NULL;
static ExecutorRun_hook_type	previous_ExecutorRun = NULL;
static ExecutorFinish_hook_type previous_ExecutorFinish = NULL;
static ExecutorEnd_hook_type	previous_ExecutorEnd = NULL;
static ProcessUtility_hook_type previous_ProcessUtility = NULL;

static int depth = 0;

int
shuffle_statement_depth(void)
{
	return depth;
}

/*
 * Publishes everything that a parallel query may see, as it cannot be published once the
 * query runs: workers have no write states, and their leader cannot assign a transaction
 * id.
 */
static void
hook_ExecutorStart(QueryDesc *query, int eflags)
{
	if (depth == 0)
		shuffle_states_publish_uncounted();
	if (query->plannedstmt->parallelModeNeeded && !(eflags & EXEC_FLAG_EXPLAIN_ONLY))
		shuffle_states_before_read(NULL, query->snapshot);

	if (previous_ExecutorStart)
		previous_ExecutorStart(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
}

static void
hook_ExecutorRun(QueryDesc *query, ScanDirection direction, uint64 count SHUFFLE_RUN_ONCE_PARAM)
{
	depth++;
	PG_TRY();
	{
		if (previous_ExecutorRun)
			previous_ExecutorRun(query, direction, count SHUFFLE_RUN_ONCE_ARG);
		else
			standard_ExecutorRun(query, direction, count SHUFFLE_RUN_ONCE_ARG);
	}
	PG_FINALLY();
	{
		depth--;
	}
	PG_END_TRY();
}

/*
 * The time and buffers count for the query, as in pg_stat_statements, and for the node that
 * has inserted, as in EXPLAIN ANALYZE: much of the work may be done only now.
 */
static void
publish_measured(QueryDesc *query)
{
	PlanState		*state = query->planstate;
	Instrumentation *node = NULL;

	/* not the top of the plan, it is in a WITH clause */
	if (!IsA(state, ModifyTableState) && query->estate->es_auxmodifytables != NIL)
		state = linitial(query->estate->es_auxmodifytables);
	if (IsA(state, ModifyTableState) && state->instrument && state->instrument->running)
		node = state->instrument;
	if (query->totaltime)
		InstrStartNode(query->totaltime);
	if (node)
		InstrStartNode(node);

	shuffle_states_publish_above(depth);

	if (node)
		InstrStopNode(node, 0);
	if (query->totaltime)
		InstrStopNode(query->totaltime, 0);
}

static void
hook_ExecutorFinish(QueryDesc *query)
{
	publish_measured(query);

	depth++;
	PG_TRY();
	{
		if (previous_ExecutorFinish)
			previous_ExecutorFinish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_FINALLY();
	{
		depth--;
	}
	PG_END_TRY();
}

static void
hook_ExecutorEnd(QueryDesc *query)
{
	if (previous_ExecutorEnd)
		previous_ExecutorEnd(query);
	else
		standard_ExecutorEnd(query);

	shuffle_states_publish_above(depth);
}

static void
hook_ProcessUtility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
					ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
					DestReceiver *dest, QueryCompletion *qc)
{
	depth++;
	PG_TRY();
	{
		if (previous_ProcessUtility)
			previous_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv,
									dest, qc);
		else
			standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv,
									dest, qc);
	}
	PG_FINALLY();
	{
		depth--;
	}
	PG_END_TRY();

	/* It may have been a ROLLBACK or PREPARE TRANSACTION. */
	if (IsTransactionState())
	{
		shuffle_states_publish_above(depth);
		if (depth == 0)
			shuffle_alter_check();
	}
}

void
shuffle_states_init(void)
{
	previous_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = hook_ExecutorStart;
	previous_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = hook_ExecutorRun;
	previous_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = hook_ExecutorFinish;
	previous_ExecutorEnd = ExecutorEnd_hook;
	ExecutorEnd_hook = hook_ExecutorEnd;
	previous_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = hook_ProcessUtility;
}
