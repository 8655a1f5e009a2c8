/*
 * extents.c
 *	  The large values of a segment's catalog row: its extents and its image.
 *
 * Extents are one bytea of 48-byte ShfExtent entries by partition and offset, stored out of
 * line and uncompressed, so that a slice costs a few toast chunks: one partition of
 * 100,000 is found by reading a handful of slices.  The caller has the snapshot active or
 * registered with which it read the row.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/memutils.h"

#include "shuffle.h"

StaticAssertDecl(sizeof(ShfExtent) == 48, "extents are stored as they are");

/* Entries fetched at a time while searching: about what two toast chunks hold. */
#define SEARCH_WINDOW 41

static void
corrupt_extents(const ShuffleSegmentRow *row, size_t found)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("extents of segment \"%s\" have %zu bytes instead of %zu", row->name, found,
					(size_t) row->nextents * sizeof(ShfExtent))));
}

ShfExtent *
shuffle_catalog_extents(const ShuffleSegmentRow *row)
{
	size_t	   bytes = (size_t) row->nextents * sizeof(ShfExtent);
	ShfExtent *extents = palloc_extended(Max(bytes, 1), MCXT_ALLOC_HUGE);
	bytea	  *stored;

	if (row->extents == (Datum) 0)
		corrupt_extents(row, 0);
	stored = DatumGetByteaPP(row->extents);
	if (VARSIZE_ANY_EXHDR(stored) != bytes)
		corrupt_extents(row, VARSIZE_ANY_EXHDR(stored));
	memcpy(extents, VARDATA_ANY(stored), bytes);
	if ((Pointer) stored != DatumGetPointer(row->extents))
		pfree(stored);
	return extents;
}

/* Copies entries first .. first + count - 1 to out. */
static void
fetch_extents(const ShuffleSegmentRow *row, int first, int count, ShfExtent *out)
{
	bytea *slice = DatumGetByteaPSlice(row->extents, first * (int) sizeof(ShfExtent),
									   count * (int) sizeof(ShfExtent));

	if (VARSIZE_ANY_EXHDR(slice) != count * sizeof(ShfExtent))
		corrupt_extents(row, first * sizeof(ShfExtent) + VARSIZE_ANY_EXHDR(slice));
	memcpy(out, VARDATA_ANY(slice), count * sizeof(ShfExtent));
	pfree(slice);
}

/*
 * Position of the first extent of this or a later partition.  Probes where the
 * partition should be if extents were spread evenly, and every other time in the
 * middle, so that no distribution takes more than twice the probes of a binary search.
 */
static int
lower_bound(const ShuffleSegmentRow *row, uint32 partition)
{
	int	   lo = 0;			   /* everything before is of an earlier partition */
	int	   hi = row->nextents; /* nothing from here on is */
	double lo_partition = 0;
	double hi_partition = row->partitions;
	bool   bisect = false;

	while (lo < hi)
	{
		ShfExtent window[SEARCH_WINDOW];
		int		  count = Min(SEARCH_WINDOW, hi - lo);
		double	  share = 0.5;
		int		  first;

		if (!bisect && hi_partition > lo_partition)
			share = (partition - lo_partition) / (hi_partition - lo_partition);
		bisect = !bisect;
		first = lo + (int) (Min(Max(share, 0.0), 1.0) * (hi - lo)) - count / 2;
		first = Min(Max(first, lo), hi - count);
		fetch_extents(row, first, count, window);

		if (window[0].partition >= partition)
		{
			hi = first;
			hi_partition = window[0].partition;
		}
		else if (window[count - 1].partition < partition)
		{
			lo = first + count;
			lo_partition = window[count - 1].partition;
		}
		else
		{
			for (int i = 1; i < count; i++)
				if (window[i].partition >= partition)
					return first + i;
		}
	}
	return lo;
}

/* Those of one partition. */
static ShfExtent *
partition_extents(const ShuffleSegmentRow *row, uint32 partition, int *nextents)
{
	ShfExtent *extents;
	int		   first;
	int		   size;
	int		   n = 0;

	if (row->extents == (Datum) 0)
		corrupt_extents(row, 0);
	first = lower_bound(row, partition);

	/* Most segments of a table that single rows are inserted into have few. */
	size = Max(Min(SEARCH_WINDOW, row->nextents - first), 1);
	extents = palloc_extended(size * sizeof(ShfExtent), MCXT_ALLOC_HUGE);
	while (first + n < row->nextents)
	{
		int count = Min(size - n, row->nextents - first - n);
		int end = n + count;

		fetch_extents(row, first + n, count, extents + n);
		while (n < end && extents[n].partition == partition)
			n++;
		if (n < end || first + n == row->nextents)
			break;
		size *= 2;
		extents = repalloc_huge(extents, size * sizeof(ShfExtent));
	}
	*nextents = n;
	return extents;
}

ShfExtent *
shuffle_catalog_partitions_extents(const ShuffleSegmentRow *row, const uint32 *partitions,
								   int npartitions, int *nextents)
{
	ShfExtent *extents = NULL;
	int		   n = 0;

	/* A few are found by slices of the stored value, many by going over all. */
	if (npartitions <= 16 || npartitions <= row->nextents / 64)
	{
		for (int i = 0; i < npartitions; i++)
		{
			int		   nmore;
			ShfExtent *more = partition_extents(row, partitions[i], &nmore);

			if (nmore == 0)
				pfree(more);
			else if (extents == NULL)
				extents = more;
			else
			{
				extents = repalloc_huge(extents, sizeof(ShfExtent) * ((Size) n + nmore));
				memcpy(extents + n, more, sizeof(ShfExtent) * nmore);
				pfree(more);
			}
			n += nmore;
		}
	}
	else
	{
		int p = 0;

		extents = shuffle_catalog_extents(row);
		for (int i = 0; i < row->nextents; i++)
		{
			while (p < npartitions && partitions[p] < extents[i].partition)
				p++;
			if (p == npartitions)
				break;
			if (partitions[p] == extents[i].partition)
				extents[n++] = extents[i];
		}
	}
	*nextents = n;
	return extents;
}

static int
compare_first_row(const void *a, const void *b)
{
	uint64 ra = ((const ShfExtent *) a)->first_row;
	uint64 rb = ((const ShfExtent *) b)->first_row;

	return (ra > rb) - (ra < rb);
}

void
shuffle_extents_sort(ShfExtent *extents, int nextents)
{
	for (int i = 1; i < nextents; i++)
	{
		if (extents[i].first_row < extents[i - 1].first_row)
		{
			qsort(extents, nextents, sizeof(ShfExtent), compare_first_row);
			break;
		}
	}
}

bytea *
shuffle_catalog_image(const ShuffleSegmentRow *row)
{
	bytea *image = row->image == (Datum) 0 ? NULL : DatumGetByteaPP(row->image);

	if (image == NULL || VARSIZE_ANY_EXHDR(image) != row->bytes)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("segment \"%s\" has neither files nor an image of %lld bytes", row->name,
						(long long) row->bytes)));
	return image;
}
