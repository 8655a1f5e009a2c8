/*
 * options.c
 *	  Options of a shuffle table: values, defaults, limits, and their text form.
 *
 * All parsing of option values is here; errors list the valid ones.  The text form is
 * what a table's security label and a segment's routing hold:
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
#include <limits.h>

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

#include "../engine/codec.h"
#include "shuffle.h"

/* Levels meant by a codec without a number. */
#define LZ4_DEFAULT_LEVEL	1
#define ZSTD_DEFAULT_LEVEL	3	/* the library's own */

typedef struct Choice
{
	const char *name;
	int			value;
	bool		internal;		/* not for users, not in hints */
} Choice;

static const Choice method_choices[] = {
	{"hash", SHUFFLE_HASH},
	{"range", SHUFFLE_RANGE},
	{"round_robin", SHUFFLE_ROUND_ROBIN},
	{"single", SHUFFLE_SINGLE},
	{NULL}
};

static const Choice hash_choices[] = {
	{"postgres", 0},
	{NULL}
};

static const Choice layout_choices[] = {
	{"log", SHF_LAYOUT_LOG},
	{"partition_files", SHF_LAYOUT_PARTITION_FILES},
	{NULL}
};

static const Choice types_choices[] = {
	{"arrow", SHUFFLE_TYPES_ARROW},
	{"arrow_ext", SHUFFLE_TYPES_ARROW_EXT},
	{"native", SHUFFLE_TYPES_NATIVE},
	{NULL}
};

static const Choice unrepresentable_choices[] = {
	{"error", false},
	{"null", true},
	{NULL}
};

#define CODEC_FORMS "Valid forms are \"none\", \"lz4\", \"lz4:LEVEL\", \"zstd\" and \"zstd:LEVEL\"."

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

static const Choice option_names[] = {
	{"partitions", OPTION_PARTITIONS},
	{"method", OPTION_METHOD},
	{"keys", OPTION_KEYS},
	{"hash", OPTION_HASH},
	{"bounds", OPTION_BOUNDS},
	{"layout", OPTION_LAYOUT},
	{"codec", OPTION_CODEC},
	{"types", OPTION_TYPES},
	{"unrepresentable", OPTION_UNREPRESENTABLE},
	{"attnums", OPTION_ATTNUMS, true},
	{NULL}
};

/*
 * Single values
 */

static const Choice *
find_choice(const Choice *choices, const char *name)
{
	for (const Choice *c = choices; c->name; c++)
	{
		if (pg_strcasecmp(c->name, name) == 0)
			return c;
	}
	return NULL;
}

/* "a", "b", "c" for a hint. */
static char *
list_choices(const Choice *choices)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (const Choice *c = choices; c->name; c++)
	{
		if (!c->internal)
			appendStringInfo(&buf, "%s\"%s\"", buf.len > 0 ? ", " : "", c->name);
	}
	return buf.data;
}

static int
parse_choice(const char *option, const Choice *choices, const char *text)
{
	const Choice *c = find_choice(choices, text);

	if (c == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", option, text),
				 errhint("Valid values: %s.", list_choices(choices))));
	return c->value;
}

static const char *
choice_name(const Choice *choices, int value)
{
	for (const Choice *c = choices; c->name; c++)
	{
		if (c->value == value)
			return c->name;
	}
	elog(ERROR, "option value %d has no name", value);
	return NULL;				/* keep compiler quiet */
}

ShuffleMethod
shuffle_parse_method(const char *text)
{
	return (ShuffleMethod) parse_choice("method", method_choices, text);
}

const char *
shuffle_method_name(ShuffleMethod method)
{
	return choice_name(method_choices, method);
}

ShfLayoutKind
shuffle_parse_layout(const char *text)
{
	return (ShfLayoutKind) parse_choice("layout", layout_choices, text);
}

const char *
shuffle_layout_name(ShfLayoutKind layout)
{
	return choice_name(layout_choices, layout);
}

ShuffleTypes
shuffle_parse_types(const char *text)
{
	return (ShuffleTypes) parse_choice("types", types_choices, text);
}

const char *
shuffle_types_name(ShuffleTypes types)
{
	return choice_name(types_choices, types);
}

bool
shuffle_parse_unrepresentable(const char *text)
{
	return parse_choice("unrepresentable", unrepresentable_choices, text);
}

void
shuffle_check_hash(const char *text)
{
	(void) parse_choice("hash", hash_choices, text);
}

/* Decimal digits with an optional sign and nothing else. */
static bool
parse_int(const char *text, int *value)
{
	char	   *end;
	long		l;

	if (!isdigit((unsigned char) text[0]) &&
		!(text[0] == '-' && isdigit((unsigned char) text[1])))
		return false;
	errno = 0;
	l = strtol(text, &end, 10);
	if (*end != '\0' || errno != 0 || l < INT_MIN || l > INT_MAX)
		return false;
	*value = (int) l;
	return true;
}

/*
 * Never raises, so that it also serves the check hook of a setting.  On failure *message
 * is a sentence that says what would be valid.
 */
bool
shuffle_try_parse_codec(const char *text, ShfCodec *codec, char **message)
{
	const char *colon = strchr(text, ':');
	size_t		len = colon ? (size_t) (colon - text) : strlen(text);
	ShfError	err;

	if (len == 4 && colon == NULL && pg_strcasecmp(text, "none") == 0)
	{
		codec->kind = SHF_CODEC_NONE;
		codec->level = 0;
		return true;
	}
	else if (len == 3 && pg_strncasecmp(text, "lz4", len) == 0)
	{
		codec->kind = SHF_CODEC_LZ4;
		codec->level = LZ4_DEFAULT_LEVEL;
	}
	else if (len == 4 && pg_strncasecmp(text, "zstd", len) == 0)
	{
		codec->kind = SHF_CODEC_ZSTD;
		codec->level = ZSTD_DEFAULT_LEVEL;
	}
	else
	{
		*message = pstrdup(CODEC_FORMS);
		return false;
	}

	if (colon && !parse_int(colon + 1, &codec->level))
	{
		*message = psprintf("\"%s\" is not a compression level. " CODEC_FORMS, colon + 1);
		return false;
	}
	if (shf_codec_check(*codec, &err) != SHF_OK)
	{
		*message = psprintf("The %s.", err.message);
		return false;
	}
	return true;
}

ShfCodec
shuffle_parse_codec(const char *text)
{
	ShfCodec	codec;
	char	   *message;

	if (!shuffle_try_parse_codec(text, &codec, &message))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", "codec", text),
				 errhint("%s", message)));
	return codec;
}

char *
shuffle_codec_name(ShfCodec codec)
{
	switch (codec.kind)
	{
		case SHF_CODEC_NONE:
			return pstrdup("none");
		case SHF_CODEC_LZ4:
			return codec.level == LZ4_DEFAULT_LEVEL ? pstrdup("lz4") :
				psprintf("lz4:%d", codec.level);
		case SHF_CODEC_ZSTD:
			return codec.level == ZSTD_DEFAULT_LEVEL ? pstrdup("zstd") :
				psprintf("zstd:%d", codec.level);
	}
	elog(ERROR, "unknown codec %d", (int) codec.kind);
	return NULL;				/* keep compiler quiet */
}

/*
 * All options together
 */

void
shuffle_options_default(ShuffleOptions *options)
{
	memset(options, 0, sizeof(ShuffleOptions));
	options->partitions = 1;
	options->method = SHUFFLE_SINGLE;
	options->hash = pstrdup(hash_choices[0].name);
	options->layout = SHF_LAYOUT_LOG;
	options->codec = shuffle_parse_codec(shuffle_setting_codec);
	options->types = SHUFFLE_TYPES_ARROW;
}

static bool
method_has_keys(ShuffleMethod method)
{
	return method == SHUFFLE_HASH || method == SHUFFLE_RANGE;
}

/* stored: an estimate may have found fewer bounds than the partitions have room for. */
static void
check_options(const ShuffleOptions *options, bool stored)
{
	const char *method = shuffle_method_name(options->method);

	if (options->partitions < 1 || options->partitions > SHF_MAX_PARTITIONS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of partitions must be between 1 and %d, not %d",
						SHF_MAX_PARTITIONS, options->partitions)));
	if (options->layout == SHF_LAYOUT_PARTITION_FILES &&
		options->partitions > SHF_MAX_PARTITION_FILES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("layout \"%s\" allows at most %d partitions, not %d",
						shuffle_layout_name(options->layout), SHF_MAX_PARTITION_FILES,
						options->partitions),
				 errhint("Use layout \"%s\", which keeps all partitions in one file.",
						 shuffle_layout_name(SHF_LAYOUT_LOG))));
	if (options->method == SHUFFLE_SINGLE && options->partitions != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("method \"%s\" has one partition, not %d", method, options->partitions)));

	if (method_has_keys(options->method) && options->nkeys == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("method \"%s\" needs key columns", method),
				 errhint("Name them with the option \"keys\", or use method \"%s\".",
						 shuffle_method_name(SHUFFLE_ROUND_ROBIN))));
	if (!method_has_keys(options->method) && options->nkeys > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("method \"%s\" takes no key columns", method),
				 errhint("Leave out the option \"keys\", or use method \"%s\" or \"%s\".",
						 shuffle_method_name(SHUFFLE_HASH),
						 shuffle_method_name(SHUFFLE_RANGE))));
	if (options->nkeys < 0 || options->nkeys > SHUFFLE_MAX_KEYS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of key columns must not be above %d", SHUFFLE_MAX_KEYS)));

	if (options->nbounds > 0 && options->method != SHUFFLE_RANGE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("method \"%s\" takes no bounds", method),
				 errhint("Leave out the option \"bounds\", or use method \"%s\".",
						 shuffle_method_name(SHUFFLE_RANGE))));
	if (stored ? options->nbounds > options->partitions - 1 :
		(options->nbounds > 0 && options->nbounds != options->partitions - 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of bounds for %d range partitions must be %d, not %d",
						options->partitions, options->partitions - 1, options->nbounds),
				 errhint("A bound is the lowest value of the next partition. Without bounds "
						 "they are estimated from the data.")));
}

void
shuffle_options_check(const ShuffleOptions *options)
{
	check_options(options, false);
}

bool
shuffle_options_same_routing(const ShuffleOptions *a, const ShuffleOptions *b)
{
	if (a->partitions != b->partitions || a->method != b->method ||
		strcmp(a->hash, b->hash) != 0 || a->nkeys != b->nkeys || a->nbounds != b->nbounds)
		return false;
	if (a->keys && b->keys && memcmp(a->keys, b->keys, a->nkeys * sizeof(AttrNumber)) != 0)
		return false;
	for (int i = 0; i < a->nbounds; i++)
	{
		if (strcmp(a->bounds[i], b->bounds[i]) != 0)
			return false;
	}
	return true;
}

/*
 * Text form
 */

static void
append_option(StringInfo buf, OptionName name, const char *value)
{
	bool		quote = value[0] == '\0' || strpbrk(value, " '\t\r\n\f\v") != NULL;

	appendStringInfo(buf, "%s%s=", buf->len > 0 ? " " : "", choice_name(option_names, name));
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
	Datum	   *elems = palloc(sizeof(Datum) * Max(n, 1));
	ArrayType  *array;

	for (int i = 0; i < n; i++)
		elems[i] = CStringGetTextDatum(bounds[i]);
	array = construct_array(elems, n, TEXTOID, -1, false, TYPALIGN_INT);
	return OidOutputFunctionCall(F_ARRAY_OUT, PointerGetDatum(array));
}

static void
bounds_from_text(const char *literal, ShuffleOptions *options)
{
	ArrayType  *array;
	Datum	   *elems;
	bool	   *nulls;

	array = DatumGetArrayTypeP(OidInputFunctionCall(F_ARRAY_IN, unconstify(char *, literal),
													TEXTOID, -1));
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("bounds must be a one-dimensional array")));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elems, &nulls,
					  &options->nbounds);
	options->bounds = palloc(sizeof(char *) * Max(options->nbounds, 1));
	for (int i = 0; i < options->nbounds; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("bound %d is null", i + 1)));
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

	array = DatumGetArrayTypeP(OidInputFunctionCall(F_ARRAY_IN, unconstify(char *, text),
													INT2OID, -1));
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
				  choice_name(unrepresentable_choices, options->null_unrepresentable));
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
	const char *p = *pos;
	const char *start;
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
	int			value;

	if (!parse_int(text, &value))
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
	const char *pos = text;
	char	   *name;
	char	   *value;
	int			nattnums = 0;
	bool		seen[lengthof(option_names)] = {false};

	shuffle_options_default(options);
	while (next_option(&pos, text, &name, &value))
	{
		const Choice *option = find_choice(option_names, name);

		if (option == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("unrecognized shuffle option \"%s\"", name),
					 errhint("Valid options: %s.", list_choices(option_names))));
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
						choice_name(option_names, OPTION_PARTITIONS),
						choice_name(option_names, OPTION_METHOD))));
	if (options->keys && nattnums != options->nkeys)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("shuffle options name %d key columns, not %d",
						nattnums, options->nkeys)));
	check_options(options, true);
	return options;
}
