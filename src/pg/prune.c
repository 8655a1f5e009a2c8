/*
 * prune.c
 *	  Which partitions the conditions of a query leave.
 *
 * WHERE key = value needs the one partition that rows with the value go to: the values of
 * such conditions are routed as a write would route rows.  Conditions that count:
 *
 *	  every key is compared with one value, a list of values, or is NULL;
 *	  the only key of a range-partitioned table is below or above a value.
 *
 * A row can only be in the partition that it was routed to: options and types of keys stay
 * as they are while a table has rows (label.c, alter.c).  Operators count if they belong
 * to the operator class by which rows are routed, and values if they have no columns in
 * them.
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "prune.h"

/* Combinations of listed values; with more of them all partitions are read. */
#define MAX_COMBINATIONS 100000

/* ---------------------------------------------------------------- conditions */

PruneKeys
shuffle_prune_keys(ShuffleMethod method, const AttrNumber *attnums, int nkeys, TupleDesc desc)
{
	PruneKeys result = {.method = method};

	if (!shuffle_method_has_keys(method))
		return result;
	result.keys = palloc(sizeof(PruneKey) * nkeys);
	for (int i = 0; i < nkeys; i++)
	{
		Form_pg_attribute att;

		if (attnums[i] == 0)
			return result;
		att = TupleDescAttr(desc, attnums[i] - 1);
		result.keys[i].attnum = att->attnum;
		result.keys[i].type = getBaseType(att->atttypid);
		result.keys[i].collation = att->attcollation;
	}
	result.n = nkeys;
	return result;
}

/* The key that is all of an expression, perhaps as a binary compatible type, or -1. */
static int
key_number(Node *node, Index relid, const PruneKeys *keys)
{
	Var *var;

	for (;;)
	{
		if (IsA(node, RelabelType))
			node = (Node *) ((RelabelType *) node)->arg;
		else if (IsA(node, CollateExpr))
			node = (Node *) ((CollateExpr *) node)->arg;
		else
			break;
	}
	if (!IsA(node, Var))
		return -1;
	var = (Var *) node;
	if (var->varno != relid || var->varlevelsup != 0)
		return -1;
	for (int i = 0; i < keys->n; i++)
	{
		if (keys->keys[i].attnum == var->varattno)
			return i;
	}
	return -1;
}

static bool
is_integer(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID;
}

/* Are values that are equal by a collation in the same partition? */
static bool
collation_fits(const PruneKey *key, ShuffleMethod method, Oid collation)
{
	if (!OidIsValid(key->collation) || collation == key->collation)
		return true;
	return method == SHUFFLE_HASH && OidIsValid(collation) &&
		get_collation_isdeterministic(collation) && get_collation_isdeterministic(key->collation);
}

/*
 * The strategy by which an operator compares a key with values of this type, or 0 if it
 * is not that of the operator class by which the key is routed, or of another collation.
 */
static int
key_strategy(const PruneKey *key, ShuffleMethod method, Oid opno, Oid collation, Oid type)
{
	bool			hash = method == SHUFFLE_HASH;
	TypeCacheEntry *cache =
		lookup_type_cache(key->type,
						  hash ? TYPECACHE_HASH_OPFAMILY | TYPECACHE_HASH_EXTENDED_PROC :
								 TYPECACHE_BTREE_OPFAMILY | TYPECACHE_CMP_PROC);
	Oid family = hash ? cache->hash_opf : cache->btree_opf;
	Oid opintype = hash ? cache->hash_opintype : cache->btree_opintype;
	Oid left;
	Oid right;
	int strategy;

	if (!OidIsValid(hash ? cache->hash_extended_proc : cache->cmp_proc) ||
		get_op_opfamily_strategy(opno, family) == 0 || !op_strict(opno) ||
		!collation_fits(key, method, collation))
		return 0;
	get_op_opfamily_properties(opno, family, false, &strategy, &left, &right);
	if (left != opintype)
		return 0;
	if (right == opintype)
	{
		/* of an operator on any array, enum, range or row both sides are of one type */
		if ((IsPolymorphicType(opintype) || opintype == RECORDOID) &&
			getBaseType(type) != key->type)
			return 0;
	}
	else if (!is_integer(left) || !is_integer(right))
		return 0;
	return hash ? BTEqualStrategyNumber : strategy;
}

/* Can it be evaluated before there is a row? */
static bool
is_value(Node *node)
{
	return !contain_var_clause(node) && !contain_volatile_functions(node) &&
		!contain_subplans(node);
}

/* What a clause of the WHERE condition says of a key; false if it says nothing of use. */
static bool
match_clause(Expr *clause, Index relid, const PruneKeys *keys, Condition *condition)
{
	Oid opno;
	Oid collation;

	if (IsA(clause, NullTest))
	{
		NullTest *test = (NullTest *) clause;

		condition->kind = CONDITION_NULL;
		condition->strategy = BTEqualStrategyNumber;
		condition->key = key_number((Node *) test->arg, relid, keys);
		return test->nulltesttype == IS_NULL && !test->argisrow && condition->key >= 0;
	}
	if (IsA(clause, OpExpr) && list_length(((OpExpr *) clause)->args) == 2)
	{
		OpExpr *op = (OpExpr *) clause;

		condition->kind = CONDITION_VALUE;
		condition->key = key_number(linitial(op->args), relid, keys);
		condition->value = lsecond(op->args);
		opno = op->opno;
		collation = op->inputcollid;
		if (condition->key < 0)
		{
			condition->key = key_number(lsecond(op->args), relid, keys);
			condition->value = linitial(op->args);
			opno = get_commutator(opno);
		}
		condition->type = exprType((Node *) condition->value);
	}
	else if (IsA(clause, ScalarArrayOpExpr) && ((ScalarArrayOpExpr *) clause)->useOr)
	{
		ScalarArrayOpExpr *op = (ScalarArrayOpExpr *) clause;

		condition->kind = CONDITION_ARRAY;
		condition->key = key_number(linitial(op->args), relid, keys);
		condition->value = lsecond(op->args);
		condition->type = get_base_element_type(exprType((Node *) condition->value));
		opno = op->opno;
		collation = op->inputcollid;
	}
	else
		return false;

	if (condition->key < 0 || !OidIsValid(opno) || !OidIsValid(condition->type) ||
		!is_value((Node *) condition->value))
		return false;
	condition->strategy =
		key_strategy(&keys->keys[condition->key], keys->method, opno, collation, condition->type);
	return condition->strategy == BTEqualStrategyNumber ||
		(condition->strategy != 0 && condition->kind == CONDITION_VALUE);
}

Conditions
shuffle_prune_conditions(const PruneKeys *keys, List *clauses, Index relid)
{
	Conditions	found = {0};
	Condition **equal = palloc0(sizeof(Condition *) * keys->n);
	Expr	  **equal_clauses = palloc0(sizeof(Expr *) * keys->n);
	int			nequal = 0;
	ListCell   *lc;

	foreach(lc, clauses)
	{
		Condition *condition = palloc0(sizeof(Condition));

		if (!match_clause(lfirst(lc), relid, keys, condition))
			continue;
		if (condition->strategy != BTEqualStrategyNumber)
		{
			found.clauses = lappend(found.clauses, lfirst(lc));
			found.conditions = lappend(found.conditions, condition);
		}
		else if (equal[condition->key] == NULL)
		{
			equal[condition->key] = condition;
			equal_clauses[condition->key] = lfirst(lc);
			nequal++;
		}
	}

	found.equal = nequal == keys->n;
	if (found.equal || keys->n > 1)
		found.clauses = found.conditions = NIL;
	for (int i = 0; i < keys->n && found.equal; i++)
	{
		found.clauses = lappend(found.clauses, equal_clauses[i]);
		found.conditions = lappend(found.conditions, equal[i]);
	}
	return found;
}

/* ---------------------------------------------------------------- partitions */

/* The values that a condition names, of the key's type. */
typedef struct Values
{
	int	   n;
	Datum *values;
	bool  *isnull;
} Values;

/*
 * A value as the key's type.  False if it has none: only integers differ in type, and one
 * that does not fit equals no key.
 */
static bool
as_key(const PruneKey *key, Oid type, Datum *value)
{
	int64 v;

	type = getBaseType(type);
	if (type == key->type || !is_integer(type) || !is_integer(key->type))
		return true;
	v = type == INT8OID ? DatumGetInt64(*value) :
		type == INT4OID ? DatumGetInt32(*value) :
						  DatumGetInt16(*value);
	switch (key->type)
	{
		case INT2OID:
			*value = Int16GetDatum((int16) v);
			return v == (int16) v;
		case INT4OID:
			*value = Int32GetDatum((int32) v);
			return v == (int32) v;
		default:
			*value = Int64GetDatum(v);
			return true;
	}
}

/* What a key may be by a condition: NULL, or one of some values. */
static void
evaluate(const PruneKey *key, const Condition *condition, ExprState *state, ExprContext *econtext,
		 Values *result)
{
	Datum value;
	bool  isnull;
	int	  n = 0;

	if (condition->kind == CONDITION_NULL)
	{
		result->n = 1;
		result->values = palloc0(sizeof(Datum));
		result->isnull = palloc(sizeof(bool));
		result->isnull[0] = true;
		return;
	}

	value = ExecEvalExprSwitchContext(state, econtext, &isnull);
	result->n = 0;
	if (isnull) /* nothing equals it */
		return;
	if (condition->kind == CONDITION_ARRAY)
	{
		ArrayType *array = DatumGetArrayTypeP(value);
		Oid		   type = ARR_ELEMTYPE(array); /* or one that is binary compatible with it */
		int16	   typlen;
		bool	   typbyval;
		char	   typalign;

		get_typlenbyvalalign(type, &typlen, &typbyval, &typalign);
		deconstruct_array(array, type, typlen, typbyval, typalign, &result->values, &result->isnull,
						  &result->n);
	}
	else
	{
		result->n = 1;
		result->values = palloc(sizeof(Datum));
		result->isnull = palloc(sizeof(bool));
		result->values[0] = value;
		result->isnull[0] = false;
	}

	for (int i = 0; i < result->n; i++)
	{
		Datum v = result->values[i];

		if (result->isnull[i] || !as_key(key, condition->type, &v))
			continue;
		result->values[n] = v;
		result->isnull[n++] = false;
	}
	result->n = n;
}

/* Partitions of all combinations of the keys' values; *all if these are too many. */
static Bitmapset *
equal_partitions(const PruneKeys *keys, const Conditions *found, List *exprs, ExprContext *econtext,
				 ShuffleRouter *router, int natts, bool *all)
{
	Datum	  *row = palloc0(sizeof(Datum) * natts);
	bool	  *isnull = palloc0(sizeof(bool) * natts);
	Values	  *values = palloc(sizeof(Values) * keys->n);
	Bitmapset *result = NULL;
	double	   combinations = 1;

	for (int i = 0; i < keys->n; i++)
	{
		evaluate(&keys->keys[i], list_nth(found->conditions, i), list_nth(exprs, i), econtext,
				 &values[i]);
		combinations *= values[i].n;
	}
	*all = combinations > MAX_COMBINATIONS;
	if (*all)
		return NULL;
	for (int c = 0; c < (int) combinations; c++)
	{
		int rest = c;

		for (int i = 0; i < keys->n; i++)
		{
			int attnum = keys->keys[i].attnum;

			row[attnum - 1] = values[i].values[rest % values[i].n];
			isnull[attnum - 1] = values[i].isnull[rest % values[i].n];
			rest /= values[i].n;
		}
		result = bms_add_member(result, (int) shuffle_route(router, row, isnull));
	}
	return result;
}

/* Partitions between the values that the only key is compared with. */
static Bitmapset *
interval_partitions(const PruneKey *key, const Conditions *found, List *exprs,
					ExprContext *econtext, ShuffleRouter *router, int natts, int npartitions)
{
	Datum	 *row = palloc0(sizeof(Datum) * natts);
	bool	 *isnull = palloc0(sizeof(bool) * natts);
	int		  low = 0;
	int		  high = npartitions - 1;
	ListCell *c;
	ListCell *s;

	forboth(c, found->conditions, s, exprs)
	{
		const Condition *condition = lfirst(c);
		int				 partition;
		bool			 null;
		Datum			 value = ExecEvalExprSwitchContext(lfirst(s), econtext, &null);

		if (null)
			return NULL;
		if (!as_key(key, condition->type, &value)) /* beyond all values, or before them */
			continue;
		row[key->attnum - 1] = value;
		partition = (int) shuffle_route(router, row, isnull);
		if (condition->strategy <= BTLessEqualStrategyNumber)
			high = Min(high, partition);
		else
			low = Max(low, partition);
	}
	return low <= high ? bms_add_range(NULL, low, high) : NULL;
}

Bitmapset *
shuffle_prune_partitions(const PruneKeys *keys, const Conditions *found, List *values,
						 ExprContext *econtext, ShuffleRouter *router, int natts, int npartitions,
						 bool *all)
{
	*all = found->conditions == NIL;
	if (*all)
		return NULL;
	if (found->equal)
		return equal_partitions(keys, found, values, econtext, router, natts, all);
	return interval_partitions(&keys->keys[0], found, values, econtext, router, natts, npartitions);
}
