/*
 * label.c
 *	  Options of shuffle tables kept as security labels.
 *
 * The table's label holds the options (options.c), a label "key=N" on a column makes it
 * the Nth key.  Labels are transactional, need the owner, go with their object, follow
 * RENAME, and pg_dump writes them with the definition, before any row.  Anybody may read
 * them.
 *
 * Options that decide the partition of a row may only change while the table is empty:
 * its segments would otherwise disagree with what the table says.  The check hook takes
 * ShareRowExclusiveLock before it looks, which keeps writers out until the end of the
 * transaction, and looks with the newest snapshot.  Of the references to the table one is the
 * statement's and one is ours.  The server holds ShareUpdateExclusiveLock when it calls the
 * hook, so two labellers cannot deadlock.  It sends no invalidation for a label; we do,
 * because plans and caches of other sessions depend on it.
 *
 * A table of another access method may have labels, too: those that SET ACCESS METHOD has
 * left behind, or those by which it shall partition the rows.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_seclabel.h"
#include "commands/seclabel.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "shuffle.h"

#define LABEL_PROVIDER SHUFFLE_EXTENSION

/* All labels of ours on one table. */
typedef struct TableLabels
{
	char	   *options; /* of the table itself, or NULL */
	int			ncolumns;
	AttrNumber *attnums;
	char	  **columns; /* label of attnums[i] */
} TableLabels;

static void
read_labels(Oid relid, TableLabels *labels)
{
	Relation	pg_seclabel;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	int			size = 4;

	memset(labels, 0, sizeof(TableLabels));
	labels->attnums = palloc(sizeof(AttrNumber) * size);
	labels->columns = palloc(sizeof(char *) * size);

	ScanKeyInit(&keys[0], Anum_pg_seclabel_objoid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_seclabel_classoid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationRelationId));

	pg_seclabel = table_open(SecLabelRelationId, AccessShareLock);
	scan = systable_beginscan(pg_seclabel, SecLabelObjectIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		TupleDesc desc = RelationGetDescr(pg_seclabel);
		bool	  isnull;
		char	 *provider;
		char	 *label;
		int32	  subid;

		provider =
			TextDatumGetCString(heap_getattr(tuple, Anum_pg_seclabel_provider, desc, &isnull));
		if (strcmp(provider, LABEL_PROVIDER) != 0)
			continue;
		label = TextDatumGetCString(heap_getattr(tuple, Anum_pg_seclabel_label, desc, &isnull));

		subid = DatumGetInt32(heap_getattr(tuple, Anum_pg_seclabel_objsubid, desc, &isnull));

		if (subid == 0)
		{
			labels->options = label;
			continue;
		}
		if (labels->ncolumns == size)
		{
			size *= 2;
			labels->attnums = repalloc(labels->attnums, sizeof(AttrNumber) * size);
			labels->columns = repalloc(labels->columns, sizeof(char *) * size);
		}
		labels->attnums[labels->ncolumns] = (AttrNumber) subid;
		labels->columns[labels->ncolumns] = label;
		labels->ncolumns++;
	}
	systable_endscan(scan);
	table_close(pg_seclabel, AccessShareLock);
}

/* "key=N" to N, or 0. */
static int
parse_key_label(const char *label)
{
	static const char prefix[] = "key=";
	int				  key = 0;

	if (strncmp(label, prefix, sizeof(prefix) - 1) != 0)
		return 0;
	label += sizeof(prefix) - 1;
	if (*label < '1' || *label > '9')
		return 0;
	for (; *label >= '0' && *label <= '9' && key <= SHUFFLE_MAX_KEYS; label++)
		key = key * 10 + (*label - '0');
	return *label == '\0' && key <= SHUFFLE_MAX_KEYS ? key : 0;
}

/* Finds the key columns that a table's label counts; 0 where there is none. */
static void
resolve_keys(ShuffleOptions *options, const TableLabels *labels)
{
	options->keys = palloc0(sizeof(AttrNumber) * Max(options->nkeys, 1));
	for (int i = 0; i < labels->ncolumns; i++)
	{
		int key = parse_key_label(labels->columns[i]);

		if (key >= 1 && key <= options->nkeys)
			options->keys[key - 1] = labels->attnums[i];
	}
}

void
shuffle_options_require_keys(const ShuffleOptions *options, Relation rel)
{
	for (int i = 0; i < options->nkeys; i++)
	{
		if (options->keys[i] == 0)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("key column %d of %d of shuffle table \"%s\" is missing", i + 1,
							options->nkeys, RelationGetRelationName(rel)),
					 errdetail("No column has the label \"key=%d\".  A dropped column takes its "
							   "label with it.",
							   i + 1),
					 errhint("Empty the table and choose keys with shuffle_set('%s', keys => ...), "
							 "or write it again with shuffle_write(..., keys => ..., "
							 "if_exists => 'replace').",
							 RelationGetRelationName(rel))));
	}
}

ShuffleOptions *
shuffle_options_of(Relation rel)
{
	Oid				relid = RelationGetRelid(rel);
	TableLabels		labels;
	ShuffleOptions *options;

	/* Rows of a rewrite go to a transient relation that has no labels. */
	if (OidIsValid(rel->rd_rel->relrewrite))
		relid = rel->rd_rel->relrewrite;

	read_labels(relid, &labels);
	if (labels.options == NULL)
	{
		options = palloc(sizeof(ShuffleOptions));
		shuffle_options_default(options);
		return options;
	}
	options = shuffle_options_parse(labels.options);
	options->labelled = true;
	resolve_keys(options, &labels);
	return options;
}

ShuffleReadOptions
shuffle_read_options(Relation rel)
{
	ShuffleReadOptions result;
	ShuffleOptions	  *options;

	if (rel->rd_amcache != NULL)
		return *(ShuffleReadOptions *) rel->rd_amcache;

	options = shuffle_options_of(rel);
	result.partitions = options->partitions;
	result.method = options->method;
	result.nkeys = options->nkeys;
	for (int i = 0; i < options->nkeys; i++)
		result.keys[i] = options->keys[i];
	result.codec = options->codec;
	result.types = options->types;
	result.null_unrepresentable = options->null_unrepresentable;

	/* Without a label the codec is the session's of the moment. */
	if (options->labelled && !OidIsValid(rel->rd_rel->relrewrite))
	{
		void *cache = MemoryContextAlloc(CacheMemoryContext, sizeof(ShuffleReadOptions));

		memcpy(cache, &result, sizeof(ShuffleReadOptions));
		rel->rd_amcache = cache;
	}
	return result;
}

static void
set_label(Oid relid, AttrNumber attnum, const char *label)
{
	ObjectAddress object;

	ObjectAddressSubSet(object, RelationRelationId, relid, attnum);
	SetSecurityLabel(&object, LABEL_PROVIDER, label);
}

void
shuffle_options_store(Oid relid, const ShuffleOptions *options)
{
	TableLabels old;

	read_labels(relid, &old);

	/* Each label is touched once: a catalog row cannot change twice in one command. */
	for (int i = 0; i < old.ncolumns; i++)
	{
		bool stays = false;

		for (int k = 0; k < options->nkeys; k++)
			stays |= options->keys[k] == old.attnums[i];
		if (!stays)
			set_label(relid, old.attnums[i], NULL);
	}
	for (int k = 0; k < options->nkeys; k++)
		set_label(relid, options->keys[k], psprintf("key=%d", k + 1));
	set_label(relid, 0, shuffle_options_format(options, false));

	CacheInvalidateRelcacheByRelid(relid);
	CommandCounterIncrement();
}

void
shuffle_options_require_empty(Relation rel, int nrefs)
{
	ShuffleStorage storage;
	Snapshot	   snapshot;
	List		  *segments;

	/* pg_upgrade makes shuffle_segment after some tables, and fills it by moving its file. */
	if (!shuffle_is_table(rel) || IsBinaryUpgrade)
		return;

	LockRelationOid(RelationGetRelid(rel), ShareRowExclusiveLock);

	/* More is a scan or a write under way. */
	if (rel->rd_refcnt > nrefs)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot change how rows of table \"%s\" are partitioned because it is "
						"being used by active queries in this session",
						RelationGetRelationName(rel))));

	storage = shuffle_storage_of(rel);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	segments = shuffle_catalog_segments(&storage, snapshot);
	UnregisterSnapshot(snapshot);
	if (segments != NIL)
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot change how rows of table \"%s\" are partitioned while it has rows",
					RelationGetRelationName(rel)),
			 rel->rd_rel->relkind == RELKIND_MATVIEW ?
				 errhint("Use REFRESH MATERIALIZED VIEW ... WITH NO DATA first.") :
				 errhint(
					 "Write it again with shuffle_write('TABLE %s', '%s', if_exists => 'replace', "
					 "...), or truncate it first.",
					 RelationGetRelationName(rel), RelationGetRelationName(rel))));
}

bool
shuffle_may_have_options(Relation rel)
{
	return rel->rd_rel->relkind == RELKIND_RELATION || rel->rd_rel->relkind == RELKIND_MATVIEW;
}

void
shuffle_options_without_effect(Relation rel)
{
	if (!shuffle_is_table(rel))
		ereport(
			NOTICE,
			(errmsg("table \"%s\" is not a shuffle table: its shuffle options have no effect yet",
					RelationGetRelationName(rel)),
			 errhint("ALTER TABLE ... SET ACCESS METHOD %s partitions its rows by them.",
					 SHUFFLE_AM)));
}

static ShuffleOptions *
parse_table_label(const char *label)
{
	ShuffleOptions *options;

	if (label)
	{
		options = shuffle_options_parse(label);
		if (options->keys)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("shuffle option \"attnums\" is not allowed in a label"),
					 errhint("Key columns are named by a label \"key=1\", \"key=2\" ... on each "
							 "of them.")));
	}
	else
	{
		options = palloc(sizeof(ShuffleOptions));
		shuffle_options_default(options);
	}
	return options;
}

static void
check_table_label(Relation rel, const char *label)
{
	ShuffleOptions *options = parse_table_label(label);
	TableLabels		old;

	read_labels(RelationGetRelid(rel), &old);
	if (!shuffle_options_same_routing(options, parse_table_label(old.options)))
		shuffle_options_require_empty(rel, 2);
}

static void
check_column_label(Relation rel, AttrNumber attnum, const char *label)
{
	TableLabels old;
	const char *old_label = NULL;
	int			key = 0;

	if (label)
	{
		key = parse_key_label(label);
		if (key == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid shuffle label for a column: \"%s\"", label),
					 errhint("Use \"key=N\" for the Nth key column, with N from 1 to %d.",
							 SHUFFLE_MAX_KEYS)));
		if (attnum < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("a system column cannot be a key")));
		shuffle_key_require_stored(TupleDescAttr(RelationGetDescr(rel), attnum - 1));
	}

	read_labels(RelationGetRelid(rel), &old);
	for (int i = 0; i < old.ncolumns; i++)
	{
		if (old.attnums[i] == attnum)
			old_label = old.columns[i];
		else if (key > 0 && parse_key_label(old.columns[i]) == key)
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("table \"%s\" has key column %d already", RelationGetRelationName(rel),
							key),
					 errdetail("It is column \"%s\".",
							   get_attname(RelationGetRelid(rel), old.attnums[i], false)),
					 errhint("Remove the label of that column first.")));
	}
	if (label == old_label || (label && old_label && strcmp(label, old_label) == 0))
		return;
	shuffle_options_require_empty(rel, 2);
}

/* The provider's check hook: may veto; the server stores the label afterwards. */
static void
shuffle_label_check(const ObjectAddress *object, const char *label)
{
	Relation rel;

	if (object->classId != RelationRelationId)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("only tables and their columns have labels of provider \"%s\"",
						LABEL_PROVIDER)));

	/* The server has locked it. */
	rel = relation_open(object->objectId, NoLock);

	/* A label may be taken off whatever the table has become since. */
	if (label || shuffle_is_table(rel))
	{
		if (!shuffle_may_have_options(rel))
			shuffle_require_table(rel);
		if (object->objectSubId == 0)
			check_table_label(rel, label);
		else
			check_column_label(rel, (AttrNumber) object->objectSubId, label);
		if (label)
			shuffle_options_without_effect(rel);
		CacheInvalidateRelcache(rel);
	}
	relation_close(rel, NoLock);
}

void
shuffle_label_init(void)
{
	register_label_provider(LABEL_PROVIDER, shuffle_label_check);
}
