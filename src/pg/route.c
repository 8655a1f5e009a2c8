/*
 * route.c
 *	  Which partition a row belongs to.
 *
 * hash: as the server's own HASH partitioning (compute_partition_hash_value() in
 * partbounds.c), so that partition p holds what satisfies_hash_partition() puts there:
 * extended hash function of the default operator class, HASH_PARTITION_SEED, hashes of
 * several keys combined in order, NULLs skipped, modulus.
 *
 * range: partition i holds the rows from bound i (included) to bound i + 1, partition 0
 * those below the first bound.  NULL sorts above every value, and a row whose first key is
 * NULL always goes to the last partition, even when there are fewer bounds than partitions
 * have room for.
 *
 * This runs once per row of every write: nothing is looked up here, and common key types
 * skip the function call.
 */
#include "postgres.h"

#include "catalog/partition.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "partitioning/partbounds.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "route.h"

/* How a key is hashed; all but the last do in place what the function does. */
typedef enum HashWay
{
	HASH_INT16,
	HASH_INT32,
	HASH_INT64,
	HASH_TEXT, /* collation compares bytes for equality */
	HASH_CALL
} HashWay;

struct ShuffleRouter
{
	ShuffleMethod method;
	uint32		  partitions;
	uint32		  next; /* round robin */
	int			  nkeys;
	ShuffleKey	 *keys;
	HashWay		 *hash_ways;
	ShuffleBounds bounds;
	int64		 *int_bounds; /* one key that compares like an integer, else NULL */
	Datum		 *row_values; /* range: the row's keys */
	bool		 *row_nulls;
	MemoryContext tmp; /* what support functions leave behind, reset for each row */
};

void
shuffle_key_require_stored(Form_pg_attribute att)
{
	if (shuffle_is_virtual(att))
		ereport(
			ERROR,
			(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
			 errmsg("virtual generated column \"%s\" cannot be a key", NameStr(att->attname)),
			 errdetail("Its values are computed when rows are read, not when they are written."),
			 errhint("Use a stored generated column.")));
}

ShuffleKey *
shuffle_keys_create(const ShuffleOptions *options, TupleDesc desc)
{
	bool		hash = options->method == SHUFFLE_HASH;
	ShuffleKey *keys = palloc0(sizeof(ShuffleKey) * Max(options->nkeys, 1));

	for (int i = 0; i < options->nkeys; i++)
	{
		ShuffleKey		 *key = &keys[i];
		Form_pg_attribute att;
		TypeCacheEntry	 *type;
		Oid				  proc;

		key->attnum = options->keys[i];
		if (key->attnum < 1 || key->attnum > desc->natts) /* see shuffle_options_require_keys() */
			elog(ERROR, "key column number %d is out of range", key->attnum);
		att = TupleDescAttr(desc, key->attnum - 1);
		if (att->attisdropped)
			elog(ERROR, "key column number %d is dropped", key->attnum);
		shuffle_key_require_stored(att);
		key->name = NameStr(att->attname);
		key->type = getBaseType(att->atttypid);
		key->collation = att->attcollation;

		type =
			lookup_type_cache(key->type, hash ? TYPECACHE_HASH_EXTENDED_PROC : TYPECACHE_CMP_PROC);
		proc = hash ? type->hash_extended_proc : type->cmp_proc;
		if (!OidIsValid(proc))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_FUNCTION),
					 hash ? errmsg("could not identify an extended hash function for type %s",
								   format_type_be(att->atttypid)) :
							errmsg("could not identify a comparison function for type %s",
								   format_type_be(att->atttypid)),
					 errdetail("Column \"%s\" cannot be a key of method \"%s\".", key->name,
							   shuffle_method_name(options->method)),
					 errhint("Use another key column, cast it to a type that has a default %s "
							 "operator class, or use method \"%s\".",
							 hash ? "hash" : "btree", shuffle_method_name(SHUFFLE_ROUND_ROBIN))));
		if (type_is_collatable(key->type) && !OidIsValid(key->collation))
			ereport(ERROR,
					(errcode(ERRCODE_INDETERMINATE_COLLATION),
					 errmsg("could not determine which collation to use for key column \"%s\"",
							key->name),
					 errhint("Use the COLLATE clause to set the collation explicitly.")));

		get_typlenbyval(key->type, &key->typlen, &key->typbyval);
		fmgr_info(proc, &key->proc);
		key->call = palloc0(SizeForFunctionCallInfo(2));
		InitFunctionCallInfoData(*key->call, &key->proc, 2, key->collation, NULL, NULL);
	}
	return keys;
}

static inline Datum
call_proc(ShuffleKey *key, Datum a, Datum b)
{
	Datum result;

	key->call->args[0].value = a;
	key->call->args[1].value = b;
	key->call->isnull = false;
	result = FunctionCallInvoke(key->call);
	if (unlikely(key->call->isnull))
		elog(ERROR, "function %u returned NULL", key->proc.fn_oid);
	return result;
}

int
shuffle_keys_compare(ShuffleKey *keys, int nkeys, const Datum *a, const bool *anulls,
					 const Datum *b, const bool *bnulls)
{
	for (int k = 0; k < nkeys; k++)
	{
		int cmp;

		if (anulls[k] || bnulls[k])
		{
			if (anulls[k] == bnulls[k])
				continue;
			return anulls[k] ? 1 : -1;
		}
		cmp = DatumGetInt32(call_proc(&keys[k], a[k], b[k]));
		if (cmp != 0)
			return cmp;
	}
	return 0;
}

/* Functions that do the same in all supported majors; others are called. */
static HashWay
hash_way(const ShuffleKey *key)
{
	switch (key->proc.fn_oid)
	{
		case F_HASHINT2EXTENDED:
			return HASH_INT16;
		case F_HASHINT4EXTENDED:
		case F_HASHOIDEXTENDED:
		case F_HASHENUMEXTENDED:
#ifdef F_HASHDATEEXTENDED /* 18: dates had that of int4 before */
		case F_HASHDATEEXTENDED:
#endif
			return HASH_INT32;
		case F_HASHINT8EXTENDED:
		case F_TIMESTAMP_HASH_EXTENDED:
#ifdef F_TIMESTAMPTZ_HASH_EXTENDED /* 18: timestamptz had that of timestamp before */
		case F_TIMESTAMPTZ_HASH_EXTENDED:
#endif
			return HASH_INT64;
		case F_HASHTEXTEXTENDED:
			return get_collation_isdeterministic(key->collation) ? HASH_TEXT : HASH_CALL;
		default:
			return HASH_CALL;
	}
}

static bool
compares_like_integer(const ShuffleKey *key)
{
	switch (key->proc.fn_oid)
	{
		case F_BTINT2CMP:
		case F_BTINT4CMP:
		case F_BTINT8CMP:
		case F_DATE_CMP:
		case F_TIMESTAMP_CMP:
		case F_TIMESTAMPTZ_CMP:
			return true;
		default:
			return false;
	}
}

static inline int64
datum_to_int64(Datum value, int16 typlen)
{
	return typlen == 8 ? DatumGetInt64(value) :
		typlen == 4	   ? DatumGetInt32(value) :
						 DatumGetInt16(value);
}

ShuffleRouter *
shuffle_router_create(const ShuffleOptions *options, TupleDesc desc, uint32 start)
{
	ShuffleRouter *router = palloc0(sizeof(ShuffleRouter));

	router->method = options->method;
	router->partitions = options->partitions;
	router->next = start % router->partitions;
	if (!shuffle_method_has_keys(options->method))
		return router;

	router->nkeys = options->nkeys;
	router->keys = shuffle_keys_create(options, desc);
	router->tmp =
		AllocSetContextCreate(CurrentMemoryContext, "shuffle router", ALLOCSET_DEFAULT_SIZES);
	if (options->method == SHUFFLE_HASH)
	{
		router->hash_ways = palloc(sizeof(HashWay) * router->nkeys);
		for (int i = 0; i < router->nkeys; i++)
			router->hash_ways[i] = hash_way(&router->keys[i]);
		return router;
	}

	shuffle_bounds_parse(options, router->keys, &router->bounds);
	router->row_values = palloc(sizeof(Datum) * router->nkeys);
	router->row_nulls = palloc(sizeof(bool) * router->nkeys);
	if (router->nkeys == 1 && compares_like_integer(&router->keys[0]))
	{
		router->int_bounds = palloc(sizeof(int64) * Max(router->bounds.n, 1));
		for (int i = 0; i < router->bounds.n; i++)
			router->int_bounds[i] =
				datum_to_int64(router->bounds.values[i], router->keys[0].typlen);
	}
	return router;
}

/* A varlena on disk or compressed in line, made plain in the current context. */
static inline Datum
plain_value(const ShuffleKey *key, Datum value)
{
	if (key->typlen == -1 &&
		(VARATT_IS_EXTERNAL(DatumGetPointer(value)) ||
		 VARATT_IS_COMPRESSED(DatumGetPointer(value))))
		return PointerGetDatum(PG_DETOAST_DATUM_PACKED(value));
	return value;
}

static inline uint64
hash_text(Datum value)
{
	const struct varlena *v = (const struct varlena *) DatumGetPointer(value);

	return hash_bytes_extended((const unsigned char *) VARDATA_ANY(v), VARSIZE_ANY_EXHDR(v),
							   HASH_PARTITION_SEED);
}

/* As hashint8extended(): equal to the hash of the same value as int4. */
static inline uint64
hash_int64(int64 value)
{
	uint32 low = (uint32) value;
	uint32 high = (uint32) (value >> 32);

	return hash_bytes_uint32_extended(low ^ (value >= 0 ? high : ~high), HASH_PARTITION_SEED);
}

static uint64
hash_slowly(ShuffleRouter *router, ShuffleKey *key, HashWay way, Datum value)
{
	MemoryContext old = MemoryContextSwitchTo(router->tmp);
	uint64		  hash;

	value = plain_value(key, value);
	if (way == HASH_TEXT)
		hash = hash_text(value);
	else
		hash = DatumGetUInt64(call_proc(key, value, UInt64GetDatum(HASH_PARTITION_SEED)));
	MemoryContextSwitchTo(old);
	MemoryContextReset(router->tmp);
	return hash;
}

static inline uint32
route_hash(ShuffleRouter *router, const Datum *values, const bool *isnull)
{
	uint64 row_hash = 0;

	for (int i = 0; i < router->nkeys; i++)
	{
		ShuffleKey *key = &router->keys[i];
		Datum		value = values[key->attnum - 1];
		HashWay		way = router->hash_ways[i];
		uint64		hash;

		if (isnull[key->attnum - 1])
			continue;
		switch (way)
		{
			case HASH_INT16:
				hash = hash_bytes_uint32_extended((uint32) (int32) DatumGetInt16(value),
												  HASH_PARTITION_SEED);
				break;
			case HASH_INT32:
				hash = hash_bytes_uint32_extended(DatumGetUInt32(value), HASH_PARTITION_SEED);
				break;
			case HASH_INT64:
				hash = hash_int64(DatumGetInt64(value));
				break;
			case HASH_TEXT:
				if (likely(!VARATT_IS_EXTERNAL(DatumGetPointer(value)) &&
						   !VARATT_IS_COMPRESSED(DatumGetPointer(value))))
				{
					hash = hash_text(value);
					break;
				}
				/* FALLTHROUGH */
			default:
				hash = hash_slowly(router, key, way, value);
				break;
		}
		row_hash = hash_combine64(row_hash, hash);
	}
	return (uint32) (row_hash % router->partitions);
}

static uint32
route_range(ShuffleRouter *router, const Datum *values, const bool *isnull)
{
	int			  low = 0;
	int			  n = router->bounds.n;
	int			  nkeys = router->nkeys;
	MemoryContext old;

	if (isnull[router->keys[0].attnum - 1])
		return router->partitions - 1;

	/* Both searches find how many bounds are not above the row. */
	if (router->int_bounds)
	{
		int64 value = datum_to_int64(values[router->keys[0].attnum - 1], router->keys[0].typlen);

		while (n > 0)
		{
			int half = n / 2;

			if (router->int_bounds[low + half] <= value)
			{
				low += half + 1;
				n -= half + 1;
			}
			else
				n = half;
		}
		return (uint32) low;
	}

	old = MemoryContextSwitchTo(router->tmp);
	for (int k = 0; k < nkeys; k++)
	{
		AttrNumber attnum = router->keys[k].attnum;

		router->row_nulls[k] = isnull[attnum - 1];
		if (!isnull[attnum - 1])
			router->row_values[k] = plain_value(&router->keys[k], values[attnum - 1]);
	}
	while (n > 0)
	{
		int half = n / 2;
		int i = (low + half) * nkeys;

		if (shuffle_keys_compare(router->keys, nkeys, router->row_values, router->row_nulls,
								 &router->bounds.values[i], &router->bounds.nulls[i]) >= 0)
		{
			low += half + 1;
			n -= half + 1;
		}
		else
			n = half;
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(router->tmp);
	return (uint32) low;
}

uint32
shuffle_route(ShuffleRouter *router, const Datum *values, const bool *isnull)
{
	switch (router->method)
	{
		case SHUFFLE_HASH:
			return route_hash(router, values, isnull);
		case SHUFFLE_RANGE:
			return route_range(router, values, isnull);
		case SHUFFLE_ROUND_ROBIN:
		{
			uint32 partition = router->next;

			router->next = partition + 1 == router->partitions ? 0 : partition + 1;
			return partition;
		}
		case SHUFFLE_SINGLE:
			return 0;
	}
	pg_unreachable();
}

uint32
shuffle_route_nulled(ShuffleRouter *router, uint32 partition, const Datum *values,
					 const bool *isnull, const Bitmapset *whole, const Bitmapset *inside)
{
	bool	   changed = false;
	AttrNumber last = 0;
	bool	  *stored;

	for (int i = 0; i < router->nkeys; i++)
	{
		const ShuffleKey *key = &router->keys[i];

		if (bms_is_member(key->attnum - 1, inside))
			ereport(ERROR,
					(errcode(ERRCODE_DATA_EXCEPTION),
					 errmsg("value in key column \"%s\" has no exact Arrow form", key->name),
					 errdetail("With a part of it as NULL, it would be another key."),
					 errhint("types => 'native' stores every value.")));
		changed |= bms_is_member(key->attnum - 1, whole);
		last = Max(last, key->attnum);
	}
	if (!changed)
		return partition;

	stored = palloc(sizeof(bool) * last);
	for (int i = 0; i < last; i++)
		stored[i] = isnull[i] || bms_is_member(i, whole);
	partition = shuffle_route(router, values, stored);
	pfree(stored);
	return partition;
}
