/*
 * output.c
 *	  What all outputs share: write buffer and current file.  See output.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "output.h"

#include "crc32c.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Write-back starts each time a file has grown by so much, long before it is synced. */
#define WRITE_BACK_BYTES ((uint64_t) 4 << 20)

#define MAX_DIRECT_WRITE ((size_t) 1 << 30) /* Linux writes at most 2 GB at once */

static ShfCode
out_of_memory(ShfError *err)
{
	return shf_error(err, SHF_ERR_NOMEM, "out of memory while writing blocks");
}

char *
shf_format(const char *fmt, ...)
{
	va_list args;
	char   *s;
	int		len;

	va_start(args, fmt);
	len = vasprintf(&s, fmt, args);
	va_end(args);
	return len < 0 ? NULL : s;
}

/* ---------------------------------------------------------------- write buffer */

int
shf_output_ask_files(const ShfOutput *out)
{
	const ShfWriterOptions *options = out->options;
	int						granted;

	if (options->open_files == NULL)
		return options->max_open_files;
	granted = options->open_files(options->open_files_arg, options->max_open_files);
	if (granted > options->max_open_files)
		granted = options->max_open_files;
	return granted > 1 ? granted : 1;
}

ShfCode
shf_file_reopen(const char *path, uint64_t bytes, int *fd, ShfError *err)
{
	off_t end;

	*fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (*fd < 0)
		return shf_error_errno(err, "could not open file \"%s\"", path);
	end = lseek(*fd, 0, SEEK_END);
	if (end < 0 || (uint64_t) end != bytes)
	{
		if (end >= 0)
			errno = EIO;
		shf_error_errno(err, "file \"%s\" has %lld bytes instead of the %llu written", path,
						(long long) end, (unsigned long long) bytes);
		close(*fd);
		*fd = -1;
		return SHF_ERR_IO;
	}
	return SHF_OK;
}

static ShfCode
create_file(ShfOutput *out, ShfError *err)
{
	out->fd =
		open(out->path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, (mode_t) out->options->file_mode);
	if (out->fd < 0)
		return shf_error_errno(err, "could not create file \"%s\"", out->path);
	return SHF_OK;
}

/* Hands bytes to the current destination. */
static ShfCode
write_untimed(ShfOutput *out, const uint8_t *data, size_t len, ShfError *err)
{
	if (out->options->layout == SHF_LAYOUT_STREAM)
		return out->options->write_stream(out->options->write_arg, data, len, err);

	/* A file that was begun but not created, or that was closed to rest. */
	if (out->fd < 0 && len > 0)
	{
		ShfCode code;

		(void) shf_output_ask_files(out);
		if (out->flushed == 0)
			code = create_file(out, err);
		else
			code = shf_file_reopen(out->path, out->flushed, &out->fd, err);
		if (code != SHF_OK)
			return code;
	}
	out->flushed += len;

	while (len > 0)
	{
		ssize_t n = write(out->fd, data, len < MAX_DIRECT_WRITE ? len : MAX_DIRECT_WRITE);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
		{
			/* A write that takes nothing and says nothing means a full disk. */
			if (n == 0)
				errno = ENOSPC;
			return shf_error_errno(err, "could not write to file \"%s\"", out->path);
		}
		data += n;
		len -= (size_t) n;
	}
	return SHF_OK;
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
overwrite(ShfOutput *out, uint64_t at, const uint8_t *data, size_t left, ShfError *err)
{
	ShfCode code;

	if (at >= out->file_bytes - out->len)
	{
		memcpy(out->buffer + (at - (out->file_bytes - out->len)), data, left);
		return SHF_OK;
	}
	code = shf_output_flush(out, err);
	if (code != SHF_OK)
		return code;
	while (left > 0)
	{
		ssize_t n = pwrite(out->fd, data, left, (off_t) at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
		{
			if (n == 0)
				errno = ENOSPC;
			return shf_error_errno(err, "could not write to file \"%s\"", out->path);
		}
		data += n;
		left -= (size_t) n;
		at += (uint64_t) n;
	}
	return SHF_OK;
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

/* ---------------------------------------------------------------- files */

int
shf_fsync(ShfOutput *out, int fd)
{
	uint64_t begun = shf_clock();
	int		 result = fsync(fd);

	out->account->sync_ns += shf_clock() - begun;
	return result;
}

/*
 * Without waiting, and all of the file: the kernel finds the dirty pages by itself.  A
 * device that fails here may not do so again at fsync().  Elsewhere than on Linux, and on
 * file systems that do not take the advice, fsync() has more to do.
 */
ShfCode
shf_write_back(ShfOutput *out, uint64_t before, uint64_t after, ShfError *err)
{
#ifdef SYNC_FILE_RANGE_WRITE
	if (out->options->sync && before / WRITE_BACK_BYTES != after / WRITE_BACK_BYTES)
	{
		uint64_t begun = shf_clock();
		int		 result = sync_file_range(out->fd, 0, 0, SYNC_FILE_RANGE_WRITE);

		out->account->sync_ns += shf_clock() - begun;
		if (result < 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
			return shf_error_errno(err, "could not write back file \"%s\"", out->path);
	}
#endif
	return SHF_OK;
}

ShfCode
shf_file_begin(ShfOutput *out, char *path, ShfError *err)
{
	if (path == NULL)
		return out_of_memory(err);
	free(out->path);
	out->path = path;
	out->file_bytes = 0;
	out->flushed = 0;
	return shf_output_write(out, out->leader.data, out->leader.len, err);
}

ShfCode
shf_file_create(ShfOutput *out, char *path, ShfError *err)
{
	ShfCode code;

	if (path == NULL)
		return out_of_memory(err);
	free(out->path);
	out->path = path;
	out->file_bytes = 0;
	code = create_file(out, err);
	if (code == SHF_OK)
		code = shf_output_write(out, out->leader.data, out->leader.len, err);
	return code;
}

ShfCode
shf_file_complete(ShfOutput *out, ShfError *err)
{
	ShfBuffer footer = {0};
	ShfCode	  code;

	code = shf_output_write(out, shf_stream_end, sizeof(shf_stream_end), err);
	if (code == SHF_OK)
		code = shf_footer(&footer, &out->segment_schema, out->positions, out->npositions, err);
	if (code == SHF_OK)
		code = shf_output_write(out, footer.data, footer.len, err);
	free(footer.data);
	return code;
}

ShfCode
shf_file_close(ShfOutput *out, bool sync, ShfError *err)
{
	struct stat st;
	off_t		position;
	ShfCode		code = shf_output_flush(out, err);
	int			fd;

	if (code != SHF_OK)
		return code;
	position = lseek(out->fd, 0, SEEK_CUR);
	if (position < 0 || fstat(out->fd, &st) < 0)
		return shf_error_errno(err, "could not examine file \"%s\"", out->path);
	if ((uint64_t) position != out->file_bytes || (uint64_t) st.st_size != out->file_bytes)
	{
		errno = EIO;
		return shf_error_errno(err,
							   "file \"%s\" has %lld bytes and its position is %lld, "
							   "but %llu bytes were written",
							   out->path, (long long) st.st_size, (long long) position,
							   (unsigned long long) out->file_bytes);
	}

	/* Not repeated after a failure: the kernel may have dropped the pages. */
	if (sync && shf_fsync(out, out->fd) < 0)
		return shf_error_errno(err, "could not sync file \"%s\"", out->path);
	fd = out->fd;
	out->fd = -1;
	if (close(fd) < 0 && errno != EINTR)
		return shf_error_errno(err, "could not close file \"%s\"", out->path);
	return SHF_OK;
}

void
shf_file_abandon(ShfOutput *out)
{
	if (out->fd >= 0)
		close(out->fd);
	out->fd = -1;
	out->len = 0;
}

ShfCode
shf_sync_directory(ShfOutput *out, const char *path, ShfError *err)
{
	ShfCode code = SHF_OK;
	int		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return shf_error_errno(err, "could not open directory \"%s\"", path);

	/* Some file systems cannot sync directories and say so. */
	if (shf_fsync(out, fd) < 0 && errno != EINVAL && errno != EBADF)
		code = shf_error_errno(err, "could not sync directory \"%s\"", path);
	close(fd);
	return code;
}

ShfCode
shf_sync_parent(ShfOutput *out, ShfError *err)
{
	const char *path = out->options->path;
	const char *slash = strrchr(path, '/');
	char	   *parent;
	ShfCode		code;

	if (slash == NULL)
		parent = shf_format(".");
	else if (slash == path)
		parent = shf_format("/");
	else
		parent = shf_format("%.*s", (int) (slash - path), path);
	if (parent == NULL)
		return out_of_memory(err);
	code = shf_sync_directory(out, parent, err);
	free(parent);
	return code;
}

/* ---------------------------------------------------------------- life of an output */

uint64_t
shf_output_fixed_memory(const ShfSchema *schema, const ShfWriterOptions *options,
						size_t max_message)
{
	ShfBuffer message = {0};
	uint64_t  bytes =
		sizeof(ShfOutput) + options->write_buffer_size + (uint64_t) max_message + SHF_INDEX_SLACK;

	/*
	 * Leader, footer's schema and the copy of the schema with its malloc overhead: four
	 * times the message is ample.
	 */
	if (shf_schema_message(&message, schema, NULL) == SHF_OK)
		bytes += 4 * (uint64_t) message.len + 4096;
	free(message.data);
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
		return out_of_memory(err);
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
	return out->ops->open(out, err);
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
	ShfCode code = out->ops->end_run(out, err);

	if (code != SHF_OK || shf_output_index_memory(out) <= out->index_limit || !out->segment_open)
		return code;
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
	shf_schema_release(&out->segment_schema);
	free(out->path);
	free(out->buffer);
	free(out);
}
