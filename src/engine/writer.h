/*
 * writer.h
 *	  Private to the writer: its state, shared by writer.c (interface), writer_memory.c
 *	  (who gets how much memory) and writer_run.c (runs, inline and in a thread).
 */
#ifndef SHF_WRITER_H
#define SHF_WRITER_H

#include "account.h"
#include "encode.h"
#include "output.h"
#include "pool.h"
#include "rowbuf.h"
#include "thread.h"

/* A sorted row buffer on its way out, unit by unit. */
typedef struct ShfRun
{
	ShfWriter	   *w;
	ShfRowBuf	   *rb;
	const uint32_t *order;
	ShfRetain		retain;
	uint32_t		row_bytes;
	uint32_t		block_overhead;
	uint32_t		partition; /* of the next unit */
	uint32_t		at;		   /* its first entry */
} ShfRun;

struct ShfWriter
{
	ShfSchema		 schema;
	ShfWriterOptions options;
	char			*path;
	ShfRowLayout	 layout;
	ShfRow			 row;
	ShfRowBuf		 rowbuf; /* being filled */
	ShfRowBuf		 drain;	 /* the thread's, or empty */
	ShfEncoder		*encoder;
	ShfOutput		*output;
	ShfAccount		 account;
	ShfMetrics		 metrics;
	uint64_t		 least_memory;	/* that it works with */
	uint64_t		 shared_memory; /* for row buffer and index together */
	uint64_t		 allowed;		/* the row buffer's share */
	uint64_t		 rowbuf_accounted;
	uint64_t		 rows;
	uint64_t		 block_ns; /* gathering and encoding, on the work clock */
	uint64_t		 sort_ns;
	uint64_t		 runs;
	uint64_t		 move_ns; /* the caller's, handing runs over */

	/* see writer_run.c */
	int		   arenas; /* row buffers that share the memory: 1 or 2 */
	ShfThread *thread;
	int		   helpers;	   /* threads of the pool, as planned */
	ShfRun	   run;		   /* the one at hand */
	ShfPool	  *pool;	   /* lives as long as the thread; NULL: runs are encoded by one */
	bool	   no_thread;  /* could not be had: runs are made inline */
	bool	   in_thread;  /* a run was handed over and not waited for yet */
	bool	   stop;	   /* atomic: the thread is to give up */
	bool	   failed;	   /* atomic: the thread's run has failed */
	uint64_t   drain_held; /* bytes of drain in use when it was handed over */
	int (*open_files)(void *arg, int wanted); /* the caller's */
	void	*open_files_arg;
	int		 granted; /* descriptors for the thread */
	ShfCode	 thread_code;
	ShfError thread_err;

	bool busy; /* inside a call, or left by an error or a jump */
	bool finished;
};

/* The row buffer is not made smaller for less than this. */
#define SHF_MEMORY_SLACK 4096

/* Time spent on blocks and files. */
static inline uint64_t
shf_writer_block_time(const ShfWriter *w)
{
	return w->block_ns + w->account.write_ns + w->account.sync_ns;
}

/* ------------------------------------------------ writer_memory.c */

/* Most index memory that one run out of region_bytes can add. */
extern uint64_t shf_run_index_memory(const ShfRowLayout *layout, const ShfWriterOptions *options,
									 uint64_t region_bytes);

/* Everything but row buffers and index; what those need at least. */
extern uint64_t shf_writer_fixed_memory(const ShfSchema *schema, const ShfRowLayout *layout,
										const ShfWriterOptions *options);
extern uint64_t
shf_writer_shared_minimum(const ShfRowLayout *layout, const ShfWriterOptions *options);

/* When the index is to leave memory; see index_file.c. */
extern uint64_t shf_writer_index_limit(const ShfWriter *w);

/*
 * Decides on one or two row buffers and what each may use; returns the most that the first
 * one may ever use.
 */
extern uint64_t shf_writer_plan_memory(ShfWriter *w);

/* What the row buffers have touched so far, for the metrics. */
extern void shf_writer_account(ShfWriter *w);

/*
 * Gives rb what the index leaves; its rows must fit.  Ends the thread, and with it a drain
 * that rb may be, when there is too little for two row buffers.
 */
extern ShfCode shf_writer_share(ShfWriter *w, ShfRowBuf *rb, ShfError *err);
extern ShfCode shf_list_too_large(const ShfWriter *w, ShfError *err);

/* Takes more of the row buffer's share; false if it has all. */
extern bool shf_writer_grow(ShfWriter *w);

/* ------------------------------------------------ writer_run.c */

/* Emits all rows of the row buffer, or, when more are to come, those of partitions with enough. */
extern ShfCode shf_writer_run(ShfWriter *w, bool last, ShfError *err);

/* Makes room in a full row buffer: hands it to the thread, or emits a run. */
extern ShfCode shf_writer_make_room(ShfWriter *w, ShfError *err);

/* Emits the current row, which is above block_bytes. */
extern ShfCode shf_writer_large_row(ShfWriter *w, uint32_t partition, ShfError *err);

/* Waits for the thread's run, if there is one, and returns its error. */
extern ShfCode shf_writer_idle(ShfWriter *w, ShfError *err);

/* Ends the thread and gives its row buffer back; what it still has to do is dropped. */
extern void shf_writer_end_thread(ShfWriter *w);

#endif
