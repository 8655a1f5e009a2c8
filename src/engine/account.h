/*
 * account.h
 *	  Bytes that a writer holds, for the memory limit and the metrics.
 *
 * The limit itself is kept by construction: everything of fixed size is subtracted
 * from it when the writer opens and the row buffer gets the rest.  Only what one
 * oversized row needs may go beyond it.
 */
#ifndef SHF_ACCOUNT_H
#define SHF_ACCOUNT_H

#include "shf.h"

typedef struct ShfAccount
{
	uint64_t	used;
	uint64_t	peak;
} ShfAccount;

/* A part of the writer grew or shrank from before to after bytes. */
static inline void
shf_account(ShfAccount *account, uint64_t before, uint64_t after)
{
	account->used = account->used - before + after;
	if (account->used > account->peak)
		account->peak = account->used;
}

#endif
