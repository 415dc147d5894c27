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
#include <graphhooks/gradient.h>
#include <graphhooks/layer.h>

#include <stdbool.h>

struct gh_device;
struct gh_job;

/* What `graphhooks info` and the log say about a device. */
struct gh_device_info {
    char name[128];
    int driver_version;
    int ordinal;
    bool soft;
};

/*
 * Opens the driver, and finds the context to use: `context`, or else the one
 * that is current on this thread, or else the primary one of `ordinal`.
 * `driver` is "cuda", "soft" or the path of a driver library.
 */
gh_status gh_device_open(const char *driver, void *context, int ordinal,
                         struct gh_device **dev_p, gh_error *err);
/* All objects of the device must be gone before.  NULL is allowed. */
void gh_device_close(struct gh_device *dev);
void gh_device_get_info(const struct gh_device *dev,
                        struct gh_device_info *info);
/* Writes an id such as "0000:3b:00.0".  False: the driver does not say. */
bool gh_device_bus_id(struct gh_device *dev, char *text, size_t bytes);
/* How many reads of unwritten memory the software device has reported in this
 * process; 0 on any other device. */
uint64_t gh_device_unwritten(const struct gh_device *dev);

/* Finds another driver that has a context on this thread, and writes its file.
 * The host's streams then belong to that driver and mean nothing here.  False:
 * there is none. */
bool gh_device_other_driver(const struct gh_device *dev, char *path,
                            size_t bytes);

/* The host brings words from rank to rank, without the device.  The software
 * device, whose processes are threads, is told before and after, so that it knows
 * who comes after whom; no other device is.  `key` is the same for these ranks
 * alone, and `number` counts their gathers. */
void gh_device_gather(struct gh_device *dev, uint64_t key, uint64_t number,
                      bool before);

/* The thread's state before gh_device_enter(). */
struct gh_device_before {
    void *context;
    int mode; /* the capture mode */
};

/*
 * Makes the device's context current on this thread.  Some calls need one, and
 * hosts call the hooks from threads that never had a context, such as
 * autograd's.  Until gh_device_leave() the thread may also allocate, free and
 * wait while the host captures another stream.  Otherwise the driver would
 * refuse the call and end the host's capture.
 */
struct gh_device_before gh_device_enter(struct gh_device *dev);
void gh_device_leave(struct gh_device *dev, struct gh_device_before before);

/* memory */
/* The bytes that the device has in all. */
gh_status gh_device_total(struct gh_device *dev, uint64_t *bytes_p,
                          gh_error *err);
gh_status gh_device_alloc(struct gh_device *dev, uint64_t bytes,
                          void **address_p, gh_error *err);
void gh_device_free(struct gh_device *dev, void *address);
/* Addresses without memory, and memory that is mapped to them, in multiples of
 * the granule.  GH_ERR_UNSUPPORTED: the device has no such thing. */
gh_status gh_device_granule(struct gh_device *dev, uint64_t *bytes_p,
                            gh_error *err);
gh_status gh_device_reserve(struct gh_device *dev, uint64_t bytes,
                            void **address_p, gh_error *err);
/* Nothing is mapped there. */
void gh_device_unreserve(struct gh_device *dev, void *address, uint64_t bytes);
gh_status gh_device_map(struct gh_device *dev, void *address, uint64_t bytes,
                        gh_error *err);
/* The same, of memory with a file descriptor.  If *file_p is one of another
 * process, that memory; it stays the caller's.  If it is -1, new memory, and
 * *file_p is its descriptor, for the caller to close, also after an error.
 * NULL: as gh_device_map(). */
gh_status gh_device_map_file(struct gh_device *dev, void *address,
                             uint64_t bytes, int *file_p, gh_error *err);
/* Lets another device of the process use what is mapped there. */
gh_status gh_device_allow(struct gh_device *dev, void *address, uint64_t bytes,
                          int ordinal, gh_error *err);
/* What gh_device_map() has mapped.  No work uses it: the driver does not
 * wait. */
gh_status gh_device_unmap(struct gh_device *dev, void *address, uint64_t bytes,
                          gh_error *err);
gh_status gh_device_copy(struct gh_device *dev, void *dst, const void *src,
                         uint64_t bytes, void *stream, gh_error *err);
gh_status gh_device_zero(struct gh_device *dev, void *address, uint64_t bytes,
                         void *stream, gh_error *err);
/* Nobody needs what the memory holds, until it is written again: the software
 * device then reports whoever reads it.  The event, if it is not NULL, has been
 * recorded on the stream last, and comes after this too.  No other device is
 * asked to do anything. */
void gh_device_discard(struct gh_device *dev, void *address, uint64_t bytes,
                       void *stream, void *event);
/* The same, on any device: the memory gets other contents than it had with
 * another `byte`. */
void gh_device_spoil(struct gh_device *dev, void *address, uint64_t bytes,
                     uint8_t byte, void *stream, void *event);
/* Pinned memory of the host, and copies to it and back.  The copies do not
 * wait. */
gh_status gh_device_host_alloc(struct gh_device *dev, uint64_t bytes,
                               void **address_p, gh_error *err);
void gh_device_host_free(struct gh_device *dev, void *address);
gh_status gh_device_copy_out(struct gh_device *dev, void *host,
                             const void *device, uint64_t bytes, void *stream,
                             gh_error *err);
gh_status gh_device_copy_back(struct gh_device *dev, void *device,
                              const void *host, uint64_t bytes, void *stream,
                              gh_error *err);
/* Copies that do not overlap, to pinned memory.  A driver that has batches gets
 * them in one call, and may run them in any order; others get them one by one.
 * Not in a capture. */
#define GH_COPIES_OUT 64u
struct gh_copies_out {
    uint32_t n;
    unsigned long long to[GH_COPIES_OUT], from[GH_COPIES_OUT];
    size_t bytes[GH_COPIES_OUT];
};
bool gh_device_has_batches(const struct gh_device *dev);
/* Copies that do not overlap, between any addresses that the device reaches, in
 * one call, by copy engines where the driver can.  *taken_p is false where the
 * driver has no such call, or refuses it as a whole: then nothing is copied, and
 * no such call is made again.  So it is, if the copies may be `repeated`, where
 * the call fails in whatever way.  Not in a capture, nor on the legacy
 * stream. */
gh_status gh_device_put_all(struct gh_device *dev,
                            const struct gh_copies_out *copies, bool repeated,
                            void *stream, bool *taken_p, gh_error *err);
gh_status gh_device_copy_all_out(struct gh_device *dev,
                                 const struct gh_copies_out *copies,
                                 void *stream, gh_error *err);

/* other ranks' memory */
/* Copies between any two addresses that the device reaches. */
gh_status gh_device_put(struct gh_device *dev, void *dst, const void *src,
                        uint64_t bytes, void *stream, gh_error *err);
/* Whether the driver has gh_device_words(), which CUDA 11.7 brought. */
bool gh_device_has_words(const struct gh_device *dev);
/* A word of 32 bits in the device's own memory.  It is written, or the stream
 * waits until it has the value. */
struct gh_word {
    void *at;
    uint32_t value;
    bool waits;
};
/* Issues any number of them in this order, in as few calls as the driver
 * allows.  Adds the number of calls to *calls_p. */
gh_status gh_device_words(struct gh_device *dev, const struct gh_word *words,
                          uint32_t n, void *stream, uint64_t *calls_p,
                          gh_error *err);
void *gh_device_context(const struct gh_device *dev);
/* Lets this device reach the memory of another context of this process, for
 * good. */
gh_status gh_device_reach(struct gh_device *dev, int ordinal, void *context,
                          bool *can_p, gh_error *err);
/* Shares memory with other processes, and opens theirs.  What is opened is a
 * whole allocation; the shared memory begins at `offset` in it. */
struct gh_shared_memory {
    uint64_t offset;
    uint64_t room; /* bytes from there to the end of the allocation */
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
/* False if another device's context is current. */
bool gh_device_is_current(struct gh_device *dev);
/* Fails unless the stream, called `what` in the error, is of this device.  A
 * handle that was destroyed is the host's bug.  The legacy stream belongs to
 * whichever context is current, so it is checked anew in every pass. */
gh_status gh_device_check_stream(struct gh_device *dev, const char *what,
                                 void *stream, gh_error *err);
/* Creates a stream.  The legacy stream waits for a `blocking` one, and while
 * such a stream is captured, the driver refuses work on the legacy stream. */
gh_status gh_device_stream_create(struct gh_device *dev, bool blocking,
                                  void **stream_p, gh_error *err);
/* Creates a non-blocking stream of the highest priority. */
gh_status gh_device_stream_create_urgent(struct gh_device *dev,
                                         void **stream_p, gh_error *err);
void gh_device_stream_destroy(struct gh_device *dev, void *stream);
/* From now on no wait is longer than so many seconds, as work on the device may
 * wait for a rank that does not come; 0: they have no limit.  Where the driver
 * frees, it waits as well.  After the first wait that is longer, the device
 * counts as stuck: none waits any more, and memory is left to the context.
 * Returns the limit before. */
uint32_t gh_device_limit_waits(struct gh_device *dev, uint32_t seconds);
/* Waits until all work of the context has ended.  GH_ERR_STATE: a stream is
 * captured, and work may go on.  That capture lasts if the legacy stream would
 * wait for the stream; of others the driver says nothing before it is lost. */
gh_status gh_device_wait(struct gh_device *dev, gh_error *err);
/* Begins to wait, in a thread and at most so long, until all work of the
 * context has ended; gh_job_end() is to follow. */
struct gh_job *gh_device_idle_begin(struct gh_device *dev, uint32_t seconds);
bool gh_device_is_stuck(const struct gh_device *dev);
gh_status gh_device_stream_wait(struct gh_device *dev, void *stream,
                                gh_error *err);
/* Whether everything that was issued on the stream has ended. */
gh_status gh_device_stream_ask(struct gh_device *dev, void *stream,
                               bool *ended_p, gh_error *err);
gh_status gh_device_event_create(struct gh_device *dev, void **event_p,
                                 gh_error *err);
/* Creates an event that can be asked how long something took. */
gh_status gh_device_event_create_timed(struct gh_device *dev, void **event_p,
                                       gh_error *err);
void gh_device_event_destroy(struct gh_device *dev, void *event);
/* Waits until the work before the event has ended. */
gh_status gh_device_event_sync(struct gh_device *dev, void *event,
                               gh_error *err);
/* Nanoseconds from one event to another, negative if the second is the earlier
 * one.  The work before both must have ended. */
gh_status gh_device_event_elapsed(struct gh_device *dev, void *from, void *to,
                                  double *ns_p, gh_error *err);
/* Records the event after everything that the stream holds now. */
gh_status gh_device_event_record(struct gh_device *dev, void *event,
                                 void *stream, gh_error *err);
gh_status gh_device_event_wait(struct gh_device *dev, void *waiter, void *event,
                               gh_error *err);
/* The same two where an edge must not be missing, as memory is given away: if
 * the driver refuses, they wait until the work has ended instead.  `event` NULL:
 * none could be made. */
void gh_device_event_must_record(struct gh_device *dev, void *event,
                                 void *stream);
void gh_device_event_must_wait(struct gh_device *dev, void *waiter,
                               void *event);
/* Whether the work before the event has ended. */
gh_status gh_device_event_ask(struct gh_device *dev, void *event,
                              bool *ended_p, gh_error *err);
/* Whether the work before the last record has ended.  True also if the event
 * was never recorded, and false if the driver does not say. */
bool gh_device_event_has_ended(struct gh_device *dev, void *event);
/* Records an event, or waits for one, as a node of the graph that is being
 * captured: each launch records the event anew, or waits for what it stands for
 * at that launch. */
gh_status gh_device_event_record_in_graph(struct gh_device *dev, void *event,
                                          void *stream, gh_error *err);
gh_status gh_device_event_wait_in_graph(struct gh_device *dev, void *waiter,
                                        void *event, gh_error *err);

/* capture and graphs */
/* Whether the host captures the stream, or a stream that the legacy stream
 * would wait for.  Nothing may then be launched on it or waited for. */
enum gh_capturing {
    GH_CAPTURING_NO,
    GH_CAPTURING_YES,
    GH_CAPTURING_UNKNOWN /* the driver does not say */
};
enum gh_capturing gh_device_capturing(struct gh_device *dev, void *stream);

/* True also if the driver does not say, because nothing may be launched
 * then. */
static inline bool gh_device_is_capturing(struct gh_device *dev, void *stream)
{
    return gh_device_capturing(dev, stream) != GH_CAPTURING_NO;
}
/* Whether something has ended the capture of the stream, so that nothing will
 * come of it; false also if the driver does not say. */
bool gh_device_capture_is_lost(struct gh_device *dev, void *stream);
/* Fails with the driver's reason if the driver does not say. */
gh_status gh_device_ask_capturing(struct gh_device *dev, void *stream,
                                  gh_error *err);
/* True only if the host is known to capture the stream. */
static inline bool gh_device_host_captures(struct gh_device *dev, void *stream)
{
    return gh_device_capturing(dev, stream) == GH_CAPTURING_YES;
}
gh_status gh_device_capture_begin(struct gh_device *dev, void *stream,
                                  gh_error *err);
/* Always ends the capture of the stream, whatever it returns. */
gh_status gh_device_capture_end(struct gh_device *dev, void *stream,
                                void **graph_p, uint64_t *n_nodes_p,
                                gh_error *err);
/* Ends a capture whose graph the library does not keep. */
void gh_device_capture_leave(struct gh_device *dev, void *stream);
gh_status gh_device_count_nodes(struct gh_device *dev, void *graph,
                                uint64_t *n_nodes_p, gh_error *err);
/* Instantiates, and uploads on `stream`, so that no launch pays for the
 * upload. */
gh_status gh_device_instantiate(struct gh_device *dev, void *graph,
                                void *stream, void **exec_p, gh_error *err);
gh_status gh_device_launch(struct gh_device *dev, void *exec, void *stream,
                           gh_error *err);
void gh_device_graph_destroy(struct gh_device *dev, void *graph);
void gh_device_exec_destroy(struct gh_device *dev, void *exec);

/* the library's kernels */
struct gh_copy;

/* Makes a batch of `n` copies, 1 to GH_MAX_BUFFERS.  Each launch copies
 * GH_COPIES_A_LAUNCH of them. */
#define GH_COPIES_A_LAUNCH 128u
gh_status gh_device_copy_create(struct gh_device *dev, uint32_t n,
                                struct gh_copy **copy_p, gh_error *err);
void gh_device_copy_destroy(struct gh_copy *copy);
void gh_device_copy_set(struct gh_copy *copy, uint32_t i, void *dst,
                        const void *src, uint64_t bytes);
/* Launches the first `n` copies of the batch, which must not overlap, and
 * returns how many bytes they copy. */
gh_status gh_device_copy_launch(struct gh_device *dev, struct gh_copy *copy,
                                uint32_t n, void *stream, uint64_t *bytes_p,
                                gh_error *err);

/* Parts of memory that one launch sends to other ranks, up to GH_SENDS_A_LAUNCH
 * of them; each sets a flag, one byte in the memory of the rank that it goes
 * to, once all parts are there.  `ended` is a word of 32 bits in device memory,
 * zeroed by the caller. */
#define GH_SENDS_A_LAUNCH 64u
struct gh_sends;
gh_status gh_device_sends_create(void *ended, struct gh_sends **sends_p,
                                 gh_error *err);
void gh_device_sends_destroy(struct gh_sends *sends);
/* Adds a part to the next launch.  flag is NULL where nobody waits for it. */
void gh_device_sends_add(struct gh_sends *sends, void *dst, const void *src,
                         uint64_t bytes, void *flag);
/* Lets the next launch end only when the bytes of all other ranks in `row` are
 * set, and clear them.  False: no kernel can wait, as on the software device. */
bool gh_device_sends_wait(struct gh_device *dev, struct gh_sends *sends,
                          const void *row, uint32_t rank, uint32_t n_ranks);
gh_status gh_device_sends_launch(struct gh_device *dev, struct gh_sends *sends,
                                 void *stream, gh_error *err);

/* Rows that are kept in pages.  A state has the free pages; it begins with these
 * words, of which those of the step, from `most` on, are the caller's to zero. */
struct gh_stash_state_words {
    uint32_t n_pages, n_free, missing, most, refused, spilled;
    uint32_t spill_pages, spill_free;
};
#define GH_STASH_STEP_BYTES 12u
/* Of the pages of both pools. */
uint64_t gh_device_stash_state_bytes(uint64_t n_pages);
/* A record says which pages hold the rows of a push.  It begins as zeros. */
uint64_t gh_device_stash_record_bytes(uint32_t max_rows);
#define GH_STASHING_TENSORS 16u
struct gh_stashing {
    void *state, *record;
    void *pool; /* NULL: there are no pages, and pushes are only counted */
    void *spill; /* pinned pages for pushes that find too few; or NULL */
    uint64_t page_bytes;
    uint32_t page_rows, max_rows;
    const void *count; /* int32_t on the device; NULL: max_rows */
    bool clears;       /* rows that a pop does not bring become 0 */
    uint32_t n;
    void *rows[GH_STASHING_TENSORS];
    uint64_t row_bytes[GH_STASHING_TENSORS];
};
gh_status gh_device_stash_push(struct gh_device *dev,
                               const struct gh_stashing *to, void *stream,
                               gh_error *err);
gh_status gh_device_stash_pop(struct gh_device *dev,
                              const struct gh_stashing *to, void *stream,
                              gh_error *err);

/* Arrays on the device that say where packed sequences are: int32_t each. */
struct gh_offset_arrays {
    void *actual, *padded; /* `room` of them */
    void *longest, *count; /* one each */
    uint32_t room;         /* two more than the most sequences */
};
struct gh_lengths {
    const int32_t *actual, *padded;
    uint32_t n;
    int32_t longest;
    int32_t physical; /* where the padded arrays end */
};

/* Writes every entry: the sequences, then one without tokens that ends at
 * `physical`, then empty ones.  There is one launch for every 480 sequences. */
gh_status gh_device_write_offsets(struct gh_device *dev,
                                  const struct gh_offset_arrays *to,
                                  const struct gh_lengths *lengths,
                                  void *stream, gh_error *err);
/* Sets every entry to INT32_MIN, as if there were no sequences. */
gh_status gh_device_poison_offsets(struct gh_device *dev,
                                   const struct gh_offset_arrays *to,
                                   void *stream, gh_error *err);

/* gh_gradient_add() with so many bytes, at least 16; the fields were checked. */
gh_status gh_device_gradient_add(struct gh_device *dev, const gh_gradient *what,
                                 uint64_t bytes, void *stream, gh_error *err);

/* Finds the first byte that differs, or UINT64_MAX.  Waits for the stream. */
gh_status gh_device_compare(struct gh_device *dev, const void *a, const void *b,
                            uint64_t bytes, void *stream, uint64_t *first_p,
                            gh_error *err);

#endif
