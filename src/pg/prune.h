/*
 * prune.h
 *	  The partitions that a query's conditions leave; for prune.c and prune_scan.c.
 */
#ifndef SHUFFLE_PRUNE_H
#define SHUFFLE_PRUNE_H

#include "nodes/execnodes.h"

#include "shuffle.h"

/* A key column, as conditions name it. */
typedef struct PruneKey
{
	AttrNumber attnum;
	Oid		   type; /* base type of a domain */
	Oid		   collation;
} PruneKey;

typedef struct PruneKeys
{
	ShuffleMethod method;
	int			  n;
	PruneKey	 *keys;
} PruneKeys;

typedef enum ConditionKind
{
	CONDITION_NULL,	 /* key IS NULL */
	CONDITION_VALUE, /* key op value */
	CONDITION_ARRAY	 /* key = ANY (array) */
} ConditionKind;

typedef struct Condition
{
	ConditionKind kind;
	int			  key;		/* number of it, from 0 */
	int			  strategy; /* of btree; BTEqualStrategyNumber with hash keys, too */
	Expr		 *value;	/* or array; NULL with IS NULL */
	Oid			  type;		/* of it, or of the array's elements */
} Condition;

/*
 * Conditions that leave only some of the partitions, and the clauses that they were made
 * of; NIL if there are none.
 */
typedef struct Conditions
{
	List *clauses;
	List *conditions;
	bool  equal; /* one for each key, in order; else an interval of the only key */
} Conditions;

/* The keys by which rows of desc are routed; none if there is a key without its column. */
extern PruneKeys
shuffle_prune_keys(ShuffleMethod method, const AttrNumber *attnums, int nkeys, TupleDesc desc);

/* Finds conditions on the keys of relation relid, which may be none, in clauses to be ANDed. */
extern Conditions shuffle_prune_conditions(const PruneKeys *keys, List *clauses, Index relid);

/*
 * The partitions, of so many, that the conditions leave; *all when there is nothing to choose.
 * values are the ExprStates of the conditions' values.  What it takes in the current memory
 * context can be thrown away afterwards.
 */
extern Bitmapset *
shuffle_prune_partitions(const PruneKeys *keys, const Conditions *found, List *values,
						 ExprContext *econtext, ShuffleRouter *router, int natts, int npartitions,
						 bool *all);

#endif /* SHUFFLE_PRUNE_H */
