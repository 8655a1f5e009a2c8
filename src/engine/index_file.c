/*
 * index_file.c
 *	  Extents that a writer's memory_limit has no room for.
 *
 * The index of what has been written, extents and block positions, grows with the data.
 * When it gets larger than its share of the memory, the open segment is completed, which
 * needs the block positions no more, and the extents of all segments go to the end of one
 * file, <path>.index, as they are in memory.  Whoever publishes the segments reads them
 * from there, one segment at a time, and removes the file; an abort or a crash leaves it
 * to those who remove the segment files of the same name.  It is never synced: it means
 * nothing after a crash.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Appends the extents of every segment that has them in memory. */
static ShfCode
append_extents(ShfOutput *out, int fd, const char *path, ShfError *err)
{
	for (int i = 0; i < out->nsegments; i++)
	{
		ShfSegment *segment = &out->segments[i];
		size_t		bytes = sizeof(ShfExtent) * (size_t) segment->nextents;
		ShfCode		code;

		if (segment->extents == NULL || segment->image != NULL)
			continue;
		code = shf_write_all(fd, path, segment->extents, bytes, -1, err);
		if (code != SHF_OK)
			return code;
		free(segment->extents);
		segment->extents = NULL;
		segment->index_offset = out->index_bytes;
		out->index_bytes += bytes;
		out->extents -= segment->nextents;
		shf_account(out->account, bytes, 0);
	}
	return SHF_OK;
}

/*
 * No file of a segment is open now, and the last one that was has had a descriptor
 * granted: this one takes its place.
 */
ShfCode
shf_output_spill_index(ShfOutput *out, ShfError *err)
{
	uint64_t begun = shf_clock();
	int		 flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
	char	*path;
	int		 fd;
	ShfCode	 code;

	path = shf_format("%s.index", out->options->path);
	if (path == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for the index of segments");
	if (out->index_bytes == 0)
		flags |= O_CREAT | O_EXCL;
	fd = open(path, flags, (mode_t) out->options->file_mode);
	if (fd < 0)
		code = shf_error_errno(err, "could not open file \"%s\"", path);
	else
	{
		code = append_extents(out, fd, path, err);
		if (close(fd) < 0 && errno != EINTR && code == SHF_OK)
			code = shf_error_errno(err, "could not close file \"%s\"", path);
	}
	free(path);
	out->account->write_ns += shf_clock() - begun;
	return code;
}

ShfCode
shf_segment_load_extents(const ShfSegment *segment, const char *path, ShfExtent *extents,
						 ShfError *err)
{
	size_t	 len = sizeof(ShfExtent) * (size_t) segment->nextents;
	off_t	 at = (off_t) segment->index_offset;
	uint8_t *p = (uint8_t *) extents;
	ShfCode	 code = SHF_OK;
	char	*name = shf_format("%s.index", path);
	int		 fd;

	if (name == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for the index of a segment");
	fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		code = shf_error_errno(err, "could not open file \"%s\"", name);
	while (code == SHF_OK && len > 0)
	{
		ssize_t n = pread(fd, p, len, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			code = shf_error_errno(err, "could not read file \"%s\"", name);
		else if (n == 0)
			code = shf_error(err, SHF_ERR_CORRUPT, "file \"%s\" ends at %lld, before %zu bytes",
							 name, (long long) at, len);
		else
		{
			p += n;
			at += n;
			len -= (size_t) n;
		}
	}
	if (fd >= 0)
		close(fd);
	free(name);
	return code;
}
