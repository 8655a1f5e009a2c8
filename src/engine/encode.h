/*
 * encode.h
 *	  The block encoder: packed rows in, one message out.
 *
 * The writer knows an encoder by ShfEncoderOps only.  The Arrow encoder is spread over
 * encode.c and gather.c (blocks of packed rows) and encode_large.c (rows above
 * block_bytes).
 */
#ifndef SHF_ENCODE_H
#define SHF_ENCODE_H

#include "account.h"
#include "codec.h"
#include "compress.h"
#include "nested.h"
#include "output.h"
#include "rowbuf.h"
#include "template.h"

typedef struct ShfEncoder ShfEncoder;

typedef struct ShfEncoderOps
{
	/*
	 * Makes one block of the first *taken rows, at least one and no more than
	 * block_bytes hold, and puts it.
	 */
	ShfCode (*block)(ShfEncoder *e, ShfOutput *out, uint32_t partition, const ShfRows *rows,
					 uint32_t *taken, ShfError *err);

	/* Makes a block of one row that is not packed, and puts it. */
	ShfCode (*large_row)(ShfEncoder *e, ShfOutput *out, uint32_t partition, const ShfRow *row,
						 ShfError *err);

	/* Gives back what it allocates again when the next block comes. */
	void (*rest)(ShfEncoder *e);
	void (*free)(ShfEncoder *e);
} ShfEncoderOps;

struct ShfEncoder
{
	const ShfEncoderOps *ops;
};

/* The schema, layout, options and account must outlive the encoder. */
extern ShfCode
shf_arrow_encoder_create(ShfEncoder **e, const ShfSchema *schema, const ShfRowLayout *layout,
						 const ShfWriterOptions *options, ShfAccount *account, ShfError *err);

/* Most bytes of the message of a block of packed rows. */
extern uint64_t shf_arrow_max_message(const ShfSchema *schema, const ShfWriterOptions *options);

/* Memory of an encoder from the beginning, and what it may take in addition as it works. */
extern uint64_t shf_arrow_encoder_memory(const ShfSchema *schema);
extern uint64_t shf_arrow_growing_memory(const ShfSchema *schema, const ShfWriterOptions *options);

/* ------------------------------------------------ private to the Arrow encoder */

typedef enum ShfGather
{
	SHF_GATHER_BOOL,
	SHF_GATHER_1,
	SHF_GATHER_2,
	SHF_GATHER_4,
	SHF_GATHER_8,
	SHF_GATHER_16,
	SHF_GATHER_N,
	SHF_GATHER_NARROW, /* int64 to 16 bytes */
	SHF_GATHER_VAR,
	SHF_GATHER_NESTED
} ShfGather;

typedef struct ShfEncodeColumn
{
	/* constant */
	ShfGather	gather;
	uint32_t	slot;	   /* offset of the slot in a packed row */
	uint32_t	width;	   /* fixed-width kinds: bytes of an Arrow value */
	uint32_t	null_byte; /* offset in a packed row */
	uint8_t		null_bit;
	int			field;
	int			var;	/* index into ShfRow.var, or -1 */
	int			node;	/* index of its FieldNode */
	int			buffer; /* index of its first Buffer */
	ShfBuilder *nested;

	/* of the current block */
	uint32_t null_count;
	uint64_t var_bytes;
	uint8_t *validity; /* NULL: no NULLs */
	int32_t *offsets;
	uint8_t *data;
} ShfEncodeColumn;

typedef struct ShfArrowEncoder
{
	ShfEncoder				base;
	const ShfSchema		   *schema;
	const ShfRowLayout	   *layout;
	const ShfWriterOptions *options;
	ShfAccount			   *account;
	ShfTemplate template;
	ShfCompressor *compressor;		/* NULL: no codec, or not needed yet */
	uint64_t	   compressor_held; /* as accounted */

	int				  ncolumns;
	ShfEncodeColumn	 *columns;
	bool			 *raw_forbidden; /* [nbuffers] */
	uint8_t			 *value_widths;	 /* [nbuffers] of an array of values, else 0 */
	ShfBufferHistory *histories;	 /* [nbuffers] */

	int			nnested;
	ShfBuilder *builders;	   /* [nnested] */
	uint64_t	builders_held; /* as accounted */

	/* the current block: nodes, uncompressed buffers, where their bytes are */
	int64_t		   *nodes;	 /* [2 * nnodes] */
	ShfSpan		   *spans;	 /* [nbuffers] */
	const uint8_t **sources; /* [nbuffers] */
	ShfSpan		   *stored;	 /* [nbuffers] the same after compression */

	const uint32_t *prefetched; /* order entries before this one are asked for */

	uint8_t *scratch;		/* flat columns of a block, uncompressed; codec only */
	size_t	 scratch_cap;	/* 0: not allocated */
	size_t	 scratch_bytes; /* what any block needs */
	size_t	 scratch_used;	/* by the current block */

	int32_t *large_offsets;	 /* [2 * nvar] offsets of a large row */
	int64_t *large_decimals; /* [2 * ncolumns] its narrow decimals */
	uint8_t *large_header;	 /* its message without body */
} ShfArrowEncoder;

/* Buffers of a compressed block shorter than this are not worth a frame. */
#define SHF_MIN_FRAME_INPUT 64

/* Bodies shorter than this are written plain. */
#define SHF_MIN_COMPRESSED_BODY 4096

/*
 * gather.c.  First *n is made smaller if block_bytes says so, and nested columns are built.
 * Then there are two ways:
 *
 *	  count, layout, place, gather_fixed, gather_variable	into a body in its final form
 *	  place_scratch, gather_fixed, layout, gather_variable	into the scratch memory
 *
 * The first reads every row three times, the second twice, and both leave in sources where
 * each buffer is.
 */
extern ShfCode
shf_arrow_build_nested(ShfArrowEncoder *e, const ShfRows *rows, uint32_t *n, ShfError *err);
extern void shf_arrow_fit(ShfArrowEncoder *e, const ShfRows *rows, uint32_t *n);
extern void shf_arrow_count(ShfArrowEncoder *e, const ShfRows *rows, uint32_t n);

/* Fills nodes and spans from the counts; returns the bytes of the body. */
extern uint64_t shf_arrow_layout(ShfArrowEncoder *e, uint32_t n);

/* Say where the buffers are to be made; the body's padding is written. */
extern void shf_arrow_place(ShfArrowEncoder *e, uint8_t *body);
extern void shf_arrow_place_scratch(ShfArrowEncoder *e, const ShfRows *rows, uint32_t n);

/* All that has a fixed width: bitmaps, values, offsets.  Counts on the way. */
extern void shf_arrow_gather_fixed(ShfArrowEncoder *e, const ShfRows *rows, uint32_t n);
extern void shf_arrow_gather_variable(ShfArrowEncoder *e, const ShfRows *rows, uint32_t n);

/* encode_large.c */
extern ShfCode shf_arrow_large_row(ShfEncoder *e, ShfOutput *out, uint32_t partition,
								   const ShfRow *row, ShfError *err);
extern void	   shf_arrow_account(ShfArrowEncoder *e);

/* Makes the compressor, if there is a codec and it has not been made. */
extern ShfCode shf_arrow_compressor(ShfArrowEncoder *e, ShfError *err);

#endif
