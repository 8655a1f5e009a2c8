/*
 * slow_device.c
 *	  A device that is slow or fails, for 017_thread.pl: preloaded into the server, it
 *	  stands between the system and those who write and sync segment files.
 *
 * The file named by SLOW_DEVICE says what to do: "<delay in ms> <function> <errno> <offset>".
 * Every write takes so long; the function fails where the file is longer than offset, unless
 * errno is 0.  Who calls what is appended to the file named by SLOW_DEVICE with ".log":
 * "write thread", or "fsync process".
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
typedef int (*FsyncFunction)(int fd);
typedef int (*RangeFunction)(int fd, off64_t offset, off64_t len, unsigned flags);

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

static void
take_down(const char *device, const char *function)
{
	WriteFunction next = (WriteFunction) dlsym(RTLD_NEXT, "write");
	char		  text[4096];
	int			  out;

	snprintf(text, sizeof(text), "%s.log", device);
	out = open(text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (out < 0)
		return;
	snprintf(text, sizeof(text), "%s %s\n", function,
			 syscall(SYS_gettid) == getpid() ? "process" : "thread");
	if (next(out, text, strlen(text)) < 0)
		perror(device);
	close(out);
}

/* The call of the function, which makes the file at least so long, is to fail: -1. */
static int
obey(const char *function, int fd, size_t len)
{
	const char *device = getenv("SLOW_DEVICE");
	FILE	   *orders = device != NULL && is_segment(fd) ? fopen(device, "re") : NULL;
	int			delay = 0;
	char		failing[64] = "";
	int			code = 0;
	long		offset = 0;

	if (orders == NULL)
		return 0;
	if (fscanf(orders, "%d %63s %d %ld", &delay, failing, &code, &offset) != 4)
		code = 0;
	fclose(orders);
	take_down(device, function);
	if (delay > 0 && strcmp(function, "write") == 0)
	{
		struct timespec pause = {delay / 1000, delay % 1000 * 1000000L};

		while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
			;
	}
	if (code == 0 || strcmp(function, failing) != 0 ||
		lseek(fd, 0, SEEK_CUR) + (off_t) len <= offset)
		return 0;
	errno = code;
	return -1;
}

ssize_t
write(int fd, const void *data, size_t len)
{
	WriteFunction next = (WriteFunction) dlsym(RTLD_NEXT, "write");

	return obey("write", fd, len) < 0 ? -1 : next(fd, data, len);
}

int
fsync(int fd)
{
	FsyncFunction next = (FsyncFunction) dlsym(RTLD_NEXT, "fsync");

	return obey("fsync", fd, 0) < 0 ? -1 : next(fd);
}

int
sync_file_range(int fd, off64_t offset, off64_t len, unsigned flags)
{
	RangeFunction next = (RangeFunction) dlsym(RTLD_NEXT, "sync_file_range");

	return obey("sync_file_range", fd, 0) < 0 ? -1 : next(fd, offset, len, flags);
}
