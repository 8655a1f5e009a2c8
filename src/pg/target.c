/*
 * target.c
 *	  The table that shuffle_write() fills: found, checked, created, replaced.
 *
 * Locks, all kept to the end of the transaction, taken after the permission check:
 *
 *	  new table		AccessExclusiveLock, as CREATE TABLE
 *	  append		RowExclusiveLock, as INSERT: against ALTER TABLE and changed options,
 *					not against other writers or readers
 *	  replace		AccessExclusiveLock, as TRUNCATE, before the query is analysed: it may
 *					read the table, and two sessions that each hold the reader's lock and
 *					wait for this one would be a deadlock
 *
 * Two sessions that create the same name wait for each other: whoever finds no table
 * takes a lock on its name and looks again, so that the second finds the first one's.
 * (Against a plain CREATE TABLE the server's unique index helps, with an error.)
 *
 * A replacement is written to a transient relation, the server's own for rewrites,
 * whose storage is swapped with the table's at the end: the query may read the old rows,
 * and everything that depends on the table stays.
 *
 * Rows do not pass through the executor's INSERT.  NOT NULL is checked by the sink;
 * tables with anything else that INSERT would have to do are refused.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_publication.h"
#include "commands/cluster.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "write.h"

/* Last field of an advisory lock's tag; those that SQL takes have 1 and 2 there. */
#define NAME_LOCK_CLASS 0x5348

const char *
shuffle_target_name(const ShuffleTarget *target)
{
	return target->name->relname;
}

/* Refuses relations that are not shuffle tables, with what they are instead. */
static void
check_kind(const char *name, Form_pg_class form)
{
	if (form->relkind != RELKIND_RELATION)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" exists and is not a shuffle table", name),
				 errdetail_relkind_not_supported(form->relkind)));
	if (form->relam != get_am_oid(SHUFFLE_AM, true))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" exists and is not a shuffle table", name),
				 errdetail("Its access method is \"%s\".", get_am_name(form->relam)),
				 errhint("Choose a name that is not in use.")));
}

/* INSERT on the table or on all its columns. */
static AclResult
insert_privilege(Oid relid)
{
	AclResult result = pg_class_aclcheck(relid, GetUserId(), ACL_INSERT);

	if (result != ACLCHECK_OK)
		result = pg_attribute_aclcheck_all(relid, GetUserId(), ACL_INSERT, ACLMASK_ALL);
	return result;
}

/* Runs before the lock is taken, and again if the name then means something else. */
static void
check_existing(const RangeVar *name, Oid relid, Oid oldrelid, void *arg)
{
	const ShuffleWriteArgs *args = arg;
	HeapTuple				tuple;

	if (!OidIsValid(relid))
		return;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return; /* dropped in between: the lookup is done again */
	check_kind(name->relname, (Form_pg_class) GETSTRUCT(tuple));
	ReleaseSysCache(tuple);

	if (args->if_exists == SHUFFLE_IF_EXISTS_APPEND)
	{
		AclResult result = insert_privilege(relid);

		if (result != ACLCHECK_OK)
			aclcheck_error(result, OBJECT_TABLE, name->relname);
	}
	else if (args->if_exists == SHUFFLE_IF_EXISTS_REPLACE)
	{
		if (!pg_class_ownercheck(relid, GetUserId()))
			aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name->relname);
	}
}

static void
refuse_table(Relation rel, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("shuffle_write cannot fill table \"%s\"", RelationGetRelationName(rel)),
			 errdetail("The table has %s.", what),
			 errhint("INSERT ... SELECT takes care of them.")));
}

/*
 * Rows of shuffle tables are not in the WAL, and so never reach a subscriber.  Whoever
 * published the table or its schema by name must know; FOR ALL TABLES leaves it out, as
 * it does unlogged tables.
 */
void
shuffle_refuse_published(Oid relid, Oid namespace, const char *name)
{
	List *publications = GetSchemaPublications(namespace);

	if (OidIsValid(relid))
		publications = list_concat(publications, GetRelationPublications(relid));
	if (publications != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" belongs to publication \"%s\", but shuffle tables cannot "
						"be replicated",
						name, get_publication_name(linitial_oid(publications), false)),
				 errhint("Take the table or its schema out of the publication.")));
}

/* What INSERT would do and the sink does not. */
static void
check_features(Relation rel)
{
	TupleConstr *constr = RelationGetDescr(rel)->constr;
	TriggerDesc *triggers = rel->trigdesc;

	if (check_enable_rls(RelationGetRelid(rel), InvalidOid, false) == RLS_ENABLED)
		refuse_table(rel, "row-level security that applies to you");
	if (constr != NULL && constr->num_check > 0)
		refuse_table(rel, "CHECK constraints");
	if (triggers != NULL &&
		(triggers->trig_insert_before_row || triggers->trig_insert_after_row ||
		 triggers->trig_insert_before_statement || triggers->trig_insert_after_statement))
		refuse_table(rel, "triggers on INSERT");
	if (rel->rd_rel->relispartition)
		refuse_table(rel, "a partition constraint");

	for (int i = 0; i < RelationGetNumberOfAttributes(rel); i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), i);

		if (att->attisdropped)
			continue;
		if (att->attgenerated != '\0')
			refuse_table(rel, "generated columns");
		if (att->attidentity == ATTRIBUTE_IDENTITY_ALWAYS)
			refuse_table(rel, "GENERATED ALWAYS AS IDENTITY columns");
	}
}

/* Columns go by position, dropped ones aside. */
static void
match_columns(ShuffleTarget *target, TupleDesc desc)
{
	TupleDesc table = RelationGetDescr(target->rel);
	int		  n = 0;

	target->attnums = palloc(sizeof(AttrNumber) * Max(table->natts, 1));
	for (int i = 0; i < table->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table, i);

		if (att->attisdropped)
			continue;
		target->attnums[n] = i + 1;
		if (n < desc->natts && target->args->if_exists == SHUFFLE_IF_EXISTS_REPLACE &&
			TupleDescAttr(desc, n)->atttypid != att->atttypid)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("cannot replace table \"%s\" by rows with other columns",
							shuffle_target_name(target)),
					 errdetail("Column \"%s\" of the table is of type %s, the query's column "
							   "\"%s\" is of type %s.",
							   NameStr(att->attname), format_type_be(att->atttypid),
							   NameStr(TupleDescAttr(desc, n)->attname),
							   format_type_be(TupleDescAttr(desc, n)->atttypid)),
					 errhint("Cast the column, or drop the table first.")));
		n++;
	}
	if (n != desc->natts)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg_plural("the query returns %d column but table \"%s\" has %d",
							   "the query returns %d columns but table \"%s\" has %d", desc->natts,
							   desc->natts, shuffle_target_name(target), n),
				 errhint("Columns go by position; the query must return them all.")));
}

/* Until the end of the transaction no other shuffle_write() creates this name. */
static void
lock_name(Oid namespace, const char *relname)
{
	LOCKTAG tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, namespace,
						 DatumGetUInt32(hash_any((const unsigned char *) relname, strlen(relname))),
						 NAME_LOCK_CLASS);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	AcceptInvalidationMessages();
}

/*
 * A transaction with one snapshot for all its statements must not replace rows that the
 * snapshot does not see: its query cannot have taken them over.  Read committed runs the
 * query with a snapshot that is younger than the lock.  The table is locked against writes.
 */
static void
check_replaced(Relation rel)
{
	ShuffleStorage storage = shuffle_storage_of(rel);
	Snapshot	   latest;
	List		  *seen;
	List		  *all;
	bool		   same;

	if (!IsolationUsesXactSnapshot())
		return;
	seen = shuffle_catalog_segments(&storage, GetTransactionSnapshot());
	latest = shuffle_latest_snapshot();
	all = shuffle_catalog_segments(&storage, latest);
	UnregisterSnapshot(latest);

	same = list_length(seen) == list_length(all);
	for (int i = 0; same && i < list_length(all); i++)
	{
		const ShuffleSegmentRow *a = list_nth(seen, i);
		const ShuffleSegmentRow *b = list_nth(all, i);

		same = memcmp(a->id, b->id, sizeof(a->id)) == 0;
	}
	if (!same)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not replace table \"%s\" due to a concurrent write",
						RelationGetRelationName(rel)),
				 errdetail("Rows were written or compacted after this transaction's snapshot "
						   "was taken."),
				 errhint("Retry the transaction.")));
}

/* A new table's schema: resolved now, so that it stays the same one. */
static void
prepare_creation(ShuffleTarget *target)
{
	Oid namespace = RangeVarGetCreationNamespace(target->name);

	if (isAnyTempNamespace(namespace))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("shuffle tables cannot be temporary"),
				 errhint("Name a schema that is not temporary.")));
	if (IsCatalogNamespace(namespace) || IsToastNamespace(namespace) ||
		namespace == get_namespace_oid("information_schema", true))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot create table \"%s\" in system schema \"%s\"", target->name->relname,
						get_namespace_name(namespace))));
	if (pg_namespace_aclcheck(namespace, GetUserId(), ACL_CREATE) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_SCHEMA, get_namespace_name(namespace));
	shuffle_refuse_published(InvalidOid, namespace, target->name->relname);
	target->name->schemaname = get_namespace_name(namespace);
	lock_name(namespace, target->name->relname);
}

static Oid
lookup(const ShuffleTarget *target)
{
	LOCKMODE lockmode = NoLock;

	if (target->args->if_exists == SHUFFLE_IF_EXISTS_APPEND)
		lockmode = RowExclusiveLock;
	else if (target->args->if_exists == SHUFFLE_IF_EXISTS_REPLACE)
		lockmode = AccessExclusiveLock;
	return RangeVarGetRelidExtended(target->name, lockmode, RVR_MISSING_OK, check_existing,
									unconstify(ShuffleWriteArgs *, target->args));
}

ShuffleTarget *
shuffle_target_begin(const ShuffleWriteArgs *args)
{
	ShuffleTarget *target = palloc0(sizeof(ShuffleTarget));

	target->args = args;
	target->name = makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(args->target)));
	if (args->if_exists == SHUFFLE_IF_EXISTS_REPLACE)
		(void) lookup(target);
	return target;
}

void
shuffle_target_find(ShuffleTarget *target, TupleDesc desc)
{
	const ShuffleWriteArgs *args = target->args;

	target->relid = lookup(target);
	if (!OidIsValid(target->relid))
	{
		prepare_creation(target);
		target->relid = lookup(target);
	}
	target->exists = OidIsValid(target->relid);
	if (!target->exists)
		return;
	if (args->if_exists == SHUFFLE_IF_EXISTS_ERROR)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_TABLE),
				 errmsg("relation \"%s\" already exists", target->name->relname),
				 errhint("Use if_exists => 'append' or 'replace', or another name.")));

	target->rel = table_open(target->relid, NoLock);
	if (args->if_exists == SHUFFLE_IF_EXISTS_REPLACE)
	{
		CheckTableNotInUse(target->rel, "replace");
		check_replaced(target->rel);
	}
	shuffle_refuse_published(target->relid, RelationGetNamespace(target->rel),
							 target->name->relname);
	check_features(target->rel);
	match_columns(target, desc);
	target->stored = shuffle_options_of(target->rel);
	if (args->if_exists == SHUFFLE_IF_EXISTS_APPEND)
		shuffle_options_require_keys(target->stored, target->rel);
}

/* CREATE TABLE, with all that hangs on it: permissions, hooks, event triggers. */
static void
create_table(ShuffleTarget *target, TupleDesc desc)
{
	CreateStmt	*create = makeNode(CreateStmt);
	PlannedStmt *utility = makeNode(PlannedStmt);
	const char	*name = quote_qualified_identifier(target->name->schemaname, target->name->relname);
	char		*text = psprintf("CREATE TABLE %s USING %s", name, SHUFFLE_AM);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		create->tableElts = lappend(
			create->tableElts,
			makeColumnDef(NameStr(att->attname), att->atttypid, att->atttypmod, att->attcollation));
	}
	create->relation = target->name;
	create->oncommit = ONCOMMIT_NOOP;
	create->accessMethod = SHUFFLE_AM;

	utility->commandType = CMD_UTILITY;
	utility->canSetTag = false;
	utility->utilityStmt = (Node *) create;
	ProcessUtility(utility, text, false, PROCESS_UTILITY_QUERY, NULL, NULL, None_Receiver, NULL);
	CommandCounterIncrement();

	target->relid = RangeVarGetRelid(target->name, AccessExclusiveLock, false);
	target->rel = table_open(target->relid, NoLock);
	shuffle_require_table(target->rel);
}

void
shuffle_target_prepare(ShuffleTarget *target, TupleDesc desc, const ShuffleOptions *options)
{
	if (!target->exists)
	{
		create_table(target, desc);
		shuffle_options_store(target->relid, options);
	}
	else if (target->args->if_exists == SHUFFLE_IF_EXISTS_REPLACE)
	{
		Form_pg_class form = target->rel->rd_rel;
		Oid			  transient = make_new_heap(target->relid, form->reltablespace, form->relam,
												form->relpersistence, AccessExclusiveLock);

		target->transient = table_open(transient, AccessExclusiveLock);
	}
	target->dest = target->transient != NULL ? target->transient : target->rel;
}

void
shuffle_target_finish(ShuffleTarget *target, const ShuffleOptions *options, uint64 rows)
{
	if (target->transient != NULL)
	{
		Oid			  transient = RelationGetRelid(target->transient);
		TransactionId frozen = target->transient->rd_rel->relfrozenxid;
		MultiXactId	  minmulti = target->transient->rd_rel->relminmxid;
		char		  persistence = target->rel->rd_rel->relpersistence;

		/* The query may have called a function that opened a cursor on the table. */
		CheckTableNotInUse(target->rel, "replace");
		table_close(target->transient, NoLock);
		table_close(target->rel, NoLock);
		finish_heap_swap(target->relid, transient, false, false, false, false, frozen, minmulti,
						 persistence);
		shuffle_options_store(target->relid, options);
	}
	else
	{
		pgstat_count_heap_insert(target->rel, rows);
		table_close(target->rel, NoLock);
	}
	target->rel = target->transient = target->dest = NULL;
}
