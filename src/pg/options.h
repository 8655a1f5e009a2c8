/*
 * options.h
 *	  Names of option values; for options.c and options_text.c.
 */
#ifndef SHUFFLE_OPTIONS_H
#define SHUFFLE_OPTIONS_H

#include "shuffle.h"

/* A name and what it stands for; lists of them end with a NULL name. */
typedef struct ShuffleChoice
{
	const char *name;
	int			value;
	bool		internal; /* not for users, not in hints */
} ShuffleChoice;

/* Whatever the case of the name; NULL if there is none. */
extern const ShuffleChoice *shuffle_choice_find(const ShuffleChoice *choices, const char *name);

/* "a", "b", "c" for a hint. */
extern char *shuffle_choice_list(const ShuffleChoice *choices);

extern const char *shuffle_choice_name(const ShuffleChoice *choices, int value);
extern const char *shuffle_unrepresentable_name(bool null);

/* Decimal digits with an optional minus sign and nothing else; false on anything else. */
extern bool shuffle_parse_int(const char *text, int *value);

#endif /* SHUFFLE_OPTIONS_H */
