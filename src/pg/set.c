/*
 * set.c
 *	  shuffle_set(): the options of an existing table, by name instead of as labels.
 *
 * Arguments that are left out keep what the table has.  What decides the partition of
 * a row may change only while the table is empty; like a label, that takes
 * ShareRowExclusiveLock first, which keeps writers out until the transaction ends (label.c).
 *
 * An ordinary table of another access method may have options, too: they have no effect
 * until ALTER TABLE ... SET ACCESS METHOD shuffle, which then partitions the rows by them
 * while it rewrites the table.
 */
#include "postgres.h"

#include "access/table.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "write.h"

PG_FUNCTION_INFO_V1(shuffle_set);

static void
check_owner(Oid relid)
{
	if (!pg_class_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(relid));
}

/* The table's columns without dropped ones; (*attnums)[i] is which attribute column i is. */
static TupleDesc
live_columns(TupleDesc table, AttrNumber **attnums)
{
	TupleDesc desc;
	int		  n = 0;

	for (int i = 0; i < table->natts; i++)
		n += !TupleDescAttr(table, i)->attisdropped;
	desc = CreateTemplateTupleDesc(n);
	*attnums = palloc(sizeof(AttrNumber) * Max(n, 1));
	n = 0;
	for (int i = 0; i < table->natts; i++)
	{
		if (TupleDescAttr(table, i)->attisdropped)
			continue;
		(*attnums)[n] = i + 1;
		TupleDescCopyEntry(desc, ++n, table, i + 1);
	}
	return desc;
}

/* What the arguments make of the options that the table has. */
static ShuffleOptions *
new_options(Relation rel, ShuffleWriteArgs *args, ShuffleOptions *stored)
{
	ShuffleTarget	target = {0};
	ShuffleOptions *options;
	TupleDesc		desc = live_columns(RelationGetDescr(rel), &target.attnums);

	/* A table that was not partitioned gets the usual number of partitions. */
	if (stored->method == SHUFFLE_SINGLE && !args->has_partitions && !args->has_bounds &&
		(args->nkeys > 0 ||
		 (args->method != NULL && shuffle_parse_method(args->method) != SHUFFLE_SINGLE)))
	{
		args->has_partitions = true;
		args->partitions = shuffle_setting_partitions;
	}

	args->if_exists = SHUFFLE_IF_EXISTS_REPLACE;
	target.args = args;
	target.exists = true;
	target.relid = RelationGetRelid(rel);
	target.rel = rel;
	target.stored = stored;
	options = shuffle_write_options(args, desc, &target);
	if (options->method == SHUFFLE_RANGE && options->partitions > 1 && options->nbounds == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("bounds of %d range partitions of table \"%s\" are missing",
						options->partitions, RelationGetRelationName(rel)),
				 errhint("Use bounds => '{...}' with %d cut points.  shuffle_write() can estimate "
						 "them from the data it writes.",
						 options->partitions - 1)));

	/* Key types, bounds and column types are checked by making these. */
	(void) shuffle_router_create(options, RelationGetDescr(rel), 0);
	(void) shuffle_typemap_create(RelationGetDescr(rel), options->types,
								  options->null_unrepresentable);
	return options;
}

/*
 * shuffle_set(relation regclass, partitions int, keys text[], method text, bounds text[],
 *			   hash text, layout text, codec text, types text, unrepresentable text)
 *		RETURNS text
 *
 * Returns the options that the table has now, as its label says them.
 */
Datum
shuffle_set(PG_FUNCTION_ARGS)
{
	ShuffleWriteArgs args = {0};
	ShuffleOptions	*stored;
	ShuffleOptions	*options;
	Relation		 rel;
	Oid				 relid;

	PreventCommandDuringRecovery("shuffle_set()");
	PreventCommandIfReadOnly("shuffle_set()");
	PreventCommandIfParallelMode("shuffle_set()");
	shuffle_require_signature(fcinfo, 10, 0);
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" of %s must not be null", "relation", "shuffle_set")));
	shuffle_option_args(fcinfo, 1, "shuffle_set", &args);

	relid = PG_GETARG_OID(0);
	check_owner(relid);
	rel = shuffle_open_relation(relid, ShareUpdateExclusiveLock);
	check_owner(relid);
	if (!shuffle_may_have_options(rel))
		shuffle_require_table(rel);

	stored = shuffle_options_of(rel);
	options = new_options(rel, &args, stored);
	if (!shuffle_options_same_routing(options, stored))
		shuffle_options_require_empty(rel, 1);
	shuffle_options_store(relid, options);
	shuffle_options_without_effect(rel);
	table_close(rel, NoLock);
	PG_RETURN_TEXT_P(cstring_to_text(shuffle_options_format(options, false)));
}
