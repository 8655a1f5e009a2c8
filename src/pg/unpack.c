/*
 * unpack.c
 *	  Arrow columns to Datums: entry point, arrays and composites.
 *
 * Which field becomes which type was decided by match.c; single values are made by
 * unpack_values.c.  What is only a part of a value (elements, fields) or a leftover of an
 * input function goes to two contexts of our own, so that the caller's context holds
 * nothing but values.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "typemap.h"

/* Elements of arrays, or fields of composites, that are decoded at a time. */
#define NESTED_CHUNK 65536

static void unpack_values(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column,
						  int64 first, int count, ShuffleValues out, MemoryContext cxt);

static void
unpack_nulls(const ShfColumn *column, int64 first, int count, ShuffleValues out)
{
	const uint8_t *validity = column->validity;

	if (validity == NULL)
		return;
	for (int i = 0; i < count; i++)
	{
		int64 row = first + i;

		out.isnull[(Size) i * out.stride] = ((validity[row >> 3] >> (row & 7)) & 1) == 0;
	}
}

/* Room for n values that become parts of others, one behind the other. */
static ShuffleValues
scratch_values(ShuffleUnpack *unpack, Size n)
{
	ShuffleValues out;

	out.values = MemoryContextAllocHuge(unpack->scratch_cxt, sizeof(Datum) * n);
	out.isnull =
		MemoryContextAllocExtended(unpack->scratch_cxt, n, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	out.stride = 1;
	return out;
}

/* ---------------------------------------------------------------- nested */

/* Are the bits of an Arrow value those of an array element? */
static bool
is_verbatim(const ShuffleNode *node)
{
	switch (node->repr)
	{
		case SHUFFLE_REPR_INT2:
		case SHUFFLE_REPR_INT4:
		case SHUFFLE_REPR_INT8:
		case SHUFFLE_REPR_FLOAT4:
		case SHUFFLE_REPR_FLOAT8:
		case SHUFFLE_REPR_OID:
		case SHUFFLE_REPR_TIME:
			return true;
		default:
			return false;
	}
}

static void
unpack_list(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column, int64 first,
			int count, ShuffleValues out, MemoryContext cxt)
{
	const int32_t	*offsets = column->offsets + first;
	ShuffleNode		*element = &node->children[0];
	const ShfColumn *child = &column->children[0];
	int32			 start = offsets[0];
	int32			 nelements = offsets[count] - start;
	bool			 verbatim = is_verbatim(element) && child->validity == NULL;
	ShuffleValues	 elements = {0};
	MemoryContext	 old = MemoryContextSwitchTo(cxt);

	if (!verbatim && nelements > 0)
	{
		elements = scratch_values(unpack, nelements);
		unpack_values(unpack, element, child, start, nelements, elements, unpack->scratch_cxt);
	}

	for (int i = 0; i < count; i++)
	{
		Datum *value = &out.values[(Size) i * out.stride];
		int	   n = offsets[i + 1] - offsets[i];
		int	   lower = 1;

		*value = (Datum) 0;
		if (out.isnull[(Size) i * out.stride])
			continue;
		if (n == 0)
			*value = PointerGetDatum(construct_empty_array(node->elemtype));
		else if (verbatim)
		{
			Size	   data_bytes = (Size) n * element->typlen;
			Size	   bytes = ARR_OVERHEAD_NONULLS(1) + data_bytes;
			ArrayType *array;

			if (bytes > MaxAllocSize || n > MaxArraySize)
				ereport(
					ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("array size exceeds the maximum allowed (%d)", (int) MaxAllocSize)));
			array = palloc(bytes);
			SET_VARSIZE(array, bytes);
			array->ndim = 1;
			array->dataoffset = 0;
			array->elemtype = node->elemtype;
			ARR_DIMS(array)[0] = n;
			ARR_LBOUND(array)[0] = 1;
			memcpy(ARR_DATA_PTR(array), child->data + (Size) offsets[i] * element->typlen,
				   data_bytes);
			*value = PointerGetDatum(array);
		}
		else
			*value = PointerGetDatum(construct_md_array(
				elements.values + (offsets[i] - start), elements.isnull + (offsets[i] - start), 1,
				&n, &lower, node->elemtype, element->typlen, element->typbyval, element->typalign));
	}
	MemoryContextSwitchTo(old);
}

static void
unpack_struct(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column, int64 first,
			  int count, ShuffleValues out, MemoryContext cxt)
{
	int			   natts = node->desc->natts;
	ShuffleValues *fields =
		MemoryContextAlloc(unpack->scratch_cxt, sizeof(ShuffleValues) * (natts + 1));
	MemoryContext old;

	for (int att = 0; att < natts; att++)
	{
		int field = node->fields[att];

		if (field < 0)
		{
			/* dropped, or added to the type later */
			node->values[att] = getmissingattr(node->desc, att + 1, &node->isnull[att]);
			continue;
		}
		fields[att] = scratch_values(unpack, count);
		unpack_values(unpack, &node->children[field], &column->children[field], first, count,
					  fields[att], unpack->scratch_cxt);
	}

	old = MemoryContextSwitchTo(cxt);
	for (int i = 0; i < count; i++)
	{
		Datum *value = &out.values[(Size) i * out.stride];

		*value = (Datum) 0;
		if (out.isnull[(Size) i * out.stride])
			continue;
		for (int att = 0; att < natts; att++)
		{
			if (node->fields[att] < 0)
				continue;
			node->values[att] = fields[att].values[i];
			node->isnull[att] = fields[att].isnull[i];
		}
		*value = HeapTupleGetDatum(heap_form_tuple(node->desc, node->values, node->isnull));
	}
	MemoryContextSwitchTo(old);
}

/* ---------------------------------------------------------------- columns */

static void
unpack_values(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column, int64 first,
			  int count, ShuffleValues out, MemoryContext cxt)
{
	unpack_nulls(column, first, count, out);
	if (node->repr == SHUFFLE_REPR_LIST)
		unpack_list(unpack, node, column, first, count, out, cxt);
	else if (node->repr == SHUFFLE_REPR_STRUCT)
		unpack_struct(unpack, node, column, first, count, out, cxt);
	else
		shuffle_unpack_values(unpack, node, column, first, count, out, cxt);
}

/* How many of the rows to decode at a time so that the scratch context stays small. */
static int
chunk_rows(const ShuffleNode *node, const ShfColumn *column, int64 first, int count)
{
	int n = 1;

	if (node->repr == SHUFFLE_REPR_STRUCT)
		return Min(count, Max(NESTED_CHUNK / Max(node->desc->natts, 1), 1));
	if (node->repr != SHUFFLE_REPR_LIST)
		return count;
	while (n < count && column->offsets[first + n + 1] - column->offsets[first] <= NESTED_CHUNK)
		n++;
	return n;
}

static void
unpack_chunks(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column, int64 first,
			  int count, ShuffleValues out, MemoryContext cxt)
{
	while (count > 0)
	{
		int n = chunk_rows(node, column, first, count);

		unpack_values(unpack, node, column, first, n, out, cxt);
		MemoryContextReset(unpack->scratch_cxt);
		MemoryContextReset(unpack->value_cxt);
		first += n;
		out.values += (Size) n * out.stride;
		out.isnull += (Size) n * out.stride;
		count -= n;
	}
}

/* A column that the segment does not have: dropped, or added later. */
static void
unpack_missing(ShuffleUnpack *unpack, AttrNumber attnum, int count, ShuffleValues out,
			   MemoryContext cxt)
{
	Form_pg_attribute att = TupleDescAttr(unpack->desc, attnum - 1);
	bool			  null = true;
	Datum			  value = (Datum) 0;

	if (!att->attisdropped)
		value = getmissingattr(unpack->desc, attnum, &null);
	if (!null && !att->attbyval)
	{
		MemoryContext old = MemoryContextSwitchTo(cxt);

		value = datumCopy(value, att->attbyval, att->attlen);
		MemoryContextSwitchTo(old);
	}
	for (int i = 0; i < count; i++)
	{
		out.values[(Size) i * out.stride] = value;
		out.isnull[(Size) i * out.stride] = null;
	}
}

static void
add_context(void *arg)
{
	errcontext("reading column \"%s\" from a segment", (const char *) arg);
}

void
shuffle_unpack_column(ShuffleUnpack *unpack, AttrNumber attnum, const ShfColumn *column,
					  int64 first, int count, ShuffleValues out, MemoryContext cxt)
{
	ShuffleUnpackColumn *target = &unpack->columns[attnum - 1];
	ErrorContextCallback callback;
	ShuffleSavedSettings saved;

	if (column == NULL)
	{
		unpack_missing(unpack, attnum, count, out, cxt);
		return;
	}
	if (target->refusal != NULL)
	{
		Form_pg_attribute att = TupleDescAttr(unpack->desc, attnum - 1);
		char			 *relation = get_rel_name(att->attrelid);

		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of relation \"%s\" cannot be read as type %s",
						NameStr(att->attname), relation ? relation : "?",
						format_type_with_typemod(att->atttypid, att->atttypmod)),
				 errdetail_internal("%s", target->refusal),
				 target->hint ? errhint("%s", target->hint) : 0));
	}

	callback.callback = add_context;
	callback.arg = unconstify(char *, target->node.column);
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	if (target->settings == 0)
		unpack_chunks(unpack, &target->node, column, first, count, out, cxt);
	else
	{
		shuffle_settings_begin(&saved, target->settings);
		PG_TRY();
		{
			unpack_chunks(unpack, &target->node, column, first, count, out, cxt);
		}
		PG_FINALLY();
		{
			shuffle_settings_end(&saved);
		}
		PG_END_TRY();
	}
	error_context_stack = callback.previous;
}
