/*
 * thread.c
 *	  See thread.h.
 *
 * state is protected by the mutex; the condition variable announces each change of it.
 * The eventfd is written to after the change to IDLE, so that a reader of it never finds
 * the work still running.
 */
#include "thread.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Compressors keep their state on the heap; 1 MB is ample. */
#define STACK_BYTES ((size_t) 1 << 20)

typedef enum ThreadState
{
	THREAD_IDLE,
	THREAD_BUSY,
	THREAD_EXIT
} ThreadState;

struct ShfThread
{
	pthread_t		thread;
	pthread_mutex_t mutex;
	pthread_cond_t	changed;
	ThreadState		state;
	int				fd;
	void (*work)(void *arg);
	void *arg;
};

static void *
thread_main(void *arg)
{
	ShfThread *t = arg;

	pthread_mutex_lock(&t->mutex);
	while (t->state != THREAD_EXIT)
	{
		if (t->state == THREAD_BUSY)
		{
			uint64_t one = 1;
			ssize_t	 written;

			pthread_mutex_unlock(&t->mutex);
			t->work(t->arg);
			pthread_mutex_lock(&t->mutex);
			t->state = THREAD_IDLE;
			pthread_cond_broadcast(&t->changed);

			/* Fails only if it is readable already. */
			written = write(t->fd, &one, sizeof(one));
			(void) written;
		}
		else
			pthread_cond_wait(&t->changed, &t->mutex);
	}
	pthread_mutex_unlock(&t->mutex);
	return NULL;
}

bool
shf_thread_create(pthread_t *thread, void *(*main)(void *arg), void *arg)
{
	pthread_attr_t attr;
	sigset_t	   all;
	sigset_t	   old;
	bool		   created;

	if (pthread_attr_init(&attr) != 0)
		return false;
	sigfillset(&all);
	if (pthread_attr_setstacksize(&attr, STACK_BYTES) != 0 ||
		pthread_sigmask(SIG_SETMASK, &all, &old) != 0)
	{
		pthread_attr_destroy(&attr);
		return false;
	}
	created = pthread_create(thread, &attr, main, arg) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return created;
}

ShfThread *
shf_thread_start(void (*work)(void *arg), void *arg)
{
	ShfThread *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return NULL;
	t->work = work;
	t->arg = arg;
	t->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->fd < 0)
	{
		free(t);
		return NULL;
	}
	pthread_mutex_init(&t->mutex, NULL);
	pthread_cond_init(&t->changed, NULL);
	if (shf_thread_create(&t->thread, thread_main, t))
		return t;
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->mutex);
	close(t->fd);
	free(t);
	return NULL;
}

static void
set_state(ShfThread *t, ThreadState state)
{
	pthread_mutex_lock(&t->mutex);
	t->state = state;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->mutex);
}

void
shf_thread_run(ShfThread *t)
{
	uint64_t count;
	ssize_t	 got = read(t->fd, &count, sizeof(count));

	(void) got;
	set_state(t, THREAD_BUSY);
}

bool
shf_thread_busy(ShfThread *t)
{
	bool busy;

	pthread_mutex_lock(&t->mutex);
	busy = t->state == THREAD_BUSY;
	pthread_mutex_unlock(&t->mutex);
	return busy;
}

int
shf_thread_fd(const ShfThread *t)
{
	return t->fd;
}

void
shf_thread_wait(ShfThread *t)
{
	pthread_mutex_lock(&t->mutex);
	while (t->state == THREAD_BUSY)
		pthread_cond_wait(&t->changed, &t->mutex);
	pthread_mutex_unlock(&t->mutex);
}

void
shf_thread_end(ShfThread *t)
{
	if (t == NULL)
		return;
	shf_thread_wait(t);
	set_state(t, THREAD_EXIT);
	pthread_join(t->thread, NULL);
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->mutex);
	close(t->fd);
	free(t);
}
