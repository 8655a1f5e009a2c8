/*
 * skew.c
 *	  shuffle_skew(): partition sizes as a histogram, in text; also collects what
 *	  shuffle_skew_svg() draws.
 *
 * Sizes come from the offset index.  Which keys make the largest partitions large is
 * found by reading a sample of their blocks, spread evenly over the partition.  So the
 * caller needs what shuffle_read() needs: SELECT on all columns and no row security.
 */
#include "postgres.h"

#include <math.h>

#include "access/relation.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

#include "catalog.h"
#include "read_state.h"
#include "skew.h"

PG_FUNCTION_INFO_V1(shuffle_skew);
PG_FUNCTION_INFO_V1(shuffle_skew_svg);

#define MAX_BINS	  12
#define LOG_RATIO	  8	 /* bins of equal ratio beyond this largest / median */
#define SAMPLE_BLOCKS 64 /* read of each of the largest partitions */
#define SAMPLE_ROWS	  100000
#define MAX_KEY_CHARS 60
#define MIN_SHARE	  0.001 /* of the partition's rows; rarer keys do not stand out */

/* ---------------------------------------------------------------- sizes */

static int
compare_int64(const void *a, const void *b)
{
	int64 x = *(const int64 *) a;
	int64 y = *(const int64 *) b;

	return (x > y) - (x < y);
}

/* The least 1, 2 or 5 times a power of ten that is not below x. */
static int64
nice_step(double x)
{
	double power = pow(10, floor(log10(Max(x, 1))));

	for (int i = 0; i < 3; i++)
	{
		static const int factor[] = {1, 2, 5};

		if (factor[i] * power >= x)
			return Max((int64) (factor[i] * power), 1);
	}
	return (int64) (10 * power);
}

/* Ascending bins from the smallest to the largest size, of equal width or equal ratio. */
static void
make_bins(ShuffleSkew *skew, const int64 *sorted)
{
	int64 smallest = skew->empty < skew->npartitions ? sorted[skew->empty] : 0;
	bool  logarithmic = smallest > 0 && skew->largest / (double) smallest > LOG_RATIO;
	int64 step = nice_step((double) (skew->largest - smallest + 1) / MAX_BINS);
	int	  shift = 1;
	int64 low;
	int	  at = skew->empty;

	if (smallest == 0)
		return;
	if (logarithmic)
	{
		int octaves = (int) (log2((double) skew->largest) - log2((double) smallest)) + 2;

		shift = (octaves + MAX_BINS - 1) / MAX_BINS;
		low = INT64CONST(1) << (int) log2((double) smallest);
	}
	else
		low = smallest / step * step;

	skew->bins = palloc((MAX_BINS + 3) * sizeof(ShuffleSkewBin));
	while (at < skew->npartitions && skew->nbins < MAX_BINS + 3)
	{
		ShuffleSkewBin *bin = &skew->bins[skew->nbins++];
		int64			next = logarithmic ? low << shift : low + step;

		bin->low = low;
		bin->high = next - 1;
		bin->partitions = 0;
		while (at < skew->npartitions && sorted[at] <= bin->high)
		{
			bin->partitions++;
			at++;
		}
		low = next;
	}
	Assert(at == skew->npartitions);
}

/* Fills in what the sizes tell. */
static void
measure(ShuffleSkew *skew)
{
	int	   n = skew->npartitions;
	int64 *sorted = palloc_extended(n * sizeof(int64), MCXT_ALLOC_HUGE);

	memcpy(sorted, skew->sizes, n * sizeof(int64));
	qsort(sorted, n, sizeof(int64), compare_int64);
	for (int i = 0; i < n; i++)
		skew->total += sorted[i];
	while (skew->empty < n && sorted[skew->empty] == 0)
		skew->empty++;
	skew->smallest = sorted[0];
	skew->largest = sorted[n - 1];
	skew->median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0;
	if (skew->median > 0)
		skew->ratio = (double) skew->largest / skew->median;
	make_bins(skew, sorted);
	pfree(sorted);

	for (int p = 0; p < n; p++)
	{
		int at = skew->ntop;

		if (skew->sizes[p] == 0)
			continue;
		while (at > 0 && skew->top[at - 1].size < skew->sizes[p])
			at--;
		if (at >= SKEW_TOP)
			continue;
		skew->ntop = Min(skew->ntop + 1, SKEW_TOP);
		memmove(&skew->top[at + 1], &skew->top[at], (skew->ntop - 1 - at) * sizeof(ShuffleSkewTop));
		skew->top[at].partition = p;
		skew->top[at].size = skew->sizes[p];
	}
}

/* ---------------------------------------------------------------- keys */

typedef struct KeyColumn
{
	AttrNumber attnum;
	FmgrInfo   output;
} KeyColumn;

typedef struct KeyCount
{
	const char *text; /* hash key */
	int64		count;
} KeyCount;

static uint32
hash_text(const void *key, Size size)
{
	const char *text = *(const char *const *) key;

	return string_hash(text, strlen(text) + 1);
}

static int
compare_text(const void *a, const void *b, Size size)
{
	return strcmp(*(const char *const *) a, *(const char *const *) b);
}

/* The key of a row as text, cut to what fits a line. */
static void
format_key(StringInfo text, const KeyColumn *columns, int ncolumns, const ShuffleWindow *window,
		   uint32 row)
{
	resetStringInfo(text);
	for (int k = 0; k < ncolumns; k++)
	{
		Size at = (Size) row * window->natts + columns[k].attnum - 1;
		int	 start;

		if (k > 0)
			appendStringInfoString(text, ", ");
		start = text->len;
		if (window->isnull[at])
			appendStringInfoString(text, "NULL");
		else
			appendStringInfoString(text,
								   OutputFunctionCall(&unconstify(KeyColumn *, columns)[k].output,
													  window->values[at]));
		if (pg_mbstrlen_with_len(text->data + start, text->len - start) > MAX_KEY_CHARS)
		{
			text->len =
				start + pg_mbcharcliplen(text->data + start, text->len - start, MAX_KEY_CHARS - 3);
			text->data[text->len] = '\0';
			appendStringInfoString(text, "...");
		}
	}
}

/* Keeps the most frequent keys. */
static void
rank_keys(ShuffleSkewTop *top, HTAB *counts, int64 sampled)
{
	HASH_SEQ_STATUS scan;
	KeyCount	   *entry;

	hash_seq_init(&scan, counts);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		double share = (double) entry->count / (double) sampled;
		int	   at = top->nkeys;

		if (entry->count < 2 || share < MIN_SHARE)
			continue;

		/* Ties by text, so that the result does not depend on the hash. */
		while (
			at > 0 &&
			(top->keys[at - 1].share < share ||
			 (top->keys[at - 1].share == share && strcmp(top->keys[at - 1].text, entry->text) > 0)))
			at--;
		if (at >= SKEW_KEYS)
			continue;
		top->nkeys = Min(top->nkeys + 1, SKEW_KEYS);
		memmove(&top->keys[at + 1], &top->keys[at], (top->nkeys - 1 - at) * sizeof(ShuffleSkewKey));
		top->keys[at].text = unconstify(char *, entry->text);
		top->keys[at].share = share;
	}
	for (int i = 0; i < top->nkeys; i++)
		top->keys[i].text = pstrdup(top->keys[i].text);
}

/* Counts keys in a sample of a partition. */
static void
sample_keys(ShuffleSkewTop *top, Relation rel, const KeyColumn *columns, int ncolumns)
{
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "shuffle skew", ALLOCSET_DEFAULT_SIZES);
	MemoryContext row_cxt = AllocSetContextCreate(cxt, "shuffle skew row", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	uint32		  partition = (uint32) top->partition;
	ShuffleReadState *reading;
	int64			  nblocks;
	int				  wanted;
	uint32			  quota;
	int				  natts = 0;
	int64			  sampled = 0;
	HASHCTL			  ctl = {0};
	Snapshot		  snapshot;
	HTAB			 *counts;

	ctl.keysize = sizeof(char *);
	ctl.entrysize = sizeof(KeyCount);
	ctl.hash = hash_text;
	ctl.match = compare_text;
	ctl.hcxt = cxt;
	counts = hash_create("shuffle skew keys", 1024, &ctl,
						 HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);

	for (int k = 0; k < ncolumns; k++)
		natts = Max(natts, columns[k].attnum);
	snapshot = shuffle_function_snapshot(rel);
	reading = shuffle_reading_begin(rel, RelationGetDescr(rel), snapshot, &partition, 1);
	UnregisterSnapshot(snapshot);
	nblocks = shuffle_reading_blocks(reading);
	wanted = (int) Min(nblocks, SAMPLE_BLOCKS);
	quota = SAMPLE_ROWS / Max(wanted, 1);

	for (int i = 0; i < wanted; i++)
	{
		/* From the middle of each of so many equal stretches. */
		ShuffleBlock *block = shuffle_reading_seek(reading, (2 * i + 1) * nblocks / (2 * wanted));
		uint32		  end = Min(block->rows, quota);
		uint32		  row = 0;

		while (row < end)
		{
			ShuffleWindow *window = shuffle_reading_window(reading, row, end - row);

			CHECK_FOR_INTERRUPTS();
			shuffle_window_decode(window, natts);
			for (; row < window->first + window->count && row < end; row++)
			{
				StringInfoData text;
				const char	  *key;
				KeyCount	  *entry;
				bool		   found;

				MemoryContextSwitchTo(row_cxt);
				initStringInfo(&text);
				format_key(&text, columns, ncolumns, window, row - window->first);
				key = text.data;
				entry = hash_search(counts, &key, HASH_ENTER, &found);
				if (!found)
				{
					entry->text = MemoryContextStrdup(cxt, key);
					entry->count = 0;
				}
				entry->count++;
				MemoryContextSwitchTo(cxt);
				MemoryContextReset(row_cxt);
			}
		}
		sampled += end;
	}
	shuffle_reading_end(reading);
	MemoryContextSwitchTo(old);
	rank_keys(top, counts, sampled);
	MemoryContextDelete(cxt);
}

/* Names of the key columns; NULL if there are none, or one is gone. */
static char *
key_names(const ShuffleOptions *options, TupleDesc desc)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int k = 0; k < options->nkeys; k++)
	{
		if (options->keys[k] == 0)
			return NULL;
		appendStringInfo(&names, "%s%s", k > 0 ? ", " : "",
						 NameStr(TupleDescAttr(desc, options->keys[k] - 1)->attname));
	}
	return options->nkeys > 0 ? names.data : NULL;
}

/* ---------------------------------------------------------------- collecting */

static ShuffleSkew *
collect(Oid relid, const char *by)
{
	ShuffleSkew			   *skew = palloc0(sizeof(ShuffleSkew));
	Relation				rel = shuffle_open_for_reading(relid);
	ShuffleOptions		   *options = shuffle_options_of(rel);
	ShufflePartitionTotals *totals;

	if (strcmp(by, "rows") != 0 && strcmp(by, "bytes") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized value for argument \"%s\": \"%s\"", "by", by),
				 errhint("Valid values: \"rows\", \"bytes\".")));
	skew->unit = strcmp(by, "rows") == 0 ? "rows" : "bytes";
	skew->relation = pstrdup(RelationGetRelationName(rel));
	skew->key = key_names(options, RelationGetDescr(rel));
	skew->routing = skew->key != NULL ?
		psprintf("%s (%s)", shuffle_method_name(options->method), skew->key) :
		pstrdup(shuffle_method_name(options->method));

	totals = shuffle_partition_sizes(relid, &skew->npartitions);
	if (totals == NULL || skew->npartitions == 0)
		elog(ERROR, "table \"%s\" has no partitions", skew->relation);
	skew->sizes = palloc_extended(skew->npartitions * sizeof(int64), MCXT_ALLOC_HUGE);
	for (int p = 0; p < skew->npartitions; p++)
		skew->sizes[p] = skew->unit[0] == 'r' ? totals[p].rows : totals[p].bytes;
	pfree(totals);
	measure(skew);

	if (skew->key != NULL)
	{
		KeyColumn *columns = palloc(options->nkeys * sizeof(KeyColumn));

		for (int k = 0; k < options->nkeys; k++)
		{
			Oid	 function;
			bool varlena;

			columns[k].attnum = options->keys[k];
			getTypeOutputInfo(TupleDescAttr(RelationGetDescr(rel), options->keys[k] - 1)->atttypid,
							  &function, &varlena);
			fmgr_info(function, &columns[k].output);
		}
		for (int i = 0; i < skew->ntop; i++)
			sample_keys(&skew->top[i], rel, columns, options->nkeys);
	}
	relation_close(rel, NoLock);
	return skew;
}

char *
shuffle_skew_number(int64 n)
{
	char		  *digits = psprintf(INT64_FORMAT, n);
	int			   len = (int) strlen(digits);
	StringInfoData out;

	initStringInfo(&out);
	for (int i = 0; i < len; i++)
	{
		if (i > 0 && (len - i) % 3 == 0)
			appendStringInfoChar(&out, ',');
		appendStringInfoChar(&out, digits[i]);
	}
	return out.data;
}

/* ---------------------------------------------------------------- text */

#define BAR_WIDTH 40

/* A bar of eighths of characters where the client can show them, else of '#'. */
static void
append_bar(StringInfo line, int64 size, int64 full)
{
	static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
	bool blocks = GetDatabaseEncoding() == PG_UTF8 && pg_get_client_encoding() == PG_UTF8;
	int	 n = full > 0 ? (int) ceil((double) size * BAR_WIDTH * 8 / (double) full) : 0;

	if (!blocks)
		n = (n + 7) / 8 * 8;
	for (int i = 0; i < n / 8; i++)
		appendStringInfoString(line, blocks ? "█" : "#");
	if (blocks)
		appendStringInfoString(line, eighths[n % 8]);
}

/* Whatever names and keys are made of, a line remains one. */
static void
put_line(ReturnSetInfo *rsinfo, StringInfo line)
{
	Datum value;
	bool  isnull = false;

	for (char *p = line->data; *p != '\0'; p++)
	{
		if ((unsigned char) *p < 0x20 || *p == 0x7f)
			*p = ' ';
	}
	value = CStringGetTextDatum(line->data);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &isnull);
	resetStringInfo(line);
}

static void
put_histogram(ReturnSetInfo *rsinfo, StringInfo line, const ShuffleSkew *skew)
{
	int most = skew->empty;
	int width = 5;

	for (int i = 0; i < skew->nbins; i++)
	{
		most = Max(most, skew->bins[i].partitions);
		width = Max(width, (int) strlen(shuffle_skew_number(skew->bins[i].high)));
	}
	appendStringInfo(line, "%*s   partitions", 2 * width + 3, skew->unit);
	put_line(rsinfo, line);
	if (skew->empty > 0)
	{
		appendStringInfo(line, "%*s   %10d ", 2 * width + 3, "0", skew->empty);
		append_bar(line, skew->empty, most);
		put_line(rsinfo, line);
	}
	for (int i = 0; i < skew->nbins; i++)
	{
		const ShuffleSkewBin *bin = &skew->bins[i];

		appendStringInfo(line, "%*s - %*s   %10d ", width, shuffle_skew_number(bin->low), width,
						 shuffle_skew_number(bin->high), bin->partitions);
		append_bar(line, bin->partitions, most);
		put_line(rsinfo, line);
	}
}

static void
put_largest(ReturnSetInfo *rsinfo, StringInfo line, const ShuffleSkew *skew)
{
	appendStringInfo(line, "partition %15s  of median", skew->unit);
	if (skew->key != NULL)
		appendStringInfo(line, "  most frequent %s", skew->key);
	put_line(rsinfo, line);
	for (int i = 0; i < skew->ntop; i++)
	{
		const ShuffleSkewTop *top = &skew->top[i];

		appendStringInfo(line, "%9d %15s  ", top->partition, shuffle_skew_number(top->size));
		if (skew->median > 0)
			appendStringInfo(line, "%8.2fx", (double) top->size / skew->median);
		else
			appendStringInfo(line, "%9s", "-");
		for (int k = 0; k < top->nkeys; k++)
			appendStringInfo(line, "%s %s (%.1f%%)", k > 0 ? "," : " ", top->keys[k].text,
							 100 * top->keys[k].share);
		if (skew->key != NULL && top->nkeys == 0)
			appendStringInfoString(line, "  none stands out");
		put_line(rsinfo, line);
	}
}

/*
 * shuffle_skew(relation regclass, by text) returns setof text
 */
Datum
shuffle_skew(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ShuffleSkew	  *skew;
	StringInfoData line;

	shuffle_require_signature(fcinfo, 2, 0);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	skew = collect(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1)));

	initStringInfo(&line);
	appendStringInfo(&line, "%s: %s partition%s by %s, %s %s", skew->relation,
					 shuffle_skew_number(skew->npartitions), skew->npartitions == 1 ? "" : "s",
					 skew->routing, shuffle_skew_number(skew->total), skew->unit);
	put_line(rsinfo, &line);
	appendStringInfo(
		&line, "smallest %s, median %s, largest %s", shuffle_skew_number(skew->smallest),
		shuffle_skew_number((int64) rint(skew->median)), shuffle_skew_number(skew->largest));
	if (skew->median > 0)
		appendStringInfo(&line, ", largest / median %.2f", skew->ratio);
	put_line(rsinfo, &line);
	if (skew->total > 0)
	{
		put_line(rsinfo, &line);
		put_histogram(rsinfo, &line, skew);
		put_line(rsinfo, &line);
		put_largest(rsinfo, &line, skew);
	}
	return (Datum) 0;
}

/*
 * shuffle_skew_svg(relation regclass, by text) returns text
 */
Datum
shuffle_skew_svg(PG_FUNCTION_ARGS)
{
	ShuffleSkew *skew = collect(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1)));

	PG_RETURN_TEXT_P(cstring_to_text(shuffle_skew_draw(skew)));
}
