/*
 * extension.c
 *	  Finds the objects of the extension in the current database.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "catalog.h"

#define SEGMENT_TABLE "shuffle_segment"

/*
 * Oids of our objects, looked up once per session; an invalidation of any of them (or
 * of everything) empties the cache.  Absence is not cached.
 */
static ShuffleCatalogIds ids;
static bool				 valid;
static bool				 fits; /* the table has the columns that we know */
static bool				 callback_registered;

static void
forget_ids(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == ids.table || relid == ids.pkey || relid == ids.sequence ||
		relid == ids.sweep_state)
		valid = fits = false;
}

/* Schema of the extension, or InvalidOid. */
static Oid
extension_schema(void)
{
	Oid			schema = InvalidOid;
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(SHUFFLE_EXTENSION));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		schema = ((Form_pg_extension) GETSTRUCT(tuple))->extnamespace;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return schema;
}

bool
shuffle_extension_exists(void)
{
	Oid schema;

	if (valid)
		return true;

	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(forget_ids, (Datum) 0);
		callback_registered = true;
	}

	schema = extension_schema();
	if (!OidIsValid(schema))
		return false;
	ids.table = get_relname_relid(SEGMENT_TABLE, schema);
	ids.pkey = get_relname_relid("shuffle_segment_pkey", schema);
	ids.sequence = get_relname_relid("shuffle_segment_number", schema);
	ids.sweep_state = get_relname_relid("shuffle_sweep_state", schema);
	valid = OidIsValid(ids.table) && OidIsValid(ids.pkey) && OidIsValid(ids.sequence) &&
		OidIsValid(ids.sweep_state);
	return valid;
}

/* No column may be read as another one; see shuffle_raise_misfit(). */
static void
require_fitting_columns(void)
{
	static const struct
	{
		const char *name;
		Oid			type;
	} columns[Natts_segment] = {
		[Anum_segment_tablespace - 1] = {"tablespace", OIDOID},
		[Anum_segment_filenumber - 1] = {"filenumber", OIDOID},
		[Anum_segment_number - 1] = {"number", INT4OID},
		[Anum_segment_partitions - 1] = {"partitions", INT4OID},
		[Anum_segment_id - 1] = {"id", UUIDOID},
		[Anum_segment_rows - 1] = {"rows", INT8OID},
		[Anum_segment_bytes - 1] = {"bytes", INT8OID},
		[Anum_segment_raw_bytes - 1] = {"raw_bytes", INT8OID},
		[Anum_segment_blocks - 1] = {"blocks", INT8OID},
		[Anum_segment_files - 1] = {"files", INT8OID},
		[Anum_segment_nextents - 1] = {"nextents", INT4OID},
		[Anum_segment_written - 1] = {"written", TIMESTAMPTZOID},
		[Anum_segment_metrics - 1] = {"metrics", INT8ARRAYOID},
		[Anum_segment_layout - 1] = {"layout", TEXTOID},
		[Anum_segment_root - 1] = {"root", TEXTOID},
		[Anum_segment_name - 1] = {"name", TEXTOID},
		[Anum_segment_routing - 1] = {"routing", TEXTOID},
		[Anum_segment_extents - 1] = {"extents", BYTEAOID},
		[Anum_segment_image - 1] = {"image", BYTEAOID},
	};
	Relation  rel = table_open(ids.table, AccessShareLock);
	TupleDesc desc = RelationGetDescr(rel);
	bool	  same = desc->natts == Natts_segment;

	for (int i = 0; same && i < desc->natts; i++)
		same = strcmp(NameStr(TupleDescAttr(desc, i)->attname), columns[i].name) == 0 &&
			TupleDescAttr(desc, i)->atttypid == columns[i].type;
	table_close(rel, AccessShareLock);
	if (!same)
		shuffle_raise_misfit("table", SEGMENT_TABLE);
	fits = true;
}

const ShuffleCatalogIds *
shuffle_catalog_ids(void)
{
	if (!shuffle_extension_exists())
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"%s\" is not installed in this database", SHUFFLE_EXTENSION),
				 errhint("Use CREATE EXTENSION %s.", SHUFFLE_EXTENSION)));
	if (!fits)
		require_fitting_columns();
	return &ids;
}
