/*
 * pool.c
 *	  See pool.h.
 *
 * The units in work are a ring of slots: [head, next) are taken, in order.  A slot has a
 * buffer of limited size.  Who fills it before the unit is complete waits until the driver
 * has come to the slot and written what is there; the driver itself writes the slots before
 * its own meanwhile.  So memory is bounded however large rows turn out to be, and the unit
 * at head can always go on.
 *
 * The mutex protects everything but the contents of a slot, which belong to its encoder
 * while it is SLOT_BUSY and to the driver otherwise.  The condition variable announces each
 * change of a state.
 */
#include "pool.h"

#include "thread.h"

#include <stdlib.h>

typedef enum SlotState
{
	SLOT_FREE,
	SLOT_BUSY, /* being encoded */
	SLOT_FULL, /* the driver is to write what is there */
	SLOT_DONE  /* the same, and that was all */
} SlotState;

typedef struct Slot
{
	ShfPool	 *pool;
	SlotState state;
	uint64_t  number; /* of its unit in the run */
	bool	  driver; /* encodes it */
	ShfUnit	  unit;
	ShfCode	  code;
	ShfError  err;

	ShfWriterOptions options;
	ShfAccount		 account;
	ShfOutput		*out;
	const uint8_t	*data; /* of the blocks */
	ShfBlock		*blocks;
	size_t			 nblocks;
} Slot;

typedef struct Helper
{
	ShfPool	   *pool;
	pthread_t	thread;
	ShfEncoder *encoder;
	ShfAccount	account;
} Helper;

struct ShfPool
{
	pthread_mutex_t mutex;
	pthread_cond_t	changed;
	bool			failed; /* nobody is to begin or to wait */
	bool			exit;

	/* of the current run */
	ShfPoolWork work;
	ShfOutput  *output;
	bool		more; /* units to take */
	uint64_t	head;
	uint64_t	next;

	int		nslots;
	Slot   *slots;
	int		nhelpers;
	Helper *helpers;
};

static ShfCode
stopped(ShfError *err)
{
	return shf_error(err, SHF_ERR_STOPPED, "writer is being closed");
}

/* ---------------------------------------------------------------- slots */

/* Blocks that fit: the buffer is given away when it holds block_bytes. */
static size_t
most_blocks(const ShfSchema *schema, const ShfWriterOptions *options)
{
	int nnodes;
	int nbuffers;

	shf_schema_count(schema, &nnodes, &nbuffers);
	return options->block_bytes / shf_template_bytes(nnodes, nbuffers) + 2;
}

static ShfCode
slot_open_block(ShfOutput *out, uint32_t partition, uint32_t rows, uint64_t bytes, ShfError *err)
{
	(void) out;
	(void) partition;
	(void) rows;
	(void) bytes;
	(void) err;
	return SHF_OK;
}

static ShfCode
slot_add_block(ShfOutput *out, const ShfBlock *block, uint64_t offset, ShfError *err)
{
	Slot *slot = out->state;

	(void) offset;
	(void) err;
	slot->blocks[slot->nblocks++] = *block;
	return SHF_OK;
}

/* Only blocks are put; the rest is never called. */
static const ShfOutputOps slot_ops = {
	.open_block = slot_open_block,
	.add_block = slot_add_block,
};

/* Writes the blocks of a slot to the output of the run. */
static ShfCode
write_blocks(ShfPool *pool, Slot *slot, ShfError *err)
{
	const uint8_t *data = slot->data;

	for (size_t i = 0; i < slot->nblocks; i++)
	{
		const ShfBlock *block = &slot->blocks[i];
		uint8_t		   *at;
		ShfCode			code;

		code = shf_output_reserve(pool->output, block->partition, block->rows, block->message_bytes,
								  &at, err);
		if (code != SHF_OK)
			return code;
		memcpy(at, data, block->message_bytes);
		data += block->message_bytes;
		code = shf_output_put(pool->output, block, err);
		if (code != SHF_OK)
			return code;
	}
	slot->nblocks = 0;
	return SHF_OK;
}

/* The driver writes what the slot at head holds, or waits for it; with the mutex. */
static ShfCode
advance(ShfPool *pool, ShfError *err)
{
	Slot	 *slot = &pool->slots[pool->head % (uint64_t) pool->nslots];
	SlotState state = slot->state;
	ShfCode	  code;

	if (state == SLOT_BUSY)
	{
		pthread_cond_wait(&pool->changed, &pool->mutex);
		return SHF_OK;
	}
	if (slot->code != SHF_OK)
	{
		if (err != NULL)
			*err = slot->err;
		return slot->code;
	}
	pthread_mutex_unlock(&pool->mutex);
	if (state == SLOT_DONE)
		slot->data = slot->out->buffer;
	code = write_blocks(pool, slot, err);
	if (state == SLOT_DONE)
		slot->out->len = 0;
	pthread_mutex_lock(&pool->mutex);
	slot->state = state == SLOT_DONE ? SLOT_FREE : SLOT_BUSY;
	if (state == SLOT_DONE)
		pool->head++;
	pthread_cond_broadcast(&pool->changed);
	return code;
}

/* The slot's buffer is full. */
static ShfCode
slot_full(void *arg, const void *data, size_t len, ShfError *err)
{
	Slot	*slot = arg;
	ShfPool *pool = slot->pool;
	ShfCode	 code = SHF_OK;

	(void) len;
	slot->data = data;
	pthread_mutex_lock(&pool->mutex);
	if (slot->driver)
	{
		while (code == SHF_OK && pool->head < slot->number)
			code = advance(pool, err);
		pthread_mutex_unlock(&pool->mutex);
		return code == SHF_OK ? write_blocks(pool, slot, err) : code;
	}
	slot->state = SLOT_FULL;
	pthread_cond_broadcast(&pool->changed);
	while (slot->state == SLOT_FULL && !pool->failed)
		pthread_cond_wait(&pool->changed, &pool->mutex);
	if (pool->failed)
		code = stopped(err);
	pthread_mutex_unlock(&pool->mutex);
	return code;
}

/* ---------------------------------------------------------------- work */

/* A slot with the next unit; NULL if there is none, or no slot is free; with the mutex. */
static Slot *
take(ShfPool *pool, bool driver)
{
	Slot *slot = &pool->slots[pool->next % (uint64_t) pool->nslots];

	if (!pool->more || pool->failed || pool->next - pool->head >= (uint64_t) pool->nslots)
		return NULL;
	if (!pool->work.next(pool->work.arg, &slot->unit))
	{
		pool->more = false;
		pthread_cond_broadcast(&pool->changed);
		return NULL;
	}
	slot->state = SLOT_BUSY;
	slot->number = pool->next++;
	slot->driver = driver;
	slot->code = SHF_OK;
	return slot;
}

static void *
helper_main(void *arg)
{
	Helper	*helper = arg;
	ShfPool *pool = helper->pool;

	pthread_mutex_lock(&pool->mutex);
	while (!pool->exit)
	{
		Slot *slot = take(pool, false);

		if (slot == NULL)
		{
			pthread_cond_wait(&pool->changed, &pool->mutex);
			continue;
		}
		pthread_mutex_unlock(&pool->mutex);
		slot->code = pool->work.encode(pool->work.arg, false, helper->encoder, slot->out,
									   &slot->unit, &slot->err);
		pthread_mutex_lock(&pool->mutex);
		slot->state = SLOT_DONE;
		pthread_cond_broadcast(&pool->changed);
	}
	pthread_mutex_unlock(&pool->mutex);
	return NULL;
}

/* The driver's unit: straight to the output if it is the next to be written. */
static ShfCode
drive(ShfPool *pool, Slot *slot, ShfEncoder *encoder, ShfError *err)
{
	const ShfPoolWork *work = &pool->work;
	bool			   direct = slot->number == pool->head;
	ShfCode			   code;

	pthread_mutex_unlock(&pool->mutex);
	code =
		work->encode(work->arg, true, encoder, direct ? pool->output : slot->out, &slot->unit, err);
	pthread_mutex_lock(&pool->mutex);
	slot->state = direct ? SLOT_FREE : SLOT_DONE;
	if (direct)
	{
		pool->head++;
		pthread_cond_broadcast(&pool->changed);
	}
	return code;
}

ShfCode
shf_pool_run(ShfPool *pool, const ShfPoolWork *work, ShfEncoder *encoder, ShfOutput *output,
			 ShfAccount *account, ShfError *err)
{
	ShfCode code = SHF_OK;

	pthread_mutex_lock(&pool->mutex);
	pool->work = *work;
	pool->output = output;
	pool->more = true;
	pthread_cond_broadcast(&pool->changed);
	while (code == SHF_OK && (pool->more || pool->head < pool->next))
	{
		Slot *head = &pool->slots[pool->head % (uint64_t) pool->nslots];
		Slot *slot = NULL;

		/* Writing comes first: it makes room for others to go on. */
		if (pool->head == pool->next || head->state == SLOT_BUSY)
			slot = take(pool, true);
		if (slot != NULL)
			code = drive(pool, slot, encoder, err);
		else if (pool->head < pool->next)
			code = advance(pool, err);
	}
	if (code != SHF_OK)
	{
		pool->failed = true;
		pthread_cond_broadcast(&pool->changed);
	}
	pthread_mutex_unlock(&pool->mutex);

	for (int i = 0; code == SHF_OK && i < pool->nhelpers; i++)
	{
		account->gather_sample += pool->helpers[i].account.gather_sample;
		account->encode_sample += pool->helpers[i].account.encode_sample;
		pool->helpers[i].account.gather_sample = 0;
		pool->helpers[i].account.encode_sample = 0;
	}
	return code;
}

/* ---------------------------------------------------------------- life of a pool */

static int
slots_for(int threads)
{
	return 2 * (threads + 1);
}

uint64_t
shf_pool_memory(const ShfSchema *schema, const ShfWriterOptions *options, int threads)
{
	uint64_t slot = sizeof(Slot) + sizeof(ShfOutput) + options->block_bytes +
		shf_arrow_max_message(schema, options) + most_blocks(schema, options) * sizeof(ShfBlock);
	uint64_t helper = sizeof(Helper) + shf_arrow_encoder_memory(schema) +
		shf_arrow_growing_memory(schema, options);

	return sizeof(ShfPool) + (uint64_t) slots_for(threads) * slot + (uint64_t) threads * helper;
}

static bool
slot_init(Slot *slot, ShfPool *pool, const ShfSchema *schema, const ShfWriterOptions *options)
{
	slot->pool = pool;
	slot->blocks = malloc(most_blocks(schema, options) * sizeof(ShfBlock));
	if (slot->blocks == NULL)
		return false;
	slot->out = calloc(1, sizeof(ShfOutput));
	if (slot->out == NULL)
		return false;

	/* An output whose write buffer is the slot's. */
	slot->options = *options;
	slot->options.layout = SHF_LAYOUT_STREAM;
	slot->options.write_stream = slot_full;
	slot->options.write_arg = slot;
	slot->options.write_buffer_size = options->block_bytes;
	slot->account.output_limit = UINT64_MAX;
	slot->out->ops = &slot_ops;
	slot->out->state = slot;
	slot->out->schema = schema;
	slot->out->options = &slot->options;
	slot->out->account = &slot->account;
	slot->out->fd = -1;
	slot->out->normal_cap = options->block_bytes + shf_arrow_max_message(schema, options);
	return true;
}

ShfPool *
shf_pool_create(const ShfSchema *schema, const ShfRowLayout *layout,
				const ShfWriterOptions *options, int threads)
{
	ShfPool *pool = calloc(1, sizeof(*pool));
	bool	 good;

	if (pool == NULL)
		return NULL;
	pthread_mutex_init(&pool->mutex, NULL);
	pthread_cond_init(&pool->changed, NULL);
	pool->nslots = slots_for(threads);
	pool->slots = calloc((size_t) pool->nslots, sizeof(Slot));
	pool->helpers = calloc((size_t) threads, sizeof(Helper));
	good = pool->slots != NULL && pool->helpers != NULL;
	for (int i = 0; good && i < pool->nslots; i++)
		good = slot_init(&pool->slots[i], pool, schema, options);
	while (good && pool->nhelpers < threads)
	{
		Helper *helper = &pool->helpers[pool->nhelpers];

		helper->pool = pool;
		if (shf_arrow_encoder_create(&helper->encoder, schema, layout, options, &helper->account,
									 NULL) != SHF_OK ||
			!shf_thread_create(&helper->thread, helper_main, helper))
		{
			if (helper->encoder != NULL)
				helper->encoder->ops->free(helper->encoder);
			break;
		}
		pool->nhelpers++;
	}
	if (pool->nhelpers > 0)
		return pool;
	shf_pool_end(pool);
	return NULL;
}

void
shf_pool_end(ShfPool *pool)
{
	if (pool == NULL)
		return;
	pthread_mutex_lock(&pool->mutex);
	pool->failed = pool->exit = true;
	pthread_cond_broadcast(&pool->changed);
	pthread_mutex_unlock(&pool->mutex);
	for (int i = 0; i < pool->nhelpers; i++)
	{
		pthread_join(pool->helpers[i].thread, NULL);
		pool->helpers[i].encoder->ops->free(pool->helpers[i].encoder);
	}
	for (int i = 0; pool->slots != NULL && i < pool->nslots; i++)
	{
		free(pool->slots[i].blocks);
		shf_output_close(pool->slots[i].out);
	}
	free(pool->slots);
	free(pool->helpers);
	pthread_cond_destroy(&pool->changed);
	pthread_mutex_destroy(&pool->mutex);
	free(pool);
}
