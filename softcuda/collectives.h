/*
 * softcuda/collectives.h - work that several streams do together.
 *
 * This is what a library of collectives needs from the software device;
 * softnccl is its only user.  A `call` is what a rank issues on a stream, or
 * captures.  Each time it is issued, and each time its node is launched, it
 * becomes a `visit`, which joins one or more rendezvous.  A rendezvous is held
 * once all its visits have been issued and their streams have reached them. The
 * streams go on when the rendezvous is over.
 *
 * Everything here is called with the device locked: between lock() and
 * unlock(), or in a function that the device calls.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_COLLECTIVES_H
#define SOFTCUDA_COLLECTIVES_H

#include "driver/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct softcuda_rendezvous softcuda_rendezvous;
typedef struct softcuda_visit softcuda_visit;
/* The place of one rank in one communicator.  It knows what the rank's visits
 * come after, once their rendezvous have been held. */
typedef struct softcuda_seat softcuda_seat;
/* What one host has told the others. */
typedef struct softcuda_word softcuda_word;

/* Each operation and node that uses the call keeps it.  The caller has one
 * reference from the start. */
typedef struct softcuda_call softcuda_call;
struct softcuda_call {
    uint32_t refs;
    void (*free)(softcuda_call *call);
    const char *name; /* static: reports keep it */
    softcuda_seat *seat;
    /* Joins the rendezvous of this visit. */
    void (*come)(softcuda_call *call, softcuda_visit *visit, bool in_graph);
};

/* Does the work of a rendezvous.  True: it was done, and *bytes_p bytes were
 * exchanged. */
typedef bool softcuda_rendezvous_fn(void *user, softcuda_rendezvous *rendezvous,
                                    uint64_t *bytes_p);
/* Tells that the rendezvous is over, whether or not it was held.  `user` is not
 * used after that. */
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

typedef struct softcuda_collective_calls {
    uint32_t struct_size;

    void (*lock)(void);
    void (*unlock)(void);
    /* Gives the lock up and sleeps until something has happened. */
    void (*sleep)(void);
    /* Tells that something has happened that a thread may sleep for. */
    void (*news)(void);
    /* Sets a function that is called, with the lock held, when a waiting thread
     * has seen nothing happen for so long. */
    void (*watch)(void (*watcher)(uint64_t quiet_ms));
    uint64_t (*now_ms)(void);
    uint64_t (*thread)(void); /* the calling thread's */
    int (*thread_is)(uint64_t thread);

    CUresult (*device)(int *device_p); /* of the thread's context */
    CUresult (*stream)(CUstream stream, softcuda_stream_is *is_p);
    /* NULL when there is no memory. */
    softcuda_seat *(*seat)(void);
    void (*seat_free)(softcuda_seat *seat);

    CUresult (*issue)(CUstream stream, softcuda_call *call);
    void (*call_drop)(softcuda_call *call);

    /* Makes a rendezvous of `places` visits.  The caller has a reference. */
    softcuda_rendezvous *(*rendezvous)(const char *name, uint32_t places,
                                       softcuda_rendezvous_fn *run,
                                       softcuda_over_fn *over, void *user);
    void (*rendezvous_drop)(softcuda_rendezvous *rendezvous);
    void (*join)(softcuda_rendezvous *rendezvous, uint32_t place,
                 softcuda_visit *visit);
    /* Waits until the rendezvous is over. */
    void (*await)(softcuda_rendezvous *rendezvous);
    /* Ends a rendezvous that will not be held.  Whoever waits for it
     * goes on. */
    void (*fail)(softcuda_rendezvous *rendezvous);

    /* Only while a rendezvous is held: says what the visit at that place reads
     * or writes on its own stream's device, as SOFTCUDA_READ and the others of
     * softcuda.h say.  False: there is no such memory. */
    bool (*touch)(softcuda_rendezvous *rendezvous, uint32_t place,
                  const void *address, size_t bytes, int what);
    /* Makes the end of visit `to` come after the begin of visit `from`. */
    void (*flow)(softcuda_rendezvous *rendezvous, uint32_t from, uint32_t to);

    /* One host says what it knows.  Others hear it, and then come after it. */
    softcuda_word *(*say)(softcuda_word *word); /* NULL: the first to say */
    void (*hear)(const softcuda_word *word);
    void (*word_free)(softcuda_word *word);
} softcuda_collective_calls;

/* For dlsym: "softcuda_collectives". */
typedef const softcuda_collective_calls *softcuda_collectives_fn(void);

#endif
