/*
 * skew.h
 *	  How evenly the rows of a shuffle table are spread over its partitions.
 */
#ifndef SHUFFLE_SKEW_H
#define SHUFFLE_SKEW_H

#include "shuffle.h"

#define SKEW_TOP  5 /* largest partitions that are listed */
#define SKEW_KEYS 3 /* most frequent keys of each of them */

/* Partitions of low to high rows or bytes. */
typedef struct ShuffleSkewBin
{
	int64 low;
	int64 high;
	int	  partitions;
} ShuffleSkewBin;

typedef struct ShuffleSkewKey
{
	char  *text;  /* the key's columns, as "a" or "a, b", cut if long */
	double share; /* of the partition's rows */
} ShuffleSkewKey;

typedef struct ShuffleSkewTop
{
	int			   partition;
	int64		   size;
	int			   nkeys; /* those that stand out in the sample */
	ShuffleSkewKey keys[SKEW_KEYS];
} ShuffleSkewTop;

typedef struct ShuffleSkew
{
	char		   *relation;
	char		   *routing; /* e.g. "hash (a, b)" */
	char		   *key;	 /* "a, b", or NULL without keys */
	const char	   *unit;	 /* "rows" or "bytes" */
	int				npartitions;
	int64		   *sizes; /* [npartitions] */
	int64			total;
	int64			smallest;
	double			median;
	int64			largest;
	double			ratio; /* largest / median; 0 if the median is */
	int				empty; /* partitions without rows; in no bin */
	int				nbins;
	ShuffleSkewBin *bins; /* ascending, without holes */
	int				ntop;
	ShuffleSkewTop	top[SKEW_TOP];
} ShuffleSkew;

/* skew_svg.c: the picture, palloc'd. */
extern char *shuffle_skew_draw(const ShuffleSkew *skew);

/* A number with its digits in groups of three: 6,001,215. */
extern char *shuffle_skew_number(int64 n);

#endif /* SHUFFLE_SKEW_H */
