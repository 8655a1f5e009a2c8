/*
 * job.c
 *	  What the processes of one shuffle_write() call share: the job.
 *
 * The leader puts everything a writer must know into a dynamic shared memory segment.
 * The sink gets its handle and a random secret as its first argument, so that no path
 * and no option ever comes from SQL: a call with made-up bytes finds no segment, or one
 * with another magic, another secret or another leader.  Writers copy what they need; what
 * they share while they run are counts, of writers, bytes written and progress, so that a
 * worker keeps the segment until its writer is gone.
 *
 * The secret is not the nonce in the names of the files: those anybody may see.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/proc.h"
#include "storage/shm_toc.h"
#include "utils/memutils.h"

#include "write.h"

#define JOB_MAGIC UINT64CONST(0x53484655464a4f42)

/* Keys of the table of contents. */
#define KEY_FIXED	   1
#define KEY_ATTRIBUTES 2
#define KEY_OPTIONS	   3
#define KEY_KEYS	   4
#define KEY_PATH	   5
#define KEY_RELNAME	   6
#define KEY_ATTNUMS	   7
#define KEY_NOTNULL	   8
#define NKEYS		   8

typedef struct JobFixed
{
	uint64				secret;
	int					leader;	 /* process id */
	pg_atomic_uint32	writers; /* next writer number */
	pg_atomic_uint64	output;	 /* see output_limit.c */
	ShuffleProgressDone done;
	ShuffleWriteSpec	spec; /* scalars only: its pointers mean nothing here */
	int					natts;
	int					nargs;
} JobFixed;

struct ShuffleJobHandle
{
	dsm_segment *segment;
	JobFixed	*shared;
	uint64		 secret;
};

/* The sink's first argument: 12 bytes, and ShuffleJob.input where there is one. */
typedef struct JobArgument
{
	uint32 handle;
	uint32 secret[2];
} JobArgument;

/* Room for size bytes under key, filled from data unless that is NULL. */
static void *
toc_put(shm_toc *toc, uint64 key, const void *data, Size size)
{
	void *place = shm_toc_allocate(toc, Max(size, 1));

	if (data != NULL && size > 0)
		memcpy(place, data, size);
	shm_toc_insert(toc, key, place);
	return place;
}

ShuffleJobHandle *
shuffle_job_create(const ShuffleJob *job)
{
	const ShuffleOptions *options = job->spec.options;
	ShuffleJobHandle	 *handle = palloc(sizeof(ShuffleJobHandle));
	char				 *text = shuffle_options_format(options, false);
	int					  natts = job->spec.desc->natts;
	Size				  desc_size = sizeof(FormData_pg_attribute) * (Size) natts;
	JobFixed			  fixed;
	JobFixed			 *shared;
	shm_toc_estimator	  e;
	shm_toc				 *toc;
	Form_pg_attribute	  atts;
	Size				  size;

	if (!pg_strong_random(&handle->secret, sizeof(handle->secret)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate a random number")));

	shm_toc_initialize_estimator(&e);
	shm_toc_estimate_chunk(&e, sizeof(JobFixed));
	shm_toc_estimate_chunk(&e, Max(desc_size, 1));
	shm_toc_estimate_chunk(&e, strlen(text) + 1);
	shm_toc_estimate_chunk(&e, sizeof(AttrNumber) * Max(options->nkeys, 1));
	shm_toc_estimate_chunk(&e, strlen(job->spec.path) + 1);
	shm_toc_estimate_chunk(&e, strlen(job->relname) + 1);
	shm_toc_estimate_chunk(&e, sizeof(AttrNumber) * Max(job->nargs, 1));
	shm_toc_estimate_chunk(&e, sizeof(bool) * Max(job->nargs, 1));
	shm_toc_estimate_keys(&e, NKEYS);
	size = shm_toc_estimate(&e);

	handle->segment = dsm_create(size, 0);
	toc = shm_toc_create(JOB_MAGIC, dsm_segment_address(handle->segment), size);

	memset(&fixed, 0, sizeof(fixed));
	fixed.secret = handle->secret;
	fixed.leader = MyProcPid;
	fixed.spec = job->spec;
	fixed.natts = natts;
	fixed.nargs = job->nargs;
	shared = toc_put(toc, KEY_FIXED, &fixed, sizeof(fixed));
	pg_atomic_init_u32(&shared->writers, 0);
	pg_atomic_init_u64(&shared->output, shuffle_output_written());
	shuffle_progress_share(job->spec.progress, &shared->done);
	handle->shared = shared;

	atts = toc_put(toc, KEY_ATTRIBUTES, NULL, desc_size);
	for (int i = 0; i < natts; i++)
		memcpy(&atts[i], TupleDescAttr(job->spec.desc, i), ATTRIBUTE_FIXED_PART_SIZE);

	toc_put(toc, KEY_OPTIONS, text, strlen(text) + 1);
	toc_put(toc, KEY_KEYS, options->keys, sizeof(AttrNumber) * options->nkeys);
	toc_put(toc, KEY_PATH, job->spec.path, strlen(job->spec.path) + 1);
	toc_put(toc, KEY_RELNAME, job->relname, strlen(job->relname) + 1);
	toc_put(toc, KEY_ATTNUMS, job->attnums, sizeof(AttrNumber) * job->nargs);
	toc_put(toc, KEY_NOTNULL, job->notnull, sizeof(bool) * job->nargs);
	return handle;
}

bytea *
shuffle_job_argument(const ShuffleJobHandle *handle)
{
	bytea	   *result = palloc(VARHDRSZ + sizeof(JobArgument));
	JobArgument argument;

	argument.handle = dsm_segment_handle(handle->segment);
	memcpy(argument.secret, &handle->secret, sizeof(handle->secret));
	SET_VARSIZE(result, VARHDRSZ + sizeof(JobArgument));
	memcpy(VARDATA(result), &argument, sizeof(argument));
	return result;
}

bytea *
shuffle_job_direct_argument(const bytea *argument, const AttrNumber *input, int n)
{
	Size   size = VARHDRSZ + sizeof(JobArgument) + sizeof(AttrNumber) * n;
	bytea *result = palloc(size);

	SET_VARSIZE(result, size);
	memcpy(VARDATA(result), VARDATA_ANY(argument), sizeof(JobArgument));
	memcpy(VARDATA(result) + sizeof(JobArgument), input, sizeof(AttrNumber) * n);
	return result;
}

void
shuffle_job_destroy(ShuffleJobHandle *handle)
{
	shuffle_output_set(pg_atomic_read_u64(&handle->shared->output));
	shuffle_progress_share(handle->shared->spec.progress, NULL);
	dsm_detach(handle->segment);
	pfree(handle);
}

static void
wrong_call(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("shuffle_sink can only be called by shuffle_write"),
			 errhint("Use SELECT * FROM shuffle_write(query, target).")));
}

/* The descriptor travels as its attributes: its other parts differ between minor releases. */
static TupleDesc
copy_desc(FormData_pg_attribute *shared, int natts)
{
	Form_pg_attribute *atts = palloc(sizeof(Form_pg_attribute) * Max(natts, 1));
	TupleDesc		   desc;

	for (int i = 0; i < natts; i++)
		atts[i] = &shared[i];
	desc = CreateTupleDesc(natts, atts);
	pfree(atts);
	return desc;
}

/* Everything a job names, copied out of shared memory. */
static ShuffleJob *
copy_job(shm_toc *toc, JobFixed *fixed)
{
	ShuffleJob	   *job = palloc0(sizeof(ShuffleJob));
	ShuffleOptions *options = shuffle_options_parse(shm_toc_lookup(toc, KEY_OPTIONS, false));

	options->keys = palloc(sizeof(AttrNumber) * Max(options->nkeys, 1));
	memcpy(options->keys, shm_toc_lookup(toc, KEY_KEYS, false),
		   sizeof(AttrNumber) * options->nkeys);

	job->spec = fixed->spec;
	job->spec.desc = copy_desc(shm_toc_lookup(toc, KEY_ATTRIBUTES, false), fixed->natts);
	job->spec.options = options;
	job->spec.output = &fixed->output;
	job->spec.done = &fixed->done;
	job->spec.writer = pg_atomic_fetch_add_u32(&fixed->writers, 1);
	job->spec.path =
		psprintf("%s-%x", (char *) shm_toc_lookup(toc, KEY_PATH, false), job->spec.writer);
	job->relname = pstrdup(shm_toc_lookup(toc, KEY_RELNAME, false));
	job->nargs = fixed->nargs;
	job->attnums = palloc(sizeof(AttrNumber) * Max(job->nargs, 1));
	memcpy(job->attnums, shm_toc_lookup(toc, KEY_ATTNUMS, false), sizeof(AttrNumber) * job->nargs);
	job->notnull = palloc(sizeof(bool) * Max(job->nargs, 1));
	memcpy(job->notnull, shm_toc_lookup(toc, KEY_NOTNULL, false), sizeof(bool) * job->nargs);
	return job;
}

static void
detach_job(void *segment)
{
	dsm_detach(segment);
}

ShuffleJob *
shuffle_job_open(bytea *argument)
{
	JobArgument	 bytes;
	uint64		 secret;
	dsm_segment *segment;
	bool		 attached = false;
	shm_toc		*toc;
	JobFixed	*fixed;
	ShuffleJob	*job;
	Size		 extra;
	int			 leader;

	if (VARSIZE_ANY_EXHDR(argument) < sizeof(JobArgument))
		wrong_call();
	extra = VARSIZE_ANY_EXHDR(argument) - sizeof(JobArgument);
	memcpy(&bytes, VARDATA_ANY(argument), sizeof(bytes));
	memcpy(&secret, bytes.secret, sizeof(secret));

	segment = dsm_find_mapping(bytes.handle);
	if (segment == NULL)
	{
		segment = dsm_attach(bytes.handle);
		attached = true;
	}
	if (segment == NULL || dsm_segment_map_length(segment) < sizeof(JobFixed))
		wrong_call();
	toc = shm_toc_attach(JOB_MAGIC, dsm_segment_address(segment));
	if (toc == NULL)
		wrong_call();
	fixed = shm_toc_lookup(toc, KEY_FIXED, false);
	leader = MyProc->lockGroupLeader != NULL ? MyProc->lockGroupLeader->pid : MyProcPid;
	if (fixed->secret != secret || fixed->leader != leader)
		wrong_call();

	/* Not with the query's resources, which end before the context does. */
	if (attached)
	{
		MemoryContextCallback *callback = palloc(sizeof(MemoryContextCallback));

		dsm_pin_mapping(segment);
		callback->func = detach_job;
		callback->arg = segment;
		MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
	}

	job = copy_job(toc, fixed);
	if (extra > 0)
	{
		if (extra != sizeof(AttrNumber) * job->nargs)
			wrong_call();
		job->input = palloc(extra);
		memcpy(job->input, VARDATA_ANY(argument) + sizeof(JobArgument), extra);
	}
	return job;
}
