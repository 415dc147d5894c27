/*
 * causes.c - why something that was asked for is not done, and how to change
 * that.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#define CAUSE(name, why, remedy) [GH_CAUSE_##name] = { why, remedy }

const struct gh_cause_text gh_causes[GH_CAUSE_COUNT] = {
    CAUSE(NONE, "", ""),
    CAUSE(RECOMPUTE_LAYER, "it is recomputed as a whole, in the backward",
          "recompute modules of the layer instead of all of it"),
    CAUSE(OFFLOAD_LAYER,
          "all of its activations are offloaded, and those of a graph "
          "stay where the graph expects them",
          "offload modules of the layer instead of all of it"),
    CAUSE(PACKED,
          "its sequences are packed, so their number changes, and a graph "
          "has fixed shapes",
          "pad tokens and sequences to a fixed number and name packed_pad"),
    CAUSE(ATTN_RANDOM,
          "its attention has dropout and is recomputed, and a graph "
          "would draw other random numbers the second time",
          "switch off attention dropout, or the recomputation of "
          "core_attn"),
    CAUSE(MOE_RANDOM,
          "its router draws random numbers and is recomputed, and a "
          "graph would draw others the second time",
          "switch off router jitter, or recompute moe_act instead of moe"),
    CAUSE(ONE_EXPERT,
          "it has one expert, so nothing is routed, and no shape is fixed",
          "set a capacity and pad to it, or describe it as a dense layer"),
    CAUSE(HOST_ROUTER, "its router waits for the device, which a graph cannot",
          "take a router that does not wait, such as top-k"),
    CAUSE(GATHER_TO_HOST,
          "its all-gather tells the host how many tokens each expert gets, "
          "in the middle of the graph",
          "make it sync_free, or take alltoall with a capacity and pad"),
    CAUSE(DYNAMIC_EXPERTS,
          "its experts get another number of tokens in every pass, "
          "and a graph has fixed shapes",
          "set a capacity and pad to it"),
    CAUSE(OVERLAP,
          "its communication is hidden behind another microbatch, "
          "between the parts that a graph of all of it would tie "
          "together",
          "switch off the overlap"),
    CAUSE(RECOMPUTE_MOE,
          "its experts are recomputed as one unit, which the end of "
          "the graph would cut in two",
          "recompute moe_act instead of moe"),
    CAUSE(RECOMPUTE_PARTS,
          "its experts are recomputed as one unit, and granularity "
          "part gives each of their parts a graph",
          "recompute moe_act instead of moe"),
    CAUSE(COUNTS_TO_HOST,
          "its all-to-all must tell the host how many tokens each "
          "expert gets before the permutation is known",
          "set a capacity and pad to it, or leave out capacity and "
          "fp8_padding"),
    CAUSE(FAMILY, "its family lets no graph hold it",
          "describe the layer by another family"),
    CAUSE(END,
          "it is outside of the layer, and only a chunk's graph reaches there, "
          "without ep overlap",
          "take granularity chunk, and no ep overlap"),
    CAUSE(OFFLOAD_ATTN_NORM,
          "its attention norm reads what goes into a graph or out of one, "
          "which stays on the device",
          "leave attn_norm out of the offloaded modules"),
    CAUSE(OFFLOAD_MLP_NORM,
          "its MLP norm reads what goes into a graph or out of one, "
          "which stays on the device",
          "leave mlp_norm out of the offloaded modules"),
    CAUSE(OFFLOAD_MOE,
          "its experts are captured as a whole, so their activations "
          "stay on the device",
          "leave the modules of the experts out of the offloaded ones"),
    CAUSE(RECOMPUTE_MLP_NORM,
          "the output of its MLP norm leaves the graph, which keeps "
          "it, so recomputing it frees nothing",
          "leave mlp_norm out of the recomputed modules, or capture "
          "moe_preprocess of an all-to-all or of latent experts in the "
          "same graph, without shared_overlap"),
    CAUSE(PROJ_ALONE,
          "the input of its attn_proj is the output of its core_attn, so "
          "offloading attn_proj alone frees nothing",
          "offload core_attn too, or leave attn_proj out"),
    CAUSE(OFFLOAD_RECOMPUTED,
          "its moe is recomputed as one unit, so nothing of expert_fc1 and "
          "moe_act is kept that could be offloaded",
          "leave them out of the offloaded modules, or moe out of the "
          "recomputed ones"),
    CAUSE(SHARED_RECOMPUTED,
          "its shared experts run beside the dispatch, where they cannot be "
          "recomputed",
          "leave out shared_overlap, or shared_experts of the recomputed "
          "modules"),
    CAUSE(OVERLAP_SHARED,
          "its shared experts and another microbatch would both run beside "
          "its dispatch",
          "leave out shared_overlap, or switch off the overlap"),
    CAUSE(OVERLAP_RECOMPUTED,
          "its moe is recomputed as one unit, which the overlap has to cut "
          "at the dispatch and the combine",
          "recompute moe_act instead of moe, or switch off the overlap"),
    CAUSE(OVERLAP_LAYER,
          "it is recomputed as a whole, which the overlap has to cut at the "
          "dispatch and the combine",
          "recompute modules of it, such as core_attn and moe_act, or switch "
          "off the overlap"),
    CAUSE(OVERLAP_NCCLEP,
          "under the overlap its expert_fc1 reads a buffer that ncclep keeps, "
          "so offloading it frees nothing",
          "leave expert_fc1 out of the offloaded modules, or switch off the "
          "overlap"),
};

enum gh_cause gh_cause_first(uint32_t causes)
{
    enum gh_cause cause = GH_CAUSE_NONE;

    while (causes != 0 && (causes & gh_cause_bit(cause)) == 0) {
        cause++;
    }
    return cause;
}

static void append(char *text, size_t bytes, const char *between,
                   const char *more)
{
    const size_t used = strlen(text);

    snprintf(text + used, bytes - used, "%s%s", between, more);
}

void gh_cause_remedies(uint32_t causes, char *text, size_t bytes)
{
    text[0] = '\0';
    while (causes != 0) {
        const enum gh_cause cause = gh_cause_first(causes);

        append(text, bytes, text[0] == '\0' ? "" : ", and ",
               gh_causes[cause].remedy);
        causes &= ~gh_cause_bit(cause);
    }
}

void gh_cause_or(uint32_t causes, const char *what, char *text, size_t bytes)
{
    const bool several = (causes & (causes - 1)) != 0;

    append(text, bytes, several ? "; or " : ", or ", what);
}

void gh_item_remedy(const struct gh_layer_plan *plan, enum gh_scope_item item,
                    gh_part part, char *text, size_t bytes)
{
    gh_cause_remedies(plan->refused[item], text, bytes);
    gh_item_instead(plan, item, part, text, bytes);
}

void gh_item_instead(const struct gh_layer_plan *plan, enum gh_scope_item item,
                     gh_part part, char *text, size_t bytes)
{
    const uint32_t router = GH_SCOPE(GH_ITEM_MOE_ROUTER);
    const uint32_t both = router | GH_SCOPE(GH_ITEM_MOE_PREPROCESS);
    const uint32_t causes = plan->refused[item];

    if (item != GH_ITEM_MOE) {
        return;
    }
    if (part == GH_PART_MOE_ROUTER && (plan->instead & router) != 0) {
        gh_cause_or(causes, "name moe_router instead of moe", text, bytes);
    } else if (part == GH_PART_MOE_PREPROCESS && plan->instead == both) {
        gh_cause_or(causes, "name moe_router and moe_preprocess instead of moe",
                    text, bytes);
    }
}

/* Writes the end of a file's path in at most `room` bytes, or "" if too little
 * would remain. */
static void shorten(const char *file, size_t room, char *text, size_t bytes)
{
    const size_t length = strlen(file);
    const size_t least = 16, around = sizeof(" ()") - 1;

    text[0] = '\0';
    if (length + around <= room) {
        snprintf(text, bytes, " (%s)", file);
    } else if (room >= least) {
        file += length - (room - around - 3);
        while (((unsigned char)*file & 0xC0) == 0x80) {
            file++;
        }
        snprintf(text, bytes, " (...%s)", file);
    }
}

/* Writes as many whole words as fit.  If the first word does not fit, it is
 * cut. */
static void put_words(const char *sentence, char *text, size_t bytes)
{
    static const char more[] = "...";
    int n;

    if (strlen(sentence) < bytes) {
        snprintf(text, bytes, "%s", sentence);
        return;
    }
    n = bytes > sizeof(more) ? (int)(bytes - sizeof(more)) : 0;
    while (n > 0 && sentence[n] != ' ') {
        n--;
    }
    if (n == 0) {
        n = gh_shown_bytes(sentence, (int)(bytes - 1));
        snprintf(text, bytes, "%.*s", n, sentence);
        return;
    }
    snprintf(text, bytes, "%.*s%s", n, sentence, more);
}

void gh_cause_text(enum gh_cause cause, const struct gh_layer *layer,
                   char *text, size_t bytes)
{
    const char *why = gh_cause_why(cause, layer);
    const struct gh_traits_source *source;
    char family[GH_FAMILY_NAME + 192] = "", file[160];
    size_t used;

    if (cause == GH_CAUSE_FAMILY && layer->traits != NULL &&
        layer->traits->source != NULL) {
        source = layer->traits->source;
        used = strlen("family  keeps it eager: ") + strlen(source->name) +
               strlen(why) + 1;
        used = used < bytes ? bytes - used : 0;
        shorten(source->file, used < sizeof(file) ? used : sizeof(file) - 1,
                file, sizeof(file));
        snprintf(family, sizeof(family),
                 "family %s%s keeps it eager: ", source->name, file);
    }
    used = strlen(family);
    snprintf(text, bytes, "%s", family);
    if (used < bytes) {
        put_words(why, text + used, bytes - used);
    }
}

const char *gh_cause_why(enum gh_cause cause, const struct gh_layer *layer)
{
    if (cause == GH_CAUSE_FAMILY && layer->traits != NULL) {
        return layer->traits->layer.why_not;
    }
    return gh_causes[cause].why;
}
