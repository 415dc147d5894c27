/*
 * gradient.c - the call of graphhooks/gradient.h: checks what the host hands
 * in, and launches the kernel.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/gradient.h>

#include "abi/session.h"
#include "base/error.h"
#include "base/size.h"
#include "device/device.h"

#define ALIGNED 16u              /* GH_GRADIENT_WORD of the kernel */
#define MOST (UINT64_C(1) << 40) /* elements: no device has so many */

static gh_status check(const gh_session *session, const gh_gradient *given,
                       gh_gradient *what, uint64_t *bytes_p, gh_error *err)
{
    gh_status status = gh_session_check(session, "gh_gradient_add", err);

    if (status != GH_OK) {
        return status;
    }
    if (given == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_gradient_add: gradient is NULL");
    }
    status =
        gh_check_size("gh_gradient", given, GH_SIZE_THROUGH(gh_gradient, first),
                      sizeof(*what), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(given, what, sizeof(*what));
    if (what->number - 1 >= GH_NUMBER_BF16) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_gradient.number is %u: give GH_NUMBER_F32, F16 or "
                       "BF16, and add others without it",
                       what->number);
    }
    *bytes_p = what->n * (what->number == GH_NUMBER_F32 ? 4 : 2);
    if (what->n > MOST || *bytes_p % ALIGNED != 0 ||
        ((uintptr_t)what->sum | (uintptr_t)what->gradient) % ALIGNED != 0 ||
        (uintptr_t)what->first % sizeof(uint32_t) != 0 || what->sum == NULL ||
        what->gradient == NULL || what->first == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_gradient_add: n is %llu, sum %p, gradient %p, first "
                       "%p: the bytes and both addresses have to be multiples "
                       "of %u, and the last one of 4",
                       (unsigned long long)what->n, what->sum, what->gradient,
                       (const void *)what->first, ALIGNED);
    }
    return GH_OK;
}

gh_status gh_gradient_add(gh_session *session, const gh_gradient *gradient,
                          void *stream, gh_error *err)
{
    struct gh_device_before before;
    gh_gradient what;
    uint64_t bytes = 0;
    gh_status status = check(session, gradient, &what, &bytes, err);

    if (status != GH_OK || bytes == 0) {
        return status;
    }
    if (session->dev == NULL) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_gradient_add: the session is disabled, and has no "
                       "device: add without it");
    }
    before = gh_device_enter(session->dev);
    status = gh_device_gradient_add(session->dev, &what, bytes, stream, err);
    gh_device_leave(session->dev, before);
    return status;
}
