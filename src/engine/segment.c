/*
 * segment.c
 *	  The list of segments that an output leaves behind, and the extents of the one
 *	  being written.
 */
#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

static ShfCode
out_of_memory(ShfError *err)
{
	return shf_error(err, SHF_ERR_NOMEM, "out of memory for the list of segments");
}

static ShfCode
random_id(uint8_t id[16], ShfError *err)
{
	size_t have = 0;

	while (have < 16)
	{
		ssize_t n = getrandom(id + have, 16 - have, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return shf_error_errno(err, "could not get random bytes for a segment id");
		have += (size_t) n;
	}
	return SHF_OK;
}

void
shf_segment_id_text(const uint8_t id[16], char text[33])
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < 16; i++)
	{
		text[2 * i] = digits[id[i] >> 4];
		text[2 * i + 1] = digits[id[i] & 15];
	}
	text[32] = '\0';
}

/*
 * Makes segment_schema: the writer's schema with the segment's own metadata behind the
 * caller's.  It has only the list of metadata for itself.
 */
static ShfCode
make_segment_schema(ShfOutput *out, const uint8_t id[16], ShfError *err)
{
	static char		 id_key[] = SHF_META_SEGMENT_ID;
	static char		 format_key[] = "shuffle:format";
	static char		 format_value[] = "1";
	const ShfSchema *src = out->schema;
	ShfMeta			*meta;
	int				 n = 0;

	meta = realloc(out->segment_schema.meta, ((size_t) src->nmeta + 2) * sizeof(ShfMeta));
	if (meta == NULL)
		return out_of_memory(err);
	shf_segment_id_text(id, out->segment_id);
	for (int i = 0; i < src->nmeta; i++)
	{
		if (strcmp(src->meta[i].key, id_key) != 0 && strcmp(src->meta[i].key, format_key) != 0)
			meta[n++] = src->meta[i];
	}
	meta[n].key = format_key;
	meta[n++].value = format_value;
	meta[n].key = id_key;
	meta[n++].value = out->segment_id;
	out->segment_schema = *src;
	out->segment_schema.meta = meta;
	out->segment_schema.nmeta = n;
	return SHF_OK;
}

ShfCode
shf_segment_begin(ShfOutput *out, ShfError *err)
{
	ShfSegment *segment;
	ShfCode		code;

	if (out->nsegments == out->segments_cap)
	{
		int cap = out->segments_cap * 2 + 4;

		segment = realloc(out->segments, sizeof(ShfSegment) * (size_t) cap);
		if (segment == NULL)
			return out_of_memory(err);
		out->segments = segment;
		out->segments_cap = cap;
	}
	segment = &out->segments[out->nsegments];
	memset(segment, 0, sizeof(*segment));
	segment->number = (uint32_t) out->nsegments;
	segment->layout = out->options->layout;
	code = random_id(segment->id, err);
	if (code != SHF_OK)
		return code;

	code = make_segment_schema(out, segment->id, err);
	out->leader.len = 0;
	if (code == SHF_OK)
		code = shf_buffer_reserve(&out->leader, SHF_FILE_HEADER_BYTES, err);
	if (code != SHF_OK)
		return code;
	memcpy(out->leader.data, SHF_FILE_HEADER, SHF_FILE_HEADER_BYTES);
	out->leader.len = SHF_FILE_HEADER_BYTES;
	code = shf_schema_message(&out->leader, &out->segment_schema, err);
	if (code != SHF_OK)
		return code;

	out->nsegments++;
	out->extents_cap = 0;
	out->npositions = 0;
	out->segment_open = true;
	return SHF_OK;
}

ShfSegment *
shf_segment_current(ShfOutput *out)
{
	return &out->segments[out->nsegments - 1];
}

void
shf_segment_add_block(ShfOutput *out, const ShfBlock *block)
{
	ShfSegment *segment = shf_segment_current(out);

	segment->rows += block->rows;
	segment->raw_bytes += block->raw_bytes;
	segment->blocks++;
	if (segment->blocks > out->most_blocks)
		out->most_blocks = segment->blocks;
	out->rows += block->rows;
	out->raw_bytes += block->raw_bytes;
	out->blocks++;
}

/* Growth by an eighth: the memory limit counts on it (SHF_BLOCK_COST, SHF_EXTENT_COST). */
static size_t
grown(size_t n)
{
	return n + n / 8 + SHF_INDEX_STEP;
}

ShfCode
shf_segment_add_extent(ShfOutput *out, const ShfExtent *extent, ShfError *err)
{
	ShfSegment *segment = shf_segment_current(out);

	if (segment->nextents == out->extents_cap)
	{
		size_t	   cap = grown(segment->nextents);
		ShfExtent *extents = realloc(segment->extents, sizeof(ShfExtent) * cap);

		if (extents == NULL)
			return out_of_memory(err);
		shf_account(out->account, sizeof(ShfExtent) * (uint64_t) out->extents_cap,
					sizeof(ShfExtent) * cap);
		segment->extents = extents;
		out->extents_cap = (uint32_t) cap;
	}
	segment->extents[segment->nextents++] = *extent;
	out->extents++;
	return SHF_OK;
}

ShfCode
shf_positions_reserve(ShfOutput *out, size_t n, ShfError *err)
{
	size_t		 cap = grown(n);
	ShfBlockPos *positions;

	if (n <= out->positions_cap)
		return SHF_OK;
	positions = realloc(out->positions, sizeof(ShfBlockPos) * cap);
	if (positions == NULL)
		return out_of_memory(err);
	shf_account(out->account, sizeof(ShfBlockPos) * out->positions_cap, sizeof(ShfBlockPos) * cap);
	out->positions = positions;
	out->positions_cap = cap;
	return SHF_OK;
}

void
shf_positions_free(ShfOutput *out)
{
	free(out->positions);
	shf_account(out->account, sizeof(ShfBlockPos) * out->positions_cap, 0);
	out->positions = NULL;
	out->positions_cap = 0;
	out->most_blocks = 0;
}

static inline bool
extent_before(const ShfExtent *a, const ShfExtent *b)
{
	return a->partition != b->partition ? a->partition < b->partition : a->offset < b->offset;
}

/*
 * Heapsort: in place, unlike glibc's qsort, and each run's extents being in order
 * already there is nothing that a quicksort would like better.
 */
static void
sort_extents(ShfExtent *extents, uint32_t n)
{
	uint32_t start = n / 2;
	uint32_t end = n;
	uint32_t i;

	for (i = 1; i < n && extent_before(&extents[i - 1], &extents[i]); i++)
		;
	if (i >= n)
		return;

	while (end > 1)
	{
		ShfExtent moved;
		uint32_t  hole;
		uint32_t  child;

		if (start > 0)
			moved = extents[--start];
		else
		{
			moved = extents[--end];
			extents[end] = extents[0];
			if (end == 1)
			{
				extents[0] = moved;
				break;
			}
		}
		for (hole = start; (child = 2 * hole + 1) < end; hole = child)
		{
			if (child + 1 < end && extent_before(&extents[child], &extents[child + 1]))
				child++;
			if (!extent_before(&moved, &extents[child]))
				break;
			extents[hole] = extents[child];
		}
		extents[hole] = moved;
	}
}

void
shf_segment_end(ShfOutput *out)
{
	ShfSegment *segment = shf_segment_current(out);
	ShfExtent  *shrunk;

	sort_extents(segment->extents, segment->nextents);
	shrunk = realloc(segment->extents, sizeof(ShfExtent) * (size_t) segment->nextents);
	if (shrunk != NULL)
	{
		segment->extents = shrunk;
		shf_account(out->account, sizeof(ShfExtent) * (uint64_t) out->extents_cap,
					sizeof(ShfExtent) * (uint64_t) segment->nextents);
	}
	out->extents_cap = 0;
	out->npositions = 0;
	out->segment_open = false;
}
