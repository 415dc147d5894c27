/*
 * ranks.h - one test, several ranks, and what each of them says.
 *
 * A test is a function that every rank runs.  On softnccl the ranks are
 * threads, each with a device of its own; on NCCL they are processes, which
 * may share one.  What they say is collected, and told as points in the order
 * of the ranks, so that both give the same list.  GRAPHHOOKS_TEST_ONLY leaves
 * out every test without its text in the name; points that a program adds
 * itself on what such a test has found may then fail.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TESTS_NCCL_RANKS_H
#define TESTS_NCCL_RANKS_H

#include "driver/nccl.h"
#include "tap/tap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MAX_RANKS = 4,   /* of most tests */
    MOST_RANKS = 8,  /* of any */
    RANK_WORDS = 32, /* of a rank, on the board */
    RANK_FLOATS = 4096 /* in each of a rank's buffers */
};

struct rank {
    int rank, n, device;
    uint32_t test, n_ids;
    CUcontext ctx;
    CUstream stream, side;
    CUdeviceptr send, recv, third; /* RANK_FLOATS floats each, all written */
    ncclComm_t comm;
};

extern struct driver drv;
extern struct nccl nccl;

/* Loads the device and the library; the ranks open them.  When they cannot be,
 * false, and what main() then returns. */
bool ranks_open(int *status_p);
/* The same where a device is enough: without an NCCL all tests are bare. */
bool ranks_open_device(int *status_p);
bool ranks_have_nccl(void);
/* The software device and softnccl. */
bool ranks_are_soft(void);
/* What a session or an exchange is told of both: names or files. */
const char *ranks_driver(void);
const char *ranks_nccl(void);

struct ranks_test {
    const char *name;
    void (*run)(struct rank *r);
    bool bare; /* it makes its communicators itself */
};

/* Runs the tests on n ranks, each of which has a communicator of all.
 * Softnccl may have found nothing then, and the device no race.  Returns whether
 * any of them ran: there may be too few ranks. */
bool ranks_run_all(int n, const struct ranks_test *tests, size_t n_tests);
/* A program of tests that run with 1 to MAX_RANKS ranks; what main returns. */
int ranks_main(const struct ranks_test *tests, size_t n_tests);
bool ranks_run(int n, const char *name, void (*test)(struct rank *r));

/* On softnccl alone: whatever it finds is the caller's to ask for. */
void ranks_run_wrong(int n, const char *name, void (*test)(struct rank *r));
void ranks_run_wrong_bare(int n, const char *name,
                          void (*test)(struct rank *r));
/* The same where numbers may be wrong: what the ranks say is not told. */
void ranks_run_lost(int n, const char *name, void (*test)(struct rank *r));
/* The seed of the runs to come, at first 1; and whether what one rank has
 * waited for all ranks know, as threads of one program do. */
void ranks_seed(int seed);
void ranks_know_each_other(bool know);
/* Ranks of the software device are processes too from now on, before the first
 * run.  They have no softnccl: all tests are to be bare. */
void ranks_as_processes(void);

/* How many devices the ranks use, of those that there are; at first all. */
void ranks_devices(int devices);
/* Points that hold are not told, for tests that run often. */
void ranks_quiet(bool quiet);
/* The next runs lose the n-th wait of all ranks; 0: none.  How many there
 * were in the last run. */
void ranks_drop_wait(uint64_t n);
uint64_t ranks_waits(void);
/* The n-th call of an entry fails in the next runs; 0: none.  How many calls
 * of it there were in the last run. */
void ranks_fail(const char *entry, uint64_t n);
uint64_t ranks_calls(const char *entry);
/* The first four calls of an entry give that code in the next runs, so that
 * four ranks find a driver that has no such call; NULL: none. */
void ranks_refuse(const char *entry, int code);
/* Graphs that can be launched, of all ranks. */
uint64_t ranks_graphs(void);
/* Objects of the software device that nobody has given back. */
uint64_t ranks_left(void);

/* In a test: one thing that is so, said by this rank. */
bool says(struct rank *r, bool held, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool says_int(struct rank *r, long long got, long long wanted,
              const char *format, ...) __attribute__((format(printf, 4, 5)));
/* All ranks come here before any goes on. */
void ranks_barrier(struct rank *r);
/* A row of words of each rank that all see, also as processes. */
uint64_t *ranks_board(int rank);
/* An all-gather of n words by the board, whose last two words it uses.  False
 * if a rank has not come after so many seconds. */
bool ranks_gather(struct rank *r, const uint64_t *mine, uint64_t *all,
                  uint32_t n, int seconds);
/* Rank 0's id, for all. */
ncclUniqueId ranks_id(struct rank *r);

/* float i of a buffer is first + i * step, written and waited for. */
void fill(struct rank *r, CUdeviceptr at, size_t n, float first, float step);
/* Copies from the device, when the stream has come so far. */
void fetch(struct rank *r, CUstream stream, void *to, CUdeviceptr from,
           size_t bytes);

/* The software device's and softnccl's findings; the i-th text, or "". */
uint64_t soft_communicators(void); /* of all ranks, not yet destroyed */
uint64_t soft_races(void);
uint64_t soft_unmapped(void);
uint64_t soft_reports(void);
const char *soft_report(uint64_t i);
bool soft_reported(const char *part);
/* The virtual clock, and what operations take on it from now on. */
uint64_t soft_clock(void);
void soft_costs(const char *lines);
/* Points: nothing was found, and nothing is left. */
void soft_is_clean(const char *name);
void soft_configure(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

static inline void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

#endif
