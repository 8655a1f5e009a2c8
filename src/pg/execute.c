/*
 * execute.c
 *	  Runs a plan and hands its rows to a function.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "tcop/dest.h"
#include "utils/snapmgr.h"

#include "shuffle.h"

typedef struct RowReceiver
{
	DestReceiver	   pub;
	ShuffleRowFunction receive;
	void			  *arg;
} RowReceiver;

static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	RowReceiver *receiver = (RowReceiver *) self;

	receiver->receive(slot, receiver->arg);
	return true;
}

static void
receive_startup(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
receive_nothing(DestReceiver *self)
{
}

void
shuffle_execute(PlannedStmt *plan, const char *text, ShuffleRowFunction receive, void *arg)
{
	RowReceiver receiver = {
		.pub = {receive_row, receive_startup, receive_nothing, receive_nothing, DestNone},
		.receive = receive,
		.arg = arg};
	QueryDesc *desc;

	desc = CreateQueryDesc(plan, text, GetActiveSnapshot(), InvalidSnapshot, &receiver.pub, NULL,
						   NULL, 0);
	ExecutorStart(desc, 0);
	ExecutorRunOnce(desc);
	ExecutorFinish(desc);
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
}
