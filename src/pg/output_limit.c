/*
 * output_limit.c
 *	  shuffle_ext.output_limit: the bytes that one statement of the client may write.
 *
 * All writers that belong to a statement share one count: those of this process, whatever
 * functions and triggers the statement calls, in a variable here; those of a parallel
 * shuffle_write() in shared memory, which starts with what the statement had written before
 * and is added to it in the end (job.c).  A writer adds what its engine has written when
 * it gets control, and tells the engine how much the others have left; so the engine, in a
 * thread too, stops by itself before that is passed.  Bytes that were written and are gone
 * again, of a subtransaction that was rolled back, remain counted.
 */
#include "postgres.h"

#include "access/xact.h"

#include "shuffle.h"

/* What the statement that began at this time has written. */
static TimestampTz		statement = 0;
static pg_atomic_uint64 statement_bytes;

static pg_atomic_uint64 *
this_statement(void)
{
	if (statement != GetCurrentStatementStartTimestamp())
	{
		statement = GetCurrentStatementStartTimestamp();
		pg_atomic_init_u64(&statement_bytes, 0);
	}
	return &statement_bytes;
}

uint64
shuffle_output_written(void)
{
	return pg_atomic_read_u64(this_statement());
}

void
shuffle_output_set(uint64 written)
{
	pg_atomic_write_u64(this_statement(), written);
}

uint64
shuffle_output_add(pg_atomic_uint64 *count, uint64 bytes, int limit_kb)
{
	uint64 limit = (uint64) limit_kb * 1024;
	uint64 written;

	written = pg_atomic_add_fetch_u64(count != NULL ? count : this_statement(), bytes);
	if (limit == 0)
		return PG_UINT64_MAX;
	if (written > limit)
		ereport(
			ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("statement writes more to shuffle tables than \"%s\" allows (%d kB)",
					"shuffle_ext.output_limit", limit_kb),
			 errdetail("It has come to " UINT64_FORMAT " bytes.", written),
			 errhint("Raise \"%s\", or set it to 0 for no limit.", "shuffle_ext.output_limit")));
	return limit - written;
}
