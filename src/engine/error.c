/*
 * error.c
 *	  Filling of ShfError.
 *
 * A message is cut at the size of its buffer, never inside a multi-byte UTF-8
 * character: it may end up in a client encoding conversion.
 */
#include "shf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* Drops a character at the end of a full message that the buffer's end has cut. */
static void
trim_partial_character(char *message, size_t size)
{
	size_t len = strlen(message);
	size_t start = len;

	if (len + 1 < size)
		return;
	while (start > 0 && ((unsigned char) message[start - 1] & 0xC0) == 0x80)
		start--;
	if (start > 0)
	{
		unsigned char lead = (unsigned char) message[start - 1];
		size_t		  need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;

		if (len - (start - 1) < need)
			message[start - 1] = '\0';
	}
}

ShfCode
shf_error(ShfError *err, ShfCode code, const char *fmt, ...)
{
	va_list args;

	if (err == NULL)
		return code;
	err->code = code;
	err->sys_errno = 0;
	va_start(args, fmt);
	vsnprintf(err->message, sizeof(err->message), fmt, args);
	va_end(args);
	trim_partial_character(err->message, sizeof(err->message));
	return code;
}

ShfCode
shf_error_errno(ShfError *err, const char *fmt, ...)
{
	int		saved = errno;
	char	reason[128];
	size_t	room;
	size_t	len;
	va_list args;

	if (err == NULL)
		return SHF_ERR_IO;
	err->code = SHF_ERR_IO;
	err->sys_errno = saved;

	/* glibc's strerror() is thread-safe for the errors the system knows. */
	snprintf(reason, sizeof(reason), ": %s", strerror(saved));

	/* The reason must survive a long path. */
	room = sizeof(err->message) - strlen(reason);
	va_start(args, fmt);
	vsnprintf(err->message, room, fmt, args);
	va_end(args);
	trim_partial_character(err->message, room);
	len = strlen(err->message);
	memcpy(err->message + len, reason, strlen(reason) + 1);
	errno = saved;
	return SHF_ERR_IO;
}
