/*
 * account.h
 *	  Bytes that a writer holds and has written, and where its time goes, for the limits
 *	  and the metrics.
 *
 * The limit itself is kept by construction: everything of fixed size is subtracted
 * from it when the writer opens and the row buffer gets the rest.  Only what one
 * oversized row needs may go beyond it.
 *
 * Reading a clock costs as much as some ten rows of a small block, so it is read per
 * system call and per run.  Inside a run, one block in every SHF_TIMED_ROWS rows is
 * timed and tells how the others divide their time.
 */
#ifndef SHF_ACCOUNT_H
#define SHF_ACCOUNT_H

#include "clock.h"
#include "shf.h"

#define SHF_TIMED_ROWS 1024

typedef struct ShfAccount
{
	uint64_t used; /* atomic: shf_writer_memory() reads it at any time */
	uint64_t peak;

	/* Both atomic: see shf_writer_written() and shf_writer_limit_output(). */
	uint64_t written;
	uint64_t output_limit;

	uint64_t write_ns; /* in system calls that write */
	uint64_t sync_ns;  /* in those that sync */

	/* Of the timed blocks, each with the weight of the untimed ones before it. */
	double	 gather_sample;
	double	 encode_sample;
	double	 row_ns; /* both per row, of the latest samples */
	uint64_t untimed_rows;
} ShfAccount;

/* A part of the writer grew or shrank from before to after bytes. */
static inline void
shf_account(ShfAccount *account, uint64_t before, uint64_t after)
{
	uint64_t used = account->used - before + after;

	__atomic_store_n(&account->used, used, __ATOMIC_RELAXED);
	if (used > account->peak)
		account->peak = used;
}

/* A clock that stands still while bytes are written and synced. */
static inline uint64_t
shf_work_clock(const ShfAccount *account)
{
	return shf_clock() - account->write_ns - account->sync_ns;
}

/* Is the next block, of so many rows, to be timed? */
static inline bool
shf_account_timed(ShfAccount *account, uint32_t rows)
{
	account->untimed_rows += rows;
	return account->untimed_rows >= SHF_TIMED_ROWS || account->encode_sample == 0;
}

/*
 * A block has been timed.  A sample that is far off is left out: the process was not
 * running all the time.
 */
static inline void
shf_account_block(ShfAccount *account, uint32_t rows, uint64_t gather_ns, uint64_t encode_ns)
{
	double weight = (double) account->untimed_rows / rows;
	double row_ns = (double) (gather_ns + encode_ns) / rows;

	account->untimed_rows = 0;
	if (account->row_ns > 0 && row_ns > 8 * account->row_ns + 20000.0 / rows)
		return;
	account->row_ns += (row_ns - account->row_ns) / (account->row_ns > 0 ? 8 : 1);
	account->gather_sample += weight * (double) gather_ns;
	account->encode_sample += weight * (double) encode_ns;
}

#endif
