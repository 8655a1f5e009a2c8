/*
 * harness.h
 *	  What the unit tests of the engine share: checks, a temporary directory, random
 *	  numbers and one line of output per test (the Test Anything Protocol, so that
 *	  prove and test/check.sh can count them), then "N passed, N failed".
 *
 *	  static void
 *	  test_something(void)
 *	  {
 *		  CHECK_OK(shf_reader_open(&r, path, &err));
 *		  CHECK(r != NULL);
 *	  }
 *
 *	  int
 *	  main(void)
 *	  {
 *		  RUN(test_something);
 *		  return test_summary();
 *	  }
 *
 * A failed check ends its test.  What the test holds is then leaked, so run with
 * ASAN_OPTIONS=detect_leaks=1 only tells the truth when all tests pass; it is on.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/engine/shf.h"

static int	   test_passed;
static int	   test_failed;
static jmp_buf test_jump;
static char	   test_message[2048];

/* The error argument of every engine call under CHECK_OK and CHECK_ERR. */
static ShfError err;

static void __attribute__((noreturn, format(printf, 3, 4)))
test_fail(const char *file, int line, const char *fmt, ...)
{
	va_list args;
	int		n = snprintf(test_message, sizeof(test_message), "%s:%d: ", file, line);

	va_start(args, fmt);
	vsnprintf(test_message + n, sizeof(test_message) - (size_t) n, fmt, args);
	va_end(args);
	longjmp(test_jump, 1);
}

#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(condition) \
	do \
	{ \
		if (!(condition)) \
			FAIL("%s is false", #condition); \
	} while (0)

/* Compares integers of any type as long long. */
#define CHECK_INT(found, expected) \
	do \
	{ \
		long long found_ = (long long) (found); \
		long long expected_ = (long long) (expected); \
		if (found_ != expected_) \
			FAIL("%s is %lld, expected %lld", #found, found_, expected_); \
	} while (0)

#define CHECK_STR(found, expected) \
	do \
	{ \
		const char *found_ = (found); \
		if (found_ == NULL || strcmp(found_, (expected)) != 0) \
			FAIL("%s is \"%s\", expected \"%s\"", #found, found_ ? found_ : "(null)", (expected)); \
	} while (0)

#define CHECK_MEM(found, expected, len) \
	do \
	{ \
		if (memcmp((found), (expected), (len)) != 0) \
			FAIL("%s differs from %s within %lld bytes", #found, #expected, (long long) (len)); \
	} while (0)

/* The call must succeed; it must use the variable err. */
#define CHECK_OK(call) \
	do \
	{ \
		ShfCode code_ = (call); \
		if (code_ != SHF_OK) \
			FAIL("%s: code %d: %s", #call, (int) code_, err.message); \
	} while (0)

/* The call must fail with this code, and its message must contain text. */
#define CHECK_ERR(call, expected, text) \
	do \
	{ \
		ShfCode code_; \
		memset(&err, 0, sizeof(err)); \
		code_ = (call); \
		if (code_ != (expected)) \
			FAIL("%s: code %d, expected %d: %s", #call, (int) code_, (int) (expected), \
				 err.message); \
		if (err.code != code_) \
			FAIL("%s: err.code is %d, returned %d", #call, (int) err.code, (int) code_); \
		if (strstr(err.message, (text)) == NULL) \
			FAIL("%s: message \"%s\" does not contain \"%s\"", #call, err.message, (text)); \
	} while (0)

static inline void
test_run(void (*test)(void), const char *name)
{
	if (setjmp(test_jump) == 0)
	{
		test();
		test_passed++;
		printf("ok %d - %s\n", test_passed + test_failed, name);
	}
	else
	{
		test_failed++;
		printf("not ok %d - %s\n# %s\n", test_passed + test_failed, name, test_message);
	}
	fflush(stdout);
}

/* Without the "test_" that every name begins with. */
#define RUN(test) test_run(test, &#test[5])

/* Exit status of main. */
static inline int
test_summary(void)
{
	printf("%d passed, %d failed\n", test_passed, test_failed);
	return test_failed > 0 ? 1 : 0;
}

/* ---------------------------------------------------------------- random numbers */

/* xorshift64*: the same numbers everywhere, so a failure can be repeated. */
static uint64_t test_seed = UINT64_C(0x9E3779B97F4A7C15);

static inline uint64_t
test_random(void)
{
	test_seed ^= test_seed >> 12;
	test_seed ^= test_seed << 25;
	test_seed ^= test_seed >> 27;
	return test_seed * UINT64_C(2685821657736338717);
}

/* 0 .. n - 1 */
static inline uint64_t
test_below(uint64_t n)
{
	return test_random() % n;
}

/* ---------------------------------------------------------------- files */

/* A directory of this process, removed at exit. */
static char test_directory[64];

static void
test_remove_directory(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf '%s'", test_directory);
	if (system(command) != 0)
		fprintf(stderr, "could not remove %s\n", test_directory);
}

/* A path in it; up to eight results are valid at a time. */
static inline const char *
test_path(const char *name)
{
	static char paths[8][256];
	static int	next;
	char	   *path = paths[next++ % 8];

	if (test_directory[0] == '\0')
	{
		strcpy(test_directory, "/tmp/shuffle_test_XXXXXX");
		if (mkdtemp(test_directory) == NULL)
		{
			perror("mkdtemp");
			exit(2);
		}
		atexit(test_remove_directory);
	}
	snprintf(path, sizeof(paths[0]), "%s/%s", test_directory, name);
	return path;
}

/* The whole file in malloc memory. */
static inline uint8_t *
test_read_file(const char *path, size_t *len)
{
	FILE	*f = fopen(path, "rb");
	uint8_t *data;
	long	 size;

	if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0)
		FAIL("could not read %s", path);
	rewind(f);
	data = malloc((size_t) size + 1);
	if (fread(data, 1, (size_t) size, f) != (size_t) size)
		FAIL("could not read %s", path);
	fclose(f);
	*len = (size_t) size;
	return data;
}

static inline void
test_write_file(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "wb");

	if (f == NULL || fwrite(data, 1, len, f) != len || fclose(f) != 0)
		FAIL("could not write %s", path);
}

#endif /* HARNESS_H */
