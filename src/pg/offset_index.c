/*
 * offset_index.c
 *	  The functions under the views shuffle_index and shuffle_partitions.
 *
 * Everybody who may read the views must be able to execute these functions, since a
 * view's functions run with its reader's rights.  So they are safe by themselves:
 * shuffle_expand_extents() shows its argument only, shuffle_partition_totals() checks
 * the caller's privileges.  Both return one row per call, so that in a select list,
 * where the views have them, nothing is stored before the first row comes out.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_class.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/memutils.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "shuffle.h"

PG_FUNCTION_INFO_V1(shuffle_expand_extents);
PG_FUNCTION_INFO_V1(shuffle_partition_totals);

/* Columns of the results. */
#define EXTENT_COLUMNS 7
#define TOTALS_COLUMNS 6

static TupleDesc
result_descriptor(FunctionCallInfo fcinfo, int ncolumns)
{
	TupleDesc desc;

	shuffle_require_signature(fcinfo, 1, ncolumns);
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return BlessTupleDesc(desc);
}

/*
 * shuffle_expand_extents(extents bytea) returns setof (partition int, byte_offset bigint,
 * bytes bigint, raw_bytes bigint, rows bigint, blocks int, first_row bigint)
 */
Datum
shuffle_expand_extents(PG_FUNCTION_ARGS)
{
	FuncCallContext *call;
	const char		*entries;

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext old;
		bytea		 *extents;

		call = SRF_FIRSTCALL_INIT();
		old = MemoryContextSwitchTo(call->multi_call_memory_ctx);
		extents = DatumGetByteaPCopy(PG_GETARG_DATUM(0));
		if (VARSIZE_ANY_EXHDR(extents) % sizeof(ShfExtent) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("extents must be a multiple of %zu bytes long", sizeof(ShfExtent))));
		call->max_calls = VARSIZE_ANY_EXHDR(extents) / sizeof(ShfExtent);
		call->user_fctx = VARDATA_ANY(extents);
		call->tuple_desc = result_descriptor(fcinfo, EXTENT_COLUMNS);
		MemoryContextSwitchTo(old);
	}

	call = SRF_PERCALL_SETUP();
	entries = call->user_fctx;
	if (call->call_cntr < call->max_calls)
	{
		ShfExtent extent;
		Datum	  values[EXTENT_COLUMNS];
		bool	  isnull[EXTENT_COLUMNS] = {false};

		memcpy(&extent, entries + call->call_cntr * sizeof(ShfExtent), sizeof(ShfExtent));
		values[0] = Int32GetDatum((int32) extent.partition);
		values[1] = Int64GetDatum((int64) extent.offset);
		values[2] = Int64GetDatum((int64) extent.bytes);
		values[3] = Int64GetDatum((int64) extent.raw_bytes);
		values[4] = Int64GetDatum((int64) extent.rows);
		values[5] = Int32GetDatum((int32) extent.blocks);
		values[6] = Int64GetDatum((int64) extent.first_row);
		SRF_RETURN_NEXT(call, HeapTupleGetDatum(heap_form_tuple(call->tuple_desc, values, isnull)));
	}
	SRF_RETURN_DONE(call);
}

/* How many partitions a table without segments has: its options tell. */
static int
partitions_of_empty(Oid relid)
{
	Relation rel = try_relation_open(relid, AccessShareLock);
	int		 partitions = 0;

	if (rel == NULL)
		return 0;
	if (shuffle_is_table(rel))
		partitions = shuffle_read_options(rel).partitions;
	relation_close(rel, AccessShareLock);
	return partitions;
}

ShufflePartitionTotals *
shuffle_partition_sizes(Oid relid, int *n)
{
	HeapTuple				tuple;
	Form_pg_class			form;
	ShuffleStorage			storage;
	ShufflePartitionTotals *totals;
	List				   *segments;
	ListCell			   *lc;

	*n = 0;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return NULL;
	form = (Form_pg_class) GETSTRUCT(tuple);
	storage.tablespace = form->reltablespace;
	storage.filenumber = form->relfilenode;
	ReleaseSysCache(tuple);

	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) != ACLCHECK_OK ||
		check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
		return NULL;

	segments = shuffle_catalog_scan(&storage, GetActiveSnapshot());
	foreach(lc, segments)
		*n = Max(*n, ((ShuffleSegmentRow *) lfirst(lc))->partitions);
	if (segments == NIL)
		*n = partitions_of_empty(relid);
	totals = palloc_extended(Max(*n, 1) * sizeof(ShufflePartitionTotals),
							 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	foreach(lc, segments)
	{
		ShuffleSegmentRow *segment = lfirst(lc);
		ShfExtent		  *extents = shuffle_catalog_extents(segment);

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < segment->nextents; i++)
		{
			const ShfExtent		   *extent = &extents[i];
			ShufflePartitionTotals *total;

			if (extent->partition >= *n)
				ereport(ERROR,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("segment \"%s\" of %d partitions has an extent of partition %u",
								segment->name, segment->partitions, extent->partition)));
			total = &totals[extent->partition];
			total->rows += extent->rows;
			total->bytes += extent->bytes;
			total->raw_bytes += extent->raw_bytes;
			total->blocks += extent->blocks;
			if (i == 0 || extents[i - 1].partition != extent->partition)
				total->segments++;
		}
		pfree(extents);
	}
	return totals;
}

/*
 * shuffle_partition_totals(relation regclass) returns setof (partition int, rows bigint,
 * bytes bigint, raw_bytes bigint, blocks bigint, segments int)
 *
 * Nothing for a relation that the caller may not read as a whole.
 */
Datum
shuffle_partition_totals(PG_FUNCTION_ARGS)
{
	FuncCallContext				 *call;
	const ShufflePartitionTotals *totals;

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext old;
		int			  n;

		call = SRF_FIRSTCALL_INIT();
		old = MemoryContextSwitchTo(call->multi_call_memory_ctx);
		call->user_fctx = shuffle_partition_sizes(PG_GETARG_OID(0), &n);
		call->max_calls = n;
		call->tuple_desc = result_descriptor(fcinfo, TOTALS_COLUMNS);
		MemoryContextSwitchTo(old);
	}

	call = SRF_PERCALL_SETUP();
	totals = call->user_fctx;
	if (call->call_cntr < call->max_calls)
	{
		const ShufflePartitionTotals *total = &totals[call->call_cntr];
		Datum						  values[TOTALS_COLUMNS];
		bool						  isnull[TOTALS_COLUMNS] = {false};

		values[0] = Int32GetDatum((int32) call->call_cntr);
		values[1] = Int64GetDatum(total->rows);
		values[2] = Int64GetDatum(total->bytes);
		values[3] = Int64GetDatum(total->raw_bytes);
		values[4] = Int64GetDatum(total->blocks);
		values[5] = Int32GetDatum(total->segments);
		SRF_RETURN_NEXT(call, HeapTupleGetDatum(heap_form_tuple(call->tuple_desc, values, isnull)));
	}
	SRF_RETURN_DONE(call);
}
