/*
 * error.c
 *	  Engine errors raised as PostgreSQL errors, and objects that do not fit the library.
 */
#include "postgres.h"

#include <errno.h>

#include "funcapi.h"
#include "utils/lsyscache.h"

#include "shuffle.h"

/*
 * The engine reports with codes and one finished sentence in English that names file
 * and offset; here it gets its SQLSTATE and a hint.
 */
void
shuffle_raise(const ShfError *err)
{
	ShfCode code = err->code;

	switch (code)
	{
		case SHF_ERR_IO:
			if (err->sys_errno == ENOSPC || err->sys_errno == EDQUOT)
				ereport(
					ERROR,
					(errcode(ERRCODE_DISK_FULL), errmsg("%s", err->message),
					 errhint(
						 "Free some space, or let shuffle_ext.directory name a larger device.")));
			errno = err->sys_errno;
			ereport(ERROR, (errcode_for_file_access(), errmsg("%s", err->message)));
			break;
		case SHF_ERR_NOMEM:
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"),
					 errdetail("%s.", err->message)));
			break;
		case SHF_ERR_CORRUPT:
			ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("%s", err->message)));
			break;
		case SHF_ERR_INVALID:
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s", err->message)));
			break;
		case SHF_ERR_LIMIT:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("%s", err->message),
					 strstr(err->message, "memory") != NULL ?
						 errhint("Raise shuffle_ext.memory_limit.") :
						 0));
			break;
		case SHF_ERR_STOPPED:
		case SHF_OK:
			break;
	}
	elog(ERROR, "engine call failed without an error: code %d", (int) code);
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
