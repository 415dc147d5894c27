/*
 * causes.c - why something that was asked for is not done, and what to do.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/rules.h"

#define CAUSE(name, why, remedy) [GH_CAUSE_##name] = { why, remedy }

const struct gh_cause_text gh_causes[GH_CAUSE_COUNT] = {
    CAUSE(NONE, "", ""),
    CAUSE(RECOMPUTE_LAYER, "it is recomputed as a whole, in the backward",
          "recompute modules of the layer, or leave it eager"),
    CAUSE(OFFLOAD_LAYER,
          "all of its activations are offloaded, and those of a graph "
          "stay where the graph expects them",
          "offload modules of the layer, or leave it eager"),
    CAUSE(ATTN_RANDOM,
          "its attention has dropout and is recomputed, and a graph "
          "would draw other random numbers the second time",
          "switch off attention dropout, or the recomputation of "
          "core_attn"),
    CAUSE(MLP_RANDOM,
          "its MLP has dropout and is recomputed, and a graph would "
          "draw other random numbers the second time",
          "switch off hidden dropout, or the recomputation of mlp"),
    CAUSE(MOE_RANDOM,
          "its experts draw random numbers and are recomputed, and a "
          "graph would draw others the second time",
          "switch off dropout and jitter, or the recomputation of moe"),
    CAUSE(ONE_EXPERT, "it has one expert, so nothing is routed",
          "describe it as a dense layer"),
    CAUSE(DYNAMIC_EXPERTS,
          "its experts get another number of tokens in every pass, "
          "and a graph has fixed shapes",
          "set a capacity and pad to it, or name moe_router instead "
          "of moe"),
    CAUSE(OVERLAP,
          "its communication is hidden behind another microbatch, "
          "between the parts that a graph of all of it would tie "
          "together",
          "name moe_router instead of moe, or switch off the overlap"),
    CAUSE(OVERLAP_MLP,
          "its MLP hides the communication of another microbatch, so "
          "the overlap runs it on its own",
          "leave mlp out, or switch off the overlap"),
    CAUSE(RECOMPUTE_MOE,
          "its experts are recomputed as one unit, which the end of "
          "the graph would cut in two",
          "recompute moe_act or mlp_norm instead of moe, or leave "
          "moe_router out"),
    CAUSE(RECOMPUTE_PARTS,
          "its experts are recomputed as one unit, and granularity "
          "part gives each of their parts a graph",
          "take granularity layer, or recompute moe_act instead of moe"),
    CAUSE(COUNTS_TO_HOST,
          "its all-to-all must tell the host how many tokens each "
          "expert gets before the permutation is known",
          "pad to the capacity, switch off fp8 padding, or leave "
          "moe_preprocess out"),
    CAUSE(FAMILY, "its family lets no graph hold it",
          "leave it eager, or describe the layer by another family"),
    CAUSE(OFFLOAD_ATTN_NORM,
          "its attention norm reads the input of the graph, which "
          "stays on the device",
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
          "moe_preprocess of an all-to-all in the same graph, "
          "without shared_overlap"),
};
