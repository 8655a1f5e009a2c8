/*
 * read_block.h
 *	  Making and releasing the counted pieces of reading; for read_state.c and
 *	  scan.c; the types and what everybody uses are in read_state.h.
 */
#ifndef SHUFFLE_READ_BLOCK_H
#define SHUFFLE_READ_BLOCK_H

#include "portability/instr_time.h"

#include "read_state.h"

/* Raises an engine error met while reading, naming the table. */
extern void shuffle_read_error(const char *relname, const ShfError *err) pg_attribute_noreturn();

extern void shuffle_decoder_unpin(ShuffleDecoder *decoder);

extern ShuffleFile			   *
shuffle_file_open(const char *path, const ShuffleSegmentRow *segment, TupleDesc desc,
							  const char *relname, ShuffleDecoder **decoder);
extern void shuffle_file_unpin(ShuffleFile *file);
extern void shuffle_file_close(ShuffleFile *file);

/* The file's reader, when nobody else uses it any more. */
extern ShfReader *shuffle_file_reader(ShuffleFile *file);

extern ShuffleBlock *shuffle_block_create(ShuffleFile *file, ShuffleBlock *reuse);
extern void			 shuffle_block_unpin(ShuffleBlock *block);
extern bool			 shuffle_block_accept(ShuffleBlock *block, instr_time start);
extern bool			 shuffle_block_has_row(const ShuffleBlock *block, const ShuffleStorage *storage,
										   int32 segment, uint64 row);

extern ShuffleWindow *
shuffle_window_create(ShuffleBlock *block, uint32 first, uint32 count, ShuffleWindow *reuse);
extern void shuffle_window_detach(ShuffleWindow *window);

/* ------------------------------------------------------------ read_ahead.c */

/* Blocks first .. first + n - 1 of the table; NULL where it has been taken. */
typedef struct ShuffleAheadGroup
{
	int64		  first;
	int			  n;
	uint64		  bytes;
	ShuffleBlock *blocks[SHF_AHEAD_BLOCKS];
} ShuffleAheadGroup;

typedef struct ShuffleAhead
{
	ShfAhead		 *thread; /* NULL until there is use for one */
	ShuffleAheadGroup ready;
	ShuffleAheadGroup reading;
	int				  nspare;
	ShuffleBlock	 *spare[SHF_AHEAD_BLOCKS];
} ShuffleAhead;

extern bool	 shuffle_ahead_pays(const ShuffleBlock *block);
extern bool	 shuffle_ahead_idle(ShuffleAhead *ahead, int64 left);
extern int64 shuffle_ahead_next(const ShuffleAhead *ahead, int64 current);
extern bool	 shuffle_ahead_accepts(const ShuffleAhead *ahead, uint64 bytes);
extern void shuffle_ahead_add(ShuffleAhead *ahead, ShuffleBlock *block, int64 number, uint64 bytes);
extern void shuffle_ahead_run(ShuffleAhead *ahead, const ShuffleBlock *like);
extern ShuffleBlock *shuffle_ahead_take(ShuffleAhead *ahead, int64 number);
extern ShuffleBlock *shuffle_ahead_take_spare(ShuffleAhead *ahead);
extern void			 shuffle_ahead_put_spare(ShuffleAhead *ahead, ShuffleBlock *block);
extern void			 shuffle_ahead_drop(ShuffleAhead *ahead);
extern void			 shuffle_ahead_end(ShuffleAhead *ahead);

#endif /* SHUFFLE_READ_BLOCK_H */
