// SPDX-License-Identifier: GPL-2.0-only
/* Usage: seektest [BEGINNING-OF-A-NAME...] */
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>

#include "harness.h"

enum { EXIT_FAIL = 1, EXIT_SKIP = 4 };

static struct test *tests;

void test_register(struct test *test)
{
	struct test **at = &tests;

	while (*at && strcmp((*at)->name, test->name) < 0)
		at = &(*at)->next;
	test->next = *at;
	*at = test;
}

static void say(const char *file, int line, const char *format, va_list args)
{
	char text[512];
	int n = 0;

	if (file)
		n = snprintf(text, sizeof(text), "# %s:%d: ", file, line);
	else
		n = snprintf(text, sizeof(text), "# ");
	vsnprintf(text + n, sizeof(text) - n - 1, format, args);
	strcat(text, "\n");
	/* One call, so that the output of two processes does not mix. */
	if (write(STDOUT_FILENO, text, strlen(text)) < 0)
		_exit(EXIT_FAIL);
}

void test_fail(const char *file, int line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(file, line, format, args);
	va_end(args);
	_exit(EXIT_FAIL);
}

void test_skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(NULL, 0, format, args);
	va_end(args);
	_exit(EXIT_SKIP);
}

static bool chosen(const struct test *test, int count, char **names)
{
	for (int i = 0; i < count; i++)
		if (!strncmp(test->name, names[i], strlen(names[i])))
			return true;
	return !count;
}

/* The test leads a process group, so that its children end with it. */
static int run(const struct test *test)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	struct timespec now, end;
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		setpgid(0, 0);
		test->run();
		fflush(stdout);
		_exit(0);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += test->seconds;
	while (!waitpid(pid, &status, WNOHANG)) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > end.tv_sec) {
			printf("# no end after %u seconds\n", test->seconds);
			kill(-pid, SIGKILL);
			waitpid(pid, &status, 0);
			break;
		}
		nanosleep(&pause, NULL);
	}
	kill(-pid, SIGKILL);
	if (WIFSIGNALED(status))
		printf("# ended by signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAIL;
}

int main(int argc, char **argv)
{
	int number = 0, failed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	for (struct test *test = tests; test; test = test->next) {
		struct timespec before, after;
		int status;

		if (!chosen(test, argc - 1, argv + 1))
			continue;
		clock_gettime(CLOCK_MONOTONIC, &before);
		status = run(test);
		clock_gettime(CLOCK_MONOTONIC, &after);
		failed += status != 0 && status != EXIT_SKIP;
		printf("%sok %d %s%s # %.2f s\n",
		       status && status != EXIT_SKIP ? "not " : "", ++number,
		       test->name, status == EXIT_SKIP ? " # SKIP" : "",
		       (after.tv_sec - before.tv_sec) +
		       (after.tv_nsec - before.tv_nsec) / 1e9);
	}
	printf("1..%d\n", number);
	return failed ? EXIT_FAIL : number ? 0 : EXIT_SKIP;
}
