/* Shared declarations of this program's parts; main.c describes the program. */
#ifndef FAULTS_H
#define FAULTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../raw.h"

enum { MOST = 4, LARGEST = 1 << 16, TURNS = 12, LATE = 17, HANG_SECONDS = 20 };
/* A system call with this invalid number marks where the steps begin. */
enum { BEGIN = 0x7000001 };
enum style { TURN_BY_TURN, POLLING, THREADS, STYLES };
enum outcome { NOTHING, WHOLE, ENDED, RESET };
enum cut { KILL, STOP, FAIL, CUTS };
enum fault { NONE, KILLED, STOPPED, DESCRIPTORS, MEMORY, REGISTRY, FULL, SPARSE, COW, GROUP, CLOCK, FAULTS };

/* The actions of one end on one connection, visible to the driver. */
struct flow {
    _Atomic uint64_t sending, sent, received;
    _Atomic int receiving, outcome, late;
};

struct shared {
    /* A round begins when its number is set here; 0 before the first, -1 after the last. */
    _Atomic int round;
    _Atomic int port, connected[2], done[2], descriptors[2], mappings[2];
    int victim, connections;
    /* Whether only the victim has the library, so that no connection comes to the ring. */
    int alone;
    /* The fault that the victim meets at random moments. */
    enum fault fault;
    /* Whether an end serves each connection in a process of its own. */
    int forks[2];
    uint64_t seed;
    enum style style[MOST];
    /* Number of bytes that this end sends on this connection. */
    uint64_t total[2][MOST];
    struct flow flow[2][MOST];
    char complaint[2][200];
};

extern struct shared *shared;
extern const char *self, *library;
/* The path of the registry. */
enum { LONGEST = 1000 };
extern char directory[LONGEST];

/* shared.c */
void complain(int who, const char *format, ...);
void nap(long microseconds);
uint64_t mix(uint64_t x);
uint64_t roll(uint64_t *state, uint64_t below);
int count_files(const char *path, const char *ending);

/* end.c */
int end(int which, int number, int rounds);

/* clock.c */
int clocks_differ(void);
void other_clock(uint64_t *random);
void let_clock_jump(void);

/* rounds.c */
extern int failures, most_late, resets, ends, moments;
extern uint64_t bytes;
pid_t start(int which, int number, int rounds, int traced);
void put_round(int victim, uint64_t seed);
void judge(const char *what, int killed);
int await_other(const char *what, int other, int number, pid_t pid);
void finish(pid_t pid);
void count_left(const char *what, int other, int round);
void clear_up(const char *what);

/* limits.c: each returns NULL, or the reason why it is impossible. */
const char *enter_small_place(enum fault fault);
void leave_small_place(void);
void fill_place(void);
void empty_place(void);
void leave_room(size_t length);
const char *make_group(void);
void join_group(void);
void limit_group(uint64_t *random);
void free_group(void);
int remove_group(void);

/* steps.c, moments.c */
void by_steps(enum cut cut, uint64_t seed);
void at_moments(const char *name, enum fault fault, uint64_t seed, int wanted);
void too_late(int signal);

#endif
