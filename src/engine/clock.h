/*
 * clock.h
 *	  The clock of the metrics.
 */
#ifndef SHF_CLOCK_H
#define SHF_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since some point in the past, the same for all processes. */
static inline uint64_t
shf_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}

#endif
