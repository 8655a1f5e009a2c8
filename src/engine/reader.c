/*
 * reader.c
 *	  Opens segment files and reads blocks out of them.
 *
 * A block's length is known only from its header, so reading takes two steps: a
 * window of the file that covers the header, then the rest straight into the batch.
 * While blocks are small the window is made large enough for several of them, so that
 * tiny blocks do not cost a system call each.  A file in memory is used in place.
 *
 * Every length is compared with the file's size or the caller's limit before anything
 * is allocated for it.
 */
#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc32c.h"

#define PREFIX_BYTES 8			 /* FF FF FF FF, i32 metadata length */
#define AHEAD_LARGE	 (64 * 1024) /* behind a block of up to half of this */
#define AHEAD_SMALL	 (8 * 1024)	 /* behind a larger one: its header */
#define AHEAD_FIRST	 (16 * 1024)

/* ---------------------------------------------------------------- source */

static ShfCode
ends_early(const ShfReader *r, uint64_t end, uint64_t need, const char *what, ShfError *err)
{
	return shf_error(err, SHF_ERR_CORRUPT,
					 "file \"%.400s\" ends at byte %llu, but %s should reach to byte %llu", r->name,
					 (unsigned long long) end, what, (unsigned long long) need);
}

/* Reads exactly len bytes at offset; the range lies inside the file's size at open. */
static ShfCode
source_read(const ShfReader *r, uint64_t offset, void *dst, size_t len, const char *what,
			ShfError *err)
{
	uint8_t *out = dst;
	size_t	 done = 0;

	if (r->fd < 0)
	{
		memcpy(dst, r->memory + offset, len);
		return SHF_OK;
	}
	while (done < len)
	{
		ssize_t got = pread(r->fd, out + done, len - done, (off_t) (offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return shf_error_errno(err, "could not read %zu bytes at byte %llu of file \"%.400s\"",
								   len - done, (unsigned long long) (offset + done), r->name);
		if (got == 0)
			return ends_early(r, offset + done, offset + len, what, err);
		done += (size_t) got;
	}
	return SHF_OK;
}

ShfCode
shf_reader_bytes(ShfReader *r, uint64_t offset, size_t len, const char *what, const uint8_t **data,
				 ShfError *err)
{
	size_t	want = len > r->ahead ? len : r->ahead;
	ShfCode code;

	if (offset > r->size || len > r->size - offset)
		return ends_early(r, r->size, offset + len, what, err);
	if (r->fd < 0)
	{
		*data = r->memory + offset;
		return SHF_OK;
	}
	if (offset >= r->window_at && offset - r->window_at <= r->window_len &&
		len <= r->window_len - (offset - r->window_at))
	{
		*data = r->window + (offset - r->window_at);
		return SHF_OK;
	}

	r->window_len = 0;
	if (want > r->size - offset)
		want = (size_t) (r->size - offset);
	if (want > r->window_cap)
	{
		size_t cap = want > AHEAD_LARGE ? want : AHEAD_LARGE;

		free(r->window);
		r->window_cap = 0;
		r->window = malloc(cap);
		if (r->window == NULL)
			return shf_error(err, SHF_ERR_NOMEM, "out of memory for %zu bytes of file \"%.400s\"",
							 cap, r->name);
		r->window_cap = cap;
	}
	code = source_read(r, offset, r->window, want, what, err);
	if (code != SHF_OK)
		return code;
	r->window_at = offset;
	r->window_len = want;
	*data = r->window;
	return SHF_OK;
}

/* ---------------------------------------------------------------- open, close */

static ShfCode
not_ours(const ShfReader *r, ShfError *err, const char *detail)
{
	return shf_error(err, SHF_ERR_CORRUPT, "file \"%.300s\" is not a segment file: %.400s", r->name,
					 detail);
}

/* Magic and schema message. */
static ShfCode
read_schema(ShfReader *r, ShfError *err)
{
	const uint8_t *p;
	uint32_t	   len;
	ShfError	   detail;
	ShfCode		   code = shf_reader_bytes(r, 0, SHF_FILE_HEADER_BYTES + PREFIX_BYTES,
										   "the header of an Arrow file", &p, err);

	if (code != SHF_OK)
		return code;
	if (memcmp(p, SHF_FILE_HEADER, SHF_FILE_HEADER_BYTES) != 0)
		return not_ours(r, err, "it does not begin with \"ARROW1\"");
	len = shf_load32(p + SHF_FILE_HEADER_BYTES + 4);
	if (shf_load32(p + SHF_FILE_HEADER_BYTES) != UINT32_MAX || (len & 7) != 0 || len == 0 ||
		len > INT32_MAX)
		return not_ours(r, err, "no schema message at byte 8");
	code = shf_reader_bytes(r, SHF_FILE_HEADER_BYTES, PREFIX_BYTES + (size_t) len, "the schema", &p,
							err);
	if (code != SHF_OK)
		return code;
	r->schema_bytes = PREFIX_BYTES + (size_t) len;
	code = shf_parse_schema_message(p + PREFIX_BYTES, len, &r->schema, &detail);
	if (code == SHF_ERR_CORRUPT)
		return not_ours(r, err, detail.message);
	if (code != SHF_OK && err != NULL)
		*err = detail;
	return code;
}

/* Takes fd, also on failure. */
static ShfCode
reader_create(ShfReader **reader, int fd, const void *memory, uint64_t size, const char *name,
			  ShfError *err)
{
	ShfReader *r = calloc(1, sizeof(ShfReader));
	ShfCode	   code = SHF_OK;

	if (r != NULL)
		r->name = strdup(name);
	if (r == NULL || r->name == NULL)
	{
		free(r);
		if (fd >= 0)
			close(fd);
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for reading file \"%.400s\"", name);
	}
	r->fd = fd;
	r->memory = memory;
	r->size = size;
	r->ahead = AHEAD_FIRST;
	code = read_schema(r, err);
	if (code != SHF_OK)
	{
		shf_reader_close(r);
		return code;
	}
	*reader = r;
	return SHF_OK;
}

ShfCode
shf_reader_open(ShfReader **reader, const char *path, ShfError *err)
{
	struct stat st;
	int			fd;
	ShfCode		code;

	*reader = NULL;
	/* O_NONBLOCK: opening a FIFO in the file's place must not wait for a writer. */
	do
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return shf_error_errno(err, "could not open file \"%.400s\"", path);
	if (fstat(fd, &st) != 0)
	{
		code = shf_error_errno(err, "could not stat file \"%.400s\"", path);
		close(fd);
		return code;
	}
	if (!S_ISREG(st.st_mode))
	{
		close(fd);
		return shf_error(err, SHF_ERR_CORRUPT, "\"%.400s\" is not a regular file", path);
	}
	return reader_create(reader, fd, NULL, (uint64_t) st.st_size, path, err);
}

ShfCode
shf_reader_open_memory(ShfReader **reader, const void *data, size_t len, const char *name,
					   ShfError *err)
{
	*reader = NULL;
	return reader_create(reader, -1, data, len, name, err);
}

const ShfSchema *
shf_reader_schema(const ShfReader *r)
{
	return &r->schema;
}

const char *
shf_reader_name(const ShfReader *r)
{
	return r->name;
}

uint64_t
shf_reader_file_size(const ShfReader *r)
{
	return r->size;
}

void
shf_reader_close(ShfReader *r)
{
	if (r == NULL)
		return;
	if (r->fd >= 0)
		close(r->fd);
	free(r->window);
	free(r->name);
	shf_schema_release(&r->schema);
	free(r);
}

/* ---------------------------------------------------------------- blocks */

static ShfCode
damaged(const ShfReader *r, uint64_t offset, ShfError *err, const char *detail)
{
	return shf_error(err, SHF_ERR_CORRUPT,
					 "block at byte %llu of file \"%.300s\" is damaged: %.400s",
					 (unsigned long long) offset, r->name, detail);
}

/*
 * The metadata of the message at offset, prefix included, in *metadata until the next
 * read.  The whole message is found to end at or before limit.
 */
static ShfCode
read_header(ShfReader *r, uint64_t offset, uint64_t limit, const uint8_t **metadata,
			size_t *metadata_bytes, ShfBatchHeader *header, ShfError *err)
{
	char	 text[160];
	uint32_t len;
	ShfError detail;
	ShfCode	 code;

	if (limit > r->size)
		return ends_early(r, r->size, limit, "its blocks", err);
	if ((offset & 7) != 0 || offset > limit || limit - offset < PREFIX_BYTES)
		return shf_error(err, SHF_ERR_INVALID,
						 "no block can lie between bytes %llu and %llu of file \"%.400s\"",
						 (unsigned long long) offset, (unsigned long long) limit, r->name);
	code = shf_reader_bytes(r, offset, PREFIX_BYTES, "a block", metadata, err);
	if (code != SHF_OK)
		return code;
	len = shf_load32(*metadata + 4);
	if (shf_load32(*metadata) != UINT32_MAX || len == 0 || (len & 7) != 0 ||
		len > limit - offset - PREFIX_BYTES || len > INT32_MAX - PREFIX_BYTES)
	{
		snprintf(text, sizeof(text),
				 "no message begins here (found %08X %08X, %llu bytes are left)",
				 shf_load32(*metadata), len, (unsigned long long) (limit - offset));
		return damaged(r, offset, err, text);
	}
	*metadata_bytes = PREFIX_BYTES + (size_t) len;
	code = shf_reader_bytes(r, offset, *metadata_bytes, "a block's header", metadata, err);
	if (code != SHF_OK)
		return code;
	code = shf_parse_batch_message(*metadata + PREFIX_BYTES, len, header, &detail);
	if (code == SHF_ERR_CORRUPT)
		return damaged(r, offset, err, detail.message);
	if (code != SHF_OK)
	{
		if (err != NULL)
			*err = detail;
		return code;
	}
	if ((uint64_t) header->body_bytes > limit - offset - *metadata_bytes)
	{
		snprintf(text, sizeof(text), "its body of %lld bytes runs beyond byte %llu",
				 (long long) header->body_bytes, (unsigned long long) limit);
		return damaged(r, offset, err, text);
	}
	return SHF_OK;
}

/* CRC over the metadata behind the prefix with its own digits as '0', then the body. */
static uint32_t
message_crc(const ShfBatch *b)
{
	const uint8_t *digits = b->message + PREFIX_BYTES + b->header.crc_offset;
	uint32_t	   crc = shf_crc32c(0, b->message + PREFIX_BYTES, b->header.crc_offset);

	crc = shf_crc32c(crc, "00000000", 8);
	return shf_crc32c(crc, digits + 8, (size_t) (b->message + b->message_bytes - (digits + 8)));
}

/* Remembers the file's name in the batch, which may outlive the reader. */
static ShfCode
name_batch(const ShfReader *r, ShfBatch *b, ShfError *err)
{
	char *name;

	if (b->name != NULL && strcmp(b->name, r->name) == 0)
		return SHF_OK;
	name = strdup(r->name);
	if (name == NULL)
		return shf_error(err, SHF_ERR_NOMEM, "out of memory for reading file \"%.400s\"", r->name);
	free(b->name);
	b->name = name;
	return SHF_OK;
}

/* Brings the whole message, whose metadata was just read, into the batch. */
static ShfCode
load_message(ShfReader *r, ShfBatch *b, uint64_t offset, const uint8_t *metadata,
			 const ShfBatchHeader *header, ShfError *err)
{
	size_t	have;
	ShfCode code;

	if (r->fd < 0 && ((uintptr_t) metadata & 7) == 0)
		b->message = metadata;
	else
	{
		code = shf_batch_reserve(b, b->message_bytes, err);
		if (code != SHF_OK)
			return code;

		/* The window holds the metadata and maybe more. */
		have = r->fd < 0 ? b->metadata_bytes : r->window_len - (size_t) (offset - r->window_at);
		if (have > b->message_bytes)
			have = b->message_bytes;
		memcpy(b->buffer, metadata, have);
		if (have < b->message_bytes)
		{
			code = source_read(r, offset + have, b->buffer + have, b->message_bytes - have,
							   "a block", err);
			if (code != SHF_OK)
				return code;
		}
		b->message = b->buffer;
	}
	r->ahead = b->message_bytes <= AHEAD_LARGE / 2 ? AHEAD_LARGE : AHEAD_SMALL;
	b->header = *header;
	b->header.nodes = b->message + (header->nodes - metadata);
	b->header.buffers = b->message + (header->buffers - metadata);
	return SHF_OK;
}

ShfCode
shf_reader_any_block(ShfReader *r, ShfBatch *b, uint64_t offset, uint64_t limit, ShfError *err)
{
	const uint8_t *metadata;
	ShfBatchHeader header;
	uint32_t	   crc;
	ShfCode		   code;

	shf_batch_clear(b);
	code = name_batch(r, b, err);
	if (code == SHF_OK)
		code = read_header(r, offset, limit, &metadata, &b->metadata_bytes, &header, err);
	if (code != SHF_OK)
		return code;
	b->offset = offset;
	b->message_bytes = b->metadata_bytes + (size_t) header.body_bytes;
	code = load_message(r, b, offset, metadata, &header, err);
	if (code == SHF_OK)
	{
		crc = message_crc(b);
		if (crc != b->header.crc)
			code = shf_batch_corrupt(b, err, "its checksum is %08x, expected %08x", crc,
									 b->header.crc);
	}
	if (code == SHF_OK)
		code = shf_batch_check(b, err);
	if (code != SHF_OK)
		shf_batch_clear(b);
	return code;
}

ShfCode
shf_reader_block(ShfReader *r, ShfBatch *b, uint64_t offset, uint64_t limit, uint32_t partition,
				 ShfError *err)
{
	ShfCode code = shf_reader_any_block(r, b, offset, limit, err);

	if (code == SHF_OK && b->header.partition != partition)
	{
		code = shf_batch_corrupt(b, err, "it belongs to partition %u, expected %u",
								 b->header.partition, partition);
		shf_batch_clear(b);
	}
	return code;
}

ShfCode
shf_reader_peek(ShfReader *r, uint64_t offset, uint64_t limit, uint32_t *rows,
				uint64_t *message_bytes, ShfError *err)
{
	const uint8_t *metadata;
	size_t		   metadata_bytes;
	ShfBatchHeader header;
	ShfCode		   code = read_header(r, offset, limit, &metadata, &metadata_bytes, &header, err);

	if (code != SHF_OK)
		return code;
	*rows = (uint32_t) header.rows;
	*message_bytes = metadata_bytes + (uint64_t) header.body_bytes;

	/* The next block's header is elsewhere unless this one was small. */
	r->ahead = *message_bytes <= AHEAD_LARGE / 2 ? AHEAD_LARGE : AHEAD_SMALL;
	return SHF_OK;
}

void
shf_reader_prefetch(const ShfReader *r, uint64_t offset, uint64_t len)
{
	if (r->fd >= 0)
		(void) posix_fadvise(r->fd, (off_t) offset, (off_t) len, POSIX_FADV_WILLNEED);
}
