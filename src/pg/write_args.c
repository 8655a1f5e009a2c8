/*
 * write_args.c
 *	  Arguments of shuffle_write(), and the options that come of them.
 *
 * An argument that is left out is NULL.  For a new table it gets its default here; for
 * an existing one what the table has stored stands: appending refuses arguments that say
 * something else, replacing takes those that are given.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "postmaster/bgworker_internals.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "write.h"

/* Numbers of the SQL function's arguments. */
enum
{
	ARG_QUERY,
	ARG_TARGET,
	ARG_PARTITIONS, /* first of the options, see shuffle_option_args() */
	ARG_IF_EXISTS = ARG_PARTITIONS + 9,
	ARG_WORKERS,
	NARGS
};

static char *
text_argument(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));
}

static char *
required_argument(FunctionCallInfo fcinfo, int n, const char *name)
{
	char *value = text_argument(fcinfo, n);

	if (value == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" of shuffle_write must not be null", name)));
	return value;
}

static bool
array_argument(FunctionCallInfo fcinfo, int n, const char *name, const char *function,
			   char ***values, int *nvalues)
{
	ArrayType *array;
	Datum	  *elements;
	bool	  *nulls;

	if (PG_ARGISNULL(n))
		return false;
	array = PG_GETARG_ARRAYTYPE_P(n);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("argument \"%s\" of %s must be a one-dimensional array", name, function)));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, nvalues);
	*values = palloc(sizeof(char *) * Max(*nvalues, 1));
	for (int i = 0; i < *nvalues; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" of %s must not contain nulls", name, function)));
		(*values)[i] = TextDatumGetCString(elements[i]);
	}
	return true;
}

static ShuffleIfExists
parse_if_exists(const char *text)
{
	if (text == NULL || strcmp(text, "error") == 0)
		return SHUFFLE_IF_EXISTS_ERROR;
	if (strcmp(text, "append") == 0)
		return SHUFFLE_IF_EXISTS_APPEND;
	if (strcmp(text, "replace") == 0)
		return SHUFFLE_IF_EXISTS_REPLACE;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", "if_exists", text),
			 errhint("Valid values: \"error\", \"append\", \"replace\".")));
	return SHUFFLE_IF_EXISTS_ERROR; /* keep compiler quiet */
}

void
shuffle_option_args(FunctionCallInfo fcinfo, int first, const char *function,
					ShuffleWriteArgs *args)
{
	args->has_partitions = !PG_ARGISNULL(first);
	if (args->has_partitions)
		args->partitions = PG_GETARG_INT32(first);
	args->has_keys = array_argument(fcinfo, first + 1, "keys", function, &args->keys, &args->nkeys);
	args->method = text_argument(fcinfo, first + 2);
	args->has_bounds =
		array_argument(fcinfo, first + 3, "bounds", function, &args->bounds, &args->nbounds);
	args->hash = text_argument(fcinfo, first + 4);
	args->layout = text_argument(fcinfo, first + 5);
	args->codec = text_argument(fcinfo, first + 6);
	args->types = text_argument(fcinfo, first + 7);
	args->unrepresentable = text_argument(fcinfo, first + 8);
}

ShuffleWriteArgs *
shuffle_write_args(FunctionCallInfo fcinfo)
{
	ShuffleWriteArgs *args = palloc0(sizeof(ShuffleWriteArgs));
	char			 *if_exists;

	shuffle_require_signature(fcinfo, NARGS, 6);
	args->query = required_argument(fcinfo, ARG_QUERY, "query");
	args->target = required_argument(fcinfo, ARG_TARGET, "target");
	shuffle_option_args(fcinfo, ARG_PARTITIONS, "shuffle_write", args);
	if_exists = text_argument(fcinfo, ARG_IF_EXISTS);
	args->if_exists = parse_if_exists(if_exists);
	args->workers = PG_ARGISNULL(ARG_WORKERS) ? -1 : PG_GETARG_INT32(ARG_WORKERS);
	if (!PG_ARGISNULL(ARG_WORKERS) &&
		(args->workers < 0 || args->workers > MAX_PARALLEL_WORKER_LIMIT))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of workers must be between 0 and %d, not %d",
						MAX_PARALLEL_WORKER_LIMIT, args->workers)));
	return args;
}

/* Number (from 1) of the output column that a key means, by name, else by number. */
static int
find_key(const char *key, TupleDesc desc, const ShuffleWriteArgs *args)
{
	StringInfoData names;
	int			   number = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		if (strcmp(NameStr(TupleDescAttr(desc, i)->attname), key) == 0)
			return i + 1;
	}

	if (key[0] != '\0' && strspn(key, "0123456789") == strlen(key) && strlen(key) < 6)
		number = atoi(key);
	if (number >= 1 && number <= desc->natts)
		return number;

	initStringInfo(&names);
	for (int i = 0; i < Min(desc->natts, 20); i++)
		appendStringInfo(&names, "%s\"%s\"", i > 0 ? ", " : "",
						 NameStr(TupleDescAttr(desc, i)->attname));
	if (desc->natts > 20)
		appendStringInfoString(&names, ", ...");
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 args->query != NULL ? errmsg("key \"%s\" is not a column of the query's output", key) :
								   errmsg("key \"%s\" is not a column of the table", key),
			 desc->natts > 0 ? errhint("Keys are names, or numbers from 1, of %s.", names.data) :
							   errhint("There are no columns.")));
	return 0; /* keep compiler quiet */
}

static void
set_keys(ShuffleOptions *options, const ShuffleWriteArgs *args, TupleDesc desc,
		 const AttrNumber *attnums)
{
	options->nkeys = args->nkeys;
	options->keys = palloc(sizeof(AttrNumber) * Max(args->nkeys, 1));
	for (int i = 0; i < args->nkeys; i++)
	{
		int column = find_key(args->keys[i], desc, args);

		options->keys[i] = attnums != NULL ? attnums[column - 1] : column;
		for (int j = 0; j < i; j++)
		{
			if (options->keys[j] == options->keys[i])
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("column \"%s\" appears more than once in the keys",
								NameStr(TupleDescAttr(desc, column - 1)->attname))));
		}
	}
}

static char *
keys_text(const ShuffleOptions *options, TupleDesc desc)
{
	StringInfoData buf;

	if (options->nkeys == 0)
		return "none";
	initStringInfo(&buf);
	for (int i = 0; i < options->nkeys; i++)
		appendStringInfo(&buf, "%s\"%s\"", i > 0 ? ", " : "",
						 NameStr(TupleDescAttr(desc, options->keys[i] - 1)->attname));
	return buf.data;
}

static char *
bounds_text(const ShuffleOptions *options)
{
	return options->nbounds == 0 ?
		"none" :
		psprintf("%d from \"%s\" to \"%s\"", options->nbounds, options->bounds[0],
				 options->bounds[options->nbounds - 1]);
}

/* An argument that is given must say what the table has stored. */
static void
check_append(const char *name, const char *given, const char *stored, bool same,
			 const ShuffleTarget *target)
{
	if (same)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"%s\" conflicts with the options of table \"%s\"", name,
					shuffle_target_name(target)),
			 errdetail("The argument says %s, the table has %s.", given, stored),
			 errhint("Leave the argument out to append with the options of the table, "
					 "or use if_exists => 'replace'.")));
}

/* Those of the given arguments that need nothing else to be understood. */
static void
set_simple_options(ShuffleOptions *options, const ShuffleWriteArgs *args)
{
	if (args->has_partitions)
		options->partitions = args->partitions;
	if (args->method != NULL)
		options->method = shuffle_parse_method(args->method);
	if (args->hash != NULL)
	{
		shuffle_check_hash(args->hash);
		options->hash = args->hash;
	}
	if (args->layout != NULL)
		options->layout = shuffle_parse_layout(args->layout);
	if (args->codec != NULL)
		options->codec = shuffle_parse_codec(args->codec);
	if (args->types != NULL)
		options->types = shuffle_parse_types(args->types);
	if (args->unrepresentable != NULL)
		options->null_unrepresentable = shuffle_parse_unrepresentable(args->unrepresentable);
}

static void
set_bounds(ShuffleOptions *options, const ShuffleWriteArgs *args)
{
	options->nbounds = args->nbounds;
	options->bounds = args->bounds;
}

/* What bounds say about the number of partitions, and the other way round. */
static void
check_bounds_count(ShuffleOptions *options, const ShuffleWriteArgs *args)
{
	if (!args->has_bounds || options->method != SHUFFLE_RANGE)
		return;
	if (!args->has_partitions)
		options->partitions = args->nbounds + 1;
	else if (args->nbounds == 0 && options->partitions != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of bounds for %d range partitions must be %d, not %d",
						options->partitions, options->partitions - 1, 0),
				 errhint("Leave \"bounds\" out to have them estimated from the data.")));
}

static ShuffleOptions *
append_options(const ShuffleWriteArgs *args, TupleDesc desc, const ShuffleTarget *target)
{
	TupleDesc		table = RelationGetDescr(target->rel);
	ShuffleOptions *stored = target->stored;
	ShuffleOptions	given = *stored;

	set_simple_options(&given, args);
	check_append("partitions", psprintf("%d", given.partitions), psprintf("%d", stored->partitions),
				 given.partitions == stored->partitions, target);
	check_append("method", shuffle_method_name(given.method), shuffle_method_name(stored->method),
				 given.method == stored->method, target);
	check_append("hash", given.hash, stored->hash, strcmp(given.hash, stored->hash) == 0, target);
	check_append("layout", shuffle_layout_name(given.layout), shuffle_layout_name(stored->layout),
				 given.layout == stored->layout, target);
	check_append("codec", shuffle_codec_name(given.codec), shuffle_codec_name(stored->codec),
				 given.codec.kind == stored->codec.kind && given.codec.level == stored->codec.level,
				 target);
	check_append("types", shuffle_types_name(given.types), shuffle_types_name(stored->types),
				 given.types == stored->types, target);
	check_append("unrepresentable", given.null_unrepresentable ? "null" : "error",
				 stored->null_unrepresentable ? "null" : "error",
				 given.null_unrepresentable == stored->null_unrepresentable, target);
	if (args->has_keys)
	{
		set_keys(&given, args, desc, target->attnums);
		check_append("keys", keys_text(&given, table), keys_text(stored, table),
					 given.nkeys == stored->nkeys &&
						 memcmp(given.keys, stored->keys, sizeof(AttrNumber) * given.nkeys) == 0,
					 target);
	}
	if (args->has_bounds)
	{
		set_bounds(&given, args);
		if (given.method == SHUFFLE_RANGE)
			shuffle_bounds_normalize(&given, table);
		check_append("bounds", bounds_text(&given), bounds_text(stored),
					 shuffle_options_same_routing(&given, stored), target);
	}
	return stored;
}

static ShuffleOptions *
replace_options(const ShuffleWriteArgs *args, TupleDesc desc, const ShuffleTarget *target)
{
	TupleDesc		table = RelationGetDescr(target->rel);
	ShuffleOptions *stored = target->stored;
	ShuffleOptions *options = palloc(sizeof(ShuffleOptions));
	bool			has_keys;
	int				nbounds;

	*options = *stored;
	set_simple_options(options, args);
	if (args->has_keys)
		set_keys(options, args, desc, target->attnums);

	/* The method follows the keys, and the keys the method, where only one is given. */
	has_keys = shuffle_method_has_keys(options->method);
	if (args->method == NULL && args->has_keys && has_keys != (options->nkeys > 0))
		options->method = options->nkeys > 0 ? SHUFFLE_HASH : SHUFFLE_ROUND_ROBIN;
	else if (args->method != NULL && !args->has_keys && !has_keys)
		options->nkeys = 0;
	if (options->method == SHUFFLE_SINGLE && !args->has_partitions)
		options->partitions = 1;
	shuffle_options_require_keys(options, target->rel);

	if (args->has_bounds)
		set_bounds(options, args);
	check_bounds_count(options, args);
	if (!args->has_bounds &&
		(options->method != SHUFFLE_RANGE || !shuffle_options_same_routing(options, stored)))
		options->nbounds = 0;

	/* Stored bounds may have been estimated, and be fewer than one could give. */
	nbounds = options->nbounds;
	if (!args->has_bounds)
		options->nbounds = 0;
	shuffle_options_check(options, false);
	options->nbounds = nbounds;
	if (args->has_bounds)
		shuffle_bounds_normalize(options, table);
	return options;
}

ShuffleOptions *
shuffle_write_options(const ShuffleWriteArgs *args, TupleDesc desc, const ShuffleTarget *target)
{
	ShuffleOptions *options;

	if (target->exists)
		return args->if_exists == SHUFFLE_IF_EXISTS_APPEND ? append_options(args, desc, target) :
															 replace_options(args, desc, target);

	options = palloc(sizeof(ShuffleOptions));
	shuffle_options_default(options);
	options->method = args->nkeys > 0 ? SHUFFLE_HASH : SHUFFLE_ROUND_ROBIN;
	options->partitions = shuffle_setting_partitions;
	set_simple_options(options, args);
	if (options->method == SHUFFLE_SINGLE && !args->has_partitions)
		options->partitions = 1;
	if (args->has_keys)
		set_keys(options, args, desc, NULL);
	if (args->has_bounds)
		set_bounds(options, args);
	check_bounds_count(options, args);
	shuffle_options_check(options, false);
	if (args->has_bounds)
		shuffle_bounds_normalize(options, desc);
	return options;
}
