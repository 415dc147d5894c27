/*
 * arena.c - see arena.h.
 *
 * The smallest free extent that is large enough is taken, over all regions.
 * Sessions allocate while they learn and record, and hardly afterwards, so a
 * search over a list is enough.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "memory/arena.h"

#include "base/error.h"

#include <stdlib.h>

#define ALIGNMENT 512u
/* Pieces of half as much have a region of their own. */
#define LARGE_REGION (UINT64_C(32) << 20)

struct extent {
    struct extent *next;
    uint64_t offset, bytes;
};

struct gh_region {
    struct gh_region *next;
    char *address;
    uint64_t bytes, used;
    bool mapped;
    struct extent *free; /* by offset; no two of them touch */
};

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

static uint64_t piece_of(const struct gh_arena *arena, uint64_t bytes)
{
    if (arena->exact) {
        return round_up(bytes, arena->granule);
    }
    return bytes == 0 ? ALIGNMENT : round_up(bytes, ALIGNMENT);
}

gh_status gh_arena_open(struct gh_arena *arena, struct gh_device *dev,
                        gh_error *err)
{
    *arena = (struct gh_arena){ .dev = dev };
    return gh_device_granule(dev, &arena->granule, err);
}

/* ---- regions ------------------------------------------------------------- */

/* Regions double, up to a size whose unused end does not matter. */
static uint64_t region_bytes(const struct gh_arena *arena, uint64_t piece)
{
    uint64_t bytes =
        arena->mapped < LARGE_REGION ? arena->mapped : LARGE_REGION;

    if (arena->exact || piece >= LARGE_REGION / 2 || piece > bytes) {
        bytes = piece;
    }
    return round_up(bytes, arena->granule);
}

static gh_status add_region(struct gh_arena *arena, uint64_t bytes,
                            struct gh_region **region_p, gh_error *err)
{
    struct gh_region *region = calloc(1, sizeof(*region));
    struct extent *whole = calloc(1, sizeof(*whole));
    void *address = NULL;
    gh_status status;

    if (region == NULL || whole == NULL) {
        status = gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a region");
        goto err_region;
    }
    status = gh_device_reserve(arena->dev, bytes, &address, err);
    if (status != GH_OK) {
        goto err_region;
    }
    status = gh_device_map(arena->dev, address, bytes, err);
    if (status != GH_OK) {
        goto err_reserved;
    }
    whole->bytes = bytes;
    *region =
        (struct gh_region){ arena->regions, address, bytes, 0, true, whole };
    arena->regions = region;
    arena->reserved += bytes;
    arena->mapped += bytes;
    *region_p = region;
    return GH_OK;

err_reserved:
    gh_device_unreserve(arena->dev, address, bytes);
err_region:
    free(whole);
    free(region);
    return status;
}

static gh_status unmap_region(struct gh_arena *arena, struct gh_region *region,
                              gh_error *err)
{
    gh_status status = GH_OK;

    if (region->mapped) {
        status =
            gh_device_unmap(arena->dev, region->address, region->bytes, err);
    }
    if (region->mapped && status == GH_OK) {
        region->mapped = false;
        arena->mapped -= region->bytes;
    }
    return status;
}

static void drop_region(struct gh_arena *arena, struct gh_region **at)
{
    struct gh_region *region = *at;

    /* Memory that cannot be unmapped is left to the context. */
    if (unmap_region(arena, region, NULL) == GH_OK) {
        gh_device_unreserve(arena->dev, region->address, region->bytes);
    }
    arena->reserved -= region->bytes;
    *at = region->next;
    while (region->free != NULL) {
        struct extent *extent = region->free;

        region->free = extent->next;
        free(extent);
    }
    free(region);
}

void gh_arena_close(struct gh_arena *arena)
{
    while (arena->regions != NULL) {
        drop_region(arena, &arena->regions);
    }
    *arena = (struct gh_arena){ 0 };
}

/* ---- pieces -------------------------------------------------------------- */

static void *take(struct gh_region *region, struct extent **at, uint64_t piece)
{
    struct extent *extent = *at;
    char *address = region->address + extent->offset;

    extent->offset += piece;
    extent->bytes -= piece;
    if (extent->bytes == 0) {
        *at = extent->next;
        free(extent);
    }
    region->used += piece;
    return address;
}

gh_status gh_arena_alloc(struct gh_arena *arena, uint64_t bytes,
                         void **address_p, gh_error *err)
{
    const uint64_t piece = piece_of(arena, bytes);
    struct gh_region *best = NULL;
    struct extent **at = NULL;
    gh_status status = GH_OK;

    /* What an exact arena has kept may be in use still. */
    for (struct gh_region *r = arena->exact ? NULL : arena->regions; r != NULL;
         r = r->next) {
        for (struct extent **e = &r->free; *e != NULL; e = &(*e)->next) {
            if ((*e)->bytes >= piece &&
                (at == NULL || (*e)->bytes < (*at)->bytes)) {
                best = r;
                at = e;
            }
        }
    }
    if (at == NULL) {
        status = add_region(arena, region_bytes(arena, piece), &best, err);
        at = status == GH_OK ? &best->free : NULL;
    }
    if (status == GH_OK) {
        *address_p = take(best, at, piece);
    }
    return status;
}

/* Joins the extent with the one behind it, if they touch. */
static void join(struct extent *extent)
{
    struct extent *next = extent->next;

    if (next != NULL && extent->offset + extent->bytes == next->offset) {
        extent->bytes += next->bytes;
        extent->next = next->next;
        free(next);
    }
}

static void put_back(struct gh_region *region, uint64_t offset, uint64_t piece)
{
    struct extent **at = &region->free, *before = NULL, *extent;

    while (*at != NULL && (*at)->offset < offset) {
        before = *at;
        at = &(*at)->next;
    }
    if (before != NULL && before->offset + before->bytes == offset) {
        before->bytes += piece;
        join(before);
        return;
    }
    extent = malloc(sizeof(*extent));
    if (extent == NULL) {
        return; /* it is free once the region is */
    }
    *extent = (struct extent){ *at, offset, piece };
    *at = extent;
    join(extent);
}

/* Whether the address lies in the region. */
static bool has(const struct gh_region *region, const void *address)
{
    return (uintptr_t)address - (uintptr_t)region->address < region->bytes;
}

void gh_arena_free(struct gh_arena *arena, void *address, uint64_t bytes,
                   bool keep)
{
    struct gh_region **at = &arena->regions;
    const uint64_t piece = piece_of(arena, bytes);

    while (*at != NULL && !has(*at, address)) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        return;
    }
    put_back(*at, (uint64_t)((char *)address - (*at)->address), piece);
    (*at)->used -= piece;
    if ((*at)->used == 0 && !keep) {
        drop_region(arena, at);
    }
}

void gh_arena_trim(struct gh_arena *arena)
{
    for (struct gh_region **at = &arena->regions; *at != NULL;) {
        if ((*at)->used == 0) {
            drop_region(arena, at);
        } else {
            at = &(*at)->next;
        }
    }
}

bool gh_arena_has(const struct gh_arena *arena, const void *address,
                  uint64_t bytes, const void **there_p, uint64_t *bytes_p)
{
    const struct gh_region *r = arena->regions;

    while (r != NULL && (r->used == 0 || !has(r, address))) {
        r = r->next;
    }
    *there_p = r != NULL ? r->address : NULL;
    *bytes_p = r != NULL ? r->bytes : 0;
    return r != NULL && r->address == address &&
           r->bytes == piece_of(arena, bytes);
}

/* ---- all of it ----------------------------------------------------------- */

gh_status gh_arena_unmap(struct gh_arena *arena, gh_error *err)
{
    gh_status status = GH_OK;

    for (struct gh_region *r = arena->regions; r != NULL && status == GH_OK;
         r = r->next) {
        status = unmap_region(arena, r, err);
    }
    return status;
}

static gh_status map_region(struct gh_arena *arena, struct gh_region *region,
                            gh_error *err)
{
    const gh_status status =
        gh_device_map(arena->dev, region->address, region->bytes, err);

    if (status == GH_OK) {
        region->mapped = true;
        arena->mapped += region->bytes;
    }
    return status;
}

gh_status gh_arena_map(struct gh_arena *arena, gh_error *err)
{
    struct gh_region *r = arena->regions;
    gh_status status = GH_OK;

    for (; r != NULL && status == GH_OK; r = r->next) {
        status = r->mapped ? GH_OK : map_region(arena, r, err);
    }
    if (status != GH_OK) {
        (void)gh_arena_unmap(arena, NULL);
    }
    return status;
}
