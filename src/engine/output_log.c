/*
 * output_log.c
 *	  SHF_LAYOUT_LOG: one file per segment, <path>-<n>.arrow, run after run.
 *
 * Every byte is written once, whatever the memory limit and the number of partitions.
 * The file is created when its first bytes leave the write buffer; a segment that ends
 * before, and is small enough, becomes an image in memory instead.
 * An extent is what one run leaves of a partition, unless the next run begins with
 * the partition the last one ended with.  Rows are numbered in file order.
 */
#include "output.h"

#include <stdlib.h>
#include <unistd.h>

/* Makes the segment's image of the write buffer, which holds all of the file. */
static ShfCode
take_image(ShfOutput *out, ShfError *err)
{
	ShfCode	 code = shf_output_count(out, out->len, err);
	uint8_t *image;

	if (code != SHF_OK)
		return code;
	image = malloc(out->len);
	if (image == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a segment of %zu bytes", out->len);
	memcpy(image, out->buffer, out->len);
	shf_account(out->account, 0, out->len);
	shf_segment_current(out)->image = image;
	out->len = 0;
	return SHF_OK;
}

static ShfCode
log_end_segment(ShfOutput *out, ShfError *err)
{
	ShfCode code = shf_file_complete(out, err);
	bool	fits = out->flushed == 0 && out->file_bytes <= out->options->inline_max;

	if (code == SHF_OK)
		code = fits ? take_image(out, err) : shf_file_close(out, out->options->sync, err);
	if (code != SHF_OK)
		return code;
	shf_segment_current(out)->bytes = out->file_bytes;
	shf_segment_current(out)->files = fits ? 0 : 1;
	shf_segment_end(out);
	return SHF_OK;
}

static bool
log_segment_full(ShfOutput *out, uint32_t partition, uint32_t rows, uint64_t bytes)
{
	ShfSegment *segment = shf_segment_current(out);

	if (segment->blocks == 0)
		return false;
	return out->file_bytes + bytes > SHF_SEGMENT_ROLL_BYTES ||
		segment->rows + rows > SHF_SEGMENT_MAX_ROWS ||
		(segment->nextents >= SHF_SEGMENT_MAX_EXTENTS &&
		 segment->extents[segment->nextents - 1].partition != partition);
}

static ShfCode
log_open_block(ShfOutput *out, uint32_t partition, uint32_t rows, uint64_t bytes, ShfError *err)
{
	ShfCode code = SHF_OK;

	if (out->segment_open && log_segment_full(out, partition, rows, bytes))
		code = log_end_segment(out, err);
	if (code == SHF_OK && !out->segment_open)
	{
		code = shf_segment_begin(out, err);
		if (code == SHF_OK)
			code = shf_file_begin(
				out,
				shf_format("%s-%u.arrow", out->options->path, shf_segment_current(out)->number),
				err);
	}
	return code;
}

static ShfCode
log_add_block(ShfOutput *out, const ShfBlock *block, uint64_t offset, ShfError *err)
{
	ShfSegment	*segment = shf_segment_current(out);
	ShfExtent	*last = NULL;
	ShfBlockPos *pos;
	ShfCode		 code = shf_positions_reserve(out, out->npositions + 1, err);

	if (code != SHF_OK)
		return code;
	pos = &out->positions[out->npositions++];
	pos->offset = (int64_t) offset;
	pos->metadata_bytes = (int32_t) (block->message_bytes - block->body_bytes);
	pos->zero = 0;
	pos->body_bytes = (int64_t) block->body_bytes;

	if (segment->nextents > 0)
		last = &segment->extents[segment->nextents - 1];
	if (last == NULL || last->partition != block->partition)
	{
		ShfExtent extent = {
			.partition = block->partition,
			.offset = offset,
			.first_row = segment->rows,
		};

		code = shf_segment_add_extent(out, &extent, err);
		if (code != SHF_OK)
			return code;
		last = &segment->extents[segment->nextents - 1];
	}
	last->blocks++;
	last->bytes += block->message_bytes;
	last->raw_bytes += block->raw_bytes;
	last->rows += block->rows;
	shf_segment_add_block(out, block);
	return SHF_OK;
}

static ShfCode
log_rest(ShfOutput *out, ShfError *err)
{
	ShfCode code = SHF_OK;

	if (!out->segment_open)
		return SHF_OK;
	code = shf_output_flush(out, err);

	/* What write-back reports after the file is closed would be lost. */
	if (code == SHF_OK && out->options->sync && out->fd >= 0 && shf_fsync(out, out->fd) < 0)
		code = shf_error_errno(err, "could not sync file \"%s\"", out->path);
	if (code == SHF_OK)
		shf_file_abandon(out);
	return code;
}

static ShfCode
log_finish(ShfOutput *out, ShfError *err)
{
	ShfCode	 code = SHF_OK;
	uint64_t files = 0;

	if (out->segment_open)
		code = log_end_segment(out, err);
	for (int i = 0; i < out->nsegments; i++)
		files += out->segments[i].files;
	if (code == SHF_OK && out->options->sync && files > 0)
		code = shf_sync_parent(out, err);
	return code;
}

const ShfOutputOps shf_output_log_ops = {
	.open_block = log_open_block,
	.add_block = log_add_block,
	.rest = log_rest,
	.end_segment = log_end_segment,
	.finish = log_finish,
};
