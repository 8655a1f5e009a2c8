/*
 * write.h
 *	  Shared by the files behind shuffle_write(): arguments, query, target, job, sink.
 *
 * One call goes through these steps, all in the caller's transaction:
 *
 *	  write_args.c	SQL arguments become a ShuffleWriteArgs; together with what an existing
 *					table has stored they become ShuffleOptions
 *	  query.c		the user's text becomes a ShuffleQuery: one SELECT wrapped in the
 *					aggregate shuffle_sink
 *	  target.c		the table is found, checked and locked, then created or made ready
 *	  job.c			what the writing processes must know goes into shared memory
 *	  sink.c		every process that runs a piece of the plan writes a segment and hands
 *					back a summary
 *	  write.c		drives all this, publishes the segments, returns the result rows
 *
 * Everything that can be refused is refused before the table is created or a file
 * is opened; what is left undone by an error goes with the transaction.
 */
#ifndef SHUFFLE_WRITE_H
#define SHUFFLE_WRITE_H

#include "shuffle.h"

/* ------------------------------------------------------------ write_args.c */

typedef enum ShuffleIfExists
{
	SHUFFLE_IF_EXISTS_ERROR,
	SHUFFLE_IF_EXISTS_APPEND,
	SHUFFLE_IF_EXISTS_REPLACE
} ShuffleIfExists;

/* Arguments as they were given: NULL, or has_... false, where they were left out. */
typedef struct ShuffleWriteArgs
{
	char		   *query;
	char		   *target;
	bool			has_partitions;
	int				partitions;
	bool			has_keys; /* '{}' is given, with nkeys 0 */
	int				nkeys;
	char		  **keys;
	char		   *method;
	bool			has_bounds;
	int				nbounds;
	char		  **bounds;
	char		   *hash;
	char		   *layout;
	char		   *codec;
	char		   *types;
	char		   *unrepresentable;
	ShuffleIfExists if_exists;
	int				workers; /* 0: never in parallel, -1: the planner's choice */
} ShuffleWriteArgs;

/*
 * Reads the nine options, partitions to unrepresentable in the order above, from the
 * arguments of a SQL function, which is named for messages.
 */
extern void shuffle_option_args(FunctionCallInfo fcinfo, int first, const char *function,
								ShuffleWriteArgs *args);

/* Reads and checks one by one the arguments of shuffle_write(). */
extern ShuffleWriteArgs *shuffle_write_args(FunctionCallInfo fcinfo);

/* ------------------------------------------------------------ query.c */

typedef struct ShuffleQuery
{
	const char *text;	  /* as the user wrote it */
	Query	   *analysed; /* the user's query alone, not rewritten */
	Query	   *wrapped;  /* SELECT shuffle_sink(job, c1, ...) FROM (query), rewritten */
	TupleDesc	desc;	  /* its output columns, names as given */
} ShuffleQuery;

/*
 * Parses and analyses the text and refuses all that is not one query with distinct,
 * storable columns.  sink_namespace is the schema of shuffle_sink.
 */
extern ShuffleQuery *shuffle_query_parse(const char *text, Oid sink_namespace);

/*
 * Casts the query's columns to the types of a table's columns as INSERT would.
 * attnums[i] is the attribute that column i goes to.
 */
extern void shuffle_query_coerce(ShuffleQuery *query, TupleDesc target, const AttrNumber *attnums);

/*
 * Plans and runs the wrapped query.  job is the sink's first argument.  Returns the
 * sink's summary (shuffle_summary_next), or NULL when there were no rows.
 */
extern bytea *shuffle_query_run(ShuffleQuery *query, bytea *job, int workers, int progress);

/* ------------------------------------------------------------ target.c */

typedef struct ShuffleTarget
{
	const ShuffleWriteArgs *args;
	RangeVar			   *name;
	bool					exists;	   /* before this call */
	Oid						relid;	   /* the table; invalid until it is created */
	Relation				rel;	   /* the table, open and locked */
	Relation				transient; /* replace: takes the rows, swapped in at the end */
	Relation				dest;	   /* rel or transient */
	AttrNumber			   *attnums;   /* [columns of the query] where they go; NULL: new table */
	ShuffleOptions		   *stored;	   /* of an existing table */
} ShuffleTarget;

/* Before the query is looked at: understands the name, locks a table that is replaced. */
extern ShuffleTarget *shuffle_target_begin(const ShuffleWriteArgs *args);

/* Finds, locks and checks the table; nothing is changed yet. */
extern void shuffle_target_find(ShuffleTarget *target, TupleDesc desc);

/* Creates the table with its options, or the transient relation of a replacement. */
extern void
shuffle_target_prepare(ShuffleTarget *target, TupleDesc desc, const ShuffleOptions *options);

/* Name of the table for messages. */
extern const char *shuffle_target_name(const ShuffleTarget *target);

/* After the segments are published: swaps, stores changed options, closes. */
extern void
shuffle_target_finish(ShuffleTarget *target, const ShuffleOptions *options, uint64 rows);

/*
 * write_args.c: the options to write with, from the arguments and from what the table
 * has stored.  desc describes the query's columns.  Keys are attribute numbers of the
 * table.  Range bounds that are to be estimated are missing (nbounds 0).
 */
extern ShuffleOptions *
shuffle_write_options(const ShuffleWriteArgs *args, TupleDesc desc, const ShuffleTarget *target);

/* ------------------------------------------------------------ job.c */

/* What a writing process gets to know from the leader. */
typedef struct ShuffleJob
{
	ShuffleWriteSpec spec;	  /* desc, options and path filled; writer is this process's */
	char			*relname; /* for messages */
	int				 nargs;	  /* columns that the sink is given */
	AttrNumber		*attnums; /* [nargs] attribute that each goes to */
	bool			*notnull; /* [nargs] is NULL forbidden there? */

	/*
	 * [nargs] attribute of the aggregate's input row that each column is; NULL: columns
	 * are arguments.
	 */
	AttrNumber *input;
} ShuffleJob;

typedef struct ShuffleJobHandle ShuffleJobHandle;

/* Puts job (its writer number aside) into shared memory of this process. */
extern ShuffleJobHandle *shuffle_job_create(const ShuffleJob *job);

/* The sink's first argument. */
extern bytea *shuffle_job_argument(const ShuffleJobHandle *handle);

/* The same for a sink that takes its n columns out of its input row, see ShuffleJob. */
extern bytea *shuffle_job_direct_argument(const bytea *argument, const AttrNumber *input, int n);

/*
 * The job behind a sink's argument, as a copy in the current context, with the next
 * writer number and spec.output in shared memory, which stays until the context is reset.
 * Error unless it was made by the leader of this process.
 */
extern ShuffleJob *shuffle_job_open(bytea *argument);

/* Frees the shared memory (an error does that too). */
extern void shuffle_job_destroy(ShuffleJobHandle *handle);

/* ------------------------------------------------------------ sink.c */

/* One segment in a summary. */
typedef struct ShuffleSummary
{
	uint32	   writer;
	ShfSegment segment; /* extents palloc'd in the current context, or in the index file */
	ShfMetrics metrics; /* what segment.metrics points to */
} ShuffleSummary;

/*
 * Reads the next segment of a sink's result; *position starts at 0.  False at the end.
 * Raises an internal error on bytes that a sink did not write.
 */
extern bool shuffle_summary_next(bytea *result, Size *position, ShuffleSummary *summary);

#endif /* SHUFFLE_WRITE_H */
