/*
 * output_file.c
 *	  Files of the outputs: created, written to, completed, synced.  See output.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "output.h"

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
	return shf_error(err, SHF_ERR_NOMEM, "out of memory for the name of a file");
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

/* ---------------------------------------------------------------- open and write */

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
shf_file_open_new(ShfOutput *out, ShfError *err)
{
	out->fd =
		open(out->path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, (mode_t) out->options->file_mode);
	if (out->fd < 0)
		return shf_error_errno(err, "could not create file \"%s\"", out->path);
	return SHF_OK;
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

ShfCode
shf_write_all(int fd, const char *path, const void *data, size_t len, off_t at, ShfError *err)
{
	const uint8_t *p = data;

	while (len > 0)
	{
		size_t	part = len < MAX_DIRECT_WRITE ? len : MAX_DIRECT_WRITE;
		ssize_t n = at < 0 ? write(fd, p, part) : pwrite(fd, p, part, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
		{
			/* A write that takes nothing and says nothing means a full disk. */
			if (n == 0)
				errno = ENOSPC;
			return shf_error_errno(err, "could not write to file \"%s\"", path);
		}
		p += n;
		len -= (size_t) n;
		if (at >= 0)
			at += n;
	}
	return SHF_OK;
}

/* ---------------------------------------------------------------- sync */

int
shf_fsync(ShfOutput *out, int fd)
{
	uint64_t begun = shf_clock();
	int		 result = fsync(fd);

	out->account->sync_ns += shf_clock() - begun;
	return result;
}

int
shf_syncfs(ShfOutput *out, int fd)
{
	uint64_t begun = shf_clock();
	int		 result = syncfs(fd);

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

/* ---------------------------------------------------------------- life of a file */

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
	code = shf_file_open_new(out, err);
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
