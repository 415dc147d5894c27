/* NCCL's own header agrees with what driver/ writes down: every value, the
 * head of the configuration, and every entry's signature. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/tap.h"

#if defined(__has_include)
#if __has_include(<nccl.h>) && __has_include(<cuda.h>) && \
    __has_include(<cuda_runtime.h>)
#define HAVE_NCCL_HEADER 1
#endif
#endif

#ifdef HAVE_NCCL_HEADER

#include <cuda.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <nccl.h>
#pragma GCC diagnostic pop

#include "driver/nccl.h"

static void test_values(void)
{
#define NCCL_CONST(name, value) \
    is_int(name, value, "the header's " #name " is %d", value);
#include "driver/nccl_constants.def"
#undef NCCL_CONST
    is_int(NCCL_SPLIT_NOCOLOR, -1, "no color is -1");
    is_int(NCCL_CONFIG_UNDEF_INT, INT_MIN, "what is not said is INT_MIN");
    is_int(sizeof(ncclUniqueId), 128, "a unique id has 128 bytes");
    is_int(sizeof(ncclResult_t), sizeof(int), "ncclResult_t is an int wide");
    is_int(sizeof(ncclDataType_t), sizeof(int),
           "ncclDataType_t is an int wide");
    is_int(sizeof(ncclRedOp_t), sizeof(int), "ncclRedOp_t is an int wide");
}

#define SAME(ours, theirs) \
    is_int(offsetof(struct nccl_config, ours), offsetof(ncclConfig_t, theirs), \
           "a configuration has " #theirs " where NCCL has it")

static void test_configuration(void)
{
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;

    SAME(size, size);
    SAME(magic, magic);
    SAME(version, version);
    SAME(blocking, blocking);
    SAME(cga_cluster_size, cgaClusterSize);
    SAME(min_ctas, minCTAs);
    SAME(max_ctas, maxCTAs);
    SAME(net_name, netName);
    SAME(split_share, splitShare);
    is_int(theirs.magic, NCCL_CONFIG_MAGIC, "the magic of a configuration");
    ok(sizeof(struct nccl_config) <= sizeof(theirs),
       "ours is no longer than theirs");
}

static void test_signatures(void)
{
#define NCCL_ENTRY(since, result, name, signature) \
    if (NCCL_VERSION_CODE >= (since)) { \
        ok(__builtin_types_compatible_p(__typeof__(&name), \
                                        result(*) signature), \
           "the header's " #name " has our signature"); \
    }
#include "driver/nccl_entries.def"
#undef NCCL_ENTRY
}

int main(void)
{
    test_values();
    test_configuration();
    test_signatures();
    return done_testing();
}

#else

int main(void)
{
    return skip_all("no <nccl.h>, <cuda.h> and <cuda_runtime.h> to compare "
                    "with");
}

#endif
