/*
 * What a pass and a launch ask of lib/offload, which is this file's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/offloads.h"
#include "capture/replay.h"
#include "support/fake.h"
#include "tap/tap.h"

#include <string.h>

static struct gh_capture c;
static struct gh_offload offload;
static struct gh_instance queued;
static gh_status before_is, launch_is;

gh_status gh_offload_flush(struct gh_offload *o, gh_error *error)
{
    (void)o;
    (void)error;
    note("flush ");
    return GH_OK;
}

gh_status gh_offload_before(struct gh_offload *o,
                            const struct gh_offload_script *script,
                            const struct gh_offload_at *at, gh_error *error)
{
    (void)o;
    (void)script;
    (void)at;
    (void)error;
    note("before ");
    return before_is;
}

void gh_offload_after(struct gh_offload *o,
                      const struct gh_offload_script *script)
{
    (void)o;
    (void)script;
    note("after ");
}

void gh_offload_take_back(struct gh_offload *o,
                          const struct gh_offload_script *script)
{
    (void)o;
    (void)script;
    note("take_back ");
}

gh_status gh_device_launch(struct gh_device *dev, void *exec, void *stream,
                           gh_error *error)
{
    (void)dev;
    (void)exec;
    (void)stream;
    (void)error;
    note("launch ");
    return launch_is;
}

static void begin(void)
{
    memset(&c, 0, sizeof(c));
    memset(&offload, 0, sizeof(offload));
    forget_all();
    queued.microbatch = 3;
    offload.first_queued = &queued;
    c.offload = &offload;
    before_is = launch_is = GH_OK;
}

static void turns(gh_direction direction, uint32_t microbatch, bool holds,
                  const char *wanted, const char *what)
{
    const gh_pass pass = { .direction = direction, .microbatch = microbatch };

    begin();
    c.host.holds = holds;
    is_status(gh_offloads_begin(&c, &pass, &err), GH_OK, &err, "a pass begins");
    is_str(calls, wanted, "%s", what);
}

static void test_commits_that_wait(void)
{
    turns(GH_FORWARD, 3, false, "",
          "commits wait while their microbatch goes forward");
    turns(GH_FORWARD, 4, false, "flush ", "and no longer than that");
    turns(GH_BACKWARD, 3, false, "flush ", "nor beyond its backward");
    turns(GH_FORWARD, 4, true, "",
          "but they wait where an exchange comes first");
    turns(GH_BACKWARD, 3, true, "", "be it in front of a backward");
}

static void launches(gh_status before, gh_status launch, bool repeated,
                     const char *wanted, const char *what)
{
    static int exec;
    struct gh_entry entry = { .exec = &exec };

    begin();
    before_is = before;
    launch_is = launch;
    c.open.repeated = repeated;
    is_status(gh_launch_with_script(&c, &entry, NULL, &err),
              before != GH_OK ? before : launch, NULL,
              "a launch does what it is asked to");
    is_str(calls, wanted, "%s", what);
}

static void test_launches(void)
{
    launches(GH_OK, GH_OK, false, "before launch after ",
             "a launch is followed by its copies");
    launches(GH_OK, GH_ERR_DEVICE, false, "before launch take_back ",
             "one that fails takes back what it has begun");
    launches(GH_ERR_STATE, GH_OK, false, "before ",
             "one whose groups are elsewhere is none");
    ok(c.open.not_now, "for this time");
    launches(GH_ERR_DEVICE, GH_OK, false, "before ",
             "nor is one whose device fails");
    ok(!c.open.not_now, "for good");
    launches(GH_OK, GH_OK, true, "before launch ",
             "one that an eager pass repeats leaves the copies to that");
}

int main(void)
{
    test_commits_that_wait();
    test_launches();
    return done_testing();
}
