/*
 * deform.c
 *	  See deform.h.
 *
 * slot_getsomeattrs() looks up each attribute in a descriptor of a hundred bytes and more
 * per attribute, and what it learns about offsets it keeps there.  Here all that matters of
 * an attribute is 4 bytes.  Where values lie is as slot_deform_heap_tuple() in execTuples.c
 * has it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"

#include "compat.h"
#include "deform.h"

/* So many tuples ahead, of the size of the one at hand, are asked for; up to so many bytes. */
#define PREFETCH_TUPLES 3
#define PREFETCH_BYTES	512
#define CACHE_LINE		64

typedef enum DeformKind
{
	DEFORM_1,
	DEFORM_2,
	DEFORM_4,
	DEFORM_8,
	DEFORM_FIXED, /* of any size, by reference */
	DEFORM_VARLENA,
	DEFORM_CSTRING
} DeformKind;

typedef struct DeformAttribute
{
	uint8 kind;	 /* DeformKind */
	uint8 align; /* less one */
	int16 len;	 /* of DEFORM_FIXED */
} DeformAttribute;

struct ShuffleDeform
{
	TupleDesc		desc;
	int				natts;
	DeformAttribute attributes[FLEXIBLE_ARRAY_MEMBER];
};

static DeformKind
kind_of(Form_pg_attribute att)
{
	if (att->attlen == -1)
		return DEFORM_VARLENA;
	if (att->attlen == -2)
		return DEFORM_CSTRING;
	if (!att->attbyval)
		return DEFORM_FIXED;
	switch (att->attlen)
	{
		case sizeof(char):
			return DEFORM_1;
		case sizeof(int16):
			return DEFORM_2;
		case sizeof(int32):
			return DEFORM_4;
		case sizeof(int64):
			return DEFORM_8;
		default:
			elog(ERROR, "unsupported byval length: %d", att->attlen);
			pg_unreachable();
	}
}

ShuffleDeform *
shuffle_deform_create(int natts)
{
	ShuffleDeform *deform =
		palloc(offsetof(ShuffleDeform, attributes) + sizeof(DeformAttribute) * natts);

	deform->desc = NULL;
	deform->natts = natts;
	return deform;
}

static pg_noinline void
prepare(ShuffleDeform *deform, TupleDesc desc)
{
	for (int i = 0; i < deform->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		DeformAttribute	 *attribute = &deform->attributes[i];

		attribute->kind = (uint8) kind_of(att);
		attribute->align = (uint8) (att_align_nominal(1, att->attalign) - 1);
		attribute->len = att->attlen;
	}
	deform->desc = desc;
}

/* Returns where it stopped, as an offset from the tuple's data. */
static pg_attribute_always_inline uint32
deform_tuple(const ShuffleDeform *deform, HeapTupleHeader tuple, const bool hasnulls, Datum *values,
			 bool *isnull)
{
	const DeformAttribute *att = deform->attributes;
	const int			   natts = deform->natts;
	const char			  *data = (const char *) tuple + tuple->t_hoff;
	uint32				   off = 0;

	for (int i = 0; i < natts; i++, att++)
	{
		const uint32 align = att->align;
		const char	*at;

		isnull[i] = hasnulls && att_isnull(i, tuple->t_bits);
		if (isnull[i])
		{
			values[i] = (Datum) 0;
			continue;
		}
		if (att->kind == DEFORM_VARLENA)
		{
			/* with a short header it is not aligned, and does not begin with a zero */
			if (!VARATT_NOT_PAD_BYTE(data + off))
				off = (off + align) & ~align;
			values[i] = PointerGetDatum(data + off);
			off += VARSIZE_ANY(data + off);
			continue;
		}
		off = (off + align) & ~align;
		at = data + off;
		switch ((DeformKind) att->kind)
		{
			case DEFORM_1:
				values[i] = CharGetDatum(*at);
				off += sizeof(char);
				break;
			case DEFORM_2:
				values[i] = Int16GetDatum(*(const int16 *) at);
				off += sizeof(int16);
				break;
			case DEFORM_4:
				values[i] = Int32GetDatum(*(const int32 *) at);
				off += sizeof(int32);
				break;
			case DEFORM_8:
				values[i] = Int64GetDatum(*(const int64 *) at);
				off += sizeof(int64);
				break;
			case DEFORM_CSTRING:
				values[i] = PointerGetDatum(at);
				off += (uint32) strlen(at) + 1;
				break;
			default:
				values[i] = PointerGetDatum(at);
				off += att->len;
				break;
		}
	}
	return off;
}

/* The tuple that the slot's attributes are still to be taken out of, all of them, or NULL. */
static inline HeapTuple
stored_tuple(TupleTableSlot *slot, uint32 **off)
{
	if (slot->tts_nvalid > 0)
		return NULL;
	if (TTS_IS_BUFFERTUPLE(slot) || TTS_IS_HEAPTUPLE(slot))
	{
		*off = &((HeapTupleTableSlot *) slot)->off;
		return ((HeapTupleTableSlot *) slot)->tuple;
	}
	if (TTS_IS_MINIMALTUPLE(slot))
	{
		*off = &((MinimalTupleTableSlot *) slot)->off;
		return ((MinimalTupleTableSlot *) slot)->tuple;
	}
	return NULL;
}

/*
 * The next tuples of a heap page usually lie below this one, and nobody has looked at them
 * yet: a scan that trusts the visibility map first reads them here.  (Calls of a function that
 * does nothing else are thrown away by gcc, before it is inlined.)
 */
static pg_attribute_always_inline void
prefetch_next(const char *tuple, uint32 len)
{
	const char *next = tuple - PREFETCH_TUPLES * (Size) len;

	for (uint32 at = 0; at < len + CACHE_LINE && at < PREFETCH_BYTES; at += CACHE_LINE)
		__builtin_prefetch(next + at);
}

void
shuffle_deform(ShuffleDeform *deform, TupleTableSlot *slot)
{
	uint32	 *off;
	HeapTuple tuple = stored_tuple(slot, &off);

	if (likely(tuple != NULL))
		prefetch_next((const char *) tuple->t_data, tuple->t_len);

	/* A tuple from before ADD COLUMN may lack some. */
	if (unlikely(tuple == NULL || HeapTupleHeaderGetNatts(tuple->t_data) < deform->natts))
	{
		slot_getsomeattrs(slot, deform->natts);
		return;
	}

	/* The parts of an Append have descriptors of their own. */
	if (unlikely(slot->tts_tupleDescriptor != deform->desc))
		prepare(deform, slot->tts_tupleDescriptor);
	*off = HeapTupleHasNulls(tuple) ?
		deform_tuple(deform, tuple->t_data, true, slot->tts_values, slot->tts_isnull) :
		deform_tuple(deform, tuple->t_data, false, slot->tts_values, slot->tts_isnull);
	slot->tts_nvalid = (AttrNumber) deform->natts;

	/* where other attributes begin is not to be looked up in the descriptor */
	slot->tts_flags |= TTS_FLAG_SLOW;
}
