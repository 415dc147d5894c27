/*
 * beside.c - how much copies to and from the host, and operations between
 * ranks, slow each other down.
 *
 * The copies are like those of offload: pinned memory, one stream out and one
 * back, both at once.  The operations are an exchange of the library's, by
 * copies and by its kernel, the same exchange by NCCL, and NCCL's all-gather and
 * all-reduce.  Beside an exchange by copies there are also copies one way only,
 * and copies in pieces.  Each is timed
 * alone, and then with the other beside it, in numbers that take equally long
 * alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/side.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 6, MOST_ROUNDS = 64, LEAST = 4, MOST_TIMES = 256 };

/* How long each side runs when both do. */
#define SPAN_NS 2e7

enum operation { BY_COPIES, BY_SENDS, BY_LAUNCHES, ALL_GATHER, ALL_REDUCE };

enum { OUT = 1, BACK = 2 }; /* the copies beside it */

static const struct beside {
    const char *name;
    enum operation op;
    int ways;
    uint32_t pieces; /* of each copy */
} cases[] = {
    { "exchange by copies", BY_COPIES, OUT | BACK, 1 },
    { "exchange by NCCL", BY_SENDS, OUT | BACK, 1 },
    { "all-gather", ALL_GATHER, OUT | BACK, 1 },
    { "all-reduce", ALL_REDUCE, OUT | BACK, 1 },
    { "exchange by kernel", BY_LAUNCHES, OUT | BACK, 1 },
    { "by copies, out only", BY_COPIES, OUT, 1 },
    { "by copies, back only", BY_COPIES, BACK, 1 },
    { "by copies, 16 pieces", BY_COPIES, OUT | BACK, 16 },
};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

struct place {
    struct side *s;
    CUdeviceptr window, out, back, sum;
    char *to_host, *from_host;
    CUstream streams[2]; /* for copies */
    CUevent ends[3];
    gh_exchange *x[BY_LAUNCHES + 1]; /* by enum operation */
    const struct beside *now;
};

/* How long copies and operations took. */
struct times {
    double copies, work;
};

static bool has(const struct place *p, enum operation op)
{
    return op == BY_COPIES || op == BY_LAUNCHES || side_has(p->s, BY_NCCL);
}

static void need_nccl(const struct place *p, ncclResult_t result)
{
    if (result != ncclSuccess) {
        bench_die("NCCL: %s", p->s->nccl.ncclGetErrorString(result));
    }
}

/* In each operation the same bytes leave a rank, except for what the algorithm
 * of an all-reduce adds. */
static void issue(struct place *p, enum operation op)
{
    struct side *s = p->s;
    const size_t part = side_part(s, s->most);
    void *window = (void *)(uintptr_t)p->window;
    void *sum = (void *)(uintptr_t)p->sum;

    switch (op) {
    case BY_COPIES:
    case BY_SENDS:
    case BY_LAUNCHES:
        side_send(s, p->x[op], s->send, 0, s->most, 0, s->side);
        return;
    case ALL_GATHER:
        need_nccl(p, s->nccl.ncclAllGather(s->send, window, part, ncclUint8,
                                           s->comm, s->side));
        return;
    default:
        need_nccl(p, s->nccl.ncclAllReduce(sum, sum, s->most / 4, ncclFloat32,
                                           ncclSum, s->comm, s->side));
    }
}

static void issue_copies(struct place *p)
{
    const uint64_t bytes = p->s->most / p->now->pieces;

    for (uint64_t at = 0; at < p->s->most; at += bytes) {
        if ((p->now->ways & OUT) != 0) {
            NEED(&p->s->bench, cuMemcpyDtoHAsync,
                 (p->to_host + at, p->out + at, bytes, p->streams[0]));
        }
        if ((p->now->ways & BACK) != 0) {
            NEED(&p->s->bench, cuMemcpyHtoDAsync,
                 (p->back + at, p->from_host + at, bytes, p->streams[1]));
        }
    }
}

static double elapsed(const struct place *p, int which)
{
    float ms;

    NEED(&p->s->bench, cuEventElapsedTime,
         (&ms, p->s->begins, p->ends[which]));
    return (double)ms * 1e6;
}

/* Runs both, which begin together on idle devices.  The slowest rank counts.  A
 * time is that of one copy each way, or of one operation. */
static struct times run(struct place *p, enum operation op, int copies, int n)
{
    struct side *s = p->s;
    const struct bench *bench = &s->bench;
    CUstream streams[] = { p->streams[0], p->streams[1], s->side };
    const int most = copies > n ? copies : n;
    double ns[2];

    side_wait(s, NULL);
    NEED(bench, cuEventRecord, (s->begins, bench->stream));
    for (int i = 0; i < 3; i++) {
        NEED(bench, cuStreamWaitEvent, (streams[i], s->begins, 0));
    }
    for (int i = 0; i < most; i++) {
        if (i < n) {
            issue(p, op);
        }
        if (i < copies) {
            issue_copies(p);
        }
    }
    for (int i = 0; i < 3; i++) {
        NEED(bench, cuEventRecord, (p->ends[i], streams[i]));
        NEED(bench, cuStreamWaitEvent, (bench->stream, p->ends[i], 0));
    }
    side_wait(s, n > 0 && op <= BY_LAUNCHES ? p->x[op] : NULL);
    ns[0] = elapsed(p, 0) > elapsed(p, 1) ? elapsed(p, 0) : elapsed(p, 1);
    ns[1] = elapsed(p, 2);
    rank_most(s->rank, ns, 2);
    return (struct times){ ns[0] / (copies > 0 ? copies : 1),
                           ns[1] / (n > 0 ? n : 1) };
}

/* How many of them take SPAN_NS alone. */
static int times_for(double ns)
{
    const double times = SPAN_NS / ns;

    return times < LEAST        ? LEAST
           : times > MOST_TIMES ? MOST_TIMES
                                : (int)times;
}

static void measure(struct place *p, FILE *file, int rounds)
{
    const enum operation op = p->now->op;
    double alone[2][MOST_ROUNDS], beside[2][MOST_ROUNDS];
    double longer[2][MOST_ROUNDS];
    const int few = p->s->bench.options.brief ? LEAST : 0;
    const double copy_ns = run(p, op, LEAST, 0).copies;
    const double work_ns = run(p, op, 0, LEAST).work;
    const int copies = few != 0 ? few : times_for(copy_ns);
    const int n = few != 0 ? few : times_for(work_ns);

    for (int i = 0; i < rounds; i++) {
        const struct times both = run(p, op, copies, n);

        alone[0][i] = run(p, op, copies, 0).copies;
        alone[1][i] = run(p, op, 0, n).work;
        beside[0][i] = both.copies;
        beside[1][i] = both.work;
        for (int k = 0; k < 2; k++) {
            longer[k][i] = beside[k][i] / alone[k][i];
        }
    }
    fprintf(file,
            "%s  {\"operation\": \"%s\", \"bytes\": %llu, \"copies\": %d, "
            "\"operations\": %d, ",
            p->now == cases ? "" : ",\n", p->now->name,
            (unsigned long long)p->s->most, copies, n);
    bench_json_spread(file, "copies_ns", bench_spread(alone[0], rounds));
    bench_json_spread(file, "work_ns", bench_spread(alone[1], rounds));
    bench_json_spread(file, "copies_beside_ns",
                      bench_spread(beside[0], rounds));
    bench_json_spread(file, "work_beside_ns", bench_spread(beside[1], rounds));
    fprintf(file, "\"copies_longer\": %.4f, \"work_longer\": %.4f}",
            bench_spread(longer[0], rounds).median,
            bench_spread(longer[1], rounds).median);
}

/* ---- its life ------------------------------------------------------------ */

static void open_place(struct place *p, struct side *s)
{
    static const enum exchange_by by[] = { [BY_COPIES] = BY_COPY,
                                           [BY_SENDS] = BY_NCCL,
                                           [BY_LAUNCHES] = BY_KERNEL };
    const struct bench *bench = &s->bench;

    memset(p, 0, sizeof(*p));
    p->s = s;
    NEED(bench, cuMemAlloc, (&p->window, 2 * s->most));
    NEED(bench, cuMemAlloc, (&p->out, s->most));
    NEED(bench, cuMemAlloc, (&p->back, s->most));
    NEED(bench, cuMemAlloc, (&p->sum, s->most));
    NEED(bench, cuMemsetD8Async, (p->out, 1, s->most, bench->stream));
    NEED(bench, cuMemsetD8Async, (p->sum, 0, s->most, bench->stream));
    NEED(bench, cuMemAllocHost, ((void **)&p->to_host, s->most));
    NEED(bench, cuMemAllocHost, ((void **)&p->from_host, s->most));
    memset(p->from_host, 2, s->most);
    for (int i = 0; i < 2; i++) {
        NEED(bench, cuStreamCreate, (&p->streams[i], CU_STREAM_NON_BLOCKING));
    }
    for (int i = 0; i < 3; i++) {
        NEED(bench, cuEventCreate, (&p->ends[i], 0));
    }
    for (enum operation op = BY_COPIES; op <= BY_LAUNCHES; op++) {
        if (has(p, op)) {
            p->x[op] = side_exchange(s, by[op], (void *)(uintptr_t)p->window,
                                     s->most);
        }
    }
}

/* Checks what was copied, and what came from the others. */
static bool is_right(struct place *p)
{
    unsigned char *read = malloc(p->s->most);
    const struct bench *bench = &p->s->bench;
    bool right = read != NULL;

    NEED(bench, cuMemcpyDtoH, (read, p->back, p->s->most));
    for (uint64_t i = 0; right && i < p->s->most; i++) {
        right = read[i] == 2 && p->to_host[i] == 1;
    }
    NEED(bench, cuMemcpyDtoH,
         (read, p->window,
          side_part(p->s, p->s->most) * (p->s->rank->n - 1)));
    for (uint64_t i = 0;
         right && i < side_part(p->s, p->s->most) * (p->s->rank->n - 1); i++) {
        right = read[i] == 1;
    }
    free(read);
    return right;
}

static void close_place(struct place *p)
{
    const struct bench *bench = &p->s->bench;

    for (enum operation op = BY_COPIES; op <= BY_LAUNCHES; op++) {
        bench->gh->exchange_destroy(p->x[op]);
    }
    rank_meet(p->s->rank);
    NEED(bench, cuMemFree, (p->window));
    NEED(bench, cuMemFree, (p->out));
    NEED(bench, cuMemFree, (p->back));
    NEED(bench, cuMemFree, (p->sum));
    NEED(bench, cuMemFreeHost, (p->to_host));
    NEED(bench, cuMemFreeHost, (p->from_host));
    for (int i = 0; i < 2; i++) {
        NEED(bench, cuStreamDestroy, (p->streams[i]));
    }
    for (int i = 0; i < 3; i++) {
        NEED(bench, cuEventDestroy, (p->ends[i]));
    }
}

static void run_rank(struct rank *rank, void *user)
{
    const struct bench_options *options = user;
    const int rounds = options->rounds != 0 ? options->rounds : ROUNDS;
    struct side side;
    struct place place;
    double wrong;
    FILE *file;

    side_open(&side, rank, options);
    open_place(&place, &side);
    file = side_json_begin(&side, "beside");
    fprintf(file, "\"beside\": [\n");
    for (size_t i = 0; i < CASES; i++) {
        place.now = &cases[i];
        if (has(&place, place.now->op)) {
            measure(&place, file, rounds);
        }
    }
    wrong = is_right(&place) ? 0 : 1;
    rank_most(rank, &wrong, 1);
    fprintf(file, "\n],\n\"right\": %s\n", wrong == 0 ? "true" : "false");
    close_place(&place);
    side_json_end(&side, file);
    side_close(&side);
}

int main(int argc, char **argv)
{
    return ranks_bench(argc, argv,
                       "Measures what copies to and from the host, and "
                       "operations between ranks (two, or\n--ranks), cost "
                       "each other.",
                       MOST_ROUNDS, run_rank);
}
