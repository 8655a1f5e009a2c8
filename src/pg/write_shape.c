/*
 * write_shape.c
 *	  How rows of a table are stored, kept from one statement to the next.
 *
 * Options are read from labels and every type is looked up: for INSERTs of single rows that
 * would take longer than to store the row.  What was found for the last few tables is kept
 * until the server says that their relcache entries are out of date, which changes of labels
 * cause as well (label.c).  The type map is kept only if it follows from the columns alone:
 * types that users can alter, those with functions that may keep something, and domains are
 * looked up by every writer.
 *
 * A kept shape is shared by all writers of the table, also by nested ones: between packing a
 * row and appending it, as long as a type map has something of the row, nobody's code runs.
 * It is freed when it is out of date and its last user is gone.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/rel.h"

#include "write_state.h"

/* Tables whose shapes are kept. */
#define MAX_KEPT 16

typedef struct KeptShape
{
	ShuffleShape  shape;
	Oid			  relid;
	char		 *codec; /* the setting, which is an option's default */
	bool		  kept;	 /* in the array; else freed by the last user */
	int			  users;
	MemoryContext cxt;
} KeptShape;

typedef struct ShapeUse
{
	MemoryContextCallback callback;
	KeptShape			 *shape;
} ShapeUse;

static KeptShape *kept[MAX_KEPT];
static int		  next_victim = 0;
static uint64	  invalidations = 0; /* of any table */

static void
forget(int i)
{
	KeptShape *shape = kept[i];

	kept[i] = NULL;
	shape->kept = false;
	if (shape->users == 0)
		MemoryContextDelete(shape->cxt);
}

void
shuffle_shapes_relation_changed(Oid relid)
{
	invalidations++;
	for (int i = 0; i < MAX_KEPT; i++)
	{
		if (kept[i] != NULL && (relid == InvalidOid || relid == kept[i]->relid))
			forget(i);
	}
}

static void
release(void *arg)
{
	KeptShape *shape = ((ShapeUse *) arg)->shape;

	if (--shape->users > 0)
		return;
	if (!shape->kept)
		MemoryContextDelete(shape->cxt);
	else if (shape->shape.map != NULL)
		shuffle_typemap_forget_row(shape->shape.map);
}

static KeptShape *
make_shape(Relation rel)
{
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "shuffle table shape", ALLOCSET_SMALL_SIZES);
	MemoryContext	old = MemoryContextSwitchTo(cxt);
	KeptShape	   *shape = palloc0(sizeof(KeptShape));
	ShuffleOptions *options;

	shape->cxt = cxt;
	shape->relid = RelationGetRelid(rel);
	shape->codec = pstrdup(shuffle_setting_codec);
	shape->shape.desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
	shape->shape.options = options = shuffle_options_of(rel);
	shuffle_options_require_keys(options, rel);
	shape->shape.routing = shuffle_options_format(options, true);
	if (shuffle_typemap_lasts(shape->shape.desc, options->types))
		shape->shape.map = shuffle_typemap_create(shape->shape.desc, options->types,
												  options->null_unrepresentable);
	MemoryContextSwitchTo(old);
	return shape;
}

/* The transient relation of a rewrite has the options of another. */
static bool
may_keep(Relation rel)
{
	return !OidIsValid(rel->rd_rel->relrewrite);
}

static KeptShape *
find_shape(Relation rel)
{
	for (int i = 0; i < MAX_KEPT; i++)
	{
		if (kept[i] == NULL || kept[i]->relid != RelationGetRelid(rel))
			continue;
		Assert(equalTupleDescs(kept[i]->shape.desc, RelationGetDescr(rel)));
		if (strcmp(kept[i]->codec, shuffle_setting_codec) == 0)
			return kept[i];
		forget(i);
	}
	return NULL;
}

static void
keep_shape(KeptShape *shape)
{
	int i = 0;

	while (i < MAX_KEPT && kept[i] != NULL)
		i++;
	if (i == MAX_KEPT)
	{
		i = next_victim;
		next_victim = (next_victim + 1) % MAX_KEPT;
		forget(i);
	}
	MemoryContextSetParent(shape->cxt, CacheMemoryContext);
	shape->kept = true;
	kept[i] = shape;
}

const ShuffleShape *
shuffle_shape_of(Relation rel)
{
	KeptShape *shape = may_keep(rel) ? find_shape(rel) : NULL;
	ShapeUse  *use;

	if (shape == NULL)
	{
		uint64 before = invalidations;

		shape = make_shape(rel);

		/* Otherwise it goes with the current context, and may be out of date already. */
		if (!may_keep(rel) || invalidations != before)
			return &shape->shape;
		use = palloc0(sizeof(ShapeUse));
		keep_shape(shape);
	}
	else
		use = palloc0(sizeof(ShapeUse));
	use->shape = shape;
	use->callback.func = release;
	use->callback.arg = use;
	shape->users++;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &use->callback);
	return &shape->shape;
}
