/*
 * nested.h
 *	  Builders of Arrow arrays for List and Struct columns, from the nested encoding
 *	  described in shf.h.
 *
 * A builder is a tree like its field's.  Its buffers grow and are reused from block
 * to block; validity bits are only kept once a NULL has been seen.
 */
#ifndef SHF_NESTED_H
#define SHF_NESTED_H

#include "flatbuf.h"

typedef struct ShfBuilder ShfBuilder;
struct ShfBuilder
{
	const ShfField *field;
	const char	   *column; /* name of the top-level column, for messages */
	int				width;	/* bytes of a value in the nested encoding; 0: variable */
	uint32_t		length;
	uint32_t		null_count;
	ShfBuffer		validity; /* while null_count > 0 */
	ShfBuffer		offsets;  /* length + 1 entries; Utf8, Binary and List */
	ShfBuffer		data;
	int				nchildren;
	ShfBuilder	   *children;
};

/* A zeroed builder may be released. */
extern ShfCode shf_builder_init(ShfBuilder *b, const ShfField *field, ShfError *err);
extern void	   shf_builder_release(ShfBuilder *b);

/* Forgets the rows and keeps the memory. */
extern void shf_builder_reset(ShfBuilder *b);

/* Forgets the rows and frees the memory they took. */
extern void shf_builder_trim(ShfBuilder *b);

/* SHF_ERR_INVALID: malformed value; SHF_ERR_LIMIT: beyond int32 offsets. */
extern ShfCode shf_builder_append(ShfBuilder *b, const void *value, size_t len, ShfError *err);
extern ShfCode shf_builder_append_null(ShfBuilder *b, ShfError *err);

/* Bytes of all its Arrow buffers, padded. */
extern uint64_t shf_builder_bytes(const ShfBuilder *b);

/* Bytes of memory. */
extern uint64_t shf_builder_held(const ShfBuilder *b);

/* One Arrow buffer of a block: where its bytes are, and where they go in the body. */
typedef struct ShfSpan
{
	int64_t offset;
	int64_t length;
} ShfSpan;

/*
 * Lists nodes {length, null_count} and buffers, depth first, and moves the pointers
 * behind them; span offsets are left to the caller.
 */
extern void
shf_builder_list(const ShfBuilder *b, int64_t **nodes, ShfSpan **spans, const uint8_t ***sources);

#endif
