/*
 * textio.h
 *	  Text forms: input and output functions under fixed settings, and conversion
 *	  between the server encoding and UTF-8.
 */
#ifndef SHUFFLE_TEXTIO_H
#define SHUFFLE_TEXTIO_H

#include "postgres.h"

#include "pgtime.h"

/* ---- settings that the text form of a type depends on (bits) */

#define SHUFFLE_SET_FORMAT	 0x01 /* dates, intervals, floats, bytea, time zone, notices */
#define SHUFFLE_SET_MONETARY 0x02 /* lc_monetary */
#define SHUFFLE_SET_PATH	 0x04 /* search_path */
#define SHUFFLE_SET_ALL		 0x07

/* What shuffle_settings_begin() found; lives on the caller's stack. */
typedef struct ShuffleSavedSettings
{
	int	   mask; /* 0: nothing was changed */
	int	   date_style;
	int	   date_order;
	int	   interval_style;
	int	   float_digits;
	int	   bytea_form;
	pg_tz *timezone;
	int	   client_messages;
	int	   nestlevel; /* 0: no nest level was opened */
} ShuffleSavedSettings;

/* Which of them the text form of a type may depend on, looking into its components. */
extern int shuffle_settings_needed(Oid type);

/*
 * Does the input function of a type call what any user can have written: the constraints of
 * a domain inside of it, a range's canonical function?  The server does not run such code
 * for those who merely read a table, pg_dump among them, and neither may we: it would have
 * their privileges.
 */
extern bool shuffle_input_runs_users_code(Oid type);

/*
 * Puts the fixed settings in force until shuffle_settings_end(), which the caller must
 * reach on error too (PG_TRY): the first group is assigned without the GUC machinery,
 * because that would cost more than formatting a row.
 */
extern void shuffle_settings_begin(ShuffleSavedSettings *saved, int mask);
extern void shuffle_settings_end(const ShuffleSavedSettings *saved);

/* ---- encodings */

typedef struct ShuffleEncoding
{
	int	 server;   /* encoding of the database */
	bool verbatim; /* text is stored as it is: UTF8 and SQL_ASCII */
	Oid	 to_utf8;  /* conversion functions; InvalidOid when there are none */
	Oid	 from_utf8;
} ShuffleEncoding;

extern void shuffle_encoding_init(ShuffleEncoding *encoding);

/* Does this text consist of ASCII characters only? */
static inline bool
shuffle_is_ascii(const char *text, size_t len)
{
	uint64 seen = 0;
	uint64 words[2];

	/* the last piece overlaps what was read before it */
	if (len >= sizeof(words))
	{
		const char *last = text + len - sizeof(words);

		for (; text < last; text += sizeof(words))
		{
			memcpy(words, text, sizeof(words));
			seen |= words[0] | words[1];
		}
		memcpy(words, last, sizeof(words));
		seen |= words[0] | words[1];
	}
	else if (len >= sizeof(uint64))
	{
		memcpy(&words[0], text, sizeof(words[0]));
		memcpy(&words[1], text + len - sizeof(words[1]), sizeof(words[1]));
		seen = words[0] | words[1];
	}
	else if (len >= sizeof(uint32))
	{
		uint32 halves[2];

		memcpy(&halves[0], text, sizeof(halves[0]));
		memcpy(&halves[1], text + len - sizeof(halves[1]), sizeof(halves[1]));
		seen = halves[0] | halves[1];
	}
	else if (len > 0)
		seen = (unsigned char) (text[0] | text[len / 2] | text[len - 1]);
	return (seen & UINT64CONST(0x8080808080808080)) == 0;
}

/*
 * Text of the server encoding as valid UTF-8: *text and *len are left alone where they
 * are valid already, else changed to palloc'd text.  False when there is no UTF-8 form.
 */
extern bool shuffle_text_to_utf8(const ShuffleEncoding *encoding, const char **text, size_t *len);

/*
 * The way back; text is valid UTF-8.  Raises an error when the server encoding lacks a
 * character.
 */
extern void shuffle_text_from_utf8(const ShuffleEncoding *encoding, const char **text, size_t *len);

/* The same for C strings (names, labels); the result may be the argument. */
extern char *shuffle_name_to_utf8(const ShuffleEncoding *encoding, const char *name);
extern char *shuffle_name_from_utf8(const ShuffleEncoding *encoding, const char *name);

#endif /* SHUFFLE_TEXTIO_H */
