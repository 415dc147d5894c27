/*
 * tap.h - the Test Anything Protocol, as much of it as the tests use.
 *
 * A test program reports points, ends with `return done_testing();` and is
 * green when every point was.  A name is a sentence that is true when read
 * alone in a log; it may be a printf format.  Points are reported from one
 * thread at a time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TAP_TAP_H
#define TAP_TAP_H

#include <graphhooks/base.h>

#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>

/* Before glibc 2.33 there is only that whose numbers are int. */
#if defined(__GLIBC__) && !__GLIBC_PREREQ(2, 33)
#define mallinfo2 mallinfo
#endif

#define TAP_FORMAT(at) __attribute__((format(printf, at, (at) + 1)))

/* Each reports one point and returns whether it held. */
#define ok(condition, ...) \
    tap_ok((condition) ? true : false, __FILE__, __LINE__, __VA_ARGS__)
#define is_int(actual, expected, ...) \
    tap_is_int((long long)(actual), (long long)(expected), __FILE__, __LINE__, \
               __VA_ARGS__)
#define is_str(actual, expected, ...) \
    tap_is_str((actual), (expected), __FILE__, __LINE__, __VA_ARGS__)

/* For calls that return a gh_status; err, which may be NULL, is shown when
 * the status is not the expected one. */
#define is_status(actual, expected, err, ...) \
    tap_is_status((actual), (expected), (err), __FILE__, __LINE__, __VA_ARGS__)

bool tap_ok(bool held, const char *file, int line, const char *name, ...)
    TAP_FORMAT(4);
bool tap_is_int(long long actual, long long expected, const char *file,
                int line, const char *name, ...) TAP_FORMAT(5);
bool tap_is_str(const char *actual, const char *expected, const char *file,
                int line, const char *name, ...) TAP_FORMAT(5);
bool tap_is_status(gh_status actual, gh_status expected, const gh_error *err,
                   const char *file, int line, const char *name, ...)
    TAP_FORMAT(6);

/* For a program that is installed: what fails has no place in a source that
 * its user does not have. */
void tap_without_places(void);

/* A remark in the log; counts for nothing. */
void diag(const char *format, ...) TAP_FORMAT(1);

/* Reports `points` points as skipped, each with the reason. */
void skip(int points, const char *reason, ...) TAP_FORMAT(2);

/* Instead of every point: `return skip_all("no CUDA device");`  Returns 0. */
int skip_all(const char *reason, ...) TAP_FORMAT(1);

/* `bytes` of memory, at most a page, right before one that nobody may touch: a
 * byte too far ends the program. */
void *tap_before_the_end(size_t bytes);
void tap_give_back(void *memory, size_t bytes);

/* Seconds of a clock that is never set back. */
double tap_now_s(void);

/* Prints the plan; returns the exit status of the program. */
int done_testing(void);

/* Runs part(0) to part(n - 1), each in a process of its own and several at
 * once, and tells their points in that order.  For parts that wait, of a
 * program that has no second thread at this time. */
void tap_apart(int n, void (*part)(int i));

/* Tells the points of another process, which are in the file, as this one's.
 * Returns whether it has come to their end. */
bool tap_tell(FILE *points);
/* A forked process begins to count its own points. */
void tap_begin(void);

#endif
