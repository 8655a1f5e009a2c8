/*
 * pack.c
 *	  Values to their Arrow form.
 *
 * Runs on the backend thread, for every value that pack_row.c does not store by itself.
 * Everything that needs a catalog was resolved by typemap.c.  Inline text
 * and bytes are handed on as pointers into the tuple; only compressed or out-of-line
 * values are copied, once, into the row context, which is reset when the next row
 * begins.
 *
 * A value without an exact Arrow form is an error, or NULL when the table was made with
 * unrepresentable => 'null'.  Nothing is rounded or cut.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "datatype/timestamp.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "typemap.h"

/* The widest slot, SHUFFLE_REPR_FIXED apart. */
#define MAX_SLOT 16

/* A nested value's buffer that has grown beyond this is given back after its row. */
#define KEEP_BUFFER (256 * 1024)

/* Most bytes of a value shown in a message. */
#define SHOWN_BYTES 200

#define STORE(slot, type, value) \
	do \
	{ \
		type v_ = (value); \
		memcpy(slot, &v_, sizeof(v_)); \
	} while (0)

/* ---------------------------------------------------------------- errors */

/*
 * The value has no Arrow form: raises the error that says so, or returns for it to
 * become NULL.
 */
static void
unrepresentable(const ShuffleTypeMap *map, const ShuffleNode *node, Datum value, const char *detail)
{
	Oid	  function;
	bool  isvarlena;
	char *text;
	int	  len;

	if (map->null_unrepresentable)
	{
		*map->nulled = true;
		return;
	}

	getTypeOutputInfo(node->type, &function, &isvarlena);
	text = OidOutputFunctionCall(function, value);
	len = (int) strlen(text);
	if (len > SHOWN_BYTES)
		text = psprintf("%.*s...", pg_mbcliplen(text, len, SHOWN_BYTES), text);
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 errmsg("value \"%s\" in column \"%s\" has no exact Arrow form", text, node->column),
			 errdetail_internal("%s", detail),
			 errhint("types => 'native' stores every value; unrepresentable => 'null' turns "
					 "such values into NULL.")));
}

/* The same for text that is not valid UTF-8 and cannot be printed as it is. */
static void
not_utf8(const ShuffleTypeMap *map, const ShuffleNode *node, const char *text, size_t len)
{
	char   bytes[3 * 16 + 1];
	size_t start = 0;
	int	   n = 0;

	if (map->null_unrepresentable)
	{
		*map->nulled = true;
		return;
	}

	/* show the value from its first byte beyond ASCII on */
	while (start < len && !IS_HIGHBIT_SET(text[start]))
		start++;
	bytes[0] = '\0';
	for (size_t i = start; i < len && n < 16; i++, n++)
		snprintf(bytes + 3 * n, 4, " %02x", (unsigned char) text[i]);
	ereport(ERROR,
			(errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE),
			 errmsg("text in column \"%s\" has no UTF-8 form", node->column),
			 errdetail("From byte %zu on it reads%s in encoding \"%s\"; Arrow text is UTF-8.",
					   start + 1, bytes, pg_encoding_to_char(map->encoding.server)),
			 errhint("types => 'native' stores every value; unrepresentable => 'null' turns "
					 "such values into NULL.")));
}

/* ---------------------------------------------------------------- fixed width */

/*
 * Stores a fixed-width value into its slot (unaligned, of the kind's width).  False, with
 * the slot unchanged, when it has no Arrow form.
 */
static pg_attribute_always_inline bool
pack_fixed(const ShuffleTypeMap *map, const ShuffleNode *node, Datum value, uint8_t *slot)
{
	switch (node->repr)
	{
		case SHUFFLE_REPR_BOOL:
			*slot = DatumGetBool(value) ? 1 : 0;
			return true;
		case SHUFFLE_REPR_BYVAL1:
			*slot = (uint8_t) DatumGetChar(value);
			return true;
		case SHUFFLE_REPR_INT2:
		case SHUFFLE_REPR_BYVAL2:
			STORE(slot, int16, DatumGetInt16(value));
			return true;
		case SHUFFLE_REPR_INT4:
		case SHUFFLE_REPR_OID:
		case SHUFFLE_REPR_FLOAT4:
		case SHUFFLE_REPR_BYVAL4:
			STORE(slot, int32, DatumGetInt32(value));
			return true;
		case SHUFFLE_REPR_INT8:
		case SHUFFLE_REPR_FLOAT8:
		case SHUFFLE_REPR_BYVAL8:
			STORE(slot, int64, DatumGetInt64(value));
			return true;
		case SHUFFLE_REPR_DATE:
		{
			DateADT date = DatumGetDateADT(value);

			if (unlikely(DATE_NOT_FINITE(date)))
			{
				unrepresentable(map, node, value, "Arrow dates are finite.");
				return false;
			}
			/* dates end at 5874897-12-31, far below the int32 limit */
			STORE(slot, int32, date + UNIX_EPOCH_DAYS);
			return true;
		}
		case SHUFFLE_REPR_TIME:
		{
			TimeADT time = DatumGetTimeADT(value);

			if (unlikely(time < 0 || time >= USECS_PER_DAY))
			{
				unrepresentable(map, node, value, "Arrow times end before 24:00:00.");
				return false;
			}
			STORE(slot, int64, time);
			return true;
		}
		case SHUFFLE_REPR_TIMESTAMP:
		case SHUFFLE_REPR_TIMESTAMPTZ:
		{
			Timestamp ts = DatumGetTimestamp(value);

			if (unlikely(TIMESTAMP_NOT_FINITE(ts)))
			{
				unrepresentable(map, node, value, "Arrow timestamps are finite.");
				return false;
			}
			if (unlikely(pg_add_s64_overflow(ts, UNIX_EPOCH_US, &ts)))
			{
				unrepresentable(map, node, value, "Microseconds since 1970 exceed 64 bits.");
				return false;
			}
			STORE(slot, int64, ts);
			return true;
		}
		case SHUFFLE_REPR_INTERVAL:
		{
			Interval interval;
			int64	 ns;

			/* infinite intervals (17 and up) have the largest or smallest time */
			memcpy(&interval, DatumGetPointer(value), sizeof(interval));
			if (unlikely(pg_mul_s64_overflow(interval.time, 1000, &ns)))
			{
				unrepresentable(map, node, value, "Arrow intervals count nanoseconds in 64 bits.");
				return false;
			}
			STORE(slot, int32, interval.month);
			STORE(slot + 4, int32, interval.day);
			STORE(slot + 8, int64, ns);
			return true;
		}
		case SHUFFLE_REPR_DECIMAL:
		{
			struct varlena *numeric = (struct varlena *) DatumGetPointer(value);
			int128			decimal;

			if (unlikely(VARATT_IS_COMPRESSED(numeric) || VARATT_IS_EXTERNAL(numeric)))
				numeric = detoast_attr(numeric);
			if (unlikely(!shuffle_numeric_to_decimal(numeric, &node->decimal, &decimal)))
			{
				unrepresentable(map, node, value,
								psprintf("The column is stored as Decimal128(%d,%d).",
										 node->decimal.precision, node->decimal.scale));
				return false;
			}
			memcpy(slot, &decimal, sizeof(decimal));
			return true;
		}
		case SHUFFLE_REPR_UUID:
			memcpy(slot, DatumGetPointer(value), UUID_LEN);
			return true;
		case SHUFFLE_REPR_FIXED:
			memcpy(slot, DatumGetPointer(value), (size_t) node->width);
			return true;
		default:
			pg_unreachable();
	}
}

/* ---------------------------------------------------------------- text and bytes */

static void
pack_enum(const ShuffleTypeMap *map, const ShuffleNode *node, Oid value, ShfBytes *bytes)
{
	int		  low = 0;
	int		  high = node->nlabels - 1;
	HeapTuple tuple;
	char	 *label;

	while (low <= high)
	{
		int mid = (low + high) / 2;

		if (node->labels[mid].value == value)
		{
			bytes->data = node->labels[mid].label;
			bytes->len = node->labels[mid].len;
			return;
		}
		if (node->labels[mid].value < value)
			low = mid + 1;
		else
			high = mid - 1;
	}

	/* Added since the map was made: readers find it by its label. */
	tuple = SearchSysCache1(ENUMOID, ObjectIdGetDatum(value));
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("invalid internal value for enum: %u", value)));
	label = pstrdup(NameStr(((Form_pg_enum) GETSTRUCT(tuple))->enumlabel));
	ReleaseSysCache(tuple);
	bytes->data = shuffle_name_to_utf8(&map->encoding, label);
	bytes->len = strlen(bytes->data);
}

/*
 * The bytes of a UTF8 or BINARY value: inside the Datum, or in the current context.
 * False when it has no Arrow form.
 */
static inline bool
pack_bytes(const ShuffleTypeMap *map, ShuffleNode *node, Datum value, ShfBytes *bytes)
{
	const char *text;
	size_t		len;

	switch (node->repr)
	{
		case SHUFFLE_REPR_TEXT:
		case SHUFFLE_REPR_BYTES:
		{
			struct varlena *varlena = (struct varlena *) DatumGetPointer(value);

			if (unlikely(VARATT_IS_COMPRESSED(varlena) || VARATT_IS_EXTERNAL(varlena)))
				varlena = detoast_attr(varlena);
			text = VARDATA_ANY(varlena);
			len = VARSIZE_ANY_EXHDR(varlena);
			if (node->repr == SHUFFLE_REPR_BYTES)
			{
				bytes->data = text;
				bytes->len = len;
				return true;
			}
			break;
		}
		case SHUFFLE_REPR_ENUM:
			pack_enum(map, node, DatumGetObjectId(value), bytes);
			return true;
		case SHUFFLE_REPR_NAME:
			text = NameStr(*DatumGetName(value));
			len = strlen(text);
			break;
		case SHUFFLE_REPR_CSTRING:
			bytes->data = DatumGetCString(value);
			bytes->len = strlen(bytes->data);
			return true;
		case SHUFFLE_REPR_NUMERIC:
		{
			struct varlena *numeric = (struct varlena *) DatumGetPointer(value);

			if (unlikely(VARATT_IS_COMPRESSED(numeric) || VARATT_IS_EXTERNAL(numeric)))
				numeric = detoast_attr(numeric);
			bytes->data = shuffle_numeric_to_text(numeric, &bytes->len);
			return true;
		}
		case SHUFFLE_REPR_JSONB:
		{
			Jsonb		  *jsonb = DatumGetJsonbP(value);
			StringInfoData buf;

			/* jsonb_out() without its extra copy */
			initStringInfo(&buf);
			(void) JsonbToCString(&buf, &jsonb->root, (int) VARSIZE(jsonb));
			text = buf.data;
			len = (size_t) buf.len;
			break;
		}
		case SHUFFLE_REPR_OUTPUT:
			text = OutputFunctionCall(&node->io, value);
			len = strlen(text);
			break;
		default:
			pg_unreachable();
	}

	/*
	 * The server has validated text on input, but not everything that calls itself text
	 * went through that, and readers rely on it.
	 */
	if (unlikely(!shuffle_text_to_utf8(&map->encoding, &text, &len)))
	{
		not_utf8(map, node, text, len);
		return false;
	}
	bytes->data = text;
	bytes->len = len;
	return true;
}

/* ---------------------------------------------------------------- nested */

static inline char *
buffer_reserve(ShuffleBuffer *buf, size_t more)
{
	if (unlikely(buf->cap - buf->len < more))
	{
		buf->cap = Max(buf->len + buf->len / 2 + more, 1024);
		buf->data = repalloc_huge(buf->data, buf->cap);
	}
	return buf->data + buf->len;
}

static void
buffer_append(ShuffleBuffer *buf, const void *data, size_t len)
{
	memcpy(buffer_reserve(buf, len), data, len);
	buf->len += len;
}

static bool
pack_nested(const ShuffleTypeMap *map, ShuffleNode *node, Datum value, ShuffleBuffer *buf);

/* An element or field: null flag, value. */
static void
pack_child(const ShuffleTypeMap *map, ShuffleNode *node, Datum value, bool isnull,
		   ShuffleBuffer *buf)
{
	size_t			   start = buf->len;
	const ShfKindInfo *kind = &shf_kinds[shuffle_reprs[node->repr].kind];
	bool			   present;

	*buffer_reserve(buf, 1) = 0;
	buf->len++;
	if (isnull)
		present = false;
	else if (node->repr >= SHUFFLE_REPR_LIST)
		present = pack_nested(map, node, value, buf);
	else if (kind->width < 0)
	{
		ShfBytes bytes;

		present = pack_bytes(map, node, value, &bytes);
		if (present)
		{
			uint32 len = (uint32) bytes.len;

			buffer_append(buf, &len, sizeof(len));
			buffer_append(buf, bytes.data, bytes.len);
		}
	}
	else
	{
		size_t width = kind->width > 0 ? (size_t) kind->width : (size_t) node->width;

		present =
			pack_fixed(map, node, value, (uint8_t *) buffer_reserve(buf, Max(width, MAX_SLOT)));
		buf->len += width;
	}
	if (!present)
	{
		buf->data[start] = 1;
		buf->len = start + 1;
	}
}

static bool
pack_list(const ShuffleTypeMap *map, ShuffleNode *node, Datum value, ShuffleBuffer *buf)
{
	ArrayType	*array = DatumGetArrayTypeP(value);
	ShuffleNode *element = &node->children[0];
	int			 ndim = ARR_NDIM(array);
	uint32		 count = 0;
	const bits8 *bitmap;
	int			 bit = 1;
	char		*p;

	if (ndim > 1 || (ndim == 1 && ARR_LBOUND(array)[0] != 1))
	{
		unrepresentable(map, node, value,
						"Arrow lists have one dimension and no lower bound other than 1.");
		return false;
	}
	if (ndim == 1)
		count = (uint32) ARR_DIMS(array)[0];
	buffer_append(buf, &count, sizeof(count));

	bitmap = ARR_NULLBITMAP(array);
	p = ARR_DATA_PTR(array);
	for (uint32 i = 0; i < count; i++)
	{
		/* one array may take seconds */
		if (i % 1024 == 1023)
			CHECK_FOR_INTERRUPTS();

		if (bitmap != NULL && (*bitmap & bit) == 0)
			pack_child(map, element, (Datum) 0, true, buf);
		else
		{
			pack_child(map, element, fetch_att(p, element->typbyval, element->typlen), false, buf);
			p = att_addlength_pointer(p, element->typlen, p);
			p = (char *) att_align_nominal(p, element->typalign);
		}
		if (bitmap != NULL && (bit <<= 1) == 0x100)
		{
			bitmap++;
			bit = 1;
		}
	}
	return true;
}

static bool
pack_struct(const ShuffleTypeMap *map, ShuffleNode *node, Datum value, ShuffleBuffer *buf)
{
	HeapTupleHeader header = DatumGetHeapTupleHeader(value);
	HeapTupleData	tuple;

	if (HeapTupleHeaderGetTypeId(header) != node->type)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" holds a value of composite type %s where %s is expected",
						node->column, format_type_be(HeapTupleHeaderGetTypeId(header)),
						format_type_be(node->type))));
	tuple.t_len = HeapTupleHeaderGetDatumLength(header);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = header;
	heap_deform_tuple(&tuple, node->desc, node->values, node->isnull);

	/* A type does not contain itself, so node->values is ours until we are done. */
	for (int i = 0; i < node->nchildren; i++)
	{
		ShuffleNode *field = &node->children[i];
		int			 att = field->attnum - 1;

		pack_child(map, field, node->values[att], node->isnull[att], buf);
	}
	return true;
}

/* Appends a nested value.  False when it has no Arrow form; buf may have grown then. */
static bool
pack_nested(const ShuffleTypeMap *map, ShuffleNode *node, Datum value, ShuffleBuffer *buf)
{
	if (node->repr == SHUFFLE_REPR_LIST)
		return pack_list(map, node, value, buf);
	return pack_struct(map, node, value, buf);
}

static bool
pack_top_nested(ShuffleTypeMap *map, ShuffleNode *node, Datum value, ShfBytes *bytes)
{
	ShuffleBuffer *buf = &node->buf;
	bool		   present;

	if (buf->data == NULL)
	{
		buf->data = MemoryContextAlloc(GetMemoryChunkContext(map), 1024);
		buf->cap = 1024;
	}
	buf->len = 0;
	present = pack_nested(map, node, value, buf);
	map->large_buffers |= buf->cap > KEEP_BUFFER;
	if (!present)
		return false;
	bytes->data = buf->data;
	bytes->len = buf->len;
	return true;
}

/* Memory of a large row must not stay with the map while small ones follow. */
void
shuffle_pack_release(ShuffleTypeMap *map)
{
	for (int i = 0; i < map->ncolumns; i++)
	{
		ShuffleBuffer *buf = &map->columns[i].buf;

		if (buf->cap > KEEP_BUFFER)
		{
			pfree(buf->data);
			memset(buf, 0, sizeof(*buf));
		}
	}
	map->large_buffers = false;
}

/* ---------------------------------------------------------------- values of a row */

bool
shuffle_pack_value(ShuffleTypeMap *map, int column, Datum value, void *slot)
{
	ShuffleNode *node = &map->columns[column];

	if (shf_kinds[map->schema.fields[column].kind].width >= 0)
		return pack_fixed(map, node, value, slot);
	if (node->repr < SHUFFLE_REPR_LIST)
		return pack_bytes(map, node, value, slot);
	return pack_top_nested(map, node, value, slot);
}
