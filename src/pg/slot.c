/*
 * slot.c
 *	  Tuple slot for rows of shuffle tables.
 *
 * A slot holds a row in one of two forms:
 *
 *	  - a row of a pinned window: tts_values and tts_isnull point to the row's values
 *		there, and the window decodes columns when they are asked for the first time.
 *		The next row of the window costs no more than moving the two pointers;
 *	  - values, as a virtual slot: stored by somebody else, or materialized here into
 *		memory of the slot.  tts_values and tts_isnull are the slot's own arrays, as the
 *		server has made them.
 *
 * The server reads the two pointers anew for each row that it has stored or cleared, in
 * compiled expressions too, and changes or frees the arrays only after clearing the slot.
 *
 * The pin is kept in a small struct in the slot's memory context whose reset callback
 * drops it, so a slot that nobody clears (after an error) pins nothing for ever.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/tupmacs.h"
#include "catalog/heap.h"
#include "executor/tuptable.h"
#include "utils/expandeddatum.h"
#include "utils/memutils.h"

#include "read_state.h"

typedef struct SlotPin
{
	MemoryContextCallback callback;
	ShuffleWindow		 *window;
} SlotPin;

typedef struct ShuffleSlot
{
	TupleTableSlot base;
	SlotPin		  *pin;	   /* made when the first row is stored */
	ShuffleWindow *window; /* pin->window while the slot holds a row of it, else NULL */
	Datum		  *values; /* the slot's own arrays while it holds a row of the window */
	bool		  *isnull;
	char		  *data; /* materialized values, with TTS_FLAG_SHOULDFREE */
} ShuffleSlot;

static void
release_pin(void *arg)
{
	SlotPin *pin = arg;

	if (pin->window != NULL)
		shuffle_window_unpin(pin->window);
	pin->window = NULL;
}

static void
slot_unpin(ShuffleSlot *sslot)
{
	if (sslot->window != NULL)
	{
		sslot->base.tts_values = sslot->values;
		sslot->base.tts_isnull = sslot->isnull;
		sslot->window = NULL;
	}
	if (sslot->pin != NULL)
		release_pin(sslot->pin);
}

static void
tts_shuffle_init(TupleTableSlot *slot)
{
}

static void
tts_shuffle_clear(TupleTableSlot *slot)
{
	ShuffleSlot *sslot = (ShuffleSlot *) slot;

	if (unlikely(TTS_SHOULDFREE(slot)))
	{
		pfree(sslot->data);
		sslot->data = NULL;
		slot->tts_flags &= ~TTS_FLAG_SHOULDFREE;
	}
	slot_unpin(sslot);
	slot->tts_nvalid = 0;
	slot->tts_flags |= TTS_FLAG_EMPTY;
	ItemPointerSetInvalid(&slot->tts_tid);
}

static void
tts_shuffle_release(TupleTableSlot *slot)
{
	slot_unpin((ShuffleSlot *) slot);
}

void
shuffle_slot_store(TupleTableSlot *slot, ShuffleWindow *window, uint32 row)
{
	ShuffleSlot *sslot = (ShuffleSlot *) slot;
	Size		 place;

	Assert(slot->tts_ops == &ShuffleSlotOps);
	Assert(row >= window->first && row - window->first < window->count);

	if (sslot->window != window)
	{
		tts_shuffle_clear(slot);
		if (sslot->pin == NULL)
		{
			SlotPin *pin = MemoryContextAllocZero(slot->tts_mcxt, sizeof(SlotPin));

			pin->callback.func = release_pin;
			pin->callback.arg = pin;
			MemoryContextRegisterResetCallback(slot->tts_mcxt, &pin->callback);
			sslot->pin = pin;
		}
		if (window->natts != slot->tts_tupleDescriptor->natts)
			elog(ERROR, "row of %d columns for a slot of %d", window->natts,
				 slot->tts_tupleDescriptor->natts);
		sslot->values = slot->tts_values;
		sslot->isnull = slot->tts_isnull;
		sslot->window = sslot->pin->window = shuffle_window_pin(window);
	}

	place = (Size) (row - window->first) * window->natts;
	slot->tts_values = window->values + place;
	slot->tts_isnull = window->isnull + place;
	shuffle_tid_encode(&slot->tts_tid, window->block->segment, window->block->first_row + row);
	slot->tts_nvalid = (AttrNumber) window->ndecoded;
	slot->tts_flags &= ~TTS_FLAG_EMPTY;
}

ShuffleWindow *
shuffle_slot_window(TupleTableSlot *slot)
{
	return ((ShuffleSlot *) slot)->window;
}

static void
tts_shuffle_getsomeattrs(TupleTableSlot *slot, int natts)
{
	ShuffleWindow *window = ((ShuffleSlot *) slot)->window;

	Assert(!TTS_EMPTY(slot));

	if (unlikely(window == NULL))
		elog(ERROR, "getsomeattrs is not required to be called on a slot of values");

	shuffle_window_decode(window, natts);
	slot->tts_nvalid = (AttrNumber) window->ndecoded;
}

static Datum
tts_shuffle_getsysattr(TupleTableSlot *slot, int attnum, bool *isnull)
{
	const FormData_pg_attribute *att = SystemAttributeDefinition(attnum);

	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("shuffle tables have no system column \"%s\"", NameStr(att->attname)),
			 errhint("Only ctid and tableoid are available.")));
	return (Datum) 0; /* keep compiler quiet */
}

#if SHUFFLE_SLOT_HAS_XACT_CHECK
static bool
tts_shuffle_is_current_xact_tuple(TupleTableSlot *slot)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("rows of shuffle tables carry no transaction information")));
	return false; /* keep compiler quiet */
}
#endif

/*
 * Copies the values into one piece of memory of the slot, and unpins the window.  An error
 * on the way leaves the slot as it was.
 */
static void
tts_shuffle_materialize(TupleTableSlot *slot)
{
	ShuffleSlot *sslot = (ShuffleSlot *) slot;
	TupleDesc	 desc = slot->tts_tupleDescriptor;
	Datum		*values;
	Size		 size = 0;
	char		*data;

	Assert(!TTS_EMPTY(slot));

	if (TTS_SHOULDFREE(slot))
		return;

	values = slot->tts_values;
	if (sslot->window != NULL)
	{
		slot_getallattrs(slot);
		values = sslot->values;
		memcpy(values, slot->tts_values, sizeof(Datum) * desc->natts);
		memcpy(sslot->isnull, slot->tts_isnull, sizeof(bool) * desc->natts);
	}

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Datum			  value = values[i];

		if (att->attbyval || slot->tts_isnull[i])
			continue;
		size = att_align_nominal(size, att->attalign);
		if (att->attlen == -1 && VARATT_IS_EXTERNAL_EXPANDED(DatumGetPointer(value)))
			size += EOH_get_flat_size(DatumGetEOHP(value));
		else
			size = att_addlength_datum(size, att->attlen, value);
	}

	if (size > 0)
	{
		sslot->data = data = MemoryContextAllocExtended(slot->tts_mcxt, size, MCXT_ALLOC_HUGE);
		slot->tts_flags |= TTS_FLAG_SHOULDFREE;

		for (int i = 0; i < desc->natts; i++)
		{
			Form_pg_attribute att = TupleDescAttr(desc, i);
			Datum			  value = values[i];
			Size			  length;

			if (att->attbyval || slot->tts_isnull[i])
				continue;
			data = (char *) att_align_nominal(data, att->attalign);
			if (att->attlen == -1 && VARATT_IS_EXTERNAL_EXPANDED(DatumGetPointer(value)))
			{
				length = EOH_get_flat_size(DatumGetEOHP(value));
				EOH_flatten_into(DatumGetEOHP(value), data, length);
			}
			else
			{
				length = att_addlength_datum((Size) 0, att->attlen, value);
				memcpy(data, DatumGetPointer(value), length);
			}
			values[i] = PointerGetDatum(data);
			data += length;
		}
	}
	slot_unpin(sslot);
}

static void
tts_shuffle_copyslot(TupleTableSlot *dst, TupleTableSlot *src)
{
	int natts = src->tts_tupleDescriptor->natts;

	Assert(natts <= dst->tts_tupleDescriptor->natts);

	tts_shuffle_clear(dst);
	slot_getallattrs(src);
	memcpy(dst->tts_values, src->tts_values, sizeof(Datum) * natts);
	memcpy(dst->tts_isnull, src->tts_isnull, sizeof(bool) * natts);
	for (int i = natts; i < dst->tts_tupleDescriptor->natts; i++)
	{
		dst->tts_values[i] = (Datum) 0;
		dst->tts_isnull[i] = true;
	}
	dst->tts_nvalid = dst->tts_tupleDescriptor->natts;
	dst->tts_flags &= ~TTS_FLAG_EMPTY;
	dst->tts_tid = src->tts_tid;
	tts_shuffle_materialize(dst);
}

/* ANALYZE sorts its sample by t_self. */
static HeapTuple
tts_shuffle_copy_heap_tuple(TupleTableSlot *slot)
{
	HeapTuple tuple;

	Assert(!TTS_EMPTY(slot));

	slot_getallattrs(slot);
	tuple = heap_form_tuple(slot->tts_tupleDescriptor, slot->tts_values, slot->tts_isnull);
	tuple->t_self = slot->tts_tid;
	tuple->t_tableOid = slot->tts_tableOid;
	return tuple;
}

static MinimalTuple
tts_shuffle_copy_minimal_tuple(TupleTableSlot *slot SHUFFLE_MINIMAL_EXTRA_PARAM)
{
	Assert(!TTS_EMPTY(slot));

	slot_getallattrs(slot);
	return heap_form_minimal_tuple(slot->tts_tupleDescriptor, slot->tts_values,
								   slot->tts_isnull SHUFFLE_MINIMAL_EXTRA_ARG);
}

const TupleTableSlotOps ShuffleSlotOps = {
	.base_slot_size = sizeof(ShuffleSlot),
	.init = tts_shuffle_init,
	.release = tts_shuffle_release,
	.clear = tts_shuffle_clear,
	.getsomeattrs = tts_shuffle_getsomeattrs,
	.getsysattr = tts_shuffle_getsysattr,
#if SHUFFLE_SLOT_HAS_XACT_CHECK
	.is_current_xact_tuple = tts_shuffle_is_current_xact_tuple,
#endif
	.materialize = tts_shuffle_materialize,
	.copyslot = tts_shuffle_copyslot,
	.get_heap_tuple = NULL,
	.get_minimal_tuple = NULL,
	.copy_heap_tuple = tts_shuffle_copy_heap_tuple,
	.copy_minimal_tuple = tts_shuffle_copy_minimal_tuple,
};
