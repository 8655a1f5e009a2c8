/*
 * slow_device.c
 *	  A device that is slow or fails, for 017_thread.pl: preloaded into the server, it
 *	  stands between the writes to segment files and the system.
 *
 * The file named by SLOW_DEVICE says what to do: "<delay in ms> <errno> <offset>".  Every
 * write takes so long; at and behind the offset it fails, unless errno is 0.  Who writes is
 * appended to the file named by SLOW_DEVICE with ".log": "thread" or "process".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef ssize_t (*WriteFunction)(int fd, const void *data, size_t len);

static int
is_segment(int fd)
{
	char	link[64];
	char	path[4096];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path));
	return len > 6 && len < (ssize_t) sizeof(path) && memcmp(path + len - 6, ".arrow", 6) == 0;
}

ssize_t
write(int fd, const void *data, size_t len)
{
	WriteFunction next = (WriteFunction) dlsym(RTLD_NEXT, "write");
	const char	 *name = getenv("SLOW_DEVICE");
	FILE		 *orders = name != NULL && is_segment(fd) ? fopen(name, "re") : NULL;
	int			  delay = 0;
	int			  code = 0;
	long		  offset = 0;

	if (orders != NULL)
	{
		char		log[4096];
		const char *who = syscall(SYS_gettid) == getpid() ? "process\n" : "thread\n";
		int			out;

		if (fscanf(orders, "%d %d %ld", &delay, &code, &offset) != 3)
			code = 0;
		fclose(orders);
		snprintf(log, sizeof(log), "%s.log", name);
		out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (out >= 0)
		{
			next(out, who, strlen(who));
			close(out);
		}
	}
	if (delay > 0)
	{
		struct timespec pause = {delay / 1000, delay % 1000 * 1000000L};

		while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
			;
	}
	if (code != 0 && lseek(fd, 0, SEEK_CUR) + (off_t) len > offset)
	{
		errno = code;
		return -1;
	}
	return next(fd, data, len);
}
