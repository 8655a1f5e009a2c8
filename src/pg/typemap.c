/*
 * typemap.c
 *	  Which Arrow type and which representation each PostgreSQL type gets.
 *
 * Two tables below say it all.  shuffle_types maps a type to a representation for the
 * modes 'arrow' and 'arrow_ext'; shuffle_reprs says what each representation is in
 * Arrow.  pack.c and unpack.c have one case per representation, never one per type.
 *
 *	  mode 'arrow'		what other engines understand
 *	  mode 'arrow_ext'	the same, with Arrow's canonical extension names
 *	  mode 'native'		internal bytes: by value IntN, fixed length FixedSizeBinary,
 *						varlena the payload as Binary; lossless for every type
 *
 * Types outside the table: enums their label, arrays List, composites Struct, numeric
 * Decimal128 where its typmod fits, domains what their base type gets, everything else
 * the text that the output function prints.
 *
 * Every field carries metadata from which unpack.c builds values again without asking
 * for the mode: the representation, the type's name, oid and typmod, the attribute
 * number (top-level columns and fields of composites), the labels of an enum with their
 * oids, so that files written before ALTER TYPE ... RENAME VALUE stay readable.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/htup_details.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "typemap.h"

const ShuffleReprInfo shuffle_reprs[SHUFFLE_NREPRS] = {
	[SHUFFLE_REPR_BOOL] = {"bool", SHF_BOOL, 1},
	[SHUFFLE_REPR_INT2] = {"int2", SHF_INT16, 2},
	[SHUFFLE_REPR_INT4] = {"int4", SHF_INT32, 4},
	[SHUFFLE_REPR_INT8] = {"int8", SHF_INT64, 8},
	[SHUFFLE_REPR_FLOAT4] = {"float4", SHF_FLOAT32, 4},
	[SHUFFLE_REPR_FLOAT8] = {"float8", SHF_FLOAT64, 8},
	[SHUFFLE_REPR_OID] = {"oid", SHF_UINT32, 4},
	[SHUFFLE_REPR_DATE] = {"date", SHF_DATE32, 4},
	[SHUFFLE_REPR_TIME] = {"time", SHF_TIME64_US, 8},
	[SHUFFLE_REPR_TIMESTAMP] = {"timestamp", SHF_TIMESTAMP_US, 8},
	[SHUFFLE_REPR_TIMESTAMPTZ] = {"timestamptz", SHF_TIMESTAMPTZ_US, 8},
	[SHUFFLE_REPR_INTERVAL] = {"interval", SHF_INTERVAL_MDN, 16},
	[SHUFFLE_REPR_DECIMAL] = {"decimal", SHF_DECIMAL128, -1},
	[SHUFFLE_REPR_UUID] = {"uuid", SHF_FIXED_BINARY, 16},
	[SHUFFLE_REPR_BYVAL1] = {"byval1", SHF_INT8, 1},
	[SHUFFLE_REPR_BYVAL2] = {"byval2", SHF_INT16, 2},
	[SHUFFLE_REPR_BYVAL4] = {"byval4", SHF_INT32, 4},
	[SHUFFLE_REPR_BYVAL8] = {"byval8", SHF_INT64, 8},
	[SHUFFLE_REPR_FIXED] = {"fixed", SHF_FIXED_BINARY, 0},
	[SHUFFLE_REPR_TEXT] = {"text", SHF_UTF8, -1},
	[SHUFFLE_REPR_NAME] = {"name", SHF_UTF8, NAMEDATALEN},
	[SHUFFLE_REPR_ENUM] = {"enum", SHF_UTF8, 4},
	[SHUFFLE_REPR_NUMERIC] = {"numeric", SHF_UTF8, -1},
	[SHUFFLE_REPR_JSONB] = {"jsonb", SHF_UTF8, -1},
	[SHUFFLE_REPR_OUTPUT] = {"output", SHF_UTF8, 0},
	[SHUFFLE_REPR_BYTES] = {"bytes", SHF_BINARY, -1},
	[SHUFFLE_REPR_CSTRING] = {"cstring", SHF_BINARY, -2},
	[SHUFFLE_REPR_LIST] = {"list", SHF_LIST, -1},
	[SHUFFLE_REPR_STRUCT] = {"struct", SHF_STRUCT, -1},
};

typedef struct TypeRow
{
	Oid			type;
	ShuffleRepr repr;
	const char *extension; /* canonical Arrow extension, for 'arrow_ext' */
} TypeRow;

static const TypeRow shuffle_types[] = {
	{BOOLOID, SHUFFLE_REPR_BOOL},
	{INT2OID, SHUFFLE_REPR_INT2},
	{INT4OID, SHUFFLE_REPR_INT4},
	{INT8OID, SHUFFLE_REPR_INT8},
	{FLOAT4OID, SHUFFLE_REPR_FLOAT4},
	{FLOAT8OID, SHUFFLE_REPR_FLOAT8},
	{MONEYOID, SHUFFLE_REPR_INT8},
	{OIDOID, SHUFFLE_REPR_OID},
	{XIDOID, SHUFFLE_REPR_OID},
	{CIDOID, SHUFFLE_REPR_OID},
	{REGCLASSOID, SHUFFLE_REPR_OID},
	{REGCOLLATIONOID, SHUFFLE_REPR_OID},
	{REGCONFIGOID, SHUFFLE_REPR_OID},
	{REGDICTIONARYOID, SHUFFLE_REPR_OID},
	{REGNAMESPACEOID, SHUFFLE_REPR_OID},
	{REGOPEROID, SHUFFLE_REPR_OID},
	{REGOPERATOROID, SHUFFLE_REPR_OID},
	{REGPROCOID, SHUFFLE_REPR_OID},
	{REGPROCEDUREOID, SHUFFLE_REPR_OID},
	{REGROLEOID, SHUFFLE_REPR_OID},
	{REGTYPEOID, SHUFFLE_REPR_OID},
	{DATEOID, SHUFFLE_REPR_DATE},
	{TIMEOID, SHUFFLE_REPR_TIME},
	{TIMESTAMPOID, SHUFFLE_REPR_TIMESTAMP},
	{TIMESTAMPTZOID, SHUFFLE_REPR_TIMESTAMPTZ},
	{INTERVALOID, SHUFFLE_REPR_INTERVAL},
	{UUIDOID, SHUFFLE_REPR_UUID, "arrow.uuid"},
	{TEXTOID, SHUFFLE_REPR_TEXT},
	{VARCHAROID, SHUFFLE_REPR_TEXT},
	{BPCHAROID, SHUFFLE_REPR_TEXT},
	{NAMEOID, SHUFFLE_REPR_NAME},
	{JSONOID, SHUFFLE_REPR_TEXT, "arrow.json"},
	{JSONBOID, SHUFFLE_REPR_JSONB, "arrow.json"},
	{XMLOID, SHUFFLE_REPR_TEXT},
	{BYTEAOID, SHUFFLE_REPR_BYTES},
	/* arrays whose lower bound is 0 */
	{INT2VECTOROID, SHUFFLE_REPR_OUTPUT},
	{OIDVECTOROID, SHUFFLE_REPR_OUTPUT},
};

static void build_node(ShuffleTypeMap *map, ShuffleNode *node, ShfField *field, Oid type,
					   int32 typmod, const char *name, int depth);

/*
 * The text form of these types cannot be read back: their input functions do nothing but
 * raise an error.
 */
static bool
is_output_only(Oid type)
{
	switch (type)
	{
		case PG_NODE_TREEOID:
		case PG_NDISTINCTOID:
		case PG_DEPENDENCIESOID:
		case PG_MCV_LISTOID:
		case PG_BRIN_BLOOM_SUMMARYOID:
		case PG_BRIN_MINMAX_MULTI_SUMMARYOID:
		case GTSVECTOROID:
			return true;
		default:
			return false;
	}
}

static int
compare_labels(const void *a, const void *b)
{
	Oid va = ((const ShuffleLabel *) a)->value;
	Oid vb = ((const ShuffleLabel *) b)->value;

	return va < vb ? -1 : (va > vb ? 1 : 0);
}

ShuffleLabel *
shuffle_enum_labels(Oid type, const ShuffleEncoding *encoding, int *nlabels)
{
	CatCList	 *list = SearchSysCacheList1(ENUMTYPOIDNAME, ObjectIdGetDatum(type));
	ShuffleLabel *labels = palloc(sizeof(ShuffleLabel) * Max(list->n_members, 1));

	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_enum form = (Form_pg_enum) GETSTRUCT(&list->members[i]->tuple);
		char		*label = pstrdup(NameStr(form->enumlabel));

		labels[i].value = form->oid;
		labels[i].label = shuffle_name_to_utf8(encoding, label);
		labels[i].len = strlen(labels[i].label);
	}
	*nlabels = list->n_members;
	ReleaseCatCacheList(list);
	qsort(labels, *nlabels, sizeof(ShuffleLabel), compare_labels);
	return labels;
}

static void
add_meta(ShfField *field, const char *key, const char *value)
{
	if (field->meta == NULL)
		field->meta = palloc(sizeof(ShfMeta));
	else
		field->meta = repalloc(field->meta, sizeof(ShfMeta) * (field->nmeta + 1));
	field->meta[field->nmeta].key = pstrdup(key);
	field->meta[field->nmeta].value = pstrdup(value);
	field->nmeta++;
}

/* As numeric_typmod_precision() and numeric_typmod_scale() of the server. */
static void
numeric_typmod(int32 typmod, int32_t *precision, int32_t *scale)
{
	*precision = ((typmod - VARHDRSZ) >> 16) & 0xffff;
	*scale = (((typmod - VARHDRSZ) & 0x7ff) ^ 1024) - 1024;
}

/* Which representation a base type gets; sets *extension to its Arrow name, or NULL. */
static ShuffleRepr
choose_repr(const ShuffleTypeMap *map, const ShuffleNode *node, const char **extension)
{
	int32_t precision;
	int32_t scale;

	*extension = NULL;
	if (map->types == SHUFFLE_TYPES_NATIVE)
	{
		if (node->typlen == -1)
			return SHUFFLE_REPR_BYTES;
		if (node->typlen == -2)
			return SHUFFLE_REPR_CSTRING;
		if (!node->typbyval)
			return SHUFFLE_REPR_FIXED;
		switch (node->typlen)
		{
			case 1:
				return SHUFFLE_REPR_BYVAL1;
			case 2:
				return SHUFFLE_REPR_BYVAL2;
			case 4:
				return SHUFFLE_REPR_BYVAL4;
			case 8:
				return SHUFFLE_REPR_BYVAL8;
			default:
				elog(ERROR, "unexpected length %d of by-value type %u", node->typlen, node->type);
		}
	}

	for (int i = 0; i < lengthof(shuffle_types); i++)
	{
		if (shuffle_types[i].type == node->type)
		{
			if (map->types == SHUFFLE_TYPES_ARROW_EXT)
				*extension = shuffle_types[i].extension;
			return shuffle_types[i].repr;
		}
	}

	if (node->type == NUMERICOID)
	{
		if (node->typmod < (int32) VARHDRSZ)
			return SHUFFLE_REPR_NUMERIC;
		numeric_typmod(node->typmod, &precision, &scale);
		if (precision > 38 || scale < 0 || scale > precision)
			return SHUFFLE_REPR_NUMERIC;
		return SHUFFLE_REPR_DECIMAL;
	}

	switch (get_typtype(node->type))
	{
		case TYPTYPE_ENUM:
			return SHUFFLE_REPR_ENUM;
		case TYPTYPE_COMPOSITE:
			return SHUFFLE_REPR_STRUCT;
		default:
			if (OidIsValid(get_element_type(node->type)))
				return SHUFFLE_REPR_LIST;
			return SHUFFLE_REPR_OUTPUT;
	}
}

static void
build_enum(ShuffleTypeMap *map, ShuffleNode *node, ShfField *field)
{
	StringInfoData text;

	node->labels = shuffle_enum_labels(node->type, &map->encoding, &node->nlabels);
	initStringInfo(&text);
	for (int i = 0; i < node->nlabels; i++)
		appendStringInfo(&text, "%s%u:%zu:%s", i > 0 ? " " : "", node->labels[i].value,
						 node->labels[i].len, node->labels[i].label);
	add_meta(field, SHUFFLE_META_ENUM, text.data);
	pfree(text.data);
}

static void
build_list(ShuffleTypeMap *map, ShuffleNode *node, ShfField *field, int depth)
{
	node->elemtype = get_element_type(node->type);
	node->nchildren = field->nchildren = 1;
	node->children = palloc0(sizeof(ShuffleNode));
	field->children = palloc0(sizeof(ShfField));
	node->children[0].attnum = 1;
	node->children[0].column = node->column;
	/* the typmod of an array is that of its elements */
	build_node(map, &node->children[0], &field->children[0], node->elemtype, node->typmod, "item",
			   depth + 1);
}

static void
build_struct(ShuffleTypeMap *map, ShuffleNode *node, ShfField *field, int depth)
{
	TupleDesc desc = lookup_rowtype_tupdesc_copy(node->type, -1);
	int		  n = 0;

	node->desc = desc;
	node->values = palloc(sizeof(Datum) * Max(desc->natts, 1));
	node->isnull = palloc(sizeof(bool) * Max(desc->natts, 1));
	node->children = palloc0(sizeof(ShuffleNode) * Max(desc->natts, 1));
	field->children = palloc0(sizeof(ShfField) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		char			  number[16];

		if (att->attisdropped)
			continue;
		node->children[n].attnum = att->attnum;
		node->children[n].column = node->column;
		snprintf(number, sizeof(number), "%d", att->attnum);
		add_meta(&field->children[n], SHUFFLE_META_ATTNUM, number);
		build_node(map, &node->children[n], &field->children[n], att->atttypid, att->atttypmod,
				   NameStr(att->attname), depth + 1);
		n++;
	}
	node->nchildren = field->nchildren = n;
}

/*
 * Fills node (whose attnum is set) and field (which may have metadata already) for
 * values of a type.  depth is 0 for a top-level column.
 */
static void
build_node(ShuffleTypeMap *map, ShuffleNode *node, ShfField *field, Oid type, int32 typmod,
		   const char *name, int depth)
{
	const char *extension;
	char		number[16];
	Oid			function;
	bool		isvarlena;

	if (depth == 0)
		node->column = pstrdup(name);
	if (depth > SHF_MAX_NESTING)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("column \"%s\" is nested more than %d levels deep", node->column,
						SHF_MAX_NESTING),
				 errhint("Use types => 'native'.")));
	if (get_typtype(type) == TYPTYPE_PSEUDO)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" has pseudo-type %s, which cannot be stored", node->column,
						format_type_be(type)),
				 errhint("Cast the column to a real type.")));

	node->typmod = typmod;
	node->type = getBaseTypeAndTypmod(type, &node->typmod);
	get_typlenbyvalalign(node->type, &node->typlen, &node->typbyval, &node->typalign);
	node->repr = choose_repr(map, node, &extension);

	field->name = shuffle_name_to_utf8(&map->encoding, pstrdup(name));
	field->kind = shuffle_reprs[node->repr].kind;
	field->nullable = true;
	add_meta(field, SHUFFLE_META_TYPE,
			 shuffle_name_to_utf8(
				 &map->encoding,
				 format_type_extended(node->type, node->typmod,
									  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY)));
	snprintf(number, sizeof(number), "%u", node->type);
	add_meta(field, SHUFFLE_META_OID, number);
	snprintf(number, sizeof(number), "%d", node->typmod);
	add_meta(field, SHUFFLE_META_TYPMOD, number);
	add_meta(field, SHUFFLE_META_REPR, shuffle_reprs[node->repr].name);
	if (extension != NULL)
	{
		add_meta(field, "ARROW:extension:name", extension);
		add_meta(field, "ARROW:extension:metadata", "");
	}

	switch (node->repr)
	{
		case SHUFFLE_REPR_DECIMAL:
			numeric_typmod(node->typmod, &field->precision, &field->scale);
			shuffle_decimal_init(&node->decimal, field->precision, field->scale);
			break;
		case SHUFFLE_REPR_UUID:
		case SHUFFLE_REPR_FIXED:
			node->width = field->width = node->typlen;
			break;
		case SHUFFLE_REPR_ENUM:
			build_enum(map, node, field);
			break;
		case SHUFFLE_REPR_OUTPUT:
			if (is_output_only(node->type))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("column \"%s\" of type %s cannot be stored as text", node->column,
								format_type_be(node->type)),
						 errdetail("The type's input function accepts no value."),
						 errhint("Use types => 'native'.")));
			if (shuffle_input_runs_users_code(node->type))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("column \"%s\" of type %s cannot be stored as text", node->column,
								format_type_be(node->type)),
						 errdetail("The type's input function may run code of its owner, for "
								   "everybody who reads the table."),
						 errhint("Use types => 'native'.")));
			getTypeOutputInfo(node->type, &function, &isvarlena);
			fmgr_info(function, &node->io);
			map->settings |= shuffle_settings_needed(node->type);
			break;
		case SHUFFLE_REPR_LIST:
		case SHUFFLE_REPR_STRUCT:
			if (node->repr == SHUFFLE_REPR_LIST)
				build_list(map, node, field, depth);
			else
				build_struct(map, node, field, depth);
			break;
		default:
			break;
	}
}

ShuffleTypeMap *
shuffle_typemap_create(TupleDesc desc, ShuffleTypes types, bool null_unrepresentable)
{
	ShuffleTypeMap *map = palloc0(sizeof(ShuffleTypeMap));
	ShfError		err;
	int				n = 0;

	map->types = types;
	map->null_unrepresentable = null_unrepresentable;
	map->nulled = palloc0(sizeof(bool));
	shuffle_encoding_init(&map->encoding);
	map->columns = palloc0(sizeof(ShuffleNode) * Max(desc->natts, 1));
	map->schema.fields = palloc0(sizeof(ShfField) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		char			  number[16];

		if (att->attisdropped)
			continue;
		map->columns[n].attnum = att->attnum;
		snprintf(number, sizeof(number), "%d", att->attnum);
		add_meta(&map->schema.fields[n], SHUFFLE_META_ATTNUM, number);
		build_node(map, &map->columns[n], &map->schema.fields[n], att->atttypid, att->atttypmod,
				   NameStr(att->attname), 0);
		n++;
	}
	map->ncolumns = map->schema.nfields = n;
	map->row_cxt =
		AllocSetContextCreate(CurrentMemoryContext, "shuffle pack row", ALLOCSET_DEFAULT_SIZES);
	SHUFFLE_CHECK(shf_schema_check(&map->schema, &err), &err);
	return map;
}

static bool
type_lasts(Oid type, ShuffleTypes types)
{
	/* The server's own stay what they are. */
	if (type >= FirstUnpinnedObjectId)
		return false;
	if (types == SHUFFLE_TYPES_NATIVE || type == NUMERICOID)
		return true;
	for (int i = 0; i < lengthof(shuffle_types); i++)
	{
		if (shuffle_types[i].type == type)
			return shuffle_types[i].repr != SHUFFLE_REPR_OUTPUT;
	}
	return false;
}

bool
shuffle_typemap_lasts(TupleDesc desc, ShuffleTypes types)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && !type_lasts(att->atttypid, types))
			return false;
	}
	return true;
}

void
shuffle_typemap_forget_row(ShuffleTypeMap *map)
{
	MemoryContextReset(map->row_cxt);
	map->row_cxt_used = false;
	map->nulled_whole = map->nulled_inside = NULL;
}

const ShfSchema *
shuffle_typemap_schema(const ShuffleTypeMap *map)
{
	return &map->schema;
}
