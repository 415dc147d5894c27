/* The driver's own header agrees with what driver/ writes down: every value,
 * and every entry's signature at the version that is asked for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/tap.h"

#if defined(__has_include)
#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#define HAVE_DRIVER_HEADER 1
#endif
#endif

#ifdef HAVE_DRIVER_HEADER

#include <cuda.h>

#include <cudaTypedefs.h>

#include "driver/driver.h"

static void test_values(void)
{
#define DRV_CONST(name, value) \
    is_int(name, value, "the header's " #name " is %d", value);
#include "driver/constants.def"
#undef DRV_CONST
}

/* PFN_cuMemAlloc_v3020 and the like: the type that the driver returns when
 * asked for that name and version. */
static void test_signatures(void)
{
#define DRV_ENTRY(name, version, signature) \
    ok(__builtin_types_compatible_p(PFN_##name##_v##version, \
                                    CUresult(*) signature), \
       "the header's " #name " of version " #version " has our signature");
#include "driver/entries.def"
#undef DRV_ENTRY
}

/* Without the header, its enumerations are ints here. */
static void test_sizes(void)
{
    is_int(sizeof(CUresult), sizeof(int), "CUresult is an int wide");
    is_int(sizeof(CUdevice_attribute), sizeof(int),
           "CUdevice_attribute is an int wide");
    is_int(sizeof(CUstreamCaptureMode), sizeof(int),
           "CUstreamCaptureMode is an int wide");
    is_int(sizeof(CUstreamCaptureStatus), sizeof(int),
           "CUstreamCaptureStatus is an int wide");
    is_int(sizeof(CUstreamBatchMemOpType), sizeof(int),
           "CUstreamBatchMemOpType is an int wide");
    is_int(sizeof(CUstreamBatchMemOpParams), 48,
           "CUstreamBatchMemOpParams is 48 bytes");
    is_int(offsetof(CUstreamBatchMemOpParams, waitValue.value), 16,
           "its value is at 16");
    is_int(offsetof(CUstreamBatchMemOpParams, waitValue.flags), 24,
           "and its flags are at 24");
    is_int(sizeof(CUmemAllocationProp), 32, "CUmemAllocationProp is 32 bytes");
    is_int(offsetof(CUmemAllocationProp, location), 8,
           "its location is at 8");
    is_int(sizeof(CUmemLocation), 8, "CUmemLocation is 8 bytes");
    is_int(sizeof(CUmemAccessDesc), 12, "CUmemAccessDesc is 12 bytes");
    is_int(sizeof(CUmemGenericAllocationHandle), 8,
           "CUmemGenericAllocationHandle is 8 bytes");
    is_int(sizeof(CUmemAllocationGranularity_flags), sizeof(int),
           "CUmemAllocationGranularity_flags is an int wide");
    is_int(sizeof(CUdeviceptr), sizeof(unsigned long long),
           "CUdeviceptr is an unsigned long long wide");
    is_int(sizeof(CUdevice), sizeof(int), "CUdevice is an int wide");
}

int main(void)
{
    test_values();
    test_signatures();
    test_sizes();
    return done_testing();
}

#else

int main(void)
{
    return skip_all("no <cuda.h> and <cudaTypedefs.h> to compare with");
}

#endif
