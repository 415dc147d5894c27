/*
 * ready.c - see ready.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/ready.h"

#include "softcuda/engine/soft.h"

static struct op **ready;
static uint32_t n_ready, ready_room;

static uint64_t random_state;
static uint32_t eagerness; /* of 256: the chance to run one more op in a call */
static bool favourites;    /* whole lanes are delayed, not single ops */
static uint64_t favour_salt;

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint64_t random_next(void)
{
    random_state += 0x9E3779B97F4A7C15u;
    return mix(random_state);
}

void ready_seed(uint64_t seed)
{
    static const uint8_t chances[] = { 0, 0, 2, 8, 24, 64, 128, 224 };

    random_state = mix(seed + 1);
    eagerness = chances[random_next() % 8];
    favourites = random_next() & 1;
    favour_salt = random_next();
}

bool ready_is_one_more(uint32_t of)
{
    return n_ready != 0 && random_next() % of < eagerness;
}

bool ready_is_any(void)
{
    return n_ready != 0;
}

void ready_add(struct op *op)
{
    if (n_ready == ready_room) {
        ready = op_grow(ready, &ready_room, sizeof(*ready));
    }
    op->ready_index = n_ready;
    ready[n_ready++] = op;
}

void ready_remove(struct op *op)
{
    if (op->ready_index != OP_NOT_READY) {
        struct op *last = ready[--n_ready];

        ready[op->ready_index] = last;
        last->ready_index = op->ready_index;
        op->ready_index = OP_NOT_READY;
    }
}

struct op *ready_first(void)
{
    struct op *first = NULL;

    for (uint32_t i = 0; i < n_ready; i++) {
        if (ready[i]->work->kind != WORK_HOST &&
            (first == NULL || ready[i]->seq < first->seq)) {
            first = ready[i];
        }
    }
    return first;
}

static uint64_t score(const struct op *op)
{
    if (soft.set.seed == 0) {
        return ~op->seq;
    }
    if (favourites) {
        return mix(favour_salt ^ op->at.lane) | 1;
    }
    return random_next() | 1;
}

struct op *ready_choose(uint64_t need)
{
    struct op *best = NULL;
    uint64_t best_score = 0;

    if (favourites && random_next() % 32 == 0) {
        favour_salt = random_next();
    }
    for (uint32_t i = 0; i < n_ready; i++) {
        if (need == 0 || ready[i]->need == need) {
            uint64_t s = score(ready[i]);

            if (best == NULL || s > best_score) {
                best = ready[i];
                best_score = s;
            }
        }
    }
    return best;
}
