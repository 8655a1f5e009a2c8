/*
 * options.c
 *	  Options of a shuffle table: values, defaults, limits.
 *
 * All parsing of option values is here; errors list the valid ones.
 */
#include "postgres.h"

#include <ctype.h>
#include <limits.h>

#include "lib/stringinfo.h"

#include "../engine/codec.h"
#include "options.h"

/* Levels meant by a codec without a number. */
#define LZ4_DEFAULT_LEVEL  1
#define ZSTD_DEFAULT_LEVEL 3 /* the library's own */

static const ShuffleChoice method_choices[] = {{"hash", SHUFFLE_HASH},
											   {"range", SHUFFLE_RANGE},
											   {"round_robin", SHUFFLE_ROUND_ROBIN},
											   {"single", SHUFFLE_SINGLE},
											   {NULL}};

static const ShuffleChoice hash_choices[] = {{"postgres", 0}, {NULL}};

static const ShuffleChoice layout_choices[] = {
	{"log", SHF_LAYOUT_LOG}, {"partition_files", SHF_LAYOUT_PARTITION_FILES}, {NULL}};

static const ShuffleChoice types_choices[] = {{"arrow", SHUFFLE_TYPES_ARROW},
											  {"arrow_ext", SHUFFLE_TYPES_ARROW_EXT},
											  {"native", SHUFFLE_TYPES_NATIVE},
											  {NULL}};

static const ShuffleChoice unrepresentable_choices[] = {{"error", false}, {"null", true}, {NULL}};

#define CODEC_FORMS "Valid forms are \"none\", \"lz4\", \"lz4:LEVEL\", \"zstd\" and \"zstd:LEVEL\"."

/*
 * Single values
 */

const ShuffleChoice *
shuffle_choice_find(const ShuffleChoice *choices, const char *name)
{
	for (const ShuffleChoice *c = choices; c->name; c++)
	{
		if (pg_strcasecmp(c->name, name) == 0)
			return c;
	}
	return NULL;
}

char *
shuffle_choice_list(const ShuffleChoice *choices)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (const ShuffleChoice *c = choices; c->name; c++)
	{
		if (!c->internal)
			appendStringInfo(&buf, "%s\"%s\"", buf.len > 0 ? ", " : "", c->name);
	}
	return buf.data;
}

static int
parse_choice(const char *option, const ShuffleChoice *choices, const char *text)
{
	const ShuffleChoice *c = shuffle_choice_find(choices, text);

	if (c == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", option, text),
				 errhint("Valid values: %s.", shuffle_choice_list(choices))));
	return c->value;
}

const char *
shuffle_choice_name(const ShuffleChoice *choices, int value)
{
	for (const ShuffleChoice *c = choices; c->name; c++)
	{
		if (c->value == value)
			return c->name;
	}
	elog(ERROR, "option value %d has no name", value);
	return NULL; /* keep compiler quiet */
}

ShuffleMethod
shuffle_parse_method(const char *text)
{
	return (ShuffleMethod) parse_choice("method", method_choices, text);
}

const char *
shuffle_method_name(ShuffleMethod method)
{
	return shuffle_choice_name(method_choices, method);
}

ShfLayoutKind
shuffle_parse_layout(const char *text)
{
	return (ShfLayoutKind) parse_choice("layout", layout_choices, text);
}

const char *
shuffle_layout_name(ShfLayoutKind layout)
{
	return shuffle_choice_name(layout_choices, layout);
}

ShuffleTypes
shuffle_parse_types(const char *text)
{
	return (ShuffleTypes) parse_choice("types", types_choices, text);
}

const char *
shuffle_types_name(ShuffleTypes types)
{
	return shuffle_choice_name(types_choices, types);
}

bool
shuffle_parse_unrepresentable(const char *text)
{
	return parse_choice("unrepresentable", unrepresentable_choices, text);
}

const char *
shuffle_unrepresentable_name(bool null)
{
	return shuffle_choice_name(unrepresentable_choices, null);
}

void
shuffle_check_hash(const char *text)
{
	(void) parse_choice("hash", hash_choices, text);
}

bool
shuffle_parse_int(const char *text, int *value)
{
	char *end;
	long  l;

	if (!isdigit((unsigned char) text[0]) && !(text[0] == '-' && isdigit((unsigned char) text[1])))
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

	if (colon && !shuffle_parse_int(colon + 1, &codec->level))
	{
		*message = psprintf("\"%s\" is not a compression level.  " CODEC_FORMS, colon + 1);
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
	ShfCodec codec;
	char	*message;

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
	return NULL; /* keep compiler quiet */
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

bool
shuffle_method_has_keys(ShuffleMethod method)
{
	return method == SHUFFLE_HASH || method == SHUFFLE_RANGE;
}

bool
shuffle_options_have_keys(const ShuffleOptions *options)
{
	for (int i = 0; i < options->nkeys; i++)
	{
		if (options->keys[i] == 0)
			return false;
	}
	return shuffle_method_has_keys(options->method);
}

void
shuffle_options_check(const ShuffleOptions *options, bool stored)
{
	const char *method = shuffle_method_name(options->method);

	if (options->partitions < 1 || options->partitions > SHF_MAX_PARTITIONS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of partitions must be between 1 and %d, not %d", SHF_MAX_PARTITIONS,
						options->partitions)));
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
				 errmsg("method \"%s\" has one partition, not %d", method, options->partitions),
				 errhint("Name key columns, or use method \"%s\".",
						 shuffle_method_name(SHUFFLE_ROUND_ROBIN))));

	if (shuffle_method_has_keys(options->method) && options->nkeys == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("method \"%s\" needs key columns", method),
				 errhint("Name them with the option \"keys\", or use method \"%s\".",
						 shuffle_method_name(SHUFFLE_ROUND_ROBIN))));
	if (!shuffle_method_has_keys(options->method) && options->nkeys > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("method \"%s\" takes no key columns", method),
				 errhint("Leave out the option \"keys\", or use method \"%s\" or \"%s\".",
						 shuffle_method_name(SHUFFLE_HASH), shuffle_method_name(SHUFFLE_RANGE))));
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
				 errhint("A bound is the lowest value of the next partition.  Without bounds "
						 "they are estimated from the data.")));
}

bool
shuffle_options_same_routing(const ShuffleOptions *a, const ShuffleOptions *b)
{
	if (a->partitions != b->partitions || a->method != b->method || strcmp(a->hash, b->hash) != 0 ||
		a->nkeys != b->nkeys || a->nbounds != b->nbounds)
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
