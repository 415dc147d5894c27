/*
 * softcuda/meeting.h - work that several streams do together.
 *
 * What a library of collectives needs of the software device: softnccl is
 * its one user.  A `call` is what a rank issues on a stream, or captures.
 * Each time it is issued, and each time its node is launched, it becomes a
 * `visit`, which joins one meeting or more.  A meeting is held once all the
 * visits that it wants have been issued and their streams have come so far;
 * the streams go on when it is over.
 *
 * Everything here is called with the device locked: between lock() and
 * unlock(), or in a function that the device calls.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_MEETING_H
#define SOFTCUDA_MEETING_H

#include "driver/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct softcuda_meeting softcuda_meeting;
typedef struct softcuda_visit softcuda_visit;
/* Where one rank of one communicator sits: what its visits come after is
 * known when their meetings have been held. */
typedef struct softcuda_seat softcuda_seat;
/* What one host has told others. */
typedef struct softcuda_word softcuda_word;

/* Kept by each operation and node that it is in; the caller has one
 * reference from the start. */
typedef struct softcuda_call softcuda_call;
struct softcuda_call {
    uint32_t refs;
    void (*free)(softcuda_call *call);
    const char *name; /* kept for the life of the process: reports have it */
    softcuda_seat *seat;
    /* Joins the meetings of this visit. */
    void (*come)(softcuda_call *call, softcuda_visit *visit, bool in_graph);
};

/* What a meeting does.  True: it is done, and *bytes_p went between. */
typedef bool softcuda_meeting_fn(void *user, softcuda_meeting *meeting,
                                 uint64_t *bytes_p);
/* The meeting is over, held or not: `user` is not used again. */
typedef void softcuda_over_fn(void *user, bool held);

typedef struct softcuda_stream_is {
    int device;
    uint64_t capture; /* 0: it does not capture */
} softcuda_stream_is;

enum {
    SOFTCUDA_THREAD_RUNS,
    SOFTCUDA_THREAD_WAITS,
    SOFTCUDA_THREAD_GONE
};

typedef struct softcuda_meetings {
    uint32_t struct_size;

    void (*lock)(void);
    void (*unlock)(void);
    /* Sleeps until something has happened, with the lock given up. */
    void (*sleep)(void);
    /* Something has happened that a thread may sleep for. */
    void (*news)(void);
    /* Asked, with the lock held, when a thread that waits has seen nothing
     * happen for so long. */
    void (*watch)(void (*watcher)(uint64_t quiet_ms));
    uint64_t (*now_ms)(void);
    uint64_t (*thread)(void); /* the calling one */
    int (*thread_is)(uint64_t thread);

    CUresult (*device)(int *device_p); /* of the thread's context */
    CUresult (*stream)(CUstream stream, softcuda_stream_is *is_p);
    /* NULL when there is no memory. */
    softcuda_seat *(*seat)(void);
    void (*seat_free)(softcuda_seat *seat);

    CUresult (*issue)(CUstream stream, softcuda_call *call);
    void (*call_drop)(softcuda_call *call);

    /* Wants `places` visits.  The caller has a reference. */
    softcuda_meeting *(*meeting)(const char *name, uint32_t places,
                                 softcuda_meeting_fn *run,
                                 softcuda_over_fn *over, void *user);
    void (*meeting_drop)(softcuda_meeting *meeting);
    void (*join)(softcuda_meeting *meeting, uint32_t place,
                 softcuda_visit *visit);
    /* Returns when it is over. */
    void (*await)(softcuda_meeting *meeting);
    /* It will not be held, and whoever waits for it goes on. */
    void (*fail)(softcuda_meeting *meeting);

    /* While a meeting is held.  What the visit at that place reads or writes
     * of the bytes at its own stream's device, as SOFTCUDA_READ and the
     * others of softcuda.h say; false: it is not there. */
    bool (*touch)(softcuda_meeting *meeting, uint32_t place,
                  const void *address, size_t bytes, int what);
    /* The end of the one visit comes after the begin of the other. */
    void (*flow)(softcuda_meeting *meeting, uint32_t from, uint32_t to);

    /* One host says what it knows; others hear it, and come after. */
    softcuda_word *(*say)(softcuda_word *word); /* NULL: the first to say */
    void (*hear)(const softcuda_word *word);
    void (*word_free)(softcuda_word *word);
} softcuda_meetings;

/* For dlsym: "softcuda_meet". */
typedef const softcuda_meetings *softcuda_meet_fn(void);

#endif
