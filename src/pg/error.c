/*
 * error.c
 *	  Engine errors raised as PostgreSQL errors, and objects that do not fit the library.
 */
#include "postgres.h"

#include <errno.h>

#include "funcapi.h"
#include "utils/lsyscache.h"

#include "shuffle.h"

int
shuffle_errcode(const ShfError *err)
{
	switch (err->code)
	{
		case SHF_ERR_IO:
			/* the server has no class for a quota */
			return err->sys_errno == EDQUOT ? errcode(ERRCODE_DISK_FULL) :
											  errcode_for_file_access();
		case SHF_ERR_NOMEM:
			return errcode(ERRCODE_OUT_OF_MEMORY);
		case SHF_ERR_CORRUPT:
			return errcode(ERRCODE_DATA_CORRUPTED);
		case SHF_ERR_INVALID:
			return errcode(ERRCODE_INVALID_PARAMETER_VALUE);
		case SHF_ERR_LIMIT:
			return errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED);
		case SHF_ERR_STOPPED:
		case SHF_OK:
			break;
	}
	return errcode(ERRCODE_INTERNAL_ERROR);
}

static int
hint_for(const ShfError *err)
{
	if (err->code == SHF_ERR_IO && (err->sys_errno == ENOSPC || err->sys_errno == EDQUOT))
		return errhint("Free some space, or let \"%s\" name a larger device.",
					   "shuffle_ext.directory");
	if (err->code == SHF_ERR_LIMIT && strstr(err->message, "memory") != NULL)
		return errhint("Raise \"%s\".", "shuffle_ext.memory_limit");
	return 0;
}

/*
 * The engine reports with codes and one finished sentence in English that names file
 * and offset; here it gets its SQLSTATE and a hint.
 */
void
shuffle_raise(const ShfError *err)
{
	if (err->code == SHF_OK || err->code == SHF_ERR_STOPPED)
		elog(ERROR, "engine call failed without an error: code %d", (int) err->code);
	errno = err->sys_errno;
	if (err->code == SHF_ERR_NOMEM)
		ereport(ERROR,
				(shuffle_errcode(err), errmsg("out of memory"), errdetail("%s.", err->message)));
	ereport(ERROR, (shuffle_errcode(err), errmsg("%s", err->message), hint_for(err)));
}

/*
 * A library can meet objects of another version: it was installed, and ALTER EXTENSION
 * has not followed, or a session still runs the one before.
 */
void
shuffle_raise_misfit(const char *kind, const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s \"%s\" does not fit the library of extension \"%s\"", kind, name,
					SHUFFLE_EXTENSION),
			 errdetail("Another version of the extension made it."),
			 errhint("Reconnect, use ALTER EXTENSION %s UPDATE, or install the library of that "
					 "version.",
					 SHUFFLE_EXTENSION)));
}

void
shuffle_require_signature(FunctionCallInfo fcinfo, int nargs, int ncolumns)
{
	Oid		  type;
	TupleDesc desc = NULL;

	if (PG_NARGS() == nargs &&
		(ncolumns == 0 ||
		 (get_call_result_type(fcinfo, &type, &desc) == TYPEFUNC_COMPOSITE &&
		  desc->natts == ncolumns)))
		return;
	shuffle_raise_misfit("function", get_func_name(fcinfo->flinfo->fn_oid));
}
