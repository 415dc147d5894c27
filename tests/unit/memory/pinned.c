/*
 * Pinned memory is taken from the driver once, used over and over, and all
 * given back at the end.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "memory/pinned.h"
#include "memory/numa.h"
#include "support/host_memory.h"
#include "tap/tap.h"
#include "tests/unit/memory/soft.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void test_blocks_are_used_again(void)
{
    struct gh_pinned_block *a = NULL, *b = NULL, *c = NULL, *d = NULL;
    struct gh_pinned pinned;

    gh_pinned_init(&pinned, soft_devices[0], 0);
    ok(gh_pinned_take(&pinned, 1024, &a, NULL) == GH_OK &&
           gh_pinned_take(&pinned, 1024, &b, NULL) == GH_OK,
       "two blocks are taken");
    ok(a != b && a->address != b->address, "each of its own");
    ok(!a->used && a->copied != NULL && a->bytes == 1024,
       "with an event that nobody has recorded");
    memset(a->address, 1, 1024);
    gh_pinned_give_back(&pinned, a);
    ok(gh_pinned_take(&pinned, 2048, &c, NULL) == GH_OK && c != a,
       "another size is another block");
    ok(gh_pinned_take(&pinned, 1024, &d, NULL) == GH_OK && d == a,
       "one that was given back is taken again");
    is_int(pinned.bytes, 4096, "no more is taken from the driver");
    is_int(soft_now().host_bytes, 4096, "as the driver says");
    gh_pinned_give_back(&pinned, a);
    gh_pinned_give_back(&pinned, b);
    ok(gh_pinned_take(&pinned, 1024, &c, NULL) == GH_OK &&
           gh_pinned_take(&pinned, 1024, &d, NULL) == GH_OK && c != d,
       "two that were given back are two");
    is_int(pinned.in_use, 4096, "all of it is in use");
    gh_pinned_give_back(&pinned, c);
    gh_pinned_give_back(&pinned, d);
    is_int(pinned.in_use, 2048, "and then no more than was not given back");
    is_int(pinned.peak, 4096, "the most that was in use is remembered");
    gh_pinned_free(&pinned);
    is_int(soft_now().host_allocations, 0, "at the end all is given back");
    is_int(soft_now().events, 0, "and no event is left");
}

static void test_limit(void)
{
    struct gh_pinned_block *block = NULL, *kept = NULL;
    struct gh_pinned pinned;
    gh_error err = { "" };

    gh_pinned_init(&pinned, soft_devices[0], 3000);
    is_status(gh_pinned_take(&pinned, 3001, &block, &err), GH_ERR_NO_MEMORY,
              &err, "a block above the limit is refused");
    ok(strstr(err.text, "3001 more would pass its limit of 3000") != NULL,
       "with the numbers: %s", err.text);
    ok(gh_pinned_take(&pinned, 2000, &kept, &err) == GH_OK, "a smaller is not");
    is_status(gh_pinned_take(&pinned, 1001, &block, &err), GH_ERR_NO_MEMORY,
              &err, "the limit is of all blocks");
    ok(block == NULL, "and nothing is written");
    is_status(gh_pinned_take(&pinned, UINT64_MAX, &block, &err),
              GH_ERR_NO_MEMORY, &err, "however large one is");
    is_status(gh_pinned_take(&pinned, 1000, &block, &err), GH_OK, &err,
              "the last byte can be had");
    is_int(pinned.bytes, 3000, "which is the limit");
    gh_pinned_give_back(&pinned, kept);
    ok(gh_pinned_take(&pinned, 2000, &block, &err) == GH_OK && block == kept,
       "what is there is taken at the limit too");
    gh_pinned_free(&pinned);
    gh_pinned_init(&pinned, soft_devices[0], 3000);
    is_status(gh_pinned_take(&pinned, 3000, &block, &err), GH_OK, &err,
              "one block may be as large as the limit");
    gh_pinned_free(&pinned);
    gh_pinned_init(&pinned, soft_devices[0], UINT64_MAX);
    is_status(gh_pinned_ask(&pinned, UINT64_MAX, 2, &err), GH_ERR_NO_MEMORY,
              &err, "twice the largest limit is refused");
    ok(strstr(err.text, "would pass its limit") != NULL,
       "by the limit, as no driver has refused anything: %s", err.text);
    gh_pinned_free(&pinned);
    is_int(soft_now().host_allocations, 0, "and all is given back");
}

static void test_driver_that_refuses(void)
{
    struct gh_pinned_block *block = NULL;
    struct gh_pinned pinned;
    gh_error err = { "" };

    gh_pinned_init(&pinned, soft_devices[0], 0);
    soft_configure("FAIL=cuMemAllocHost:1:2");
    is_status(gh_pinned_take(&pinned, 512, &block, &err), GH_ERR_NO_MEMORY,
              &err, "memory that the driver has not is no memory");
    is_int(pinned.bytes, 0, "and does not count");
    is_int(soft_now().events, 0, "its event is gone");
    soft_configure("FAIL=cuEventCreate:1");
    is_status(gh_pinned_take(&pinned, 512, &block, &err), GH_ERR_DEVICE, &err,
              "an event that fails is an error");
    is_int(soft_now().host_allocations, 0, "and leaves no memory");
    soft_configure("");
    is_status(gh_pinned_take(&pinned, 512, &block, &err), GH_OK, &err,
              "the same works afterwards");
    gh_pinned_free(&pinned);
    gh_pinned_free(&pinned);
    is_int(soft_now().host_allocations, 0, "freeing twice is freeing");
}

static void test_trim(void)
{
    struct gh_pinned_block *blocks[4], *other = NULL;
    struct gh_pinned pinned;

    gh_pinned_init(&pinned, soft_devices[0], 0);
    for (int i = 0; i < 4; i++) {
        gh_pinned_take(&pinned, 1024, &blocks[i], NULL);
    }
    gh_pinned_take(&pinned, 512, &other, NULL);
    gh_pinned_give_back(&pinned, other);
    for (int i = 0; i < 3; i++) {
        gh_pinned_give_back(&pinned, blocks[i]);
    }
    gh_pinned_trim(&pinned, 1024, 4);
    is_int(pinned.bytes, 4 * 1024 + 512, "as many as there are can be kept");
    gh_pinned_trim(&pinned, 1024, 2);
    is_int(pinned.bytes, 2 * 1024 + 512, "else the others go to the driver");
    is_int(soft_now().host_bytes, 2 * 1024 + 512, "which has them");
    gh_pinned_trim(&pinned, 1024, 0);
    is_int(pinned.bytes, 1024 + 512, "what somebody has is kept in any case");
    gh_pinned_trim(&pinned, 512, 0);
    gh_pinned_trim(&pinned, 256, 0);
    is_int(pinned.bytes, 1024, "each size is trimmed alone");
    memset(blocks[3]->address, 1, 1024);
    gh_pinned_give_back(&pinned, blocks[3]);
    ok(gh_pinned_take(&pinned, 1024, &other, NULL) == GH_OK &&
           other == blocks[3] &&
           gh_pinned_take(&pinned, 512, &other, NULL) == GH_OK,
       "and blocks are taken afterwards");
    is_int(soft_now().events, 2, "each with an event");
    gh_pinned_free(&pinned);
    is_int(soft_now().host_allocations, 0, "all is given back");
}

static void test_ask(void)
{
    struct gh_pinned_block *block = NULL;
    struct gh_pinned pinned;
    gh_error err = { "" };

    gh_pinned_init(&pinned, soft_devices[0], 3000);
    gh_pinned_take(&pinned, 1000, &block, NULL);
    ok(gh_pinned_room(&pinned) == 3000, "the limit is all the room");
    is_status(gh_pinned_ask(&pinned, 1000, 2, &err), GH_OK, &err,
              "two more can be had");
    is_status(gh_pinned_ask(&pinned, 1000, 3, &err), GH_ERR_NO_MEMORY, &err,
              "three cannot");
    gh_pinned_give_back(&pinned, block);
    is_status(gh_pinned_ask(&pinned, 1000, 3, &err), GH_OK, &err,
              "but with one that is free");
    is_status(gh_pinned_ask(&pinned, 2001, 1, &err), GH_ERR_NO_MEMORY, &err,
              "which is no help to another size");
    soft_configure("FAIL=cuMemAllocHost:1:2");
    gh_pinned_take(&pinned, 500, &block, NULL);
    soft_configure("");
    is_int(gh_pinned_room(&pinned), 1000,
           "where the driver has refused, there is no more room than there "
           "was");
    is_status(gh_pinned_ask(&pinned, 500, 1, &err), GH_ERR_NO_MEMORY, &err,
              "and nothing is promised beyond");
    ok(strstr(err.text, "the driver has refused") != NULL, "it says why: %s",
       err.text);
    gh_pinned_take(&pinned, 700, &block, NULL);
    soft_configure("FAIL=cuMemAllocHost:1:2");
    gh_pinned_take(&pinned, 500, &block, NULL);
    soft_configure("");
    is_int(gh_pinned_room(&pinned), 1000,
           "which a refusal of more than that does not change");
    gh_pinned_free(&pinned);
    gh_pinned_init(&pinned, soft_devices[0], 0);
    ok(gh_pinned_room(&pinned) == UINT64_MAX &&
           gh_pinned_ask(&pinned, 1u << 30, 1000, NULL) == GH_OK,
       "without a limit all is promised");
    gh_pinned_free(&pinned);
}

static void copy_after(struct gh_pinned *pinned, struct gh_pinned_block *block,
                       void *stream, void *device, bool back)
{
    gh_error err = { "" };

    is_status(gh_pinned_wait(pinned, block, stream, &err), GH_OK, &err,
              "a stream waits for the last copy of the block");
    is_status(back ? gh_device_copy_back(pinned->dev, device, block->address,
                                         1024, stream, &err)
                   : gh_device_copy_out(pinned->dev, block->address, device,
                                        1024, stream, &err),
              GH_OK, &err, "and copies");
    gh_pinned_mark(pinned, block, stream, NULL);
}

/* The driver refuses the record after the second copy.  Who has the block next
 * is behind that copy all the same, or is told. */
static void test_a_mark_that_fails(void)
{
    const uint64_t before = soft_races();
    struct gh_device *dev = soft_devices[0];
    struct gh_pinned_block *block = NULL, *again = NULL;
    void *one = NULL, *two = NULL, *device[2];
    struct gh_pinned pinned;
    gh_error err = { "" };

    gh_pinned_init(&pinned, dev, 0);
    gh_pinned_take(&pinned, 1024, &block, NULL);
    gh_device_stream_create(dev, false, &one, NULL);
    gh_device_stream_create(dev, false, &two, NULL);
    for (int i = 0; i < 2; i++) {
        gh_device_alloc(dev, 1024, &device[i], NULL);
    }
    gh_device_zero(dev, device[0], 1024, one, NULL);
    soft_configure("FAIL=cuEventRecord:2,cuEventRecord:3");
    copy_after(&pinned, block, one, device[0], false);
    copy_after(&pinned, block, two, device[1], true);
    gh_pinned_give_back(&pinned, block);
    gh_pinned_take(&pinned, 1024, &again, NULL);
    ok(again == block, "the next owner has the same block");
    is_status(gh_pinned_wait(&pinned, block, one, &err), GH_ERR_DEVICE, &err,
              "who cannot be put behind the last copy is told");
    copy_after(&pinned, block, one, device[0], false);
    gh_device_stream_wait(dev, one, NULL);
    gh_device_stream_wait(dev, two, NULL);
    is_int((int64_t)(soft_races() - before), 0,
           "no copy of the block races with the one before");
    soft_configure("");
    for (int i = 0; i < 2; i++) {
        gh_device_free(dev, device[i]);
    }
    gh_device_stream_destroy(dev, one);
    gh_device_stream_destroy(dev, two);
    gh_pinned_free(&pinned);
}

static void test_host_memory_that_fails(void)
{
    struct gh_pinned_block *block = NULL;
    struct gh_pinned pinned;
    gh_error err = { "" };

    gh_pinned_init(&pinned, soft_devices[0], 0);
    host_memory_begin();
    for (uint32_t n = 1; n <= 2; n++) {
        host_memory_refuse(n);
        is_status(gh_pinned_take(&pinned, 512, &block, &err),
                  GH_ERR_NO_MEMORY, &err,
                  "a block is not taken where allocation %u fails", n);
        gh_pinned_free(&pinned);
        is_int(host_memory_left(), 0, "and nothing of it is left");
        is_int(soft_now().host_allocations + soft_now().events, 0,
               "in the driver either");
    }
    host_memory_refuse(0);
    gh_pinned_take(&pinned, 512, &block, &err);
    is_int(host_memory_left(), 2, "a block is two allocations");
    gh_pinned_give_back(&pinned, block);
    gh_pinned_trim(&pinned, 512, 0);
    is_int(host_memory_left(), 1, "one goes with it");
    gh_pinned_free(&pinned);
    is_int(host_memory_left(), 0, "and one at the end");
}

/* What the driver says of the device, and the kernel's file of it, as this test
 * writes them; NULL: as they are. */
static const char *bus_says, *node_says;
static char asked_for[256];

bool __real_gh_device_bus_id(struct gh_device *dev, char *text, size_t bytes);
bool __wrap_gh_device_bus_id(struct gh_device *dev, char *text, size_t bytes);

bool __wrap_gh_device_bus_id(struct gh_device *dev, char *text, size_t bytes)
{
    if (bus_says == NULL) {
        return __real_gh_device_bus_id(dev, text, bytes);
    }
    snprintf(text, bytes, "%s", bus_says);
    return true;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    int ends[2];

    if (node_says == NULL || pipe(ends) != 0) {
        return __real_open(path, flags);
    }
    snprintf(asked_for, sizeof(asked_for), "%s", path);
    if (write(ends[1], node_says, strlen(node_says)) < 0) {
        diag("no pipe to write to: %s", strerror(errno));
    }
    close(ends[1]);
    return ends[0];
}

static void test_node_of_the_device(void)
{
    struct gh_pinned pinned;

    bus_says = "0000:3B:00.0";
    node_says = "3\n";
    gh_pinned_init(&pinned, soft_devices[0], 0);
    is_int(pinned.node, 3, "the node is what the kernel says of the device");
    is_str(asked_for, "/sys/bus/pci/devices/0000:3b:00.0/numa_node",
           "in its file");
    gh_pinned_free(&pinned);
    node_says = "-1\n";
    gh_pinned_init(&pinned, soft_devices[0], 0);
    is_int(pinned.node, GH_NUMA_UNKNOWN, "and none where it names none");
    gh_pinned_free(&pinned);
    bus_says = node_says = NULL;
}

/* The thread's own preference, as before. */
static void test_node(void)
{
    struct gh_pinned_block *block = NULL;
    struct gh_pinned pinned;
    int before = -1, after = -2;

    gh_pinned_init(&pinned, soft_devices[0], 0);
    pinned.node = 0;
    if (syscall(SYS_get_mempolicy, &before, NULL, 0ul, NULL, 0ul) != 0) {
        skip(2, "the kernel does not say what memory is preferred");
    } else {
        is_status(gh_pinned_take(&pinned, 1000, &block, NULL), GH_OK, NULL,
                  "a block near the device");
        syscall(SYS_get_mempolicy, &after, NULL, 0ul, NULL, 0ul);
        is_int(after, before, "does not change what the thread prefers");
    }
    pinned.node = 1 << 20;
    errno = 0;
    is_status(gh_pinned_take(&pinned, 2000, &block, NULL), GH_OK, NULL,
              "where the kernel refuses the node, a block is anywhere");
    ok(pinned.refused != 0, "and what the kernel says is kept");
    gh_pinned_free(&pinned);
}

static void test_suspend(void)
{
    struct gh_pinned_block *a = NULL, *b = NULL;
    struct gh_pinned pinned;
    gh_error err = { "" };

    gh_pinned_init(&pinned, soft_devices[0], 0);
    gh_pinned_take(&pinned, 1000, &a, NULL);
    gh_pinned_take(&pinned, 2000, &b, NULL);
    gh_pinned_give_back(&pinned, a);
    gh_pinned_give_back(&pinned, b);
    is_int(gh_pinned_suspend(&pinned), 3000, "two blocks are given back");
    is_int(soft_now().host_bytes, 0, "to the driver");
    is_int(gh_pinned_suspend(&pinned), 0, "and not twice");
    soft_configure("FAIL=cuMemAllocHost:2:2");
    is_status(gh_pinned_resume(&pinned, &err), GH_ERR_NO_MEMORY, &err,
              "there is memory for one of them");
    is_int(soft_now().host_allocations, 1, "which has it");
    soft_configure("SEED=0");
    is_status(gh_pinned_resume(&pinned, &err), GH_OK, &err,
              "then there is for the other");
    is_int(soft_now().host_bytes, 3000, "and both have memory once");
    ok(gh_pinned_take(&pinned, 1000, &b, NULL) == GH_OK && b == a &&
           b->address != NULL,
       "they are taken as before");
    gh_pinned_give_back(&pinned, b);
    gh_pinned_suspend(&pinned);
    gh_pinned_free(&pinned);
    is_int(soft_now().host_allocations, 0, "and freed without memory");
    is_int(soft_now().events, 0, "and without an event that is left");
}

static void run(void)
{
    test_node_of_the_device();
    test_node();
    test_trim();
    test_ask();
    test_blocks_are_used_again();
    test_limit();
    test_driver_that_refuses();
    test_host_memory_that_fails();
    test_a_mark_that_fails();
    test_suspend();
}

int main(void)
{
    return soft_run(run);
}
