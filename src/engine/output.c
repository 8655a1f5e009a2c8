/*
 * output.c
 *	  What all outputs share: the write buffer, large rows, beginning and end.  See output.h.
 */
#include "output.h"

#include "crc32c.h"

#include <stdlib.h>

/* ---------------------------------------------------------------- write buffer */

/* Hands len > 0 bytes to the current destination. */
static ShfCode
write_untimed(ShfOutput *out, const uint8_t *data, size_t len, ShfError *err)
{
	if (out->options->layout == SHF_LAYOUT_STREAM)
		return out->options->write_stream(out->options->write_arg, data, len, err);

	/* A file that was begun but not created, or that was closed to rest. */
	if (out->fd < 0)
	{
		ShfCode code;

		(void) shf_output_ask_files(out);
		if (out->flushed == 0)
			code = shf_file_open_new(out, err);
		else
			code = shf_file_reopen(out->path, out->flushed, &out->fd, err);
		if (code != SHF_OK)
			return code;
	}
	out->flushed += len;
	return shf_write_all(out->fd, out->path, data, len, -1, err);
}

ShfCode
shf_output_count(ShfOutput *out, size_t len, ShfError *err)
{
	uint64_t written = __atomic_add_fetch(&out->account->written, len, __ATOMIC_RELAXED);
	uint64_t limit = __atomic_load_n(&out->account->output_limit, __ATOMIC_RELAXED);

	if (written > limit)
		return shf_error(err, SHF_ERR_LIMIT,
						 "output of %llu bytes is above the limit of %llu bytes",
						 (unsigned long long) written, (unsigned long long) limit);
	return SHF_OK;
}

static ShfCode
write_out(ShfOutput *out, const uint8_t *data, size_t len, ShfError *err)
{
	const uint64_t before = out->flushed;
	uint64_t	   begun;
	ShfCode		   code;

	if (len == 0)
		return SHF_OK;
	code = shf_output_count(out, len, err);
	if (code != SHF_OK)
		return code;
	begun = shf_clock();
	code = write_untimed(out, data, len, err);
	out->account->write_ns += shf_clock() - begun;
	if (code == SHF_OK && out->options->layout == SHF_LAYOUT_LOG)
		code = shf_write_back(out, before, out->flushed, err);
	return code;
}

ShfCode
shf_output_flush(ShfOutput *out, ShfError *err)
{
	size_t len = out->len;

	out->len = 0;
	return write_out(out, out->buffer, len, err);
}

/* Replaces the (empty) buffer. */
static ShfCode
resize_buffer(ShfOutput *out, size_t cap, ShfError *err)
{
	uint8_t *buffer;

	free(out->buffer);
	out->buffer = NULL;
	shf_account(out->account, out->cap, 0);
	out->cap = 0;
	if (cap == 0)
		return SHF_OK;
	buffer = malloc(cap);
	if (buffer == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for a write buffer of %zu bytes", cap);
	out->buffer = buffer;
	out->cap = cap;
	shf_account(out->account, 0, cap);
	return SHF_OK;
}

static inline void
count_bytes(ShfOutput *out, uint64_t bytes)
{
	out->file_bytes += bytes;
	__atomic_store_n(&out->bytes_written, out->bytes_written + bytes, __ATOMIC_RELAXED);
}

ShfCode
shf_output_write(ShfOutput *out, const void *data, size_t len, ShfError *err)
{
	count_bytes(out, len);
	if (len >= out->options->write_buffer_size)
	{
		ShfCode code = shf_output_flush(out, err);

		return code == SHF_OK ? write_out(out, data, len, err) : code;
	}
	if (out->len + len > out->cap)
	{
		ShfCode code = shf_output_flush(out, err);

		if (code == SHF_OK && out->cap == 0)
			code = resize_buffer(out, out->normal_cap, err);
		if (code != SHF_OK)
			return code;
	}
	memcpy(out->buffer + out->len, data, len);
	out->len += len;
	return SHF_OK;
}

ShfCode
shf_output_reserve(ShfOutput *out, uint32_t partition, uint32_t rows, size_t bytes, uint8_t **at,
				   ShfError *err)
{
	ShfCode code = out->ops->open_block(out, partition, rows, bytes, err);

	if (code == SHF_OK && out->len + bytes > out->cap)
	{
		code = shf_output_flush(out, err);
		if (code == SHF_OK && bytes > out->cap)
			code = resize_buffer(out, bytes > out->normal_cap ? bytes : out->normal_cap, err);
	}
	*at = out->buffer + out->len;
	return code;
}

ShfCode
shf_output_put(ShfOutput *out, const ShfBlock *block, ShfError *err)
{
	uint64_t offset = out->file_bytes;
	ShfCode	 code;

	out->len += block->message_bytes;
	count_bytes(out, block->message_bytes);
	code = out->ops->add_block(out, block, offset, err);
	if (code == SHF_OK && out->len >= out->options->write_buffer_size)
		code = shf_output_flush(out, err);
	if (code == SHF_OK && out->cap > out->normal_cap)
	{
		code = shf_output_flush(out, err);
		if (code == SHF_OK)
			code = resize_buffer(out, out->normal_cap, err);
	}
	return code;
}

static ShfCode
emit_to_output(void *arg, const void *data, size_t len, ShfError *err)
{
	return shf_output_write(arg, data, len, err);
}

static ShfCode
emit_nowhere(void *arg, const void *data, size_t len, ShfError *err)
{
	(void) arg;
	(void) data;
	(void) len;
	(void) err;
	return SHF_OK;
}

/* Overwrites bytes of the current file, which are in the buffer or behind it. */
static ShfCode
overwrite(ShfOutput *out, uint64_t at, const uint8_t *data, size_t len, ShfError *err)
{
	ShfCode code;

	if (at >= out->file_bytes - out->len)
	{
		memcpy(out->buffer + (at - (out->file_bytes - out->len)), data, len);
		return SHF_OK;
	}
	code = shf_output_flush(out, err);
	if (code != SHF_OK)
		return code;
	return shf_write_all(out->fd, out->path, data, len, (off_t) at, err);
}

/*
 * The header holds the body's length and checksum.  A file gets a placeholder that is
 * overwritten when the body is there; a stream cannot go back, so there the body is
 * produced twice.
 */
ShfCode
shf_output_put_large(ShfOutput *out, ShfLargeBlock *large, ShfError *err)
{
	bool	 is_stream = out->options->layout == SHF_LAYOUT_STREAM;
	uint32_t promised = 0;
	uint64_t offset;
	ShfCode	 code;

	code = out->ops->open_block(out, large->partition, large->rows, large->estimated_bytes, err);
	if (code == SHF_OK && is_stream)
		code = large->produce(large, emit_nowhere, NULL, err);
	if (code != SHF_OK)
		return code;

	if (is_stream)
		promised = shf_crc32c(0, large->header, large->header_bytes);
	offset = out->file_bytes;
	code = shf_output_write(out, large->header, large->header_bytes, err);
	if (code == SHF_OK)
		code = large->produce(large, emit_to_output, out, err);
	if (code != SHF_OK)
		return code;

	if (is_stream)
	{
		if (shf_crc32c(0, large->header, large->header_bytes) != promised)
			return shf_error(err, SHF_ERR_CORRUPT,
							 "a large row was not compressed to the same bytes twice");
	}
	else
	{
		code = overwrite(out, offset, large->header, large->header_bytes, err);
		if (code != SHF_OK)
			return code;
	}
	return out->ops->add_block(out, &large->block, offset, err);
}

/* ---------------------------------------------------------------- life of an output */

uint64_t
shf_output_fixed_memory(const ShfSchema *schema, const ShfWriterOptions *options,
						size_t max_message)
{
	uint64_t bytes =
		sizeof(ShfOutput) + options->write_buffer_size + (uint64_t) max_message + SHF_INDEX_SLACK;

	/* Leader and footer's schema, in buffers that grow by doubling, and the schema's copy. */
	bytes += 4 * (uint64_t) shf_schema_message_bound(schema) + 4096;
	if (options->layout == SHF_LAYOUT_PARTITION_FILES)
		bytes += shf_output_parts_memory(options->partitions);
	return bytes;
}

uint64_t
shf_output_index_memory(const ShfOutput *out)
{
	/* Block positions keep their room from segment to segment. */
	return out->extents * SHF_EXTENT_COST + out->most_blocks * SHF_BLOCK_COST +
		(uint64_t) out->nsegments * SHF_SEGMENT_COST;
}

ShfCode
shf_output_create(ShfOutput **output, const ShfSchema *schema, const ShfWriterOptions *options,
				  size_t max_message, ShfAccount *account, ShfError *err)
{
	ShfOutput *out = calloc(1, sizeof(*out));

	*output = out;
	if (out == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory while writing blocks");
	switch (options->layout)
	{
		case SHF_LAYOUT_LOG:
			out->ops = &shf_output_log_ops;
			break;
		case SHF_LAYOUT_PARTITION_FILES:
			out->ops = &shf_output_parts_ops;
			break;
		case SHF_LAYOUT_STREAM:
			out->ops = &shf_output_stream_ops;
			break;
	}
	out->schema = schema;
	out->options = options;
	out->account = account;
	out->fd = -1;
	out->normal_cap = options->write_buffer_size + max_message;
	out->index_limit = UINT64_MAX;
	return out->ops->open != NULL ? out->ops->open(out, err) : SHF_OK;
}

ShfCode
shf_output_rest(ShfOutput *out, ShfError *err)
{
	ShfCode code = out->ops->rest(out, err);

	return code == SHF_OK ? resize_buffer(out, 0, err) : code;
}

ShfCode
shf_output_end_run(ShfOutput *out, ShfError *err)
{
	ShfCode code;

	if (shf_output_index_memory(out) <= out->index_limit || !out->segment_open)
		return SHF_OK;
	code = out->ops->end_segment(out, err);
	if (code != SHF_OK)
		return code;
	shf_positions_free(out);
	return shf_output_spill_index(out, err);
}

ShfCode
shf_output_finish(ShfOutput *out, ShfError *err)
{
	return out->ops->finish(out, err);
}

void
shf_output_close(ShfOutput *out)
{
	if (out == NULL)
		return;
	if (out->ops->abort != NULL)
		out->ops->abort(out);
	shf_file_abandon(out);
	for (int i = 0; i < out->nsegments; i++)
	{
		free(out->segments[i].extents);
		free(out->segments[i].image);
	}
	free(out->segments);
	free(out->positions);
	free(out->leader.data);
	free(out->segment_schema.meta);
	free(out->path);
	free(out->buffer);
	free(out);
}
