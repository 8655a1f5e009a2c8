/*
 * textio.c
 *	  Text forms: input and output functions under fixed settings, and conversion
 *	  between the server encoding and UTF-8.
 *
 * A type without an Arrow form of its own is stored as what its output function prints
 * and read with its input function, in another session and perhaps years later.  So
 * both run under the same settings, those that pg_dump and postgres_fdw use:
 *
 *	  DateStyle ISO, IntervalStyle postgres, extra_float_digits 1, bytea_output hex,
 *	  TimeZone UTC, lc_monetary C, search_path pg_catalog
 *
 * The first five are read by the server straight from variables, so assigning the
 * variables around a row is enough and costs a few nanoseconds.  lc_monetary and
 * search_path need their assign hooks and go through a GUC nest level; only types that
 * can depend on them pay for it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/bytea.h"
#include "utils/float.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "shuffle.h"
#include "textio.h"

/* ---------------------------------------------------------------- settings */

int
shuffle_settings_needed(Oid type)
{
	int		  mask = 0;
	Oid		  inner;
	TupleDesc desc;

	check_stack_depth();

	type = getBaseType(type);
	switch (type)
	{
		case BITOID:
		case BOOLOID:
		case BPCHAROID:
		case CHAROID:
		case CIDROID:
		case CIDOID:
		case INETOID:
		case INT2OID:
		case INT2VECTOROID:
		case INT4OID:
		case INT8OID:
		case JSONBOID:
		case JSONOID:
		case LSNOID:
		case MACADDR8OID:
		case MACADDROID:
		case NAMEOID:
		case NUMERICOID:
		case OIDOID:
		case OIDVECTOROID:
		case TEXTOID:
		case TIDOID:
		case TSVECTOROID:
		case UUIDOID:
		case VARBITOID:
		case VARCHAROID:
		case XID8OID:
		case XIDOID:
			return 0;
		case MONEYOID:
			return SHUFFLE_SET_MONETARY;
		case REGCLASSOID:
		case REGCOLLATIONOID:
		case REGCONFIGOID:
		case REGDICTIONARYOID:
		case REGNAMESPACEOID:
		case REGOPERATOROID:
		case REGOPEROID:
		case REGPROCEDUREOID:
		case REGPROCOID:
		case REGROLEOID:
		case REGTYPEOID:
			return SHUFFLE_SET_PATH;
		default:
			break;
	}

	if (OidIsValid(inner = get_element_type(type)) || OidIsValid(inner = get_range_subtype(type)))
		return shuffle_settings_needed(inner);
	if (OidIsValid(inner = get_multirange_range(type)))
		return shuffle_settings_needed(inner);
	if (get_typtype(type) == TYPTYPE_ENUM)
		return 0;
	if (get_typtype(type) == TYPTYPE_COMPOSITE)
	{
		desc = lookup_rowtype_tupdesc(type, -1);
		for (int i = 0; i < desc->natts; i++)
		{
			if (!TupleDescAttr(desc, i)->attisdropped)
				mask |= shuffle_settings_needed(TupleDescAttr(desc, i)->atttypid);
		}
		ReleaseTupleDesc(desc);
		return mask;
	}

	/* Of a base type of another extension only its authors know: all but money. */
	return SHUFFLE_SET_FORMAT | (type >= FirstNormalObjectId ? SHUFFLE_SET_PATH : 0);
}

/* Can users have written this function, without being superusers? */
static bool
is_users_function(Oid function)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid		  language;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	language = ((Form_pg_proc) GETSTRUCT(tuple))->prolang;
	ReleaseSysCache(tuple);
	return language != INTERNALlanguageId && language != ClanguageId;
}

bool
shuffle_input_runs_users_code(Oid type)
{
	TypeCacheEntry *cache;
	Oid				inner;

	check_stack_depth();

	switch (get_typtype(type))
	{
		case TYPTYPE_DOMAIN:
		case TYPTYPE_COMPOSITE: /* may get an attribute of a domain later */
			return true;
		case TYPTYPE_MULTIRANGE:
			return shuffle_input_runs_users_code(get_multirange_range(type));
		case TYPTYPE_RANGE:
			cache = lookup_type_cache(type, TYPECACHE_RANGE_INFO);
			return (OidIsValid(cache->rng_canonical_finfo.fn_oid) &&
					is_users_function(cache->rng_canonical_finfo.fn_oid)) ||
				shuffle_input_runs_users_code(get_range_subtype(type));
		default:
			return OidIsValid(inner = get_element_type(type)) &&
				shuffle_input_runs_users_code(inner);
	}
}

void
shuffle_settings_begin(ShuffleSavedSettings *saved, int mask)
{
	static pg_tz *utc = NULL;

	saved->mask = mask;
	saved->nestlevel = 0;

	/* First what may raise: an error takes a nest level back, but not the assignments. */
	if (mask & (SHUFFLE_SET_MONETARY | SHUFFLE_SET_PATH))
	{
		saved->nestlevel = NewGUCNestLevel();
		if (mask & SHUFFLE_SET_MONETARY)
			(void) set_config_option("lc_monetary", "C", PGC_USERSET, PGC_S_SESSION,
									 GUC_ACTION_SAVE, true, 0, false);
		if (mask & SHUFFLE_SET_PATH)
			(void) set_config_option("search_path", "pg_catalog", PGC_USERSET, PGC_S_SESSION,
									 GUC_ACTION_SAVE, true, 0, false);
	}
	if (mask & SHUFFLE_SET_FORMAT)
	{
		if (utc == NULL)
			utc = pg_tzset("UTC");
		saved->date_style = DateStyle;
		saved->date_order = DateOrder;
		saved->interval_style = IntervalStyle;
		saved->float_digits = extra_float_digits;
		saved->bytea_form = bytea_output;
		saved->timezone = session_timezone;
		saved->client_messages = client_min_messages;
		DateStyle = USE_ISO_DATES;
		DateOrder = DATEORDER_YMD;
		IntervalStyle = INTSTYLE_POSTGRES;
		extra_float_digits = 1;
		bytea_output = BYTEA_OUTPUT_HEX;
		session_timezone = utc;
		/* an empty tsquery is worth a NOTICE to its input function */
		client_min_messages = Max(client_min_messages, WARNING);
	}
}

void
shuffle_settings_end(const ShuffleSavedSettings *saved)
{
	if (saved->mask & SHUFFLE_SET_FORMAT)
	{
		DateStyle = saved->date_style;
		DateOrder = saved->date_order;
		IntervalStyle = saved->interval_style;
		extra_float_digits = saved->float_digits;
		bytea_output = saved->bytea_form;
		session_timezone = saved->timezone;
		client_min_messages = saved->client_messages;
	}
	if (saved->nestlevel > 0)
		AtEOXact_GUC(true, saved->nestlevel);
}

/* ---------------------------------------------------------------- encodings */

void
shuffle_encoding_init(ShuffleEncoding *encoding)
{
	encoding->server = GetDatabaseEncoding();
	encoding->verbatim = encoding->server == PG_UTF8 || encoding->server == PG_SQL_ASCII;
	encoding->to_utf8 = InvalidOid;
	encoding->from_utf8 = InvalidOid;
	if (!encoding->verbatim)
	{
		encoding->to_utf8 = FindDefaultConversionProc(encoding->server, PG_UTF8);
		encoding->from_utf8 = FindDefaultConversionProc(PG_UTF8, encoding->server);
	}
}

/* Conversion works through long texts in pieces of so many bytes. */
#define CONVERT_PIECE (1024 * 1024)

/*
 * Converts text with a conversion function into palloc'd memory.  Returns how many bytes
 * of the source it could convert.
 */
static size_t
convert(Oid proc, int from, int to, const char *text, size_t len, char **result, size_t *result_len)
{
	size_t done = 0;
	size_t used = 0;
	size_t cap = 0;
	char  *buf = NULL;

	while (done < len)
	{
		int	   piece = (int) Min(len - done, CONVERT_PIECE);
		size_t worst = (size_t) piece * MAX_CONVERSION_GROWTH + 1;
		int	   taken;

		if (cap - used < worst)
		{
			cap = used + used / 2 + worst;
			if (buf == NULL)
				buf = palloc_extended(cap, MCXT_ALLOC_HUGE);
			else
				buf = repalloc_huge(buf, cap);
		}
		taken = pg_do_encoding_conversion_buf(
			proc, from, to, (unsigned char *) unconstify(char *, text) + done, piece,
			(unsigned char *) buf + used, (int) worst, true);
		if (taken <= 0)
			break;
		done += (size_t) taken;
		used += strlen(buf + used);
	}
	*result = buf;
	*result_len = used;
	return done;
}

bool
shuffle_text_to_utf8(const ShuffleEncoding *encoding, const char **text, size_t *len)
{
	char  *converted;
	size_t converted_len;

	/* Every server encoding is a superset of ASCII. */
	if (shuffle_is_ascii(*text, *len))
		return true;
	if (encoding->verbatim)
		return pg_verify_mbstr(PG_UTF8, *text, (int) *len, true);
	if (!OidIsValid(encoding->to_utf8))
		return false;
	if (convert(encoding->to_utf8, encoding->server, PG_UTF8, *text, *len, &converted,
				&converted_len) != *len)
		return false;
	*text = converted;
	*len = converted_len;
	return true;
}

void
shuffle_text_from_utf8(const ShuffleEncoding *encoding, const char **text, size_t *len)
{
	char  *converted;
	size_t converted_len;
	size_t taken;

	if (encoding->verbatim || shuffle_is_ascii(*text, *len))
		return;
	if (!OidIsValid(encoding->from_utf8))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("default conversion function for encoding \"%s\" to \"%s\" does not exist",
						pg_encoding_to_char(PG_UTF8), pg_encoding_to_char(encoding->server))));
	taken = convert(encoding->from_utf8, PG_UTF8, encoding->server, *text, *len, &converted,
					&converted_len);
	if (taken != *len)
		report_untranslatable_char(PG_UTF8, encoding->server, *text + taken, (int) (*len - taken));
	*text = converted;
	*len = converted_len;
}

char *
shuffle_name_to_utf8(const ShuffleEncoding *encoding, const char *name)
{
	const char *text = name;
	size_t		len = strlen(name);

	if (!shuffle_text_to_utf8(encoding, &text, &len))
		ereport(ERROR,
				(errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE),
				 errmsg("name \"%s\" has no UTF-8 form", name),
				 errdetail("Names of columns, types and enum labels are stored as UTF-8.")));
	return unconstify(char *, text);
}

char *
shuffle_name_from_utf8(const ShuffleEncoding *encoding, const char *name)
{
	const char *text = name;
	size_t		len = strlen(name);

	shuffle_text_from_utf8(encoding, &text, &len);
	return unconstify(char *, text);
}
