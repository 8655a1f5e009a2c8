/*
 * encode.c
 *	  The Arrow block encoder.
 *
 * A block is made in three steps:
 *	  gather	column by column, values are copied from the packed rows to their buffers
 *	  layout	every buffer gets its place in the body, whose size is then known
 *	  finish	compression if it pays, header, checksum
 * The first two are in gather.c.  With a codec values are gathered into scratch memory,
 * from where buffers are compressed into the body one by one.  Without one, or when a block
 * is too small for it, they are gathered where the output will write them from; what there
 * is in each column must be counted before.
 *
 * Nothing is allocated per block, unless nested columns or a large row outgrow what
 * earlier blocks needed.
 */
#include "encode.h"

#include "crc32c.h"

#include <stdlib.h>

/* ---------------------------------------------------------------- finish */

/* Completes a message whose body lies behind its header. */
static ShfCode
finish_message(ShfArrowEncoder *e, ShfOutput *out, uint32_t partition, uint32_t n, uint8_t *message,
			   const ShfSpan *spans, uint64_t body_bytes, uint64_t raw_bytes, bool compressed,
			   ShfError *err)
{
	const ShfTemplate *t = &e->template;
	const size_t	   nodes_end = t->nodes + 16 * (size_t) t->nnodes;

	ShfBlock block = {
		.partition = partition,
		.rows = n,
		.raw_bytes = raw_bytes,
		.body_bytes = body_bytes,
		.message_bytes = t->bytes + body_bytes,
	};

	/* Constant part, nodes, the count of buffers, buffers. */
	memcpy(message, t->data, t->nodes);
	memcpy(message + t->nodes, e->nodes, nodes_end - t->nodes);
	memcpy(message + nodes_end, t->data + nodes_end, t->buffers - nodes_end);
	memcpy(message + t->buffers, spans, sizeof(ShfSpan) * (size_t) t->nbuffers);
	shf_template_patch(message, partition, n, body_bytes, compressed);
	shf_template_set_crc(message, shf_crc32c(0, message + 8, t->bytes - 8 + body_bytes));
	return shf_output_put(out, &block, err);
}

/*
 * Compresses the body buffer by buffer to dst and fills e->stored.
 * *stored_bytes: size of the new body.
 */
static ShfCode
compress_body(ShfArrowEncoder *e, uint8_t *dst, uint64_t *stored_bytes, ShfError *err)
{
	ShfCodecKind kind = e->options->codec.kind;
	uint64_t	 at = 0;

	for (int b = 0; b < e->template.nbuffers; b++)
	{
		const uint8_t *src = e->sources[b];
		size_t		   len = (size_t) e->spans[b].length;
		int64_t		   prefix = (int64_t) len;
		size_t		   written = 0;
		uint64_t	   end;

		e->stored[b].offset = (int64_t) at;
		e->stored[b].length = 0;
		if (len == 0)
			continue;
		if (len >= SHF_MIN_FRAME_INPUT)
		{
			ShfCode code =
				shf_compress_buffer(e->compressor, e->options->codec, &e->histories[b], src, len,
									e->value_widths[b], dst + at + 8, &written, err);

			if (code != SHF_OK)
				return code;
		}
		if (written == 0 && e->raw_forbidden[b])
			written = shf_store_frame(kind, src, len, dst + at + 8);
		if (written == 0)
		{
			prefix = -1;
			memcpy(dst + at + 8, src, len);
			written = len;
		}
		memcpy(dst + at, &prefix, sizeof(prefix));
		e->stored[b].length = (int64_t) (8 + written);
		end = at + 8 + written;
		at += shf_pad8(8 + written);
		memset(dst + end, 0, at - end);
	}
	*stored_bytes = at;
	return SHF_OK;
}

/* Writes the body as it is, buffer by buffer, zeroes between them. */
static void
store_body(const ShfArrowEncoder *e, uint8_t *dst)
{
	for (int b = 0; b < e->template.nbuffers; b++)
	{
		const ShfSpan *span = &e->spans[b];
		size_t		   len = (size_t) span->length;

		if (len == 0)
			continue;
		memcpy(dst + span->offset, e->sources[b], len);
		memset(dst + span->offset + len, 0, (size_t) shf_pad8(len) - len);
	}
}

static ShfCode
reserve_scratch(ShfArrowEncoder *e, ShfError *err)
{
	if (e->scratch_cap > 0)
		return SHF_OK;
	e->scratch = malloc(e->scratch_bytes);
	if (e->scratch == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a block of %zu bytes",
						 e->scratch_bytes);
	e->scratch_cap = e->scratch_bytes;
	shf_account(e->account, 0, e->scratch_cap);
	return SHF_OK;
}

static uint64_t
compressed_bound(const ShfArrowEncoder *e)
{
	uint64_t bound = e->template.bytes;

	for (int b = 0; b < e->template.nbuffers; b++)
	{
		if (e->spans[b].length > 0)
			bound += 16 + shf_frame_bound(e->options->codec.kind, (size_t) e->spans[b].length);
	}
	return bound;
}

/* Accounts for what grows inside: builders and compressor. */
void
shf_arrow_account(ShfArrowEncoder *e)
{
	if (e->nnested > 0)
	{
		uint64_t held = 0;

		for (int c = 0; c < e->nnested; c++)
			held += shf_builder_held(&e->builders[c]);
		shf_account(e->account, e->builders_held, held);
		e->builders_held = held;

		/* One oversized row must not keep its memory. */
		if (held > 4 * (uint64_t) e->options->block_bytes)
		{
			held = 0;
			for (int c = 0; c < e->nnested; c++)
			{
				shf_builder_trim(&e->builders[c]);
				held += shf_builder_held(&e->builders[c]);
			}
			shf_account(e->account, e->builders_held, held);
			e->builders_held = held;
		}
	}
	if (e->compressor != NULL)
	{
		uint64_t held = shf_compressor_held(e->compressor);

		shf_account(e->account, e->compressor_held, held);
		e->compressor_held = held;
	}
}

ShfCode
shf_arrow_compressor(ShfArrowEncoder *e, ShfError *err)
{
	if (e->compressor != NULL || e->options->codec.kind == SHF_CODEC_NONE)
		return SHF_OK;
	return shf_compressor_create(&e->compressor, e->options->codec, err);
}

/*
 * Gathers n rows where the output writes them from.  When the block turns out to be worth
 * compressing, *done is false and nothing has happened.
 */
static ShfCode
make_plain(ShfArrowEncoder *e, ShfOutput *out, uint32_t partition, const ShfRows *rows, uint32_t n,
		   bool *done, uint64_t *gathered, ShfError *err)
{
	uint64_t body_bytes;
	uint8_t *message;
	ShfCode	 code;

	shf_arrow_count(e, rows, n);
	body_bytes = shf_arrow_layout(e, n);
	*done = e->options->codec.kind == SHF_CODEC_NONE || body_bytes < SHF_MIN_COMPRESSED_BODY;
	if (!*done)
		return SHF_OK;
	code = shf_output_reserve(out, partition, n, e->template.bytes + body_bytes, &message, err);
	if (code != SHF_OK)
		return code;
	shf_arrow_place(e, message + e->template.bytes);
	shf_arrow_gather_fixed(e, rows, n);
	shf_arrow_gather_variable(e, rows, n);
	if (gathered != NULL)
		*gathered = shf_work_clock(e->account);
	if (e->nnested > 0)
		shf_arrow_account(e);
	return finish_message(e, out, partition, n, message, e->spans, body_bytes, body_bytes, false,
						  err);
}

/* *gathered: the work clock when the rows were in columns, unless it is NULL. */
static ShfCode
make_block(ShfArrowEncoder *e, ShfOutput *out, uint32_t partition, const ShfRows *rows,
		   uint32_t *taken, uint64_t *gathered, ShfError *err)
{
	uint32_t n = rows->n;
	uint64_t body_bytes;
	uint64_t stored_bytes;
	uint8_t *message;
	bool	 done = false;
	ShfCode	 code = SHF_OK;

	if (e->nnested > 0)
		code = shf_arrow_build_nested(e, rows, &n, err);
	if (code != SHF_OK)
		return code;
	shf_arrow_fit(e, rows, &n);
	*taken = n;
	if (e->options->codec.kind == SHF_CODEC_NONE ||
		(uint64_t) n * rows->row_bytes < SHF_MIN_COMPRESSED_BODY)
		code = make_plain(e, out, partition, rows, n, &done, gathered, err);
	if (code != SHF_OK || done)
		return code;

	code = shf_arrow_compressor(e, err);
	if (code == SHF_OK)
		code = reserve_scratch(e, err);
	if (code != SHF_OK)
		return code;
	shf_arrow_place_scratch(e, rows, n);
	shf_arrow_gather_fixed(e, rows, n);
	body_bytes = shf_arrow_layout(e, n);
	shf_arrow_gather_variable(e, rows, n);
	if (gathered != NULL)
		*gathered = shf_work_clock(e->account);
	code = shf_output_reserve(out, partition, n, compressed_bound(e), &message, err);
	if (code == SHF_OK && body_bytes >= SHF_MIN_COMPRESSED_BODY)
		code = compress_body(e, message + e->template.bytes, &stored_bytes, err);
	else
		stored_bytes = body_bytes;
	if (code != SHF_OK)
		return code;
	if (stored_bytes >= body_bytes)
		store_body(e, message + e->template.bytes);

	/* This may free what nested columns were built in. */
	shf_arrow_account(e);
	if (stored_bytes < body_bytes)
		return finish_message(e, out, partition, n, message, e->stored, stored_bytes, body_bytes,
							  true, err);
	return finish_message(e, out, partition, n, message, e->spans, body_bytes, body_bytes, false,
						  err);
}

static ShfCode
encode_block(ShfEncoder *base, ShfOutput *out, uint32_t partition, const ShfRows *rows,
			 uint32_t *taken, ShfError *err)
{
	ShfArrowEncoder *e = (ShfArrowEncoder *) base;
	ShfAccount		*account = e->account;
	uint64_t		 begun;
	uint64_t		 gathered;
	ShfCode			 code;

	if (!shf_account_timed(account, rows->n))
		return make_block(e, out, partition, rows, taken, NULL, err);
	begun = gathered = shf_work_clock(account);
	code = make_block(e, out, partition, rows, taken, &gathered, err);
	shf_account_block(account, rows->n, gathered - begun, shf_work_clock(account) - gathered);
	return code;
}

/* ---------------------------------------------------------------- life of an encoder */

static bool
is_nested(ShfKind kind)
{
	return kind == SHF_LIST || kind == SHF_STRUCT;
}

static int
count_nested(const ShfSchema *schema)
{
	int n = 0;

	for (int i = 0; i < schema->nfields; i++)
		n += is_nested(schema->fields[i].kind);
	return n;
}

static int
count_variable(const ShfSchema *schema)
{
	int n = 0;

	for (int i = 0; i < schema->nfields; i++)
		n += shf_kinds[schema->fields[i].kind].width < 0;
	return n;
}

/*
 * The flat columns of a block are no larger than its packed rows but for the padding of
 * each buffer, one offset per column, and narrow decimals, which are twice as wide: with
 * the 8 bytes before the slots that is less than twice the size for all the rows.
 */
static uint64_t
max_flat(const ShfSchema *schema, const ShfWriterOptions *options, int nbuffers)
{
	uint64_t narrow = 0;

	for (int i = 0; i < schema->nfields; i++)
	{
		if (schema->fields[i].kind == SHF_DECIMAL128 &&
			schema->fields[i].precision <= SHF_NARROW_DIGITS)
			narrow++;
	}
	return (uint64_t) options->block_bytes * (2 * narrow + 1) / (narrow + 1) +
		16 * (uint64_t) nbuffers;
}

/* Nested columns may add as much again before the block is cut. */
static uint64_t
max_body(const ShfSchema *schema, const ShfWriterOptions *options, int nbuffers)
{
	uint64_t bytes = max_flat(schema, options, nbuffers);

	if (count_nested(schema) > 0)
		bytes += options->block_bytes;
	return bytes < SHF_MIN_COMPRESSED_BODY ? SHF_MIN_COMPRESSED_BODY : bytes;
}

uint64_t
shf_arrow_max_message(const ShfSchema *schema, const ShfWriterOptions *options)
{
	ShfCodecKind kind = options->codec.kind;
	int			 nnodes;
	int			 nbuffers;
	uint64_t	 body;

	shf_schema_count(schema, &nnodes, &nbuffers);
	body = max_body(schema, options, nbuffers);

	/* A frame's bound is its input and a part that does not grow faster. */
	if (kind != SHF_CODEC_NONE)
		body = shf_frame_bound(kind, body) + (uint64_t) nbuffers * (16 + shf_frame_bound(kind, 1));
	return shf_template_bytes(nnodes, nbuffers) + body;
}

uint64_t
shf_arrow_encoder_memory(const ShfSchema *schema)
{
	int nnodes;
	int nbuffers;

	shf_schema_count(schema, &nnodes, &nbuffers);
	return sizeof(ShfArrowEncoder) + 2 * shf_template_bytes(nnodes, nbuffers) +
		(uint64_t) schema->nfields * (sizeof(ShfEncodeColumn) + 2 * sizeof(int64_t)) +
		(uint64_t) nnodes * (16 + sizeof(ShfBuilder)) +
		(uint64_t) nbuffers *
		(2 * sizeof(ShfSpan) + sizeof(uint8_t *) + sizeof(bool) + sizeof(uint8_t) +
		 sizeof(ShfBufferHistory)) +
		(uint64_t) count_variable(schema) * 8;
}

uint64_t
shf_arrow_growing_memory(const ShfSchema *schema, const ShfWriterOptions *options)
{
	uint64_t bytes = 0;
	int		 nnodes;
	int		 nbuffers;

	shf_schema_count(schema, &nnodes, &nbuffers);
	if (count_nested(schema) > 0)
		bytes += 4 * (uint64_t) options->block_bytes;
	if (options->codec.kind != SHF_CODEC_NONE)
		bytes += max_flat(schema, options, nbuffers) + shf_compressor_memory(options->codec);
	return bytes;
}

static void
encoder_rest(ShfEncoder *base)
{
	ShfArrowEncoder *e = (ShfArrowEncoder *) base;

	for (int c = 0; c < e->nnested; c++)
		shf_builder_trim(&e->builders[c]);
	if (e->compressor != NULL)
		shf_compressor_free(e->compressor);
	e->compressor = NULL;
	free(e->scratch);
	e->scratch = NULL;
	shf_account(e->account, e->scratch_cap + e->compressor_held, 0);
	e->scratch_cap = 0;
	e->compressor_held = 0;
	shf_arrow_account(e);
}

static void
encoder_free(ShfEncoder *base)
{
	ShfArrowEncoder *e = (ShfArrowEncoder *) base;

	if (e == NULL)
		return;
	for (int c = 0; c < e->nnested; c++)
		shf_builder_release(&e->builders[c]);
	shf_template_release(&e->template);
	if (e->compressor != NULL)
		shf_compressor_free(e->compressor);
	free(e->columns);
	free(e->raw_forbidden);
	free(e->value_widths);
	free(e->histories);
	free(e->builders);
	free(e->nodes);
	free(e->spans);
	free(e->sources);
	free(e->stored);
	free(e->scratch);
	free(e->large_offsets);
	free(e->large_decimals);
	free(e->large_header);
	free(e);
}

static const ShfEncoderOps arrow_ops = {
	.block = encode_block,
	.large_row = shf_arrow_large_row,
	.rest = encoder_rest,
	.free = encoder_free,
};

static ShfGather
gather_of(const ShfField *field)
{
	switch (field->kind)
	{
		case SHF_BOOL:
			return SHF_GATHER_BOOL;
		case SHF_UTF8:
		case SHF_BINARY:
			return SHF_GATHER_VAR;
		case SHF_LIST:
		case SHF_STRUCT:
			return SHF_GATHER_NESTED;
		case SHF_DECIMAL128:
			return field->precision <= SHF_NARROW_DIGITS ? SHF_GATHER_NARROW : SHF_GATHER_16;
		default:
			break;
	}
	switch (field->kind == SHF_FIXED_BINARY ? field->width : shf_kinds[field->kind].width)
	{
		case 1:
			return SHF_GATHER_1;
		case 2:
			return SHF_GATHER_2;
		case 4:
			return SHF_GATHER_4;
		case 8:
			return SHF_GATHER_8;
		case 16:
			return SHF_GATHER_16;
		default:
			return SHF_GATHER_N;
	}
}

/*
 * Describes the buffers of a field, depth first from *buffer on: which must not be stored
 * raw, and which are arrays of values of 4, 8 or 16 bytes.
 */
static void
describe_buffers(ShfArrowEncoder *e, const ShfField *field, int *buffer)
{
	const ShfKindInfo *kind = &shf_kinds[field->kind];

	for (int i = 0; i < kind->nbuffers; i++, (*buffer)++)
	{
		bool last = i == kind->nbuffers - 1;
		int	 width = last && kind->width >= 0 ? kind->width : 0;

		if (field->kind == SHF_FIXED_BINARY && last)
			width = field->width;

		/* Offsets lie between validity and data, or behind validity. */
		if (i == 1 && (kind->nbuffers == 3 || field->kind == SHF_LIST))
			width = sizeof(int32_t);
		e->raw_forbidden[*buffer] = kind->raw_forbidden && last;
		e->value_widths[*buffer] = width == 4 || width == 8 || width == 16 ? (uint8_t) width : 0;
	}
	for (int i = 0; i < field->nchildren; i++)
		describe_buffers(e, &field->children[i], buffer);
}

static void
count_one(const ShfField *field, int *nnodes, int *nbuffers)
{
	ShfSchema one = {.nfields = 1, .fields = (ShfField *) field};

	shf_schema_count(&one, nnodes, nbuffers);
}

static ShfCode
init_columns(ShfArrowEncoder *e, ShfError *err)
{
	int described = 0;
	int node = 0;
	int buffer = 0;

	for (int i = 0; i < e->ncolumns; i++)
	{
		const ShfField	*field = &e->schema->fields[i];
		ShfEncodeColumn *col = &e->columns[i];
		int				 nnodes;
		int				 nbuffers;

		col->gather = gather_of(field);
		col->field = i;
		col->slot = e->layout->slot[i];
		col->var = e->layout->var[i];
		col->null_byte = e->layout->null_offset + (uint32_t) i / 8;
		col->null_bit = (uint8_t) (i % 8);
		col->node = node;
		col->buffer = buffer;
		if (shf_kinds[field->kind].width >= 0)
			col->width =
				(uint32_t) (field->kind == SHF_FIXED_BINARY ? field->width :
															  shf_kinds[field->kind].width);
		if (col->gather == SHF_GATHER_NESTED)
		{
			ShfCode code;

			col->nested = &e->builders[e->nnested++];
			code = shf_builder_init(col->nested, field, err);
			if (code != SHF_OK)
				return code;
		}
		describe_buffers(e, field, &described);
		count_one(field, &nnodes, &nbuffers);
		node += nnodes;
		buffer += nbuffers;
	}
	return SHF_OK;
}

ShfCode
shf_arrow_encoder_create(ShfEncoder **encoder, const ShfSchema *schema,
						 const ShfRowLayout *row_layout, const ShfWriterOptions *options,
						 ShfAccount *account, ShfError *err)
{
	ShfArrowEncoder *e = calloc(1, sizeof(*e));
	size_t			 nnodes;
	size_t			 nbuffers;
	ShfCode			 code;

	*encoder = (ShfEncoder *) e;
	if (e == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a block encoder");
	e->base.ops = &arrow_ops;
	e->schema = schema;
	e->layout = row_layout;
	e->options = options;
	e->account = account;
	e->ncolumns = schema->nfields;
	code = shf_template_init(&e->template, schema, options->codec.kind, err);
	if (code != SHF_OK)
		return code;

	/* One more than needed: no allocation of zero bytes. */
	nnodes = (size_t) e->template.nnodes + 1;
	nbuffers = (size_t) e->template.nbuffers + 1;
	e->columns = calloc((size_t) schema->nfields + 1, sizeof(*e->columns));
	e->builders = calloc((size_t) count_nested(schema) + 1, sizeof(*e->builders));
	e->raw_forbidden = calloc(nbuffers, sizeof(*e->raw_forbidden));
	e->value_widths = calloc(nbuffers, sizeof(*e->value_widths));
	e->histories = calloc(nbuffers, sizeof(*e->histories));
	e->nodes = calloc(2 * nnodes, sizeof(*e->nodes));
	e->spans = calloc(nbuffers, sizeof(*e->spans));
	e->sources = calloc(nbuffers, sizeof(*e->sources));
	e->stored = calloc(nbuffers, sizeof(*e->stored));
	e->large_offsets = calloc(2 * ((size_t) row_layout->nvar + 1), sizeof(*e->large_offsets));
	e->large_decimals = calloc(2 * ((size_t) schema->nfields + 1), sizeof(*e->large_decimals));
	e->large_header = malloc(e->template.bytes);
	if (e->columns == NULL || e->builders == NULL || e->raw_forbidden == NULL ||
		e->value_widths == NULL || e->histories == NULL || e->nodes == NULL || e->spans == NULL ||
		e->sources == NULL || e->stored == NULL || e->large_offsets == NULL ||
		e->large_decimals == NULL || e->large_header == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a block encoder");
	if (options->codec.kind != SHF_CODEC_NONE)
		e->scratch_bytes = max_flat(schema, options, e->template.nbuffers);
	return init_columns(e, err);
}
