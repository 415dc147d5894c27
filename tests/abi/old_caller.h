/*
 * old_caller.h - a host that was built against the headers of a release.
 *
 * Built once for each release that tests/abi/old/ keeps.  -include gives the
 * kept headers, whose guards keep the current ones out, so every struct here
 * has the size that it had then.  The host reaches the library through
 * gh_get_api, and runs on the software device.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ABI_OLD_CALLER_H
#define ABI_OLD_CALLER_H

#include <graphhooks.h>

#include "driver/driver.h"
#include "tap/tap.h"

#include <string.h>

#define TEXT_OF(number) #number
#define RELEASE_OF(major, minor) TEXT_OF(major) "." TEXT_OF(minor)
#define RELEASE RELEASE_OF(GH_ABI_MAJOR, GH_ABI_MINOR)

/* What 1.0 has given other names. */
#if GH_ABI_MAJOR == 0
#define agreements asked
#define window_offset at
#endif

/* A struct of the release and bytes after it, which the library must neither
 * write nor take for fields: no field could hold them. */
#define GUARD 0xa5
#define FRAMED(type) \
    struct { \
        type it; \
        unsigned char after[64]; \
    }
#define FRAME(framed) \
    (memset(&(framed), 0, sizeof(framed)), \
     memset((framed).after, GUARD, sizeof((framed).after)), \
     (framed).it.struct_size = sizeof((framed).it))
#define IS_WHOLE(framed) is_guard((framed).after, sizeof((framed).after))
bool is_guard(const unsigned char *bytes, size_t n);

extern const gh_api *gh;    /* the library */
extern struct driver drv;   /* the software device */
extern CUstream streams[2]; /* of the host */
extern gh_session *session; /* the last that was opened */
extern gh_error err;        /* of the last call that failed */

/* The library and the device; false after a failed point. */
bool caller_start(void);
void caller_stop(void);
/* What gh_session_desc.driver names. */
const char *caller_device(void);

/* What a session is opened with; no struct_size need be set. */
struct opening {
    gh_layer_desc layer; /* each of them */
    uint32_t n_layers;
    gh_session_desc desc; /* model, host and driver apart */
    gh_host_services host;
};
bool open_session(const struct opening *opening);
/* The same, and one step of warmup of segment 0, which is over then. */
bool open_warm(const struct opening *opening);
void close_session(void);
bool end_step(void);

/* One pass.  It copies its input to its output, which lies in its slot. */
struct pass {
    FRAMED(gh_pass) call;
    FRAMED(gh_decision) d;
    gh_buffer input, output;
    uint32_t word; /* what the input holds; no two passes' are equal */
};

/* A pass of segment 0, on the stream of its microbatch. */
struct pass a_pass(gh_direction direction, uint32_t microbatch);
gh_status enter_pass(struct pass *pass);
void work_in(struct pass *pass);
gh_status exit_pass(struct pass *pass);
/* As a host makes it, until it need not run again. */
gh_status run_pass(struct pass *pass);
/* What lies in its output, once the device is idle. */
uint32_t result_of(const struct pass *pass);

/* Runs the pass, and whether it was decided so, its output is right, and
 * nothing was written past its structs. */
bool passes_as(struct pass *pass, gh_action action, gh_reason reason);
bool is_recorded(gh_direction direction, uint32_t microbatch);
bool is_replayed(gh_direction direction, uint32_t microbatch);

/* The counters, and whether nothing was written past them. */
bool read_stats(gh_stats *stats);

/* What a release has added, for callers of that release and later ones. */
void test_since_0_2(void);
void test_since_0_3(void);
void test_since_0_4(void);
void test_since_0_5(void);
void test_since_1_0(void);

#endif
