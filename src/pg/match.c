/*
 * match.c
 *	  Fits the schema of a segment to the columns of its table.
 *
 * A segment records the type that each column had when it was written.  The table may
 * have changed since without a rewrite: columns added, dropped or renamed, enum labels
 * renamed or added, and types changed where the server knows that the stored bits stay
 * valid (varchar to text, wider numeric, int4 to oid, a domain and its base type,
 * timestamptz to timestamp while the time zone is UTC ...).  Values are decoded as the
 * recorded type; their bits are then taken for the present type, exactly as the server
 * does with heap rows.  That is accepted when both types are connected by casts WITHOUT
 * FUNCTION and have the same length and passing; everything else is refused when the
 * column is first read.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_cast.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "typemap.h"

static void match_node(ShuffleUnpack *unpack, ShuffleUnpackColumn *column, ShuffleNode *node,
					   const ShfField *field, Oid type);

static void
refuse(ShuffleUnpackColumn *column, char *why, char *hint)
{
	if (column->refusal == NULL)
	{
		column->refusal = why;
		column->hint = hint;
	}
}

/* ---------------------------------------------------------------- types */

/* Oid of a type by its name as format_type writes it, or InvalidOid. */
static Oid
type_by_name(const char *name)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum result;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = PointerGetDatum(cstring_to_text(name));
	fcinfo->args[0].isnull = false;
	result = to_regtype(fcinfo);
	return fcinfo->isnull ? InvalidOid : DatumGetObjectId(result);
}

/*
 * The type that a field was written with, or InvalidOid if it is gone.  Its oid decides
 * as long as it has not been given to another type; a type may have been renamed.
 */
static Oid
recorded_type(ShuffleUnpack *unpack, const ShfField *field, Oid present)
{
	const char *oid_text = shf_meta_get(field->meta, field->nmeta, SHUFFLE_META_OID);
	const char *name = shf_meta_get(field->meta, field->nmeta, SHUFFLE_META_TYPE);
	const char *typmod_text = shf_meta_get(field->meta, field->nmeta, SHUFFLE_META_TYPMOD);
	Oid			type = oid_text ? (Oid) strtoul(oid_text, NULL, 10) : InvalidOid;
	char	   *now;
	Oid			by_name;

	if (type == present || name == NULL || typmod_text == NULL)
		return type;
	name = shuffle_name_from_utf8(&unpack->encoding, name);
	now = format_type_extended(type, (int32) strtol(typmod_text, NULL, 10),
							   FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY |
								   FORMAT_TYPE_INVALID_AS_NULL);
	if (now != NULL && strcmp(now, name) == 0)
		return type;
	by_name = type_by_name(name);
	if (OidIsValid(by_name))
		return getBaseType(by_name);
	return now != NULL ? type : InvalidOid;
}

typedef struct CastPair
{
	Oid source;
	Oid target;
} CastPair;

/*
 * Do casts WITHOUT FUNCTION connect two types, in any direction and over any number of
 * types between them?  (One ALTER TYPE makes one such step; there may have been several.)
 */
static bool
binary_compatible(Oid a, Oid b)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	CastPair   *pairs;
	int			npairs = 0;
	int			cap = 64;
	List	   *reached;
	ListCell   *lc;

	if (a == b)
		return true;

	pairs = palloc(sizeof(CastPair) * cap);
	rel = table_open(CastRelationId, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_cast cast = (Form_pg_cast) GETSTRUCT(tuple);

		if (cast->castmethod != COERCION_METHOD_BINARY)
			continue;
		if (npairs == cap)
			pairs = repalloc(pairs, sizeof(CastPair) * (cap *= 2));
		pairs[npairs].source = cast->castsource;
		pairs[npairs++].target = cast->casttarget;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);

	/* the list grows while we walk it */
	reached = list_make1_oid(a);
	foreach(lc, reached)
	{
		Oid type = lfirst_oid(lc);

		if (type == b)
			return true;
		for (int i = 0; i < npairs; i++)
		{
			if (pairs[i].source == type)
				reached = list_append_unique_oid(reached, pairs[i].target);
			else if (pairs[i].target == type)
				reached = list_append_unique_oid(reached, pairs[i].source);
		}
		/* UTC on both sides: the server skips the rewrite then */
		if (type == TIMESTAMPOID)
			reached = list_append_unique_oid(reached, TIMESTAMPTZOID);
		else if (type == TIMESTAMPTZOID)
			reached = list_append_unique_oid(reached, TIMESTAMPOID);
	}
	return false;
}

/* ---------------------------------------------------------------- enums */

static int
compare_label_text(const void *a, const void *b)
{
	const ShuffleLabel *la = a;
	const ShuffleLabel *lb = b;

	if (la->len != lb->len)
		return la->len < lb->len ? -1 : 1;
	return memcmp(la->label, lb->label, la->len);
}

/*
 * Labels as the segment knows them, then those of the type that it does not know.  A
 * label that was renamed since, and perhaps given to a new value, means what it meant.
 */
static void
match_enum(ShuffleUnpack *unpack, ShuffleNode *node, const ShfField *field, bool same_type)
{
	const char	 *text = shf_meta_get(field->meta, field->nmeta, SHUFFLE_META_ENUM);
	int			  npresent;
	ShuffleLabel *present = shuffle_enum_labels(node->type, &unpack->encoding, &npresent);
	int			  cap = npresent * 2 + 1;
	int			  n = 0;

	node->labels = palloc(sizeof(ShuffleLabel) * cap);
	while (same_type && text != NULL && *text != '\0' && n < cap - npresent)
	{
		char		 *end;
		ShuffleLabel *label = &node->labels[n];

		label->value = (Oid) strtoul(text, &end, 10);
		if (*end != ':')
			break;
		label->len = strtoul(end + 1, &end, 10);
		if (*end != ':' || strlen(end + 1) < label->len)
			break;
		label->label = pnstrdup(end + 1, label->len);
		text = end + 1 + label->len;
		text += *text == ' ' ? 1 : 0;
		for (int i = 0; i < npresent; i++)
		{
			if (present[i].value == label->value)
			{
				n++;
				break;
			}
		}
	}
	node->nlabels = n;
	for (int i = 0; i < npresent; i++)
	{
		bool known = false;

		for (int j = 0; j < n && !known; j++)
			known = compare_label_text(&present[i], &node->labels[j]) == 0;
		if (!known)
			node->labels[node->nlabels++] = present[i];
	}
	qsort(node->labels, node->nlabels, sizeof(ShuffleLabel), compare_label_text);
}

/* ---------------------------------------------------------------- nested */

static void
match_list(ShuffleUnpack *unpack, ShuffleUnpackColumn *column, ShuffleNode *node,
		   const ShfField *field)
{
	node->elemtype = get_element_type(node->type);
	node->nchildren = 1;
	node->children = palloc0(sizeof(ShuffleNode));
	node->children[0].column = node->column;
	node->children[0].attnum = 1;
	if (!OidIsValid(node->elemtype) || field->nchildren != 1)
		refuse(column,
			   psprintf("The segment holds arrays, type %s is none.", format_type_be(node->type)),
			   NULL);
	else
		match_node(unpack, column, &node->children[0], &field->children[0], node->elemtype);
}

static void
match_struct(ShuffleUnpack *unpack, ShuffleUnpackColumn *column, ShuffleNode *node,
			 const ShfField *field)
{
	TupleDesc desc;

	if (!type_is_rowtype(node->type))
	{
		refuse(column,
			   psprintf("The segment holds rows, type %s is not composite.",
						format_type_be(node->type)),
			   NULL);
		return;
	}
	desc = lookup_rowtype_tupdesc_copy(node->type, -1);
	node->desc = desc;
	node->values = palloc(sizeof(Datum) * Max(desc->natts, 1));
	node->isnull = palloc(sizeof(bool) * Max(desc->natts, 1));
	node->fields = palloc(sizeof(int) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
		node->fields[i] = -1;
	node->nchildren = field->nchildren;
	node->children = palloc0(sizeof(ShuffleNode) * Max(field->nchildren, 1));
	for (int i = 0; i < field->nchildren; i++)
	{
		const ShfField *child = &field->children[i];
		const char	   *attnum = shf_meta_get(child->meta, child->nmeta, SHUFFLE_META_ATTNUM);
		int				att = attnum ? atoi(attnum) - 1 : -1;

		if (att < 0 || att >= desc->natts || node->fields[att] >= 0)
		{
			refuse(column,
				   psprintf("The fields in the segment are not those of composite type %s.",
							format_type_be(node->type)),
				   NULL);
			return;
		}
		if (TupleDescAttr(desc, att)->attisdropped)
			continue;
		node->fields[att] = i;
		node->children[i].column = node->column;
		node->children[i].attnum = att + 1;
		match_node(unpack, column, &node->children[i], child, TupleDescAttr(desc, att)->atttypid);
	}
}

/* ---------------------------------------------------------------- fields */

/* Which representation a field says it has; SHUFFLE_NREPRS for none of ours. */
static ShuffleRepr
recorded_repr(const ShfField *field)
{
	const char *name = shf_meta_get(field->meta, field->nmeta, SHUFFLE_META_REPR);

	for (int i = 0; name != NULL && i < SHUFFLE_NREPRS; i++)
	{
		if (strcmp(shuffle_reprs[i].name, name) == 0 && shuffle_reprs[i].kind == field->kind)
			return (ShuffleRepr) i;
	}
	return SHUFFLE_NREPRS;
}

/*
 * Do the same bits make a Datum of the recorded type and of the present one?  By-value types
 * are those up to 8 bytes; the length check covers them because a by-reference type of such
 * a length has the representation FIXED.
 */
static bool
bits_fit(const ShuffleNode *node, const ShfField *field, Oid recorded)
{
	int16 typlen = shuffle_reprs[node->repr].typlen;
	bool  fits;

	if (node->repr == SHUFFLE_REPR_FIXED)
		fits = field->width == node->typlen && !node->typbyval;
	else if (node->repr == SHUFFLE_REPR_OUTPUT)
		fits = get_typlen(recorded) == node->typlen && get_typbyval(recorded) == node->typbyval;
	else
		fits = typlen == node->typlen && node->typbyval == (typlen > 0 && typlen <= 8);
	if (fits && node->repr >= SHUFFLE_REPR_LIST)
		fits = recorded == node->type;
	return fits && binary_compatible(recorded, node->type);
}

static void
match_input(ShuffleUnpackColumn *column, ShuffleNode *node, Oid recorded)
{
	Oid function;

	if (shuffle_input_runs_users_code(recorded))
	{
		refuse(column,
			   psprintf("The input function of type %s may run code of the type's owner.",
						format_type_be(recorded)),
			   NULL);
		return;
	}
	getTypeInputInfo(recorded, &function, &node->ioparam);
	fmgr_info(function, &node->io);
	column->settings |= shuffle_settings_needed(recorded);
}

/* What is needed to read values of the node's representation. */
static void
match_repr(ShuffleUnpack *unpack, ShuffleUnpackColumn *column, ShuffleNode *node,
		   const ShfField *field, Oid recorded)
{
	switch (node->repr)
	{
		case SHUFFLE_REPR_DECIMAL:
			shuffle_decimal_init(&node->decimal, field->precision, field->scale);
			break;
		case SHUFFLE_REPR_UUID:
		case SHUFFLE_REPR_FIXED:
			node->width = node->typlen;
			break;
		case SHUFFLE_REPR_ENUM:
			match_enum(unpack, node, field, recorded == node->type);
			break;
		case SHUFFLE_REPR_JSONB:
		case SHUFFLE_REPR_NUMERIC:
		case SHUFFLE_REPR_OUTPUT:
			match_input(column, node, recorded);
			break;
		case SHUFFLE_REPR_LIST:
			match_list(unpack, column, node, field);
			break;
		case SHUFFLE_REPR_STRUCT:
			match_struct(unpack, column, node, field);
			break;
		default:
			break;
	}
}

/* Fills node for reading field into values of a type. */
static void
match_node(ShuffleUnpack *unpack, ShuffleUnpackColumn *column, ShuffleNode *node,
		   const ShfField *field, Oid type)
{
	Oid	  recorded;
	char *was;

	check_stack_depth();

	node->type = getBaseType(type);
	node->typmod = -1;
	get_typlenbyvalalign(node->type, &node->typlen, &node->typbyval, &node->typalign);
	node->repr = recorded_repr(field);
	if (node->repr == SHUFFLE_NREPRS)
	{
		refuse(column,
			   psprintf("Arrow field \"%s\" of type %s says nothing this version knows "
						"about its PostgreSQL type.",
						field->name, shf_kinds[field->kind].name),
			   NULL);
		return;
	}

	recorded = recorded_type(unpack, field, node->type);
	if (!OidIsValid(recorded))
	{
		refuse(column,
			   psprintf("The segment holds values of type %s, which no longer exists.",
						shf_meta_get(field->meta, field->nmeta, SHUFFLE_META_TYPE)),
			   NULL);
		return;
	}
	if (!bits_fit(node, field, recorded))
	{
		was = format_type_be(recorded);
		refuse(column, psprintf("The segment holds values of type %s.", was),
			   psprintf("Change the column back to type %s, write the table again, and "
						"change the type again.",
						was));
		return;
	}
	match_repr(unpack, column, node, field, recorded);
}

ShuffleUnpack *
shuffle_unpack_create(const ShfSchema *schema, TupleDesc desc)
{
	ShuffleUnpack *unpack = palloc0(sizeof(ShuffleUnpack));

	unpack->desc = CreateTupleDescCopyConstr(desc);
	shuffle_encoding_init(&unpack->encoding);
	unpack->scratch_cxt = AllocSetContextCreate(CurrentMemoryContext, "shuffle unpack scratch",
												ALLOCSET_DEFAULT_SIZES);
	unpack->value_cxt =
		AllocSetContextCreate(CurrentMemoryContext, "shuffle unpack value", ALLOCSET_DEFAULT_SIZES);
	unpack->columns = palloc0(sizeof(ShuffleUnpackColumn) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
		unpack->columns[i].field = -1;
	for (int i = 0; i < schema->nfields; i++)
	{
		const ShfField		*field = &schema->fields[i];
		const char			*attnum = shf_meta_get(field->meta, field->nmeta, SHUFFLE_META_ATTNUM);
		int					 att = attnum ? atoi(attnum) - 1 : -1;
		ShuffleUnpackColumn *column;

		if (att < 0 || att >= desc->natts)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("segment has a field \"%s\" that belongs to no column of the table",
							field->name)));
		if (TupleDescAttr(desc, att)->attisdropped)
			continue;
		column = &unpack->columns[att];
		if (column->field >= 0)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("segment has two fields for column \"%s\"",
							NameStr(TupleDescAttr(desc, att)->attname))));
		column->field = i;
		column->node.attnum = att + 1;
		column->node.column = NameStr(TupleDescAttr(unpack->desc, att)->attname);
		match_node(unpack, column, &column->node, field, TupleDescAttr(desc, att)->atttypid);

		/* Functions on these take short headers as they are; others would copy them. */
		switch (column->node.type)
		{
			case BPCHAROID:
			case BYTEAOID:
			case JSONOID:
			case TEXTOID:
			case VARCHAROID:
				column->node.short_header = true;
				break;
			default:
				break;
		}
	}
	return unpack;
}

int
shuffle_unpack_field(const ShuffleUnpack *unpack, AttrNumber attnum)
{
	return unpack->columns[attnum - 1].field;
}
