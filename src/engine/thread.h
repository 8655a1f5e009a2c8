/*
 * thread.h
 *	  One thread that does one piece of work at a time for its owner.
 *
 * The owner hands over work, goes on with something else, and waits for the end before
 * it hands over more.  It can wait by any means that watch a descriptor.  All signals are
 * blocked in the thread, which touches nothing but what its work function touches.
 */
#ifndef SHF_THREAD_H
#define SHF_THREAD_H

#include <pthread.h>
#include <stdbool.h>

typedef struct ShfThread ShfThread;

/* pthread_create() with all signals blocked in the new thread; false if there can be none. */
extern bool shf_thread_create(pthread_t *thread, void *(*main)(void *arg), void *arg);

/* NULL when there can be no thread: the owner does the work by itself then. */
extern ShfThread *shf_thread_start(void (*work)(void *arg), void *arg);

/* Has work run once; it must be idle. */
extern void shf_thread_run(ShfThread *t);

/* False: everything that the work has written can be seen by the owner. */
extern bool shf_thread_busy(ShfThread *t);

/* Readable once the work has ended, until the next is handed over. */
extern int shf_thread_fd(const ShfThread *t);

/* Blocks until the work has ended. */
extern void shf_thread_wait(ShfThread *t);

/* Waits for the work to end, for the thread to exit, and frees t. */
extern void shf_thread_end(ShfThread *t);

#endif
