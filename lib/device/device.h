/*
 * device.h - the driver, as the rest of the library sees it.
 *
 * Nothing outside lib/device/ knows a CUDA type: streams, graphs, execs,
 * events and addresses are `void *` here.  Calls are thin: one or two driver
 * entries and, on failure, the sentence that names the entry and the code.
 * lib/capture is the caller; a device is used by one thread at a time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_DEVICE_DEVICE_H
#define GH_DEVICE_DEVICE_H

#include <graphhooks/base.h>
#include <graphhooks/layer.h>

#include <stdbool.h>

struct gh_device;

/* What `graphhooks info` and the log say of a device. */
struct gh_device_info {
    char name[128];
    int driver_version;
    int ordinal;
    bool soft;
};

/*
 * Open the driver and the device of `context`, or the one that is current on
 * this thread, or the primary one of `ordinal`.  `driver` is "cuda", "soft"
 * or the path of a driver library.
 */
gh_status gh_device_open(const char *driver, void *context, int ordinal,
                         struct gh_device **dev_p, gh_error *err);
/* Every object made through the device must be gone.  NULL is allowed. */
void gh_device_close(struct gh_device *dev);
void gh_device_get_info(const struct gh_device *dev,
                        struct gh_device_info *info);
/* "0000:3b:00.0"; false: the driver does not say. */
bool gh_device_bus_id(struct gh_device *dev, char *text, size_t bytes);
/* How many reads of memory that nothing had written the software device has
 * reported, of the whole process; 0 on any other. */
uint64_t gh_device_unwritten(const struct gh_device *dev);

/* The file of another driver that has a context on this thread: the host's
 * streams are of that one then, and mean nothing here.  False: none. */
bool gh_device_other_driver(const struct gh_device *dev, char *path,
                            size_t bytes);

/* What gh_device_enter() has changed of the thread. */
struct gh_device_before {
    void *context;
    int mode; /* of captures */
};

/*
 * Makes the device's context current on this thread, where some calls need
 * one: hosts call the hooks from threads that never had a context, autograd's
 * for one.  Until gh_device_leave() the thread may also allocate, free and
 * wait while the host captures another stream; without that the driver would
 * refuse the call and the host's capture would be lost.
 */
struct gh_device_before gh_device_enter(struct gh_device *dev);
void gh_device_leave(struct gh_device *dev, struct gh_device_before before);

/* memory */
gh_status gh_device_alloc(struct gh_device *dev, uint64_t bytes,
                          void **address_p, gh_error *err);
void gh_device_free(struct gh_device *dev, void *address);
gh_status gh_device_copy(struct gh_device *dev, void *dst, const void *src,
                         uint64_t bytes, void *stream, gh_error *err);
gh_status gh_device_zero(struct gh_device *dev, void *address, uint64_t bytes,
                         void *stream, gh_error *err);
/* Pinned memory of the host, and copies to it and back, which do not wait. */
gh_status gh_device_host_alloc(struct gh_device *dev, uint64_t bytes,
                               void **address_p, gh_error *err);
void gh_device_host_free(struct gh_device *dev, void *address);
gh_status gh_device_copy_out(struct gh_device *dev, void *host,
                             const void *device, uint64_t bytes, void *stream,
                             gh_error *err);
gh_status gh_device_copy_back(struct gh_device *dev, void *device,
                              const void *host, uint64_t bytes, void *stream,
                              gh_error *err);
/* Copies to pinned memory that do not overlap: in one call where the driver
 * has it, in no order among each other, else one by one.  Not in a capture. */
#define GH_COPIES_OUT 64u
struct gh_copies_out {
    uint32_t n;
    unsigned long long to[GH_COPIES_OUT], from[GH_COPIES_OUT];
    size_t bytes[GH_COPIES_OUT];
};
bool gh_device_has_batches(const struct gh_device *dev);
gh_status gh_device_copy_all_out(struct gh_device *dev,
                                 const struct gh_copies_out *copies,
                                 void *stream, gh_error *err);

/* other ranks' memory */
/* Between any two addresses that the device reaches. */
gh_status gh_device_put(struct gh_device *dev, void *dst, const void *src,
                        uint64_t bytes, void *stream, gh_error *err);
/* Whether the driver has what is below: CUDA 11.7. */
bool gh_device_has_words(const struct gh_device *dev);
/* 32 bits of the device's own memory: written, or waited for, in which case
 * the stream stands still until the word is equal. */
struct gh_word {
    void *at;
    uint32_t value;
    bool waits;
};
/* Any number of them, in this order; in as few calls as the driver allows,
 * which *calls_p is made larger by. */
gh_status gh_device_words(struct gh_device *dev, const struct gh_word *words,
                          uint32_t n, void *stream, uint64_t *calls_p,
                          gh_error *err);
void *gh_device_context(const struct gh_device *dev);
/* Memory of a context of this process; for good. */
gh_status gh_device_reach(struct gh_device *dev, int ordinal, void *context,
                          bool *can_p, gh_error *err);
/* Memory that other processes are to reach, and of another process.  What is
 * opened is a whole allocation, in which `offset` is meant. */
struct gh_shared_memory {
    uint64_t offset;
    uint64_t handle[8];
};
gh_status gh_device_share(struct gh_device *dev, const void *address,
                          struct gh_shared_memory *shared, gh_error *err);
gh_status gh_device_open_shared(struct gh_device *dev,
                                const struct gh_shared_memory *shared,
                                void **base_p, gh_error *err);
void gh_device_close_shared(struct gh_device *dev, void *base);

/* streams and events */
bool gh_device_is_legacy(const void *stream);
/* False when the context that is current is another device's. */
bool gh_device_is_current(struct gh_device *dev);
/* Whether the stream, which is `what` in a sentence, is of this device; a dead
 * handle is the host's bug.  The
 * legacy stream is whichever the current context has, so it is checked anew
 * in every pass. */
gh_status gh_device_check_stream(struct gh_device *dev, const char *what,
                                 void *stream, gh_error *err);
/* The legacy stream waits for a blocking one, and the driver refuses what is
 * issued there while such a stream is captured. */
gh_status gh_device_stream_create(struct gh_device *dev, bool blocking,
                                  void **stream_p, gh_error *err);
/* A non-blocking one of the highest priority that there is. */
gh_status gh_device_stream_create_urgent(struct gh_device *dev,
                                         void **stream_p, gh_error *err);
void gh_device_stream_destroy(struct gh_device *dev, void *stream);
gh_status gh_device_stream_wait(struct gh_device *dev, void *stream,
                                gh_error *err);
/* Whether all that was issued there has ended. */
gh_status gh_device_stream_ask(struct gh_device *dev, void *stream,
                               bool *ended_p, gh_error *err);
gh_status gh_device_event_create(struct gh_device *dev, void **event_p,
                                 gh_error *err);
/* One that can be asked how long something took. */
gh_status gh_device_event_create_timed(struct gh_device *dev, void **event_p,
                                       gh_error *err);
void gh_device_event_destroy(struct gh_device *dev, void *event);
/* Waits until what was recorded has happened. */
gh_status gh_device_event_sync(struct gh_device *dev, void *event,
                               gh_error *err);
/* Nanoseconds from one to the other, below 0 where that is earlier; both are
 * over. */
gh_status gh_device_event_elapsed(struct gh_device *dev, void *from, void *to,
                                  double *ns_p, gh_error *err);
/* What follows on `waiter` starts after what `stream` holds now. */
gh_status gh_device_event_record(struct gh_device *dev, void *event,
                                 void *stream, gh_error *err);
gh_status gh_device_event_wait(struct gh_device *dev, void *waiter, void *event,
                               gh_error *err);
/* The same of an event. */
gh_status gh_device_event_ask(struct gh_device *dev, void *event,
                              bool *ended_p, gh_error *err);
/* Whether what was recorded last is over; true also of an event that was never
 * recorded, and false where the driver will not say. */
bool gh_device_event_has_ended(struct gh_device *dev, void *event);
/* The same as nodes of the graph that the stream is captured into: each launch
 * records the event anew, or waits for what it stands for at that launch. */
gh_status gh_device_event_record_in_graph(struct gh_device *dev, void *event,
                                          void *stream, gh_error *err);
gh_status gh_device_event_wait_in_graph(struct gh_device *dev, void *waiter,
                                        void *event, gh_error *err);

/* capture and graphs */
/* Whether the host captures the stream, or what the legacy stream would wait
 * for: nothing may then be launched on it, nor waited for. */
enum gh_capturing {
    GH_CAPTURING_NO,
    GH_CAPTURING_YES,
    GH_CAPTURING_UNKNOWN /* the driver will not say */
};
enum gh_capturing gh_device_capturing(struct gh_device *dev, void *stream);

/* True also when the driver will not say: nothing may then be launched. */
static inline bool gh_device_is_capturing(struct gh_device *dev, void *stream)
{
    return gh_device_capturing(dev, stream) != GH_CAPTURING_NO;
}
/* Fails, with the driver's reason, where it will not say. */
gh_status gh_device_ask_capturing(struct gh_device *dev, void *stream,
                                  gh_error *err);
/* True only when the host is known to capture it. */
static inline bool gh_device_host_captures(struct gh_device *dev, void *stream)
{
    return gh_device_capturing(dev, stream) == GH_CAPTURING_YES;
}
gh_status gh_device_capture_begin(struct gh_device *dev, void *stream,
                                  gh_error *err);
/* Always leaves the stream out of capture, whatever it returns. */
gh_status gh_device_capture_end(struct gh_device *dev, void *stream,
                                void **graph_p, uint64_t *n_nodes_p,
                                gh_error *err);
/* The same, of a capture that is none of the library's to keep. */
void gh_device_capture_leave(struct gh_device *dev, void *stream);
gh_status gh_device_count_nodes(struct gh_device *dev, void *graph,
                                uint64_t *n_nodes_p, gh_error *err);
/* Instantiates, and uploads on `stream`, so that no launch pays for it. */
gh_status gh_device_instantiate(struct gh_device *dev, void *graph,
                                void *stream, void **exec_p, gh_error *err);
gh_status gh_device_launch(struct gh_device *dev, void *exec, void *stream,
                           gh_error *err);
void gh_device_graph_destroy(struct gh_device *dev, void *graph);
void gh_device_exec_destroy(struct gh_device *dev, void *exec);

/* the library's kernels */
struct gh_copy;

/* A batch of `n` copies, 1 to GH_MAX_BUFFERS, GH_COPIES_A_LAUNCH in each
 * launch. */
#define GH_COPIES_A_LAUNCH 128u
gh_status gh_device_copy_create(struct gh_device *dev, uint32_t n,
                                struct gh_copy **copy_p, gh_error *err);
void gh_device_copy_destroy(struct gh_copy *copy);
void gh_device_copy_set(struct gh_copy *copy, uint32_t i, void *dst,
                        const void *src, uint64_t bytes);
/* Launches the first `n` of the batch, which must not overlap, and says how
 * much they copy. */
gh_status gh_device_copy_launch(struct gh_device *dev, struct gh_copy *copy,
                                uint32_t n, void *stream, uint64_t *bytes_p,
                                gh_error *err);

/* Where packed sequences are, on the device: int32_t each. */
struct gh_offset_arrays {
    void *actual, *padded; /* `room` of them */
    void *longest, *count; /* one each */
    uint32_t room;         /* two more than there are sequences at most */
};
struct gh_lengths {
    const int32_t *actual, *padded;
    uint32_t n;
    int32_t longest;
    int32_t physical; /* where the padded arrays end */
};

/* Every entry is written: the sequences, one of no tokens that ends at
 * `physical`, and empty ones.  One launch for every 480 sequences. */
gh_status gh_device_write_offsets(struct gh_device *dev,
                                  const struct gh_offset_arrays *to,
                                  const struct gh_lengths *lengths,
                                  void *stream, gh_error *err);
/* Every entry is INT32_MIN: no sequence is there. */
gh_status gh_device_poison_offsets(struct gh_device *dev,
                                   const struct gh_offset_arrays *to,
                                   void *stream, gh_error *err);

/* The first byte that differs, or UINT64_MAX.  Waits for the stream. */
gh_status gh_device_compare(struct gh_device *dev, const void *a, const void *b,
                            uint64_t bytes, void *stream, uint64_t *first_p,
                            gh_error *err);

#endif
