/*
 * driver/nccl.h - NCCL's API, as far as this project uses it.
 *
 * Types, values and one table of entry points, written down here so that
 * nothing needs <nccl.h> to compile.  The same table is filled from
 * libnccl.so.2 or from softnccl.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef DRIVER_NCCL_H
#define DRIVER_NCCL_H

#include "driver/driver.h"

#include <limits.h>
#include <stddef.h>

/* The beginning of NCCL's configuration, as 2.20 has it.  A later library
 * accepts a shorter one and fills in the rest. */
struct nccl_config {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking; /* 0: init and others return ncclInProgress */
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    const char *net_name;
    int split_share;
};

#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_CONFIG_OURS \
    { \
        sizeof(struct nccl_config), NCCL_CONFIG_MAGIC, 22000, INT_MIN, \
            INT_MIN, INT_MIN, INT_MIN, NULL, INT_MIN \
    }

#ifndef NCCL_VERSION_CODE /* <nccl.h> would have declared the same */

typedef struct ncclComm *ncclComm_t;
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;
typedef struct nccl_config ncclConfig_t;

/* Enumerations of NCCL.  All have the size of an int. */
typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;

enum {
#define NCCL_CONST(name, value) name = value,
#include "driver/nccl_constants.def"
#undef NCCL_CONST
};

#define NCCL_SPLIT_NOCOLOR (-1)

#endif /* NCCL_VERSION_CODE */

struct nccl {
    void *library; /* what dlopen returned; never closed */
    int version;
#define NCCL_ENTRY(since, result, name, signature) result(*name) signature;
#include "driver/nccl_entries.def"
#undef NCCL_ENTRY
};

/**
 * Fill the table.
 *
 * @param      path  the shared object: "libnccl.so.2", or softnccl's.  It
 *                   stays loaded for the life of the process.
 * @param[out] nccl  whole on success, but for entries that are newer than
 *                   the library, which are NULL; zeroed on failure
 * @param[out] text  on failure, one sentence: what is missing and where
 *
 * @return 0, or -1.
 */
int nccl_load(const char *path, struct nccl *nccl, char *text,
              size_t text_bytes);

#endif
