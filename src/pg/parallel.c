/*
 * parallel.c
 *	  May parallel workers handle values of these columns?
 *
 * The planner looks at the functions of the query.  Those that we call on its output are
 * out of its sight: support functions that route by the keys, and output functions of types
 * whose Arrow form is their text.  All of PostgreSQL's own are parallel safe; those of
 * other types are unsafe unless their author said otherwise.
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "shuffle.h"

typedef enum TypeUse
{
	USE_OUTPUT,
	USE_HASH,
	USE_COMPARISON
} TypeUse;

static Oid
function_of_type(Oid type, TypeUse use)
{
	Oid	 output;
	bool is_varlena;

	switch (use)
	{
		case USE_OUTPUT:
			getTypeOutputInfo(type, &output, &is_varlena);
			return output;
		case USE_HASH:
			return lookup_type_cache(type, TYPECACHE_HASH_EXTENDED_PROC)->hash_extended_proc;
		case USE_COMPARISON:
			return lookup_type_cache(type, TYPECACHE_CMP_PROC)->cmp_proc;
	}
	return InvalidOid; /* keep compiler quiet */
}

/* Functions of arrays, composites and ranges call those of their components. */
static bool
type_is_safe(Oid type, TypeUse use)
{
	Oid function;
	Oid component;

	check_stack_depth();
	type = getBaseType(type);
	function = function_of_type(type, use);
	if (OidIsValid(function) && func_parallel(function) != PROPARALLEL_SAFE)
		return false;

	component = get_element_type(type);
	if (!OidIsValid(component))
		component = get_range_subtype(type);
	if (!OidIsValid(component))
		component = get_multirange_range(type);
	if (OidIsValid(component))
		return type_is_safe(component, use);

	if (get_typtype(type) == TYPTYPE_COMPOSITE)
	{
		TupleDesc desc = lookup_rowtype_tupdesc_copy(type, -1);

		for (int i = 0; i < desc->natts; i++)
		{
			Form_pg_attribute att = TupleDescAttr(desc, i);

			if (!att->attisdropped && !type_is_safe(att->atttypid, use))
				return false;
		}
	}
	return true;
}

bool
shuffle_columns_parallel_safe(const ShuffleOptions *options, TupleDesc desc)
{
	for (int i = 0; i < desc->natts && options->types != SHUFFLE_TYPES_NATIVE; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && !type_is_safe(att->atttypid, USE_OUTPUT))
			return false;
	}
	for (int i = 0; i < options->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, options->keys[i] - 1);

		if (!type_is_safe(att->atttypid,
						  options->method == SHUFFLE_HASH ? USE_HASH : USE_COMPARISON))
			return false;
	}
	return true;
}
