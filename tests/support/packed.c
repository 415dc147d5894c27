/*
 * packed.c - see packed.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/packed.h"

#include "tap/tap.h"

#include <stddef.h>
#include <string.h>

#define FOUND_BYTES 512 /* from one microbatch's to the next */

uint32_t packed_bank;
CUdeviceptr packed_results;

static gh_status declare(uint32_t cp, uint32_t tokens, uint32_t sequences,
                         uint32_t *bank_p)
{
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .cp_size = cp,
                                .tokens = tokens,
                                .sequences = sequences,
                                .name = "packed" };

    return gh_bank_add(toy.session, &desc, bank_p, &err);
}

uint32_t packed_add_bank(uint32_t cp, uint32_t tokens, uint32_t sequences)
{
    uint32_t number = UINT32_MAX;

    is_status(declare(cp, tokens, sequences, &number), GH_OK, &err,
              "a bank of sequences is declared");
    return number;
}

static bool open_results(struct toy_options options)
{
    if (!start(options)) {
        return false;
    }
    toy.drv.cuMemAlloc(&packed_results, 64 * FOUND_BYTES);
    toy.drv.cuMemsetD8Async(packed_results, 0, 64 * FOUND_BYTES, NULL);
    toy.drv.cuCtxSynchronize();
    return true;
}

bool packed_open(struct toy_options options)
{
    return open_results(options) &&
           declare(1, PACKED_TOKENS, PACKED_SEQUENCES, &packed_bank) == GH_OK;
}

bool packed_begin(struct toy_options options)
{
    if (!open_results(options)) {
        return false;
    }
    packed_bank = packed_add_bank(1, PACKED_TOKENS, PACKED_SEQUENCES);
    return true;
}

void packed_close(void)
{
    toy_detach(&toy);
    toy.drv.cuMemFree(packed_results);
    toy_close(&toy);
}

void packed_finish(const char *what)
{
    is_int(toy_races(&toy), 0, "%s: nothing races", what);
    packed_close();
    is_int(toy_counts(&toy).device_bytes, 0, "%s: no memory is left", what);
}

gh_status packed_set(uint32_t m, CUstream stream, uint32_t n,
                     const int32_t *lengths, const int32_t *padded,
                     gh_packed_buffers *buffers)
{
    const gh_packed packed = { .struct_size = sizeof(packed),
                               .bank = packed_bank,
                               .microbatch = m,
                               .n_sequences = n,
                               .stream = stream,
                               .lengths = lengths,
                               .padded = padded };

    *buffers = (gh_packed_buffers){ .struct_size = sizeof(*buffers) };
    return gh_packed_set(toy.session, &packed, buffers, &err);
}

void packed_copy(CUdeviceptr to, const gh_buffer *from, CUstream stream)
{
    toy.drv.cuMemcpyDtoDAsync(to, (uintptr_t)from->address, from->bytes,
                              stream);
}

/* A slot's, or of a microbatch that has none. */
static CUdeviceptr result_at(uint32_t slot, uint32_t m)
{
    return packed_results +
           (slot == GH_SLOT_NONE ? 16 + m : slot) * (CUdeviceptr)FOUND_BYTES;
}

gh_decision packed_read_across(uint32_t m, CUstream forward_on,
                               CUstream backward_on, const gh_packed_buffers *b)
{
    const gh_buffer inputs[] = { b->cu_seqlens, b->cu_seqlens_padded,
                                 b->max_seqlen, b->n_sequences };
    const struct io io = { .inputs = inputs, .n_inputs = 4 };
    gh_decision forward, d;
    gh_status status;

    for (gh_direction way = GH_FORWARD; way <= GH_BACKWARD; way++) {
        gh_pass pass = a_pass(
            0, way, m, way == GH_FORWARD ? forward_on : backward_on, &io);

        if (way == GH_BACKWARD && forward_on != backward_on) {
            go_over(forward_on, backward_on);
        }
        pass.bank = packed_bank;
        do {
            d = (gh_decision){ .struct_size = sizeof(d) };
            status = gh_layer_enter(toy.session, &pass, &d, &err);
            if (status != GH_OK) {
                d.action = UINT32_MAX;
                return d;
            }
            if (d.action != GH_ACTION_REPLAYED) {
                const CUdeviceptr to = result_at(d.slot, m);

                packed_copy(to + offsetof(struct packed_found, actual),
                            &d.inputs[0], d.stream);
                packed_copy(to + offsetof(struct packed_found, padded),
                            &d.inputs[1], d.stream);
                packed_copy(to + offsetof(struct packed_found, longest),
                            &d.inputs[2], d.stream);
                packed_copy(to + offsetof(struct packed_found, count),
                            &d.inputs[3], d.stream);
            }
            status = gh_layer_exit(toy.session, &pass, &err);
        } while (status == GH_RERUN);
        if (way == GH_FORWARD) {
            forward = d;
        }
    }
    return forward;
}

gh_decision packed_read(uint32_t m, CUstream stream, const gh_packed_buffers *b)
{
    return packed_read_across(m, stream, stream, b);
}

static struct packed_found look(uint32_t slot, uint32_t m)
{
    struct packed_found found;

    toy.drv.cuCtxSynchronize();
    toy.drv.cuMemcpyDtoH(&found, result_at(slot, m), sizeof(found));
    return found;
}

void packed_is_found(uint32_t slot, uint32_t m,
                     const struct packed_found *wanted, const char *name)
{
    const struct packed_found found = look(slot, m);

    if (!ok(memcmp(&found, wanted, sizeof(found)) == 0, "%s", name)) {
        for (uint32_t i = 0; i < PACKED_ROOM; i++) {
            diag("%u: %d %d, expected %d %d", i, found.actual[i],
                 found.padded[i], wanted->actual[i], wanted->padded[i]);
        }
        diag("longest %d, count %d", found.longest, found.count);
    }
}
