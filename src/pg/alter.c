/*
 * alter.c
 *	  ALTER TABLE ... ALTER COLUMN ... TYPE of a key column, and ... SET ACCESS METHOD to
 *	  another one.
 *
 * Key columns.  Where the server rewrites the table, every row is routed again.  Where it
 * does not (text to a type that is stored the same, another collation), rows would stay in
 * partitions that their key does not belong to any more, and it is refused, unless routing
 * treats the new type like the old one (varchar and text; hashed int and oid).
 *
 * An access method is not asked, and whether there is a rewrite is known only when it is
 * done.  So the object access hook notes the routing of a table when one of its keys is
 * altered, and when the statement is over, or at the latest before commit, notes are compared
 * with what the table has become.  The server opens the table, and so loads this
 * library, before it alters anything.
 *
 * Another access method.  The server gives the new relation of a rewrite a TOAST table only if
 * the old one has one, and those of ours have none: long values would not fit into the heap.
 * So the object access hook makes it, when the new relation has just been made.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/toasting.h"
#include "commands/defrem.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "alter.h"
#include "route.h"

/* What the rows of a storage were routed by. */
typedef struct RoutingNote
{
	struct RoutingNote *next;
	Oid					relid;
	ShuffleStorage		storage;
	int					nkeys;
	struct
	{
		AttrNumber attnum;
		Oid		   proc;
		Oid		   collation;
	} keys[FLEXIBLE_ARRAY_MEMBER];
} RoutingNote;

static RoutingNote			  *notes = NULL; /* in TopTransactionContext */
static object_access_hook_type previous_hook = NULL;

static bool
is_shuffle_table(Oid relid)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	bool	  result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = RELKIND_HAS_TABLE_AM(((Form_pg_class) GETSTRUCT(tuple))->relkind) &&
		((Form_pg_class) GETSTRUCT(tuple))->relam == get_am_oid(SHUFFLE_AM, true);
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Whether a relation takes the rows of a shuffle table that gets another access method.  The
 * command that has made it is not over: its row in pg_class is not in the caches.
 */
static bool
is_shuffle_successor(Oid relid)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		result = false;

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(pg_class, ClassOidIndexId, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		result = OidIsValid(form->relrewrite) && form->relam != get_am_oid(SHUFFLE_AM, true) &&
			is_shuffle_table(form->relrewrite);
	}
	systable_endscan(scan);
	table_close(pg_class, AccessShareLock);
	return result;
}

static bool
same_storage(Relation rel, const RoutingNote *note)
{
	ShuffleStorage storage = shuffle_storage_of(rel);

	return shuffle_same_storage(&storage, &note->storage);
}

/* The options, if rows go by keys that are all there. */
static ShuffleOptions *
routing_options(Relation rel)
{
	ShuffleOptions *options = shuffle_options_of(rel);

	return shuffle_options_have_keys(options) ? options : NULL;
}

/* The descriptor still is the one from before the change. */
static void
take_note(Relation rel, AttrNumber attnum)
{
	ShuffleOptions *options = routing_options(rel);
	bool			is_key = false;
	RoutingNote	   *note;
	ShuffleKey	   *keys;

	for (int i = 0; options != NULL && i < options->nkeys; i++)
		is_key |= options->keys[i] == attnum;
	if (!is_key)
		return;

	/* The first change counts, unless the table has been rewritten since. */
	for (note = notes; note != NULL; note = note->next)
	{
		if (note->relid == RelationGetRelid(rel) && same_storage(rel, note))
			return;
	}

	keys = shuffle_keys_create(options, RelationGetDescr(rel));
	note = MemoryContextAlloc(TopTransactionContext,
							  offsetof(RoutingNote, keys) + sizeof(note->keys[0]) * options->nkeys);
	note->relid = RelationGetRelid(rel);
	note->storage = shuffle_storage_of(rel);
	note->nkeys = options->nkeys;
	for (int i = 0; i < options->nkeys; i++)
	{
		note->keys[i].attnum = keys[i].attnum;
		note->keys[i].proc = keys[i].proc.fn_oid;
		note->keys[i].collation = keys[i].collation;
	}
	note->next = notes;
	notes = note;
}

static void
hook_object_access(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg)
{
	if (previous_hook)
		previous_hook(access, classId, objectId, subId, arg);

	if (access == OAT_POST_ALTER && classId == RelationRelationId && subId > 0 &&
		is_shuffle_table(objectId))
	{
		Relation rel = relation_open(objectId, NoLock);

		take_note(rel, (AttrNumber) subId);
		relation_close(rel, NoLock);
	}
	else if (access == OAT_POST_CREATE && classId == RelationRelationId && subId == 0 &&
			 ((ObjectAccessPostCreate *) arg)->is_internal && is_shuffle_successor(objectId))
	{
		CommandCounterIncrement();

		/* if it needs one */
		NewHeapCreateToastTable(objectId, (Datum) 0, AccessExclusiveLock, InvalidOid);
	}
}

static bool
has_rows(Relation rel)
{
	ShuffleStorage storage = shuffle_storage_of(rel);
	Snapshot	   snapshot = RegisterSnapshot(GetLatestSnapshot());
	bool		   result = shuffle_catalog_segments(&storage, snapshot) != NIL;

	UnregisterSnapshot(snapshot);
	return result;
}

/*
 * Whether two support functions route alike the values that the server takes over as they
 * are.  As hash functions these do; comparisons of int and oid do not.
 */
static bool
same_routing(Oid a, Oid b)
{
	static const Oid alike[][2] = {
		{F_HASHINT4EXTENDED, F_HASHOIDEXTENDED},
#ifdef F_TIMESTAMPTZ_HASH_EXTENDED
		{F_TIMESTAMP_HASH_EXTENDED, F_TIMESTAMPTZ_HASH_EXTENDED},
#endif
	};

	if (a == b)
		return true;
	for (int i = 0; i < (int) lengthof(alike); i++)
	{
		if ((a == alike[i][0] && b == alike[i][1]) || (a == alike[i][1] && b == alike[i][0]))
			return true;
	}
	return false;
}

static void
compare(Relation rel, const RoutingNote *note)
{
	ShuffleOptions *options;
	ShuffleKey	   *keys;

	if (!shuffle_is_table(rel) || !same_storage(rel, note) || !has_rows(rel))
		return;
	options = routing_options(rel);
	if (options == NULL || options->nkeys != note->nkeys)
		return;
	keys = shuffle_keys_create(options, RelationGetDescr(rel));
	for (int i = 0; i < note->nkeys; i++)
	{
		if (keys[i].attnum != note->keys[i].attnum)
			return;
	}
	for (int i = 0; i < note->nkeys; i++)
	{
		/* A collation decides on order, and on equality only if it is not deterministic. */
		if (same_routing(keys[i].proc.fn_oid, note->keys[i].proc) &&
			keys[i].collation == note->keys[i].collation)
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change key column \"%s\" of shuffle table \"%s\" without a rewrite",
						keys[i].name, RelationGetRelationName(rel)),
				 errdetail("Its rows may belong to other partitions then."),
				 errhint("Make the server rewrite the table with an expression such as "
						 "USING (%s || '')::%s, or change the column while the table is empty.",
						 quote_identifier(keys[i].name),
						 format_type_be(
							 TupleDescAttr(RelationGetDescr(rel), keys[i].attnum - 1)->atttypid))));
	}
}

void
shuffle_alter_check(void)
{
	while (notes != NULL)
	{
		RoutingNote *note = notes;
		Relation	 rel = try_relation_open(note->relid, AccessShareLock);

		notes = note->next;
		if (rel != NULL)
		{
			compare(rel, note);
			relation_close(rel, NoLock);
		}
		pfree(note);
	}
}

void
shuffle_alter_forget(void)
{
	notes = NULL;
}

void
shuffle_alter_init(void)
{
	previous_hook = object_access_hook;
	object_access_hook = hook_object_access;
}
