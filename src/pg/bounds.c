/*
 * bounds.c
 *	  Text form of the cut points of range partitioning.
 *
 * A bound is the lowest key of the next partition.  As text it is the key's output, or
 * with several keys a row literal, both under the fixed settings of textio.c,
 * so that every process reads it the same.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "route.h"
#include "textio.h"

/* Descriptor of a row of all keys, registered so that record_in() accepts its typmod. */
static TupleDesc
keys_rowtype(const ShuffleKey *keys, int nkeys)
{
	TupleDesc desc = CreateTemplateTupleDesc(nkeys);

	for (int k = 0; k < nkeys; k++)
	{
		TupleDescInitEntry(desc, (AttrNumber) (k + 1), keys[k].name, keys[k].type, -1, 0);
		TupleDescInitEntryCollation(desc, (AttrNumber) (k + 1), keys[k].collation);
	}
	return BlessTupleDesc(desc);
}

typedef struct BoundPosition
{
	bool		renamed; /* may be the former name of an enum value */
	int			number;
	const char *text;
} BoundPosition;

/* Says which bound the input function of its type complained about. */
static void
bound_error_callback(void *arg)
{
	BoundPosition *position = arg;

	errcontext("range bound %d: \"%s\"", position->number, position->text);

	/* not for a canceled query */
	if (position->renamed && ERRCODE_TO_CATEGORY(geterrcode()) == ERRCODE_DATA_EXCEPTION)
		errhint("If the value has been renamed, set other bounds with "
				"shuffle_write('TABLE the_table', 'the_table', if_exists => 'replace', "
				"bounds => ...).");
}

/* Under the settings of the moment.  stored: the bounds have been read before. */
static void
parse_bounds(const ShuffleOptions *options, ShuffleKey *keys, ShuffleBounds *bounds, bool stored)
{
	int					 nkeys = options->nkeys;
	TupleDesc			 rowtype = NULL;
	FmgrInfo			 input;
	Oid					 input_oid;
	Oid					 ioparam;
	BoundPosition		 position;
	ErrorContextCallback callback;

	bounds->n = options->nbounds;
	bounds->nkeys = nkeys;
	bounds->values =
		MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Datum) * Max(bounds->n, 1) * nkeys);
	bounds->nulls =
		MemoryContextAllocHuge(CurrentMemoryContext, sizeof(bool) * Max(bounds->n, 1) * nkeys);

	if (nkeys == 1)
		getTypeInputInfo(keys[0].type, &input_oid, &ioparam);
	else
	{
		rowtype = keys_rowtype(keys, nkeys);
		input_oid = F_RECORD_IN;
		ioparam = RECORDOID;
	}
	fmgr_info(input_oid, &input);

	callback.callback = bound_error_callback;
	callback.arg = &position;
	position.renamed = false;
	for (int k = 0; k < nkeys; k++)
		position.renamed |= stored && type_is_enum(keys[k].type);
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	for (int i = 0; i < bounds->n; i++)
	{
		Datum *values = &bounds->values[(size_t) i * nkeys];
		bool  *nulls = &bounds->nulls[(size_t) i * nkeys];
		Datum  value;

		position.number = i + 1;
		position.text = options->bounds[i];
		value = InputFunctionCall(&input, options->bounds[i], ioparam,
								  rowtype ? rowtype->tdtypmod : -1);
		if (rowtype)
		{
			HeapTupleHeader header = DatumGetHeapTupleHeader(value);
			HeapTupleData	tuple = {0};

			tuple.t_len = HeapTupleHeaderGetDatumLength(header);
			tuple.t_data = header;
			heap_deform_tuple(&tuple, rowtype, values, nulls);
		}
		else
		{
			values[0] = value;
			nulls[0] = false;
		}
		if (nulls[0])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("bound %d is null", i + 1),
					 errdetail("Rows whose first key is null always go to the last partition.")));
		CHECK_FOR_INTERRUPTS();
	}
	error_context_stack = callback.previous;

	for (int i = 1; i < bounds->n; i++)
	{
		size_t this = (size_t) i * nkeys;

		if (shuffle_keys_compare(keys, nkeys, &bounds->values[this - nkeys],
								 &bounds->nulls[this - nkeys], &bounds->values[this],
								 &bounds->nulls[this]) >= 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("range bounds must be in strictly ascending order"),
					 errdetail("Bound %d (\"%s\") is not above bound %d (\"%s\").", i + 1,
							   options->bounds[i], i, options->bounds[i - 1])));
	}
}

/* Under the settings of the moment. */
static void
format_bounds(ShuffleOptions *options, const ShuffleKey *keys, const ShuffleBounds *bounds)
{
	int		  nkeys = options->nkeys;
	TupleDesc rowtype = NULL;
	FmgrInfo  output;
	Oid		  output_oid;
	bool	  is_varlena;

	if (nkeys == 1)
		getTypeOutputInfo(keys[0].type, &output_oid, &is_varlena);
	else
	{
		rowtype = keys_rowtype(keys, nkeys);
		output_oid = F_RECORD_OUT;
	}
	fmgr_info(output_oid, &output);

	options->nbounds = bounds->n;
	options->bounds = palloc(sizeof(char *) * Max(bounds->n, 1));
	for (int i = 0; i < bounds->n; i++)
	{
		Datum *values = &bounds->values[(size_t) i * nkeys];
		bool  *nulls = &bounds->nulls[(size_t) i * nkeys];
		Datum  value = values[0];

		if (rowtype)
			value = HeapTupleGetDatum(heap_form_tuple(rowtype, values, nulls));
		options->bounds[i] = OutputFunctionCall(&output, value);
	}
}

void
shuffle_bounds_format(ShuffleOptions *options, const ShuffleKey *keys, const ShuffleBounds *bounds)
{
	ShuffleSavedSettings saved;

	shuffle_settings_begin(&saved, SHUFFLE_SET_ALL);
	PG_TRY();
	{
		format_bounds(options, keys, bounds);
	}
	PG_FINALLY();
	{
		shuffle_settings_end(&saved);
	}
	PG_END_TRY();
}

void
shuffle_bounds_parse(const ShuffleOptions *options, ShuffleKey *keys, ShuffleBounds *bounds)
{
	ShuffleSavedSettings saved;

	shuffle_settings_begin(&saved, SHUFFLE_SET_ALL);
	PG_TRY();
	{
		parse_bounds(options, keys, bounds, true);
	}
	PG_FINALLY();
	{
		shuffle_settings_end(&saved);
	}
	PG_END_TRY();
}

void
shuffle_bounds_normalize(ShuffleOptions *options, TupleDesc desc)
{
	ShuffleKey	 *keys;
	ShuffleBounds bounds;

	if (options->method != SHUFFLE_RANGE || options->nbounds == 0)
		return;
	keys = shuffle_keys_create(options, desc);
	parse_bounds(options, keys, &bounds, false);
	shuffle_bounds_format(options, keys, &bounds);
}
