/*
 * fake.c - see fake.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/offload/fake.h"

#include "base/error.h"
#include "support/host_memory.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct event {
    unsigned number;
    double at;
};

struct gh_offload *o;
struct gh_plan plan;
uint32_t most_in_a_call;
bool batches, no_memory, no_pinned, ends_at_once, is_capturing;
int64_t memory_out, blocks_out, events_out;
double now_ns;
uint32_t asked_blocks;

static uint32_t n_events, n_blocks;
static uint64_t passes;
static void *all_streams[] = { MAIN, SIDE };
static struct gh_streams streams = { .dev = DEVICE, .all = all_streams,
                                     .n = 2 };
static gh_host_services host;
static struct gh_memory memory = { .streams = &streams, .host = &host };
static struct gh_layer_plan layer_plans[LAYERS];
static gh_segment segments[LAYERS];

const char *called(void)
{
    static char line[sizeof(calls)];

    memcpy(line, calls, sizeof(line));
    calls[0] = '\0';
    if (line[0] != '\0') {
        line[strlen(line) - 1] = '\0'; /* the last blank */
    }
    return line;
}

static char letter(const void *stream)
{
    return stream == MAIN   ? 'm'
           : stream == SIDE ? 's'
           : stream == OUT  ? 'o'
           : stream == BACK ? 'b'
                            : '?';
}

unsigned number_of(const void *event)
{
    return event != NULL ? ((const struct event *)event)->number : 0;
}

/* ---- the device ---------------------------------------------------------- */

gh_status gh_device_stream_create(struct gh_device *dev, bool blocking,
                                  void **stream_p, gh_error *error)
{
    static bool second;

    (void)dev;
    (void)blocking;
    *stream_p = second ? BACK : OUT;
    second = !second;
    return may_fail(error);
}

void gh_device_stream_destroy(struct gh_device *dev, void *stream)
{
    (void)dev;
    (void)stream;
}

gh_status gh_device_stream_wait(struct gh_device *dev, void *stream,
                                gh_error *error)
{
    (void)dev;
    note("sync@%c ", letter(stream));
    return may_fail(error);
}

static gh_status make_event(void **event_p, gh_error *error)
{
    gh_status status = may_fail(error);
    struct event *event;

    if (status != GH_OK) {
        return status;
    }
    event = calloc(1, sizeof(*event));
    if (event == NULL) {
        return gh_fail(error, GH_ERR_NO_MEMORY, "no memory for an event");
    }
    event->number = ++n_events;
    *event_p = event;
    events_out++;
    return GH_OK;
}

gh_status gh_device_event_create(struct gh_device *dev, void **event_p,
                                 gh_error *error)
{
    (void)dev;
    return make_event(event_p, error);
}

gh_status gh_device_event_create_timed(struct gh_device *dev, void **event_p,
                                       gh_error *error)
{
    (void)dev;
    return make_event(event_p, error);
}

void gh_device_event_destroy(struct gh_device *dev, void *event)
{
    (void)dev;
    events_out -= event != NULL;
    free(event);
}

gh_status gh_device_event_record(struct gh_device *dev, void *event,
                                 void *stream, gh_error *error)
{
    (void)dev;
    note("R%u@%c ", number_of(event), letter(stream));
    ((struct event *)event)->at = now_ns;
    return may_fail(error);
}

gh_status gh_device_event_wait(struct gh_device *dev, void *waiter, void *event,
                               gh_error *error)
{
    (void)dev;
    note("W%u@%c ", number_of(event), letter(waiter));
    return may_fail(error);
}

void gh_device_event_must_record(struct gh_device *dev, void *event,
                                 void *stream)
{
    if (event == NULL ||
        gh_device_event_record(dev, event, stream, NULL) != GH_OK) {
        gh_device_stream_wait(dev, stream, NULL);
    }
}

void gh_device_event_must_wait(struct gh_device *dev, void *waiter,
                               void *event)
{
    if (gh_device_event_wait(dev, waiter, event, NULL) != GH_OK) {
        note("sync%u ", number_of(event));
    }
}

gh_status gh_device_event_record_in_graph(struct gh_device *dev, void *event,
                                          void *stream, gh_error *error)
{
    (void)dev;
    note("r%u@%c ", number_of(event), letter(stream));
    return may_fail(error);
}

gh_status gh_device_event_wait_in_graph(struct gh_device *dev, void *waiter,
                                        void *event, gh_error *error)
{
    (void)dev;
    note("w%u@%c ", number_of(event), letter(waiter));
    return may_fail(error);
}

gh_status gh_device_event_sync(struct gh_device *dev, void *event,
                               gh_error *error)
{
    (void)dev;
    (void)event;
    return may_fail(error);
}

gh_status gh_device_event_elapsed(struct gh_device *dev, void *from, void *to,
                                  double *ns_p, gh_error *error)
{
    (void)dev;
    *ns_p = ((struct event *)to)->at - ((struct event *)from)->at;
    return may_fail(error);
}

bool gh_device_event_has_ended(struct gh_device *dev, void *event)
{
    (void)dev;
    (void)event;
    return ends_at_once;
}

enum gh_capturing gh_device_capturing(struct gh_device *dev, void *stream)
{
    (void)dev;
    (void)stream;
    return is_capturing ? GH_CAPTURING_YES : GH_CAPTURING_NO;
}

bool gh_device_has_batches(const struct gh_device *dev)
{
    (void)dev;
    return batches;
}

gh_status gh_device_copy_all_out(struct gh_device *dev,
                                 const struct gh_copies_out *copies,
                                 void *stream, gh_error *error)
{
    (void)dev;
    note("out%u@%c ", copies->n, letter(stream));
    if (copies->n > most_in_a_call) {
        most_in_a_call = copies->n;
    }
    return may_fail(error);
}

gh_status gh_device_copy_back(struct gh_device *dev, void *device,
                              const void *at_host, uint64_t bytes, void *stream,
                              gh_error *error)
{
    (void)dev;
    (void)device;
    (void)at_host;
    (void)bytes;
    note("back@%c ", letter(stream));
    return may_fail(error);
}

gh_status gh_device_copy(struct gh_device *dev, void *dst, const void *src,
                         uint64_t bytes, void *stream, gh_error *error)
{
    (void)dev;
    (void)dst;
    (void)src;
    (void)bytes;
    note("copy@%c ", letter(stream));
    return may_fail(error);
}

void gh_device_discard(struct gh_device *dev, void *address, uint64_t bytes,
                       void *stream, void *event)
{
    (void)dev;
    (void)event;
    if (address != NULL && bytes != 0) {
        note("drop@%c ", letter(stream));
    }
}

void gh_device_spoil(struct gh_device *dev, void *address, uint64_t bytes,
                     uint8_t byte, void *stream, void *event)
{
    (void)dev;
    if (address != NULL && bytes != 0) {
        note("%s@%c ", byte == 0xFF ? "wipe" : "spoil", letter(stream));
    }
    if (event != NULL) {
        gh_device_event_record(dev, event, stream, NULL);
    }
}

struct gh_span *gh_spans_begin(struct gh_spans *spans,
                               const struct gh_span_what *what, void *stream)
{
    (void)spans;
    note("span%llu@%c ", (unsigned long long)what->bytes, letter(stream));
    return NULL;
}

void gh_spans_end(struct gh_spans *spans, struct gh_span *span)
{
    (void)spans;
    (void)span;
}

void gh_streams_quiesce(const struct gh_streams *s)
{
    (void)s;
}

/* ---- memory -------------------------------------------------------------- */

gh_status gh_memory_alloc(struct gh_memory *m, uint64_t bytes, void **address_p,
                          gh_error *error)
{
    (void)m;
    if (no_memory) {
        return gh_fail(error, GH_ERR_NO_MEMORY, "no memory of the device");
    }
    *address_p = malloc(bytes);
    if (*address_p == NULL) {
        return gh_fail(error, GH_ERR_NO_MEMORY, "no memory of the device");
    }
    memory_out += (int64_t)bytes;
    return GH_OK;
}

void gh_memory_free(struct gh_memory *m, void *address, uint64_t bytes)
{
    (void)m;
    memory_out -= address != NULL ? (int64_t)bytes : 0;
    free(address);
}

bool gh_memory_holds(const struct gh_memory *m)
{
    (void)m;
    return false;
}

void gh_pinned_init(struct gh_pinned *pinned, struct gh_device *dev,
                    uint64_t limit)
{
    *pinned = (struct gh_pinned){ .dev = dev, .limit = limit };
}

void gh_pinned_free(struct gh_pinned *pinned)
{
    (void)pinned;
}

gh_status gh_pinned_take(struct gh_pinned *pinned, uint64_t bytes,
                         struct gh_pinned_block **block_p, gh_error *error)
{
    struct gh_pinned_block *block;

    (void)pinned;
    block = no_pinned ? NULL : calloc(1, sizeof(*block));
    if (block == NULL) {
        return gh_fail(error, GH_ERR_NO_MEMORY, "no pinned memory");
    }
    block->address = malloc(bytes);
    block->bytes = ++n_blocks; /* its number, which nobody else reads */
    blocks_out++;
    *block_p = block;
    return GH_OK;
}

void gh_pinned_give_back(struct gh_pinned *pinned,
                         struct gh_pinned_block *block)
{
    (void)pinned;
    blocks_out--;
    free(block->address);
    free(block);
}

void gh_pinned_trim(struct gh_pinned *pinned, uint64_t bytes, uint64_t keep)
{
    (void)pinned;
    (void)bytes;
    (void)keep;
}

gh_status gh_pinned_ask(const struct gh_pinned *pinned, uint64_t bytes,
                        uint32_t n, gh_error *error)
{
    (void)pinned;
    (void)bytes;
    asked_blocks = n;
    return no_pinned ? gh_fail(error, GH_ERR_NO_MEMORY, "no pinned memory")
                     : GH_OK;
}

uint64_t gh_pinned_room(const struct gh_pinned *pinned)
{
    (void)pinned;
    return UINT64_MAX;
}

gh_status gh_pinned_wait(const struct gh_pinned *pinned,
                         struct gh_pinned_block *block, void *stream,
                         gh_error *error)
{
    (void)pinned;
    note("Wk%u@%c ", (unsigned)block->bytes, letter(stream));
    return may_fail(error);
}

gh_status gh_pinned_mark(const struct gh_pinned *pinned,
                         struct gh_pinned_block *block, void *stream,
                         gh_error *error)
{
    (void)pinned;
    note("Rk%u@%c ", (unsigned)block->bytes, letter(stream));
    return may_fail(error);
}

/* ---- a session ----------------------------------------------------------- */

static struct gh_log the_log = { GH_LOG_WARN, hear_line, NULL };

struct gh_offload_options usual(void)
{
    return (struct gh_offload_options){ .modules = GH_MODULE_MLP,
                                        .fraction = 1.0,
                                        .min_bytes = 1,
                                        .buffers = 2,
                                        .max_slots = SLOTS };
}

void begin(const struct gh_offload_options *changed)
{
    const struct gh_offload_options options =
        changed != NULL ? *changed : usual();

    host_memory_begin();
    n_events = n_blocks = most_in_a_call = 0;
    batches = no_memory = no_pinned = ends_at_once = is_capturing = false;
    now_ns = 0.0;
    forget_all();
    plan.layer_plans = layer_plans;
    plan.n_layers = LAYERS;
    plan.segments = segments;
    plan.n_segments = LAYERS;
    for (uint32_t i = 0; i < LAYERS; i++) {
        segments[i].first_layer = segments[i].last_layer = i;
        segments[i].chunk = 0;
    }
    is_status(gh_offload_create(&options, &plan, DEVICE, &memory, &the_log, &o,
                                &err),
              GH_OK, &err, "an offload is made");
}

void end(void)
{
    gh_offload_end_step(o, &err);
    gh_offload_destroy(o);
    o = NULL;
    is_int(memory_out, 0, "no memory is left");
    is_int(blocks_out, 0, "nor a block");
    is_int(events_out, 0, "nor an event");
    is_int(host_memory_left(), 0, "nor memory of the host");
}

struct gh_offload_at at(uint32_t layer, uint32_t microbatch)
{
    return (struct gh_offload_at){ .chunk = segments[layer].chunk,
                                   .slot = microbatch,
                                   .microbatch = microbatch,
                                   .pass = ++passes,
                                   .stream = MAIN };
}

gh_offload_group group_of(uint32_t layer, gh_offload_tensor *tensor)
{
    return (gh_offload_group){ .struct_size = sizeof(gh_offload_group),
                               .layer = layer,
                               .module = GH_MODULE_MLP,
                               .n_tensors = 1,
                               .tensors = tensor };
}

gh_status save_bytes(uint32_t layer, uint32_t microbatch, uint64_t bytes)
{
    const struct gh_offload_at where = at(layer, microbatch);
    gh_offload_tensor tensor = { NULL, bytes };
    gh_offload_group group = group_of(layer, &tensor);

    return gh_offload_save_eager(o, &where, &group, &err);
}

gh_status save(uint32_t layer, uint32_t microbatch)
{
    return save_bytes(layer, microbatch, BYTES);
}

gh_status commit(uint32_t layer, uint32_t microbatch)
{
    const struct gh_offload_at where = at(layer, microbatch);
    gh_offload_group group = group_of(layer, NULL);

    return gh_offload_commit_eager(o, &where, &group, &err);
}

gh_status load(uint32_t layer, uint32_t microbatch)
{
    const struct gh_offload_at where = at(layer, microbatch);
    gh_offload_tensor tensor = { NULL, BYTES };
    gh_offload_group group = group_of(layer, &tensor);

    return gh_offload_load_eager(o, &where, &group, &err);
}

gh_status release(uint32_t layer, uint32_t microbatch)
{
    const struct gh_offload_at where = at(layer, microbatch);
    gh_offload_group group = group_of(layer, NULL);

    return gh_offload_release_eager(o, &where, &group, &err);
}

struct gh_instance *instance(uint32_t layer, uint32_t microbatch)
{
    return &gh_table_find(&o->table, layer, GH_MODULE_MLP)->of_slot[microbatch];
}

void forward(uint32_t microbatch)
{
    bool well = true;

    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        well = well && save(layer, microbatch) == GH_OK &&
               commit(layer, microbatch) == GH_OK;
    }
    ok(well, "microbatch %u goes forward", microbatch);
}

void backward(uint32_t microbatch)
{
    bool well = gh_offload_flush(o, &err) == GH_OK;

    for (uint32_t layer = LAYERS; layer-- > 0;) {
        well = well && load(layer, microbatch) == GH_OK &&
               release(layer, microbatch) == GH_OK;
    }
    ok(well, "microbatch %u goes back", microbatch);
}

void begin_profiled(const struct gh_offload_options *changed)
{
    begin(changed);
    forward(0);
    backward(0);
    is_status(gh_offload_end_step(o, &err), GH_OK, &err, "a step ends");
    ok(o->profiled, "which was the profile");
    called();
}
