/*
 * output_stream.c
 *	  SHF_LAYOUT_STREAM: an Arrow IPC stream handed to the caller piece by piece.
 *
 * A stream has no segments and no footer.  Its schema is written before the first
 * block, or at the end if there is none: an empty stream is a valid one.
 */
#include "output.h"

static ShfCode
stream_start(ShfOutput *out, ShfError *err)
{
	ShfCode code;

	out->leader.len = 0;
	code = shf_schema_message(&out->leader, out->schema, err);
	if (code == SHF_OK)
		code = shf_output_write(out, out->leader.data, out->leader.len, err);
	return code;
}

static ShfCode
stream_open_block(ShfOutput *out, uint32_t partition, uint32_t rows, uint64_t bytes, ShfError *err)
{
	(void) partition;
	(void) rows;
	(void) bytes;
	return out->file_bytes == 0 ? stream_start(out, err) : SHF_OK;
}

static ShfCode
stream_add_block(ShfOutput *out, const ShfBlock *block, uint64_t offset, ShfError *err)
{
	(void) offset;
	(void) err;
	out->rows += block->rows;
	out->raw_bytes += block->raw_bytes;
	out->blocks++;
	return SHF_OK;
}

static ShfCode
stream_rest(ShfOutput *out, ShfError *err)
{
	return shf_output_flush(out, err);
}

static ShfCode
stream_finish(ShfOutput *out, ShfError *err)
{
	ShfCode code = SHF_OK;

	if (out->file_bytes == 0)
		code = stream_start(out, err);
	if (code == SHF_OK)
		code = shf_output_write(out, shf_stream_end, sizeof(shf_stream_end), err);
	return code == SHF_OK ? shf_output_flush(out, err) : code;
}

const ShfOutputOps shf_output_stream_ops = {
	.open_block = stream_open_block,
	.add_block = stream_add_block,
	.rest = stream_rest,
	.finish = stream_finish,
};
