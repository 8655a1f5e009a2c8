/*
 * options_text.c
 *	  Text form of the options of a shuffle table.
 *
 * It is what a table's security label and a segment's routing hold:
 *
 *	  partitions=16 method=hash keys=2 hash=postgres layout=log codec=lz4 types=arrow
 *	  unrepresentable=error
 *
 * in one line, separated by spaces.  "keys" is how many key columns there are: which ones
 * is said by labels of the columns, which follow RENAME and go with the column; the number
 * in the table's label tells when one is gone.  "bounds" is a text array in its usual
 * form.  A value with spaces or quotes in it stands in single quotes, quotes doubled.
 * "attnums", an array too, is in a segment's routing only.
 */
#include "postgres.h"

#include <ctype.h>

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

#include "options.h"

/* What stands before "=" in the text form. */
typedef enum OptionName
{
	OPTION_PARTITIONS,
	OPTION_METHOD,
	OPTION_KEYS,
	OPTION_HASH,
	OPTION_BOUNDS,
	OPTION_LAYOUT,
	OPTION_CODEC,
	OPTION_TYPES,
	OPTION_UNREPRESENTABLE,
	OPTION_ATTNUMS
} OptionName;

static const ShuffleChoice option_names[] = {{"partitions", OPTION_PARTITIONS},
											 {"method", OPTION_METHOD},
											 {"keys", OPTION_KEYS},
											 {"hash", OPTION_HASH},
											 {"bounds", OPTION_BOUNDS},
											 {"layout", OPTION_LAYOUT},
											 {"codec", OPTION_CODEC},
											 {"types", OPTION_TYPES},
											 {"unrepresentable", OPTION_UNREPRESENTABLE},
											 {"attnums", OPTION_ATTNUMS, true},
											 {NULL}};

static void
append_option(StringInfo buf, OptionName name, const char *value)
{
	bool quote = value[0] == '\0' || strpbrk(value, " '\t\r\n\f\v") != NULL;

	appendStringInfo(buf, "%s%s=", buf->len > 0 ? " " : "",
					 shuffle_choice_name(option_names, name));
	if (quote)
	{
		appendStringInfoChar(buf, '\'');
		for (const char *p = value; *p; p++)
		{
			if (*p == '\'')
				appendStringInfoChar(buf, '\'');
			appendStringInfoChar(buf, *p);
		}
		appendStringInfoChar(buf, '\'');
	}
	else
		appendStringInfoString(buf, value);
}

static char *
bounds_to_text(int n, char **bounds)
{
	Datum	  *elems = palloc(sizeof(Datum) * Max(n, 1));
	ArrayType *array;

	for (int i = 0; i < n; i++)
		elems[i] = CStringGetTextDatum(bounds[i]);
	array = construct_array(elems, n, TEXTOID, -1, false, TYPALIGN_INT);
	return OidOutputFunctionCall(F_ARRAY_OUT, PointerGetDatum(array));
}

static void
bounds_from_text(const char *literal, ShuffleOptions *options)
{
	ArrayType *array;
	Datum	  *elems;
	bool	  *nulls;

	array = DatumGetArrayTypeP(
		OidInputFunctionCall(F_ARRAY_IN, unconstify(char *, literal), TEXTOID, -1));
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("bounds must be a one-dimensional array")));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elems, &nulls, &options->nbounds);
	options->bounds = palloc(sizeof(char *) * Max(options->nbounds, 1));
	for (int i = 0; i < options->nbounds; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("bound %d is null", i + 1)));
		options->bounds[i] = TextDatumGetCString(elems[i]);
	}
}

static char *
attnums_to_text(int n, const AttrNumber *attnums)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '{');
	for (int i = 0; i < n; i++)
		appendStringInfo(&buf, "%s%d", i > 0 ? "," : "", attnums[i]);
	appendStringInfoChar(&buf, '}');
	return buf.data;
}

static AttrNumber *
attnums_from_text(const char *text, int *n)
{
	ArrayType  *array;
	AttrNumber *attnums;

	array =
		DatumGetArrayTypeP(OidInputFunctionCall(F_ARRAY_IN, unconstify(char *, text), INT2OID, -1));
	if (ARR_NDIM(array) != 1 || ARR_HASNULL(array))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", "attnums", text)));
	*n = ARR_DIMS(array)[0];
	attnums = palloc(sizeof(AttrNumber) * *n);
	memcpy(attnums, ARR_DATA_PTR(array), sizeof(AttrNumber) * *n);
	return attnums;
}

char *
shuffle_options_format(const ShuffleOptions *options, bool attnums)
{
	StringInfoData buf;

	initStringInfo(&buf);
	append_option(&buf, OPTION_PARTITIONS, psprintf("%d", options->partitions));
	append_option(&buf, OPTION_METHOD, shuffle_method_name(options->method));
	if (options->nkeys > 0)
		append_option(&buf, OPTION_KEYS, psprintf("%d", options->nkeys));
	if (options->method == SHUFFLE_HASH)
		append_option(&buf, OPTION_HASH, options->hash);
	append_option(&buf, OPTION_LAYOUT, shuffle_layout_name(options->layout));
	append_option(&buf, OPTION_CODEC, shuffle_codec_name(options->codec));
	append_option(&buf, OPTION_TYPES, shuffle_types_name(options->types));
	append_option(&buf, OPTION_UNREPRESENTABLE,
				  shuffle_unrepresentable_name(options->null_unrepresentable));
	if (attnums && options->nkeys > 0)
		append_option(&buf, OPTION_ATTNUMS, attnums_to_text(options->nkeys, options->keys));
	if (options->nbounds > 0)
		append_option(&buf, OPTION_BOUNDS, bounds_to_text(options->nbounds, options->bounds));
	return buf.data;
}

/* Cuts the next name=value off *pos; false at the end. */
static bool
next_option(const char **pos, const char *text, char **name, char **value)
{
	const char	  *p = *pos;
	const char	  *start;
	StringInfoData buf;

	while (isspace((unsigned char) *p))
		p++;
	if (*p == '\0')
		return false;

	start = p;
	while (*p != '\0' && *p != '=' && !isspace((unsigned char) *p))
		p++;
	if (*p != '=' || p == start)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid shuffle options: \"%s\"", text),
				 errdetail("Expected name=value at position %d.", (int) (start - text) + 1)));
	*name = pnstrdup(start, p - start);
	p++;

	initStringInfo(&buf);
	if (*p == '\'')
	{
		start = p++;
		for (; p[0] != '\'' || p[1] == '\''; p++)
		{
			if (*p == '\0')
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("invalid shuffle options: \"%s\"", text),
						 errdetail("The quote at position %d is not closed.",
								   (int) (start - text) + 1)));
			if (*p == '\'')
				p++;
			appendStringInfoChar(&buf, *p);
		}
		p++;
		if (*p != '\0' && !isspace((unsigned char) *p))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid shuffle options: \"%s\"", text),
					 errdetail("Expected a space at position %d.", (int) (p - text) + 1)));
	}
	else
	{
		while (*p != '\0' && !isspace((unsigned char) *p))
			appendStringInfoChar(&buf, *p++);
	}
	*value = buf.data;
	*pos = p;
	return true;
}

static int
parse_number(const char *option, const char *text)
{
	int value;

	if (!shuffle_parse_int(text, &value))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", option, text),
				 errhint("Use an integer.")));
	return value;
}

ShuffleOptions *
shuffle_options_parse(const char *text)
{
	ShuffleOptions *options = palloc(sizeof(ShuffleOptions));
	const char	   *pos = text;
	char		   *name;
	char		   *value;
	int				nattnums = 0;
	bool			seen[lengthof(option_names)] = {false};

	shuffle_options_default(options);
	while (next_option(&pos, text, &name, &value))
	{
		const ShuffleChoice *option = shuffle_choice_find(option_names, name);

		if (option == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("unrecognized shuffle option \"%s\"", name),
					 errhint("Valid options: %s.", shuffle_choice_list(option_names))));
		if (seen[option->value])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("shuffle option \"%s\" is given twice", option->name)));
		seen[option->value] = true;

		switch ((OptionName) option->value)
		{
			case OPTION_PARTITIONS:
				options->partitions = parse_number(option->name, value);
				break;
			case OPTION_METHOD:
				options->method = shuffle_parse_method(value);
				break;
			case OPTION_KEYS:
				options->nkeys = parse_number(option->name, value);
				break;
			case OPTION_HASH:
				shuffle_check_hash(value);
				options->hash = value;
				break;
			case OPTION_BOUNDS:
				bounds_from_text(value, options);
				break;
			case OPTION_LAYOUT:
				options->layout = shuffle_parse_layout(value);
				break;
			case OPTION_CODEC:
				options->codec = shuffle_parse_codec(value);
				break;
			case OPTION_TYPES:
				options->types = shuffle_parse_types(value);
				break;
			case OPTION_UNREPRESENTABLE:
				options->null_unrepresentable = shuffle_parse_unrepresentable(value);
				break;
			case OPTION_ATTNUMS:
				options->keys = attnums_from_text(value, &nattnums);
				break;
		}
	}

	/* What decides routing must be said, not follow from defaults that might change. */
	if (!seen[OPTION_PARTITIONS] || !seen[OPTION_METHOD])
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("shuffle options \"%s\" and \"%s\" are required",
						shuffle_choice_name(option_names, OPTION_PARTITIONS),
						shuffle_choice_name(option_names, OPTION_METHOD))));
	if (options->keys && nattnums != options->nkeys)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("shuffle options name %d key columns, not %d", nattnums, options->nkeys)));
	shuffle_options_check(options, true);
	return options;
}
