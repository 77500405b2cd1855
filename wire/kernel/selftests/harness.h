/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests register themselves and run one after the other, each in a process of
 * its own with a time limit. The report is in TAP.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct test {
	const char *name;
	void (*run)(void);
	unsigned int seconds;
	struct test *next;
};

void test_register(struct test *test);

/* Prints the reason and ends the test, from any thread or child. */
__attribute__((noreturn, format(printf, 1, 2)))
void test_skip(const char *format, ...);
__attribute__((noreturn, format(printf, 3, 4)))
void test_fail(const char *file, int line, const char *format, ...);

#define TEST_SECONDS(id, limit)						\
	static void id(void);						\
	__attribute__((constructor)) static void register_##id(void)	\
	{								\
		static struct test test = { #id, id, limit, NULL };	\
		test_register(&test);					\
	}								\
	static void id(void)

/* Everything is slow under emulation; the limit is for hangs. */
#define TEST(id) TEST_SECONDS(id, 30)

#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)

#define ASSERT(condition)						\
	do {								\
		if (!(condition))					\
			FAIL("%s (errno: %m)", #condition);		\
	} while (0)

#define ASSERT_EQ(a, b)							\
	do {								\
		long long a_ = (long long)(a), b_ = (long long)(b);	\
		if (a_ != b_)						\
			FAIL("%s is %lld, not %s = %lld (errno: %m)",	\
			     #a, a_, #b, b_);				\
	} while (0)

/* The call must fail with this error. */
#define ASSERT_ERRNO(call, error)					\
	do {								\
		errno = 0;						\
		long long r_ = (long long)(call);			\
		if (r_ != -1 || errno != (error))			\
			FAIL("%s is %lld with %m, not -1 with %s",	\
			     #call, r_, #error);			\
	} while (0)

#endif
