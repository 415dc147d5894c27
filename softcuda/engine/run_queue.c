/*
 * run_queue.c - see run_queue.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/run_queue.h"

#include "softcuda/engine/soft.h"

static struct op **queue;
static uint32_t n_queued, queue_room;

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

void run_queue_seed(uint64_t seed)
{
    static const uint8_t chances[] = { 0, 0, 2, 8, 24, 64, 128, 224 };

    random_state = mix(seed + 1);
    eagerness = chances[random_next() % 8];
    favourites = random_next() & 1;
    favour_salt = random_next();
}

bool run_queue_is_one_more(uint32_t of)
{
    return n_queued != 0 && random_next() % of < eagerness;
}

bool run_queue_is_any(void)
{
    return n_queued != 0;
}

void run_queue_add(struct op *op)
{
    if (n_queued == queue_room) {
        queue = op_grow(queue, &queue_room, sizeof(*queue));
    }
    op->queue_index = n_queued;
    queue[n_queued++] = op;
}

void run_queue_remove(struct op *op)
{
    if (op->queue_index != OP_NOT_QUEUED) {
        struct op *last = queue[--n_queued];

        queue[op->queue_index] = last;
        last->queue_index = op->queue_index;
        op->queue_index = OP_NOT_QUEUED;
    }
}

struct op *run_queue_first(void)
{
    struct op *first = NULL;

    for (uint32_t i = 0; i < n_queued; i++) {
        if (queue[i]->work->kind != WORK_HOST &&
            (first == NULL || queue[i]->seq < first->seq)) {
            first = queue[i];
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

struct op *run_queue_choose(uint64_t need)
{
    struct op *best = NULL;
    uint64_t best_score = 0;

    if (favourites && random_next() % 32 == 0) {
        favour_salt = random_next();
    }
    for (uint32_t i = 0; i < n_queued; i++) {
        if (need == 0 || queue[i]->need == need) {
            uint64_t s = score(queue[i]);

            if (best == NULL || s > best_score) {
                best = queue[i];
                best_score = s;
            }
        }
    }
    return best;
}
