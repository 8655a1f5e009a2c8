/*
 * read_block.h
 *	  Making and releasing the counted pieces of reading; for read_state.c and
 *	  scan.c; the types and what everybody uses are in read_state.h.
 */
#ifndef SHUFFLE_READ_BLOCK_H
#define SHUFFLE_READ_BLOCK_H

#include "read_state.h"

/* Raises an engine error met while reading, naming the table. */
extern void shuffle_read_error(const char *relname, const ShfError *err) pg_attribute_noreturn();

extern void shuffle_decoder_unpin(ShuffleDecoder *decoder);

extern ShuffleFile			   *
shuffle_file_open(const char *path, const ShuffleSegmentRow *segment, TupleDesc desc,
							  const char *relname, ShuffleDecoder **decoder);
extern void shuffle_file_unpin(ShuffleFile *file);
extern void shuffle_file_close(ShuffleFile *file);

extern ShuffleBlock *shuffle_block_create(ShuffleFile *file, ShuffleBlock *reuse);
extern void			 shuffle_block_unpin(ShuffleBlock *block);
extern bool			 shuffle_block_has_row(const ShuffleBlock *block, const ShuffleStorage *storage,
										   int32 segment, uint64 row);

extern ShuffleWindow *
shuffle_window_create(ShuffleBlock *block, uint32 first, uint32 count, ShuffleWindow *reuse);
extern void shuffle_window_detach(ShuffleWindow *window);

#endif /* SHUFFLE_READ_BLOCK_H */
