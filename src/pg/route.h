/*
 * route.h
 *	  What routing rows and estimating range bounds have in common: key columns and
 *	  parsed bounds.
 */
#ifndef SHUFFLE_ROUTE_H
#define SHUFFLE_ROUTE_H

#include "fmgr.h"

#include "shuffle.h"

/* A key column with its support function: extended hash, or btree comparison for range. */
typedef struct ShuffleKey
{
	AttrNumber		 attnum;
	const char		*name; /* belongs to the descriptor */
	Oid				 type; /* base type of a domain */
	Oid				 collation;
	int16			 typlen;
	bool			 typbyval;
	FmgrInfo		 proc;
	FunctionCallInfo call; /* two arguments, neither NULL, collation set */
} ShuffleKey;

/* Cut points: values[i * nkeys + k] is key k of bound i; NULL sorts last. */
typedef struct ShuffleBounds
{
	int	   n;
	int	   nkeys;
	Datum *values;
	bool  *nulls;
} ShuffleBounds;

/* ------------------------------------------------------------ route.c */

/* Looks the keys up in the current context; error if a type lacks the support function. */
extern ShuffleKey *shuffle_keys_create(const ShuffleOptions *options, TupleDesc desc);

/* Compares two rows of range keys as ORDER BY k1, k2 ... does, NULLs last. */
extern int shuffle_keys_compare(ShuffleKey *keys, int nkeys, const Datum *a, const bool *anulls,
								const Datum *b, const bool *bnulls);

/* ------------------------------------------------------------ bounds.c */

/* Parses and checks stored bounds in the current context. */
extern void
shuffle_bounds_parse(const ShuffleOptions *options, ShuffleKey *keys, ShuffleBounds *bounds);

/* Sets options->nbounds and bounds to the stored text of these, in the current context. */
extern void
shuffle_bounds_format(ShuffleOptions *options, const ShuffleKey *keys, const ShuffleBounds *bounds);

#endif /* SHUFFLE_ROUTE_H */
