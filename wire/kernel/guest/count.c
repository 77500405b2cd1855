// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checks that processor time counts instructions here: with -icount shift=0 an
 * emulated machine advances its clock by a nanosecond with each one. A loop
 * with a known number of them has to take that long, except for the timer's
 * interrupts.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define ITERATIONS 100000000ULL
#define INSTRUCTIONS (2 * ITERATIONS)

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

int main(void)
{
	uint64_t n = ITERATIONS, start = now(), took;

	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(n));
	took = now() - start;
	printf("a loop of %llu instructions takes %llu ns of processor time\n",
	       INSTRUCTIONS, (unsigned long long)took);
	return took < INSTRUCTIONS || took > INSTRUCTIONS + INSTRUCTIONS / 100;
}
