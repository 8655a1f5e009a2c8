/*
 * output_parts.c
 *	  SHF_LAYOUT_PARTITION_FILES: a segment is a directory <path>-<n> with one Arrow
 *	  file per partition that has rows, p<5 digits>.arrow.
 *
 * The files of a segment share its id and schema.  Each gets its partition's blocks
 * of every run, so it is one extent; rows are numbered partition by partition when
 * the segment ends.
 *
 * Descriptors are bounded.  Every run visits the partitions in ascending order, where
 * closing the least recently used file would close each one before its next visit;
 * so the latest one goes, and the others stay open from run to run.
 *
 * What write-back reports after a file is closed is lost, so it is synced before,
 * unless the segment will be synced as a whole: with more than SYNC_EACH_FILES files by
 * syncfs() on a descriptor that was opened before the first write, which since Linux
 * 5.8 reports every error of the file system since then.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define SYNC_EACH_FILES 64

#define NONE			UINT32_MAX

typedef struct PartFile
{
	int		 fd;	/* -1: not open now */
	uint32_t place; /* in PartState.open, while it is */
	uint32_t blocks;
	uint32_t last;	/* its latest entry */
	uint64_t bytes; /* of the file; 0: does not exist yet */
	uint64_t message_bytes;
	uint64_t raw_bytes;
	uint64_t rows;
} PartFile;

/* A block in order of writing; those of one partition are linked backwards. */
typedef struct PartBlock
{
	uint64_t body_bytes;
	uint32_t metadata_bytes;
	uint32_t previous;
} PartBlock;

typedef struct PartState
{
	PartFile  *files; /* [partitions] */
	uint32_t  *open;  /* [max_open] partitions with open files */
	uint32_t   nopen;
	uint32_t   most_open;	 /* places in open */
	uint32_t   max_open;	 /* of them, as long as granted */
	bool	   granted;		 /* descriptors have been asked for since the last rest */
	uint32_t   current;		 /* whose descriptor is out->fd, or NONE */
	char	  *directory;	 /* of the current segment */
	int		   directory_fd; /* for syncfs(), or -1 */
	bool	   may_syncfs;
	bool	   closed_unsynced; /* some file of the segment was */
	PartBlock *blocks;
	uint32_t   nblocks;
	uint32_t   blocks_cap;
} PartState;

uint64_t
shf_output_parts_memory(uint32_t partitions)
{
	return sizeof(PartState) + (uint64_t) partitions * (sizeof(PartFile) + sizeof(uint32_t));
}

static ShfCode
out_of_memory(ShfError *err)
{
	return shf_error(err, SHF_ERR_NOMEM, "out of memory while writing partition files");
}

/* Does syncfs() report write-back errors? */
static bool
syncfs_reports(void)
{
	struct utsname name;
	int			   major;
	int			   minor;

	return uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
		(major > 5 || (major == 5 && minor >= 8));
}

static void
forget_files(PartState *state, uint32_t partitions)
{
	memset(state->files, 0, sizeof(PartFile) * (size_t) partitions);
	for (uint32_t p = 0; p < partitions; p++)
		state->files[p].fd = -1;
	state->nopen = 0;
	state->current = NONE;
	state->closed_unsynced = false;
	state->nblocks = 0;
}

static ShfCode
parts_open(ShfOutput *out, ShfError *err)
{
	const ShfWriterOptions *options = out->options;
	PartState			   *state = calloc(1, sizeof(*state));

	out->state = state;
	if (state == NULL)
		return out_of_memory(err);
	state->directory_fd = -1;
	state->files = malloc(sizeof(PartFile) * (size_t) options->partitions);
	if (state->files == NULL)
		return out_of_memory(err);
	forget_files(state, options->partitions);

	state->may_syncfs = options->sync && options->partitions > SYNC_EACH_FILES &&
		options->max_open_files >= 2 && syncfs_reports();
	state->most_open = (uint32_t) options->max_open_files;
	if (state->most_open > options->partitions)
		state->most_open = options->partitions;
	state->open = malloc(sizeof(*state->open) * (size_t) state->most_open);
	return state->open != NULL ? SHF_OK : out_of_memory(err);
}

/* How many files may be open at once, one descriptor for syncfs() aside. */
static void
ask_files(ShfOutput *out)
{
	PartState *state = out->state;
	uint32_t   granted = (uint32_t) shf_output_ask_files(out);

	if (granted < 2)
		state->may_syncfs = false;
	if (state->may_syncfs)
		granted--;
	state->max_open = granted < state->most_open ? granted : state->most_open;
	state->granted = true;
}

/* ---------------------------------------------------------------- descriptors */

static void
add_open(PartState *state, uint32_t p, int fd)
{
	state->files[p].fd = fd;
	state->files[p].place = state->nopen;
	state->open[state->nopen++] = p;
}

static void
remove_open(PartState *state, uint32_t p)
{
	uint32_t last = state->open[--state->nopen];

	state->open[state->files[p].place] = last;
	state->files[last].place = state->files[p].place;
	state->files[p].fd = -1;
}

static char *
part_path(const PartState *state, uint32_t p)
{
	return shf_format("%s/p%05u.arrow", state->directory, p);
}

/* Writes what is buffered for the current file and leaves it open. */
static ShfCode
leave_current(ShfOutput *out, ShfError *err)
{
	PartState *state = out->state;
	PartFile  *file;
	ShfCode	   code;

	if (state->current == NONE)
		return SHF_OK;
	file = &state->files[state->current];
	code = shf_output_flush(out, err);
	if (code == SHF_OK)
		code = shf_write_back(out, file->bytes, out->file_bytes, err);
	file->bytes = out->file_bytes;
	state->current = NONE;
	out->fd = -1;
	return code;
}

static ShfCode
close_latest(ShfOutput *out, ShfError *err)
{
	PartState *state = out->state;
	uint32_t   p = state->open[state->nopen - 1];
	int		   fd = state->files[p].fd;
	bool	   failed = false;
	int		   saved = 0;
	char	  *path;
	ShfCode	   code;

	remove_open(state, p);
	if (out->options->sync && state->directory_fd < 0)
		failed = shf_fsync(out, fd) < 0;
	else
		state->closed_unsynced = true;
	if (failed)
		saved = errno;
	if (close(fd) < 0 && errno != EINTR && !failed)
	{
		failed = true;
		saved = errno;
	}
	if (!failed)
		return SHF_OK;
	path = part_path(state, p);
	errno = saved;
	code = shf_error_errno(err, "could not sync file \"%s\"", path != NULL ? path : "");
	free(path);
	return code;
}

/* Makes the file of partition p the current destination, creating it if need be. */
static ShfCode
make_current(ShfOutput *out, uint32_t p, ShfError *err)
{
	PartState *state = out->state;
	PartFile  *file = &state->files[p];
	char	  *path;
	ShfCode	   code = leave_current(out, err);

	if (!state->granted)
		ask_files(out);
	if (code == SHF_OK && file->fd < 0 && state->nopen >= state->max_open)
		code = close_latest(out, err);
	if (code != SHF_OK)
		return code;
	path = part_path(state, p);
	if (path == NULL)
		return out_of_memory(err);

	if (file->bytes == 0)
	{
		code = shf_file_create(out, path, err);
		if (out->fd >= 0)
			add_open(state, p, out->fd);
	}
	else
	{
		free(out->path);
		out->path = path;
		if (file->fd < 0)
		{
			int fd;

			code = shf_file_reopen(path, file->bytes, &fd, err);
			if (code == SHF_OK)
				add_open(state, p, fd);
		}
		out->fd = file->fd;
		out->file_bytes = file->bytes;
	}
	if (out->fd >= 0)
		state->current = p;
	return code;
}

/* ---------------------------------------------------------------- segments */

static ShfCode
begin_segment(ShfOutput *out, ShfError *err)
{
	PartState *state = out->state;
	ShfCode	   code = shf_segment_begin(out, err);

	if (code != SHF_OK)
		return code;
	if (!state->granted)
		ask_files(out);
	free(state->directory);
	state->directory = shf_format("%s-%u", out->options->path, shf_segment_current(out)->number);
	if (state->directory == NULL)
		return out_of_memory(err);
	if (mkdir(state->directory, (mode_t) out->options->dir_mode) < 0)
		return shf_error_errno(err, "could not create directory \"%s\"", state->directory);
	if (state->may_syncfs)
	{
		state->directory_fd = open(state->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (state->directory_fd < 0)
			return shf_error_errno(err, "could not open directory \"%s\"", state->directory);
	}
	return SHF_OK;
}

/* All files of the segment at once. */
static ShfCode
sync_segment(ShfOutput *out, ShfError *err)
{
	PartState *state = out->state;

	if (shf_syncfs(out, state->directory_fd) < 0)
		return shf_error_errno(err, "could not sync directory \"%s\"", state->directory);
	return SHF_OK;
}

/* Completes the file of partition p and adds its extent. */
static ShfCode
complete_file(ShfOutput *out, uint32_t p, uint64_t first_row, bool sync, ShfError *err)
{
	PartState  *state = out->state;
	PartFile   *file = &state->files[p];
	ShfSegment *segment = shf_segment_current(out);
	uint32_t	entry = file->last;
	uint64_t	offset = out->leader.len + file->message_bytes;
	ShfCode		code;

	ShfExtent extent = {
		.partition = p,
		.blocks = file->blocks,
		.offset = out->leader.len,
		.bytes = file->message_bytes,
		.raw_bytes = file->raw_bytes,
		.rows = file->rows,
		.first_row = first_row,
	};

	code = shf_positions_reserve(out, file->blocks, err);
	if (code != SHF_OK)
		return code;
	out->npositions = file->blocks;
	for (uint32_t i = file->blocks; i > 0; i--)
	{
		const PartBlock *block = &state->blocks[entry];
		ShfBlockPos		*pos = &out->positions[i - 1];

		offset -= block->metadata_bytes + block->body_bytes;
		pos->offset = (int64_t) offset;
		pos->metadata_bytes = (int32_t) block->metadata_bytes;
		pos->zero = 0;
		pos->body_bytes = (int64_t) block->body_bytes;
		entry = block->previous;
	}

	if (state->current != p)
		code = make_current(out, p, err);
	if (code == SHF_OK)
		code = shf_file_complete(out, err);
	if (code != SHF_OK)
		return code;
	remove_open(state, p);
	state->current = NONE; /* out->fd owns the descriptor now */
	code = shf_file_close(out, sync, err);
	if (code != SHF_OK)
		return code;
	segment->bytes += out->file_bytes;
	segment->files++;
	return shf_segment_add_extent(out, &extent, err);
}

static ShfCode
end_segment(ShfOutput *out, ShfError *err)
{
	PartState *state = out->state;
	uint32_t   partitions = out->options->partitions;
	uint32_t   nfiles = 0;
	uint64_t   first_row = 0;
	bool	   whole;
	ShfCode	   code = SHF_OK;

	for (uint32_t p = 0; p < partitions; p++)
		nfiles += state->files[p].blocks > 0;
	whole = state->directory_fd >= 0 && (nfiles > SYNC_EACH_FILES || state->closed_unsynced);

	for (uint32_t p = 0; p < partitions && code == SHF_OK; p++)
	{
		if (state->files[p].blocks == 0)
			continue;
		code = complete_file(out, p, first_row, out->options->sync && !whole, err);
		first_row += state->files[p].rows;
	}
	if (code != SHF_OK)
		return code;

	if (whole)
		code = sync_segment(out, err);
	if (code != SHF_OK)
		return code;
	if (state->directory_fd >= 0)
		close(state->directory_fd);
	state->directory_fd = -1;
	if (out->options->sync && !whole)
		code = shf_sync_directory(out, state->directory, err);
	forget_files(state, partitions);
	shf_segment_end(out);
	return code;
}

/* ---------------------------------------------------------------- interface */

static ShfCode
parts_open_block(ShfOutput *out, uint32_t partition, uint32_t rows, uint64_t bytes, ShfError *err)
{
	PartState *state = out->state;
	ShfCode	   code = SHF_OK;

	(void) bytes;
	if (out->segment_open && shf_segment_current(out)->rows + rows > SHF_SEGMENT_MAX_ROWS)
		code = end_segment(out, err);
	if (code == SHF_OK && !out->segment_open)
		code = begin_segment(out, err);
	if (code == SHF_OK && state->current != partition)
		code = make_current(out, partition, err);
	return code;
}

static ShfCode
parts_add_block(ShfOutput *out, const ShfBlock *block, uint64_t offset, ShfError *err)
{
	PartState *state = out->state;
	PartFile  *file = &state->files[block->partition];
	PartBlock *entry;

	(void) offset;
	if (state->nblocks == state->blocks_cap)
	{
		uint32_t   cap = state->nblocks + state->nblocks / 8 + 16;
		PartBlock *blocks = realloc(state->blocks, sizeof(PartBlock) * (size_t) cap);

		if (blocks == NULL)
			return out_of_memory(err);
		shf_account(out->account, sizeof(PartBlock) * (uint64_t) state->blocks_cap,
					sizeof(PartBlock) * (uint64_t) cap);
		state->blocks = blocks;
		state->blocks_cap = cap;
	}
	entry = &state->blocks[state->nblocks];
	entry->body_bytes = block->body_bytes;
	entry->metadata_bytes = (uint32_t) (block->message_bytes - block->body_bytes);
	entry->previous = file->last;
	file->last = state->nblocks++;
	file->blocks++;
	file->message_bytes += block->message_bytes;
	file->raw_bytes += block->raw_bytes;
	file->rows += block->rows;
	shf_segment_add_block(out, block);
	return SHF_OK;
}

static ShfCode
parts_end_segment(ShfOutput *out, ShfError *err)
{
	PartState *state = out->state;
	ShfCode	   code = end_segment(out, err);

	free(state->blocks);
	shf_account(out->account, sizeof(PartBlock) * (uint64_t) state->blocks_cap, 0);
	state->blocks = NULL;
	state->blocks_cap = 0;
	return code;
}

/* Files written to after a rest are synced one by one. */
static ShfCode
parts_rest(ShfOutput *out, ShfError *err)
{
	PartState *state = out->state;
	ShfCode	   code = leave_current(out, err);

	while (code == SHF_OK && state->nopen > 0)
		code = close_latest(out, err);
	if (code == SHF_OK && state->directory_fd >= 0)
	{
		if (state->closed_unsynced)
			code = sync_segment(out, err);
		if (code != SHF_OK)
			return code;
		state->closed_unsynced = false;
		close(state->directory_fd);
		state->directory_fd = -1;
	}
	state->granted = false;
	return code;
}

static ShfCode
parts_finish(ShfOutput *out, ShfError *err)
{
	ShfCode code = SHF_OK;

	if (out->segment_open)
		code = end_segment(out, err);
	if (code == SHF_OK && out->options->sync && out->nsegments > 0)
		code = shf_sync_parent(out, err);
	return code;
}

static void
parts_abort(ShfOutput *out)
{
	PartState *state = out->state;

	if (state == NULL)
		return;
	for (uint32_t i = 0; i < state->nopen; i++)
		close(state->files[state->open[i]].fd);
	if (state->current != NONE)
		out->fd = -1;
	if (state->directory_fd >= 0)
		close(state->directory_fd);
	free(state->directory);
	free(state->files);
	free(state->open);
	free(state->blocks);
	free(state);
	out->state = NULL;
}

const ShfOutputOps shf_output_parts_ops = {
	.open = parts_open,
	.open_block = parts_open_block,
	.add_block = parts_add_block,
	.rest = parts_rest,
	.end_segment = parts_end_segment,
	.finish = parts_finish,
	.abort = parts_abort,
};
