/*
 * encode_large.c
 *	  Blocks of one row that is too large to be packed: its values are compressed from
 *	  where they are, one after the other, and never held as a whole.
 */
#include "encode.h"

#include "crc32c.h"

#include <stdlib.h>

/* Buffers below this are compressed as a whole or not at all. */
#define STREAM_MIN_INPUT 4096

typedef struct LargeRow
{
	ShfLargeBlock	 large; /* first: the output knows this part only */
	ShfArrowEncoder *e;

	/* of the body being emitted */
	ShfEmit	 emit;
	void	*arg;
	uint32_t crc;
	uint64_t bytes;
} LargeRow;

/* Passes bytes of the body on, counted and summed. */
static ShfCode
emit_body(void *arg, const void *data, size_t len, ShfError *err)
{
	LargeRow *lr = arg;

	lr->crc = shf_crc32c(lr->crc, data, len);
	lr->bytes += len;
	return lr->emit(lr->arg, data, len, err);
}

static ShfCode
emit_padding(LargeRow *lr, ShfError *err)
{
	static const uint8_t zeros[8];
	size_t				 pad = (size_t) (shf_pad8(lr->bytes) - lr->bytes);

	return pad > 0 ? emit_body(lr, zeros, pad, err) : SHF_OK;
}

/* One buffer in its compressed form: length and frame, or -1 and the bytes. */
static ShfCode
emit_compressed(LargeRow *lr, int b, ShfError *err)
{
	ShfArrowEncoder *e = lr->e;
	ShfCodecKind	 kind = e->options->codec.kind;
	const uint8_t	*src = e->sources[b];
	size_t			 len = (size_t) e->spans[b].length;
	int64_t			 prefix = (int64_t) len;
	ShfCode			 code;

	if (len >= STREAM_MIN_INPUT)
	{
		code = emit_body(lr, &prefix, sizeof(prefix), err);
		if (code == SHF_OK)
			code = shf_compress_stream(e->compressor, src, len, emit_body, lr, err);
		return code;
	}
	if (e->raw_forbidden[b])
	{
		uint8_t frame[STREAM_MIN_INPUT + 1024];
		size_t	written = shf_store_frame(kind, src, len, frame);

		code = emit_body(lr, &prefix, sizeof(prefix), err);
		return code == SHF_OK ? emit_body(lr, frame, written, err) : code;
	}
	prefix = -1;
	code = emit_body(lr, &prefix, sizeof(prefix), err);
	return code == SHF_OK ? emit_body(lr, src, len, err) : code;
}

static ShfCode
produce(ShfLargeBlock *large, ShfEmit emit, void *arg, ShfError *err)
{
	LargeRow		  *lr = (LargeRow *) large;
	ShfArrowEncoder	  *e = lr->e;
	const ShfTemplate *t = &e->template;
	bool			   compressed = e->options->codec.kind != SHF_CODEC_NONE;
	uint64_t		   raw_bytes = 0;
	uint32_t		   crc;

	lr->emit = emit;
	lr->arg = arg;
	lr->crc = 0;
	lr->bytes = 0;
	for (int b = 0; b < t->nbuffers; b++)
	{
		ShfCode code = SHF_OK;

		e->stored[b].offset = (int64_t) lr->bytes;
		if (e->spans[b].length > 0 && compressed)
			code = emit_compressed(lr, b, err);
		else if (e->spans[b].length > 0)
			code = emit_body(lr, e->sources[b], (size_t) e->spans[b].length, err);
		e->stored[b].length = (int64_t) lr->bytes - e->stored[b].offset;
		if (code == SHF_OK)
			code = emit_padding(lr, err);
		if (code != SHF_OK)
			return code;
		raw_bytes += shf_pad8((uint64_t) e->spans[b].length);
	}

	memcpy(e->large_header, t->data, t->bytes);
	memcpy(e->large_header + t->nodes, e->nodes, 16 * (size_t) t->nnodes);
	memcpy(e->large_header + t->buffers, e->stored, sizeof(ShfSpan) * (size_t) t->nbuffers);
	shf_template_patch(e->large_header, large->partition, 1, lr->bytes, compressed);
	crc = shf_crc32c_combine(shf_crc32c(0, e->large_header + 8, t->bytes - 8), lr->crc, lr->bytes);
	shf_template_set_crc(e->large_header, crc);

	large->block.partition = large->partition;
	large->block.rows = 1;
	large->block.raw_bytes = raw_bytes;
	large->block.body_bytes = lr->bytes;
	large->block.message_bytes = t->bytes + lr->bytes;
	return SHF_OK;
}

/* Points nodes, spans and sources at the row's values. */
static ShfCode
list_buffers(ShfArrowEncoder *e, const ShfRow *row, ShfError *err)
{
	static const uint8_t null_bitmap[1] = {0};

	for (int c = 0; c < e->ncolumns; c++)
	{
		ShfEncodeColumn *col = &e->columns[c];
		bool			 is_null = row->fixed[col->null_byte] >> col->null_bit & 1;
		int64_t			*node = e->nodes + 2 * col->node;
		ShfSpan			*span = e->spans + col->buffer;
		const uint8_t  **source = e->sources + col->buffer;

		if (col->var >= 0 && row->var[col->var].len > INT32_MAX)
			return shf_error(err, SHF_ERR_LIMIT,
							 "value of column \"%s\" has %zu bytes, more than the limit of %d",
							 e->schema->fields[c].name, row->var[col->var].len, INT32_MAX);
		if (col->gather == SHF_GATHER_NESTED)
		{
			const ShfBytes *value = &row->var[col->var];
			ShfCode			code;

			shf_builder_reset(col->nested);
			if (is_null)
				code = shf_builder_append_null(col->nested, err);
			else
				code = shf_builder_append(col->nested, value->data, value->len, err);
			if (code != SHF_OK)
				return code;
			shf_builder_list(col->nested, &node, &span, &source);
			continue;
		}
		node[0] = 1;
		node[1] = is_null;
		span[0].length = is_null;
		source[0] = null_bitmap;
		if (col->gather == SHF_GATHER_VAR)
		{
			int32_t *offsets = e->large_offsets + 2 * col->var;

			offsets[0] = 0;
			offsets[1] = (int32_t) row->var[col->var].len;
			span[1].length = 2 * sizeof(int32_t);
			source[1] = (const uint8_t *) offsets;
			span[2].length = (int64_t) row->var[col->var].len;
			source[2] = row->var[col->var].data;
		}
		else
		{
			/* A Bool slot of 0 or 1 is a bitmap of one row. */
			span[1].length = col->width;
			source[1] = row->fixed + col->slot;
			if (col->gather == SHF_GATHER_NARROW)
			{
				int64_t *wide = e->large_decimals + 2 * c;

				memcpy(&wide[0], row->fixed + col->slot, sizeof(wide[0]));
				wide[1] = wide[0] >> 63;
				source[1] = (const uint8_t *) wide;
			}
		}
	}
	return SHF_OK;
}

ShfCode
shf_arrow_large_row(ShfEncoder *base, ShfOutput *out, uint32_t partition, const ShfRow *row,
					ShfError *err)
{
	ShfArrowEncoder *e = (ShfArrowEncoder *) base;
	LargeRow		 lr = {
				.large =
					{
						.partition = partition,
						.rows = 1,
						.produce = produce,
						.header = e->large_header,
						.header_bytes = e->template.bytes,
			},
				.e = e,
	};
	ShfCode code = list_buffers(e, row, err);

	if (code == SHF_OK)
		code = shf_arrow_compressor(e, err);
	lr.large.estimated_bytes = e->template.bytes;
	for (int b = 0; b < e->template.nbuffers; b++)
		lr.large.estimated_bytes += (uint64_t) e->spans[b].length;
	memcpy(e->large_header, e->template.data, e->template.bytes);
	if (code == SHF_OK)
		code = shf_output_put_large(out, &lr.large, err);
	shf_arrow_account(e);
	return code;
}
