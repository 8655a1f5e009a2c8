/*
 * typemap.h
 *	  Shared by typemap.c (what becomes what), pack.c (values to Arrow), match.c (what a
 *	  segment's columns become), unpack.c and unpack_values.c (Arrow to values).
 */
#ifndef SHUFFLE_TYPEMAP_H
#define SHUFFLE_TYPEMAP_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "datatype/timestamp.h"
#include "fmgr.h"

#include "numeric.h"
#include "shuffle.h"
#include "textio.h"

/*
 * Representations: how the bits of a Datum and those of an Arrow value correspond.  The
 * name of each (shuffle_reprs) is part of the file format: field metadata "shuffle:repr".
 */
typedef enum ShuffleRepr
{
	/* fixed width */
	SHUFFLE_REPR_BOOL,
	SHUFFLE_REPR_INT2,
	SHUFFLE_REPR_INT4,
	SHUFFLE_REPR_INT8,
	SHUFFLE_REPR_FLOAT4,
	SHUFFLE_REPR_FLOAT8,
	SHUFFLE_REPR_OID,
	SHUFFLE_REPR_DATE,
	SHUFFLE_REPR_TIME,
	SHUFFLE_REPR_TIMESTAMP,
	SHUFFLE_REPR_TIMESTAMPTZ,
	SHUFFLE_REPR_INTERVAL,
	SHUFFLE_REPR_DECIMAL,
	SHUFFLE_REPR_UUID,
	SHUFFLE_REPR_BYVAL1, /* native */
	SHUFFLE_REPR_BYVAL2,
	SHUFFLE_REPR_BYVAL4,
	SHUFFLE_REPR_BYVAL8,
	SHUFFLE_REPR_FIXED, /* native, by reference */
	/* variable width */
	SHUFFLE_REPR_TEXT, /* payload of a varlena that holds text */
	SHUFFLE_REPR_NAME,
	SHUFFLE_REPR_ENUM,	  /* label */
	SHUFFLE_REPR_NUMERIC, /* its text form */
	SHUFFLE_REPR_JSONB,	  /* its text form */
	SHUFFLE_REPR_OUTPUT,  /* what the output function prints */
	SHUFFLE_REPR_BYTES,	  /* payload of a varlena: bytea; native: all varlenas */
	SHUFFLE_REPR_CSTRING, /* native */
	/* nested */
	SHUFFLE_REPR_LIST,
	SHUFFLE_REPR_STRUCT,
	SHUFFLE_NREPRS
} ShuffleRepr;

typedef struct ShuffleReprInfo
{
	const char *name;
	ShfKind		kind;
	int16		typlen; /* of the types that may use it; 0: any */
} ShuffleReprInfo;

extern const ShuffleReprInfo shuffle_reprs[SHUFFLE_NREPRS];

/* From Arrow's epoch to PostgreSQL's. */
#define UNIX_EPOCH_DAYS (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE)
#define UNIX_EPOCH_US	((int64) UNIX_EPOCH_DAYS * USECS_PER_DAY)

/* Keys of field metadata. */
#define SHUFFLE_META_ATTNUM "shuffle:attnum"
#define SHUFFLE_META_REPR	"shuffle:repr"
#define SHUFFLE_META_TYPE	"pg:type"
#define SHUFFLE_META_OID	"pg:oid"
#define SHUFFLE_META_TYPMOD "pg:typmod"
#define SHUFFLE_META_ENUM	"pg:enum" /* "<oid>:<bytes>:<label>", blank-separated */

typedef struct ShuffleLabel
{
	Oid			value;
	const char *label; /* UTF-8 */
	size_t		len;
} ShuffleLabel;

/* Growable memory for nested values. */
typedef struct ShuffleBuffer
{
	char  *data;
	size_t len;
	size_t cap;
} ShuffleBuffer;

/*
 * One value: a column, an element of an array or a field of a composite.  In a typemap
 * it says how to pack, in an unpack how to unpack.
 */
typedef struct ShuffleNode
{
	ShuffleRepr	   repr;
	const char	  *column; /* name of the top-level column, for messages */
	AttrNumber	   attnum; /* in its table or composite; 1 for an element */
	Oid			   type;   /* base type of the values */
	int32		   typmod;
	int16		   typlen;
	bool		   typbyval;
	char		   typalign;
	int			   width; /* SHUFFLE_REPR_FIXED: = typlen */
	ShuffleDecimal decimal;

	/* ENUM: by value when packing, by label when unpacking */
	int			  nlabels;
	ShuffleLabel *labels;

	/* OUTPUT, JSONB, NUMERIC: output function when packing, input function when unpacking */
	FmgrInfo io;
	Oid		 ioparam;

	/* LIST: children[0] is the element; elemtype may be a domain over its type */
	Oid elemtype;

	/* STRUCT: row type, and one value per attribute */
	TupleDesc desc;
	Datum	 *values;
	bool	 *isnull;
	int		 *fields; /* unpack: child of each attribute, or -1 */

	int					nchildren;
	struct ShuffleNode *children;

	ShuffleBuffer buf;			/* packing a top-level LIST or STRUCT */
	bool		  short_header; /* unpacking a varlena: 1-byte headers where they fit */

	/* unpacking DECIMAL: see unpack_decimal() */
	int	  decimals_seen;
	char *numerics; /* NULL, or [SMALL_DECIMALS] of NUMERIC_ROOM bytes each */
} ShuffleNode;

typedef struct ShufflePackPlan ShufflePackPlan; /* pack_row.c */

struct ShuffleTypeMap
{
	ShuffleTypes		types;
	bool				null_unrepresentable;
	ShfSchema			schema;
	int					ncolumns;
	ShuffleNode		   *columns; /* parallel to schema.fields */
	ShuffleEncoding		encoding;
	int					settings;	   /* what the text forms of all columns need together */
	MemoryContext		row_cxt;	   /* detoasted values and text forms of the current row */
	bool				row_cxt_used;  /* something was packed slowly, maybe into row_cxt */
	bool			   *nulled;		   /* the value being packed, or one in it, became NULL */
	Bitmapset		   *nulled_whole;  /* columns (attribute number - 1) of the row that did */
	Bitmapset		   *nulled_inside; /* those with elements or fields that did */
	bool				large_buffers; /* some column's buf is to be given back */
	ShufflePackPlan	   *pack_plan;	   /* for rows of pack_layout */
	const ShfRowLayout *pack_layout;   /* NULL: no row was packed yet */
};

/* A column of a table that a segment is read into. */
typedef struct ShuffleUnpackColumn
{
	int			field; /* of the segment's schema, or -1 */
	ShuffleNode node;
	int			settings; /* what its text forms need */
	char	   *refusal;  /* why it cannot be read, else NULL */
	char	   *hint;	  /* the way out, or NULL */
} ShuffleUnpackColumn;

struct ShuffleUnpack
{
	TupleDesc			 desc;	  /* our copy, with missing values */
	ShuffleUnpackColumn *columns; /* by attribute number - 1 */
	ShuffleEncoding		 encoding;
	MemoryContext		 scratch_cxt; /* elements and fields that become parts of values */
	MemoryContext		 value_cxt;	  /* what an input function leaves behind */
	int					 ntables;	  /* nodes with a table of numerics */
};

/*
 * pack.c: stores a value that is not NULL.  slot is that of the column in ShfRow.fixed, or
 * its ShfBytes in ShfRow.var; bytes may lie in the current context.  False, with the slot
 * as it was or garbage, when there is no Arrow form and NULL is to be stored.
 */
extern bool shuffle_pack_value(ShuffleTypeMap *map, int column, Datum value, void *slot);

/* pack.c: gives back what packing a large nested value took (map->large_buffers). */
extern void shuffle_pack_release(ShuffleTypeMap *map);

/* unpack_values.c: all representations but LIST and STRUCT; NULLs are marked already. */
extern void shuffle_unpack_values(ShuffleUnpack *unpack, ShuffleNode *node, const ShfColumn *column,
								  int64 first, int count, ShuffleValues out, MemoryContext cxt);

/* Labels of an enum type as UTF-8, sorted by value. */
extern ShuffleLabel *shuffle_enum_labels(Oid type, const ShuffleEncoding *encoding, int *nlabels);

#endif /* SHUFFLE_TYPEMAP_H */
