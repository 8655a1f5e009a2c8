/*
 * partition_of.c
 *	  shuffle_partition_of: the partition that rows with these keys go to.
 *
 * Values are converted to the columns' types as INSERT does it, save that length and scale
 * are not applied, and by the server's own casts only: a table's owner must not choose
 * functions that run as whoever asks.  What is known of the table is kept from one call to
 * the next, until an invalidation of any relation.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/transam.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "read_state.h"
#include "route.h"

/* How an argument becomes a value of its key column. */
typedef struct KeyArgument
{
	AttrNumber attnum;
	FmgrInfo   convert; /* fn_oid is invalid where there is nothing to do */
	bool	   input;	/* convert is the type's input function */
	int		   nargs;	/* of a cast */
	Oid		   ioparam;
	int32	   typmod;
} KeyArgument;

typedef struct PartitionOf
{
	Oid			   relid;
	uint64		   generation;
	MemoryContext  cxt;
	ShuffleRouter *router;
	int			   nkeys;
	KeyArgument	  *keys;
	Datum		  *values; /* as for shuffle_route() */
	bool		  *isnull;
} PartitionOf;

static uint64 generation = 1; /* counts invalidations */

static void
count_invalidation(Datum arg, Oid relid)
{
	generation++;
}

static void
prepare_argument(KeyArgument *key, Oid source, Form_pg_attribute att)
{
	Oid				 target;
	CoercionPathType path;
	Oid				 function;

	key->attnum = att->attnum;
	key->typmod = att->atttypmod;
	target = getBaseTypeAndTypmod(att->atttypid, &key->typmod);
	if (source == UNKNOWNOID)
	{
		getTypeInputInfo(target, &function, &key->ioparam);
		key->input = true;
		path = COERCION_PATH_FUNC;
	}
	else if (getBaseType(source) == target)
		return;
	else
		path = find_coercion_pathway(target, source, COERCION_ASSIGNMENT, &function);

	if (path == COERCION_PATH_RELABELTYPE)
		return;
	if (path != COERCION_PATH_FUNC || function >= FirstUnpinnedObjectId)
		ereport(
			ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("key column \"%s\" is of type %s, but the value is of type %s",
					NameStr(att->attname), format_type_be(att->atttypid), format_type_be(source)),
			 errhint("Cast the value to the type of the column.")));
	fmgr_info_cxt(function, &key->convert, CurrentMemoryContext);
	key->nargs = get_func_nargs(function);
}

static PartitionOf *
prepare(FunctionCallInfo fcinfo, Relation rel)
{
	MemoryContext	cxt = AllocSetContextCreate(fcinfo->flinfo->fn_mcxt, "shuffle partition of",
												ALLOCSET_SMALL_SIZES);
	MemoryContext	oldcxt = MemoryContextSwitchTo(cxt);
	PartitionOf	   *state = palloc0(sizeof(PartitionOf));
	ShuffleOptions *options = shuffle_options_of(rel);
	TupleDesc		desc = CreateTupleDescCopy(RelationGetDescr(rel));

	if (options->method == SHUFFLE_ROUND_ROBIN)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rows of table \"%s\" go to its partitions in turn",
						RelationGetRelationName(rel)),
				 errdetail("With method \"%s\" no key decides it.",
						   shuffle_method_name(options->method))));
	shuffle_options_require_keys(options, rel);
	state->nkeys = shuffle_method_has_keys(options->method) ? options->nkeys : 0;
	if (PG_NARGS() - 1 != state->nkeys)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg_plural("table \"%s\" has %d key column, not %d",
							   "table \"%s\" has %d key columns, not %d", state->nkeys,
							   RelationGetRelationName(rel), state->nkeys, PG_NARGS() - 1)));

	state->cxt = cxt;
	state->relid = RelationGetRelid(rel);
	state->router = shuffle_router_create(options, desc, 0);
	state->values = palloc0(sizeof(Datum) * Max(desc->natts, 1));
	state->isnull = palloc(sizeof(bool) * Max(desc->natts, 1));
	memset(state->isnull, true, sizeof(bool) * desc->natts);
	state->keys = palloc0(sizeof(KeyArgument) * Max(state->nkeys, 1));
	for (int i = 0; i < state->nkeys; i++)
		prepare_argument(&state->keys[i], get_fn_expr_argtype(fcinfo->flinfo, i + 1),
						 TupleDescAttr(desc, options->keys[i] - 1));
	MemoryContextSwitchTo(oldcxt);
	return state;
}

static Datum
convert(KeyArgument *key, Datum value)
{
	if (!OidIsValid(key->convert.fn_oid))
		return value;
	if (key->input)
		return InputFunctionCall(&key->convert, DatumGetCString(value), key->ioparam, key->typmod);

	if (key->nargs == 1)
		return FunctionCall1(&key->convert, value);

	/* It also wants the typmod, and maybe whether the cast is explicit. */
	return FunctionCall3(&key->convert, value, Int32GetDatum(-1), BoolGetDatum(false));
}

/* SQL: shuffle_partition_of(relation regclass, VARIADIC keys "any") RETURNS int */
PG_FUNCTION_INFO_V1(shuffle_partition_of);

Datum
shuffle_partition_of(PG_FUNCTION_ARGS)
{
	static bool	 registered = false;
	PartitionOf *state = fcinfo->flinfo->fn_extra;
	Relation	 rel;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("relation must not be NULL")));
	if (get_fn_expr_variadic(fcinfo->flinfo))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("keys cannot be given as an array"),
				 errhint("Write them one by one: they may be of different types.")));
	if (!registered)
	{
		CacheRegisterRelcacheCallback(count_invalidation, (Datum) 0);
		registered = true;
	}

	/* Locking it takes notice of invalidations. */
	rel = shuffle_open_for_reading(PG_GETARG_OID(0));
	if (state == NULL || state->relid != RelationGetRelid(rel) || state->generation != generation)
	{
		uint64 before = generation; /* what changes while it is looked up counts, too */

		fcinfo->flinfo->fn_extra = NULL;
		if (state != NULL)
			MemoryContextDelete(state->cxt);
		state = prepare(fcinfo, rel);
		state->generation = before;
		fcinfo->flinfo->fn_extra = state;
	}
	relation_close(rel, NoLock);

	for (int i = 0; i < state->nkeys; i++)
	{
		KeyArgument *key = &state->keys[i];

		state->isnull[key->attnum - 1] = PG_ARGISNULL(i + 1);
		if (!PG_ARGISNULL(i + 1))
			state->values[key->attnum - 1] = convert(key, PG_GETARG_DATUM(i + 1));
	}
	PG_RETURN_INT32(shuffle_route(state->router, state->values, state->isnull));
}
