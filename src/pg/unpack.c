/*
 * unpack.c
 *	  Arrow columns to Datums, a range of rows of one column at a time.
 *
 * Which field becomes which type was decided by match.c.  By-reference values of a call
 * lie one behind the other in one allocation.  Headers: text and bytea get the short
 * varlena header where it fits, because their functions take it as it is; numeric,
 * arrays and all others get a 4-byte header at its alignment, which saves each function
 * that reads them a copy.
 *
 * Values that are made by input functions or become parts of arrays and composites pass
 * through two contexts of our own, so that cxt holds nothing but values.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "typemap.h"

#define UNIX_EPOCH_DAYS	(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE)
#define UNIX_EPOCH_US	((int64) UNIX_EPOCH_DAYS * USECS_PER_DAY)

/* Bytes that copy_bytes() reads and writes at once: a value's scratch has as many more. */
#define COPY_SLACK		32

/* Elements of arrays, or fields of composites, that are decoded at a time. */
#define NESTED_CHUNK	65536

static void unpack_values(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column,
						  int64 first, int count, Datum *values, bool *isnull,
						  MemoryContext cxt);

static void
unpack_nulls(const ShfColumn *column, int64 first, int count, bool *isnull)
{
	const uint8_t *validity = column->validity;

	if (validity == NULL)
	{
		memset(isnull, false, count);
		return;
	}
	for (int i = 0; i < count; i++)
	{
		int64		row = first + i;

		isnull[i] = ((validity[row >> 3] >> (row & 7)) & 1) == 0;
	}
}

/* ---------------------------------------------------------------- fixed width */

/* values[i] = expression of v, the i-th value; those of NULLs are read too. */
#define UNPACK_LOOP(type, expression) \
do { \
	const uint8_t *p_ = column->data + first * (int64) sizeof(type); \
	for (int i = 0; i < count; i++) \
	{ \
		type		v; \
		memcpy(&v, p_ + i * sizeof(type), sizeof(type)); \
		values[i] = (expression); \
	} \
} while (0)

static void
unpack_bool(const ShfColumn *column, int64 first, int count, Datum *values)
{
	for (int i = 0; i < count; i++)
	{
		int64		row = first + i;

		values[i] = BoolGetDatum((column->data[row >> 3] >> (row & 7)) & 1);
	}
}

static void
unpack_decimal(const ShuffleNode *node, const ShfColumn *column, int64 first, int count,
			   Datum *values, const bool *isnull, MemoryContext cxt)
{
	const uint8_t *src = column->data + first * (int64) sizeof(int128);
	char	   *dst = MemoryContextAllocHuge(cxt, (Size) count * SHUFFLE_NUMERIC_MAX_BYTES);

	for (int i = 0; i < count; i++, src += sizeof(int128))
	{
		int128		value;

		values[i] = PointerGetDatum(dst);
		if (isnull[i])
			continue;
		memcpy(&value, src, sizeof(value));
		dst += INTALIGN(shuffle_numeric_from_decimal(dst, value, &node->decimal));
	}
}

static void
unpack_interval(const ShfColumn *column, int64 first, int count, Datum *values,
				MemoryContext cxt)
{
	const uint8_t *src = column->data + first * 16;
	Interval   *dst = MemoryContextAllocHuge(cxt, (Size) count * sizeof(Interval));

	for (int i = 0; i < count; i++, src += 16)
	{
		int64		ns;

		memcpy(&dst[i].month, src, 4);
		memcpy(&dst[i].day, src + 4, 4);
		memcpy(&ns, src + 8, 8);
		dst[i].time = ns / 1000;
		values[i] = IntervalPGetDatum(&dst[i]);
	}
}

/* Fixed-length types by reference, UUID among them. */
static void
unpack_fixed(const ShuffleNode *node, const ShfColumn *column, int64 first, int count,
			 Datum *values, MemoryContext cxt)
{
	Size		width = (Size) node->width;
	Size		stride = att_align_nominal(width, node->typalign);
	const uint8_t *src = column->data + first * (int64) width;
	char	   *dst = MemoryContextAllocHuge(cxt, (Size) count * stride);

	if (stride == width)
		memcpy(dst, src, (Size) count * width);
	for (int i = 0; i < count; i++)
	{
		if (stride != width)
			memcpy(dst + i * stride, src + i * width, width);
		values[i] = PointerGetDatum(dst + i * stride);
	}
}

/* ---------------------------------------------------------------- text and bytes */

/*
 * Copies len bytes.  Most values are short: as long as COPY_SLACK bytes can be read before
 * src_limit they are copied by a fixed number of loads and stores, without a call or a
 * branch on the length.
 */
static inline void
copy_bytes(char *dst, const uint8_t *src, size_t len, const uint8_t *src_limit)
{
	if (len <= COPY_SLACK && src_limit - src >= COPY_SLACK)
	{
		uint64		words[COPY_SLACK / sizeof(uint64)];

		memcpy(words, src, sizeof(words));
		memcpy(dst, words, sizeof(words));
	}
	else
		memcpy(dst, src, len);
}

static void
check_varlena_size(const ShuffleNode *node, size_t len)
{
	if (len > MaxAllocSize - VARHDRSZ)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("value of %zu bytes in column \"%s\" exceeds the maximum size of a value",
						len, node->column)));
}

/* Varlenas from their payload: text that needs no conversion, and bytes. */
static void
unpack_varlena(const ShuffleNode *node, const ShfColumn *column, int64 first, int count,
			   Datum *values, const bool *isnull, MemoryContext cxt)
{
	const int32_t *offsets = column->offsets + first;
	const uint8_t *limit = column->data + column->data_bytes;
	Size		align = node->typalign == TYPALIGN_DOUBLE ? ALIGNOF_DOUBLE : ALIGNOF_INT;
	Size		total = (Size) (offsets[count] - offsets[0]);
	char	   *dst;

	dst = MemoryContextAllocHuge(cxt, total + (Size) count * (VARHDRSZ + align - 1) + COPY_SLACK);
	for (int i = 0; i < count; i++)
	{
		size_t		len = (size_t) (offsets[i + 1] - offsets[i]);
		const uint8_t *src = column->data + offsets[i];

		if (isnull[i])
		{
			values[i] = (Datum) 0;
			continue;
		}
		if (node->short_header && len + VARHDRSZ_SHORT <= VARATT_SHORT_MAX)
		{
			values[i] = PointerGetDatum(dst);
			SET_VARSIZE_SHORT(dst, len + VARHDRSZ_SHORT);
			dst += VARHDRSZ_SHORT;
		}
		else
		{
			check_varlena_size(node, len);
			dst = (char *) TYPEALIGN(align, dst);
			values[i] = PointerGetDatum(dst);
			SET_VARSIZE(dst, len + VARHDRSZ);
			dst += VARHDRSZ;
		}
		copy_bytes(dst, src, len, limit);
		dst += len;
	}
}

/* Text that must be converted to the server encoding: value by value. */
static void
unpack_converted(ShuffleUnpack *unpack, const ShuffleNode *node, const ShfColumn *column,
				 int64 first, int count, Datum *values, const bool *isnull, MemoryContext cxt)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);

	for (int i = 0; i < count; i++)
	{
		const char *text = (const char *) column->data + column->offsets[first + i];
		size_t		len = (size_t) (column->offsets[first + i + 1] - column->offsets[first + i]);
		struct varlena *value;

		values[i] = (Datum) 0;
		if (isnull[i])
			continue;
		MemoryContextReset(unpack->value_cxt);
		MemoryContextSwitchTo(unpack->value_cxt);
		shuffle_text_from_utf8(&unpack->encoding, &text, &len);
		MemoryContextSwitchTo(cxt);
		check_varlena_size(node, len);
		value = palloc(len + VARHDRSZ);
		SET_VARSIZE(value, len + VARHDRSZ);
		memcpy(VARDATA(value), text, len);
		values[i] = PointerGetDatum(value);
	}
	MemoryContextSwitchTo(old);
}

static void
unpack_name(ShuffleUnpack *unpack, const ShfColumn *column, int64 first, int count,
			Datum *values, const bool *isnull, MemoryContext cxt)
{
	NameData   *dst = MemoryContextAllocHuge(cxt, (Size) count * sizeof(NameData));

	for (int i = 0; i < count; i++)
	{
		const char *text = (const char *) column->data + column->offsets[first + i];
		size_t		len = (size_t) (column->offsets[first + i + 1] - column->offsets[first + i]);

		values[i] = NameGetDatum(&dst[i]);
		if (isnull[i])
			continue;
		shuffle_text_from_utf8(&unpack->encoding, &text, &len);
		memset(&dst[i], 0, sizeof(NameData));
		memcpy(NameStr(dst[i]), text, Min(len, NAMEDATALEN - 1));
	}
}

static void
unpack_cstring(const ShfColumn *column, int64 first, int count, Datum *values,
			   MemoryContext cxt)
{
	const int32_t *offsets = column->offsets + first;
	char	   *dst = MemoryContextAllocHuge(cxt, (Size) (offsets[count] - offsets[0]) + count + 1);

	for (int i = 0; i < count; i++)
	{
		size_t		len = (size_t) (offsets[i + 1] - offsets[i]);

		values[i] = CStringGetDatum(dst);
		memcpy(dst, column->data + offsets[i], len);
		dst[len] = '\0';
		dst += len + 1;
	}
}

static void
unpack_enum(const ShuffleNode *node, const ShfColumn *column, int64 first, int count,
			Datum *values, const bool *isnull)
{
	const ShuffleLabel *label = NULL;

	for (int i = 0; i < count; i++)
	{
		const char *text = (const char *) column->data + column->offsets[first + i];
		size_t		len = (size_t) (column->offsets[first + i + 1] - column->offsets[first + i]);
		int			low = 0;
		int			high = node->nlabels - 1;

		values[i] = (Datum) 0;
		if (isnull[i])
			continue;
		/* rows of a partition often repeat a label */
		if (label == NULL || label->len != len || memcmp(label->label, text, len) != 0)
		{
			label = NULL;
			while (low <= high && label == NULL)
			{
				int			mid = (low + high) / 2;
				const ShuffleLabel *l = &node->labels[mid];
				int			order = l->len != len ? (l->len < len ? -1 : 1) :
					memcmp(l->label, text, len);

				if (order == 0)
					label = l;
				else if (order < 0)
					low = mid + 1;
				else
					high = mid - 1;
			}
			if (label == NULL)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
						 errmsg("enum %s has no label \"%.*s\"",
								format_type_be(node->type), (int) len, text)));
		}
		values[i] = ObjectIdGetDatum(label->value);
	}
}

/* Through the type's input function. */
static void
unpack_input(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column, int64 first,
			 int count, Datum *values, const bool *isnull, MemoryContext cxt)
{
	MemoryContext old = CurrentMemoryContext;

	for (int i = 0; i < count; i++)
	{
		const char *text = (const char *) column->data + column->offsets[first + i];
		size_t		len = (size_t) (column->offsets[first + i + 1] - column->offsets[first + i]);
		char	   *cstring;
		Datum		value;

		values[i] = (Datum) 0;
		if (isnull[i])
			continue;
		MemoryContextReset(unpack->value_cxt);
		MemoryContextSwitchTo(unpack->value_cxt);
		shuffle_text_from_utf8(&unpack->encoding, &text, &len);
		check_varlena_size(node, len);
		cstring = palloc(len + 1);
		memcpy(cstring, text, len);
		cstring[len] = '\0';
		/* stored values meet their typmod already, and -1 changes nothing */
		value = InputFunctionCall(&node->io, cstring, node->ioparam, -1);
		MemoryContextSwitchTo(cxt);
		values[i] = datumCopy(value, node->typbyval, node->typlen);
	}
	MemoryContextSwitchTo(old);
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
			int count, Datum *values, const bool *isnull, MemoryContext cxt)
{
	const int32_t *offsets = column->offsets + first;
	ShuffleNode *element = &node->children[0];
	const ShfColumn *child = &column->children[0];
	int32		start = offsets[0];
	int32		nelements = offsets[count] - start;
	bool		verbatim = is_verbatim(element) && child->validity == NULL;
	Datum	   *elements = NULL;
	bool	   *nulls = NULL;
	MemoryContext old = MemoryContextSwitchTo(cxt);

	if (!verbatim && nelements > 0)
	{
		elements = MemoryContextAllocHuge(unpack->scratch_cxt, sizeof(Datum) * (Size) nelements);
		nulls = MemoryContextAllocHuge(unpack->scratch_cxt, (Size) nelements);
		unpack_values(unpack, element, child, start, nelements, elements, nulls,
					  unpack->scratch_cxt);
	}

	for (int i = 0; i < count; i++)
	{
		int			n = offsets[i + 1] - offsets[i];
		int			lower = 1;

		values[i] = (Datum) 0;
		if (isnull[i])
			continue;
		if (n == 0)
			values[i] = PointerGetDatum(construct_empty_array(node->elemtype));
		else if (verbatim)
		{
			Size		data_bytes = (Size) n * element->typlen;
			Size		bytes = ARR_OVERHEAD_NONULLS(1) + data_bytes;
			ArrayType  *array;

			if (bytes > MaxAllocSize || n > MaxArraySize)
				ereport(ERROR,
						(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						 errmsg("array size exceeds the maximum allowed (%d)",
								(int) MaxAllocSize)));
			array = palloc(bytes);
			SET_VARSIZE(array, bytes);
			array->ndim = 1;
			array->dataoffset = 0;
			array->elemtype = node->elemtype;
			ARR_DIMS(array)[0] = n;
			ARR_LBOUND(array)[0] = 1;
			memcpy(ARR_DATA_PTR(array), child->data + (Size) offsets[i] * element->typlen,
				   data_bytes);
			values[i] = PointerGetDatum(array);
		}
		else
			values[i] = PointerGetDatum(construct_md_array(elements + (offsets[i] - start),
														   nulls + (offsets[i] - start),
														   1, &n, &lower, node->elemtype,
														   element->typlen, element->typbyval,
														   element->typalign));
	}
	MemoryContextSwitchTo(old);
}

static void
unpack_struct(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column, int64 first,
			  int count, Datum *values, const bool *isnull, MemoryContext cxt)
{
	int			natts = node->desc->natts;
	Datum	  **fields = MemoryContextAlloc(unpack->scratch_cxt, sizeof(Datum *) * (natts + 1));
	bool	  **nulls = MemoryContextAlloc(unpack->scratch_cxt, sizeof(bool *) * (natts + 1));
	MemoryContext old;

	for (int att = 0; att < natts; att++)
	{
		int			field = node->fields[att];

		if (field < 0)
		{
			/* dropped, or added to the type later */
			node->values[att] = getmissingattr(node->desc, att + 1, &node->isnull[att]);
			continue;
		}
		fields[att] = MemoryContextAllocHuge(unpack->scratch_cxt, sizeof(Datum) * (Size) count);
		nulls[att] = MemoryContextAllocHuge(unpack->scratch_cxt, (Size) count);
		unpack_values(unpack, &node->children[field], &column->children[field], first, count,
					  fields[att], nulls[att], unpack->scratch_cxt);
	}

	old = MemoryContextSwitchTo(cxt);
	for (int i = 0; i < count; i++)
	{
		values[i] = (Datum) 0;
		if (isnull[i])
			continue;
		for (int att = 0; att < natts; att++)
		{
			if (node->fields[att] < 0)
				continue;
			node->values[att] = fields[att][i];
			node->isnull[att] = nulls[att][i];
		}
		values[i] = HeapTupleGetDatum(heap_form_tuple(node->desc, node->values, node->isnull));
	}
	MemoryContextSwitchTo(old);
}

/* ---------------------------------------------------------------- columns */

static void
unpack_values(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column, int64 first,
			  int count, Datum *values, bool *isnull, MemoryContext cxt)
{
	unpack_nulls(column, first, count, isnull);
	switch (node->repr)
	{
		case SHUFFLE_REPR_BOOL:
			unpack_bool(column, first, count, values);
			break;
		case SHUFFLE_REPR_BYVAL1:
			UNPACK_LOOP(int8, CharGetDatum(v));
			break;
		case SHUFFLE_REPR_INT2:
		case SHUFFLE_REPR_BYVAL2:
			UNPACK_LOOP(int16, Int16GetDatum(v));
			break;
		case SHUFFLE_REPR_INT4:
		case SHUFFLE_REPR_FLOAT4:
		case SHUFFLE_REPR_BYVAL4:
			UNPACK_LOOP(int32, Int32GetDatum(v));
			break;
		case SHUFFLE_REPR_OID:
			UNPACK_LOOP(uint32, ObjectIdGetDatum(v));
			break;
		case SHUFFLE_REPR_INT8:
		case SHUFFLE_REPR_FLOAT8:
		case SHUFFLE_REPR_BYVAL8:
			UNPACK_LOOP(int64, Int64GetDatum(v));
			break;
		case SHUFFLE_REPR_TIME:
			UNPACK_LOOP(int64, TimeADTGetDatum(v));
			break;
		case SHUFFLE_REPR_DATE:
			UNPACK_LOOP(int32, DateADTGetDatum(v - UNIX_EPOCH_DAYS));
			break;
		case SHUFFLE_REPR_TIMESTAMP:
		case SHUFFLE_REPR_TIMESTAMPTZ:
			UNPACK_LOOP(int64, TimestampGetDatum(v - UNIX_EPOCH_US));
			break;
		case SHUFFLE_REPR_INTERVAL:
			unpack_interval(column, first, count, values, cxt);
			break;
		case SHUFFLE_REPR_DECIMAL:
			unpack_decimal(node, column, first, count, values, isnull, cxt);
			break;
		case SHUFFLE_REPR_UUID:
		case SHUFFLE_REPR_FIXED:
			unpack_fixed(node, column, first, count, values, cxt);
			break;
		case SHUFFLE_REPR_TEXT:
			if (unpack->encoding.verbatim)
				unpack_varlena(node, column, first, count, values, isnull, cxt);
			else
				unpack_converted(unpack, node, column, first, count, values, isnull, cxt);
			break;
		case SHUFFLE_REPR_BYTES:
			unpack_varlena(node, column, first, count, values, isnull, cxt);
			break;
		case SHUFFLE_REPR_NAME:
			unpack_name(unpack, column, first, count, values, isnull, cxt);
			break;
		case SHUFFLE_REPR_CSTRING:
			unpack_cstring(column, first, count, values, cxt);
			break;
		case SHUFFLE_REPR_ENUM:
			unpack_enum(node, column, first, count, values, isnull);
			break;
		case SHUFFLE_REPR_JSONB:
		case SHUFFLE_REPR_OUTPUT:
			unpack_input(unpack, node, column, first, count, values, isnull, cxt);
			break;
		case SHUFFLE_REPR_LIST:
			unpack_list(unpack, node, column, first, count, values, isnull, cxt);
			break;
		case SHUFFLE_REPR_STRUCT:
			unpack_struct(unpack, node, column, first, count, values, isnull, cxt);
			break;
		case SHUFFLE_NREPRS:
			pg_unreachable();
	}
}

/* How many of the rows to decode at a time so that the scratch context stays small. */
static int
chunk_rows(const ShuffleNode *node, const ShfColumn *column, int64 first, int count)
{
	int			n = 1;

	if (node->repr == SHUFFLE_REPR_STRUCT)
		return Min(count, Max(NESTED_CHUNK / Max(node->desc->natts, 1), 1));
	if (node->repr != SHUFFLE_REPR_LIST)
		return count;
	while (n < count &&
		   column->offsets[first + n + 1] - column->offsets[first] <= NESTED_CHUNK)
		n++;
	return n;
}

static void
unpack_chunks(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column, int64 first,
			  int count, Datum *values, bool *isnull, MemoryContext cxt)
{
	while (count > 0)
	{
		int			n = chunk_rows(node, column, first, count);

		unpack_values(unpack, node, column, first, n, values, isnull, cxt);
		MemoryContextReset(unpack->scratch_cxt);
		MemoryContextReset(unpack->value_cxt);
		first += n;
		values += n;
		isnull += n;
		count -= n;
	}
}

/* A column that the segment does not have: dropped, or added later. */
static void
unpack_missing(ShuffleUnpack *unpack, AttrNumber attnum, int count, Datum *values, bool *isnull,
			   MemoryContext cxt)
{
	Form_pg_attribute att = TupleDescAttr(unpack->desc, attnum - 1);
	bool		null = true;
	Datum		value = (Datum) 0;

	if (!att->attisdropped)
		value = getmissingattr(unpack->desc, attnum, &null);
	if (!null && !att->attbyval)
	{
		MemoryContext old = MemoryContextSwitchTo(cxt);

		value = datumCopy(value, att->attbyval, att->attlen);
		MemoryContextSwitchTo(old);
	}
	for (int i = 0; i < count; i++)
		values[i] = value;
	memset(isnull, null, count);
}

static void
add_context(void *arg)
{
	errcontext("reading column \"%s\" from a segment", (const char *) arg);
}

void
shuffle_unpack_column(ShuffleUnpack *unpack, AttrNumber attnum, const ShfColumn *column,
					  int64 first, int count, Datum *values, bool *isnull, MemoryContext cxt)
{
	ShuffleUnpackColumn *target = &unpack->columns[attnum - 1];
	ErrorContextCallback callback;
	ShuffleSavedSettings saved;

	if (column == NULL)
	{
		unpack_missing(unpack, attnum, count, values, isnull, cxt);
		return;
	}
	if (target->refusal != NULL)
	{
		Form_pg_attribute att = TupleDescAttr(unpack->desc, attnum - 1);

		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of type %s cannot be read from a segment",
						NameStr(att->attname),
						format_type_with_typemod(att->atttypid, att->atttypmod)),
				 errdetail_internal("%s", target->refusal),
				 target->hint ? errhint("%s", target->hint) : 0));
	}

	callback.callback = add_context;
	callback.arg = unconstify(char *, target->node.column);
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	if (target->settings == 0)
		unpack_chunks(unpack, &target->node, column, first, count, values, isnull, cxt);
	else
	{
		shuffle_settings_begin(&saved, target->settings);
		PG_TRY();
		{
			unpack_chunks(unpack, &target->node, column, first, count, values, isnull, cxt);
		}
		PG_FINALLY();
		{
			shuffle_settings_end(&saved);
		}
		PG_END_TRY();
	}
	error_context_stack = callback.previous;
}
