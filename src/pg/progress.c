/*
 * progress.c
 *	  Progress of running writes and reads, for the view shuffle_progress.
 *
 * Without preloading an extension has no shared memory that others could look into, but
 * every backend has a slot for the progress of a command.  We report as a COPY: in
 * parameters that COPY does not use and marked with a magic number.  Where the backend is
 * in a COPY already (shuffle_fetch under COPY TO, COPY FROM into a shuffle table) we add to
 * its slot; where it is in any other command that reports, there is nothing to be seen of
 * us.  Every process of a parallel write reports for itself and names its leader: the view
 * adds them up.  What a worker has done stays when it ends and its slot is gone: it is left in
 * the job, and the leader reports it with its own.
 *
 * An abort clears the slot before any of our memory is released, so that an error needs no
 * care here.  A token tells the holder of the slot from one that came before.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/backend_progress.h"
#include "utils/backend_status.h"

#include "shuffle.h"

#define PROGRESS_MAGIC INT64CONST(1397249350) /* also in shuffle_progress */

/* Indexes of parameters; SQL counts from 1.  COPY's own come first. */
#define PARAM_COPY_BYTES 0
#define PARAM_COPY_ROWS	 2
#define PARAM_OPERATION	 10
#define PARAM_PHASE		 11
#define PARAM_ROWS		 12
#define PARAM_BYTES		 13
#define PARAM_EXPECTED	 14
#define PARAM_LEADER	 15
#define PARAM_ACTIVE	 16 /* processes that have reported rows */
#define PARAM_RELATION	 17 /* COPY (SELECT ...) names none */
#define PARAM_MAGIC		 19

static int	last_token = 0;
static int	holder = 0;	 /* token of who has the slot, if anybody has */
static bool own_command; /* not added to a COPY */

/* Of the holder: what it has reported of itself, and where others leave theirs. */
static uint64				own_rows;
static uint64				own_bytes;
static int					own_active;
static ShuffleProgressDone *others;

static bool
reporting(void)
{
	return MyBEEntry != NULL && MyBEEntry->st_progress_command == PROGRESS_COMMAND_COPY &&
		MyBEEntry->st_progress_param[PARAM_MAGIC] == PROGRESS_MAGIC;
}

static bool
holds(int token)
{
	return token != 0 && token == holder && reporting();
}

int
shuffle_progress_begin(ShuffleOperation operation, Oid relid, int leader)
{
	const int	index[] = {PARAM_OPERATION, PARAM_PHASE, PARAM_LEADER, PARAM_RELATION, PARAM_MAGIC};
	const int64 value[] = {operation, SHUFFLE_PHASE_PLANNING, leader, relid, PROGRESS_MAGIC};

	if (MyBEEntry == NULL || !pgstat_track_activities || reporting())
		return 0;
	own_command = MyBEEntry->st_progress_command == PROGRESS_COMMAND_INVALID;
	if (own_command)
		pgstat_progress_start_command(PROGRESS_COMMAND_COPY, relid);
	else if (MyBEEntry->st_progress_command != PROGRESS_COMMAND_COPY)
		return 0;
	pgstat_progress_update_multi_param(lengthof(index), index, value);
	own_rows = own_bytes = 0;
	own_active = 0;
	others = NULL;
	holder = ++last_token;
	return holder;
}

void
shuffle_progress_expect(int token, double rows)
{
	if (holds(token))
		pgstat_progress_update_param(PARAM_EXPECTED, (int64) Min(Max(rows, 0), 1e18));
}

void
shuffle_progress_phase(int token, ShufflePhase phase)
{
	if (holds(token))
		pgstat_progress_update_param(PARAM_PHASE, phase);
}

void
shuffle_progress_share(int token, ShuffleProgressDone *done)
{
	if (!holds(token))
		return;
	others = done;
	if (done != NULL)
	{
		pg_atomic_init_u64(&done->rows, 0);
		pg_atomic_init_u64(&done->bytes, 0);
		pg_atomic_init_u64(&done->processes, 0);
	}
}

/* Reports what is known of this process and of those that are done. */
static void
put_counts(void)
{
	/* those of COPY last: they are left to it where the slot is its own */
	const int index[] = {PARAM_ROWS, PARAM_BYTES, PARAM_ACTIVE, PARAM_COPY_ROWS, PARAM_COPY_BYTES};
	int64	  value[lengthof(index)] = {own_rows, own_bytes, own_active};

	if (others != NULL)
	{
		value[0] += pg_atomic_read_u64(&others->rows);
		value[1] += pg_atomic_read_u64(&others->bytes);
		value[2] += pg_atomic_read_u64(&others->processes);
	}
	value[3] = value[0];
	value[4] = value[1];
	pgstat_progress_update_multi_param(own_command ? lengthof(index) : lengthof(index) - 2, index,
									   value);
}

void
shuffle_progress_report(int token, ShufflePhase phase, uint64 rows, uint64 bytes)
{
	if (!holds(token))
		return;
	shuffle_progress_phase(token, phase);
	own_rows = rows;
	own_bytes = bytes;
	own_active = 1;
	put_counts();
}

void
shuffle_progress_done(int token, ShuffleProgressDone *done, uint64 rows, uint64 bytes)
{
	if (!holds(token))
		return;
	pg_atomic_fetch_add_u64(&done->rows, rows);
	pg_atomic_fetch_add_u64(&done->bytes, bytes);
	pg_atomic_fetch_add_u64(&done->processes, 1);
	if (others == NULL)
		shuffle_progress_end(token);
	else
	{
		own_rows = own_bytes = 0;
		own_active = 0;
		put_counts();
	}
}

void
shuffle_progress_refresh(void)
{
	if (others != NULL && holds(holder))
		put_counts();
}

void
shuffle_progress_end(int token)
{
	static const int   index[] = {PARAM_OPERATION, PARAM_PHASE,	   PARAM_ROWS,
								  PARAM_BYTES,	   PARAM_EXPECTED, PARAM_LEADER,
								  PARAM_ACTIVE,	   PARAM_RELATION, PARAM_MAGIC};
	static const int64 value[lengthof(index)] = {0};

	if (!holds(token))
		return;
	if (own_command)
		pgstat_progress_end_command();
	else
		pgstat_progress_update_multi_param(lengthof(index), index, value);
	holder = 0;
}
