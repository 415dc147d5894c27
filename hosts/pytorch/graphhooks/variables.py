"""The environment variables: each row is also an option of a session.

The library tells nobody what a variable is for, so this is README's table,
which a test holds it to: values, default, meaning.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

MEANINGS = {
    "enable": (
        "0 or 1",
        "1",
        "Record and replay graphs. 0: every pass runs eagerly, and a "
        "session opens without a driver.",
    ),
    "scope": (
        "one or more, with commas, of attn, mlp, moe, moe_router, "
        "moe_preprocess, mamba",
        "all",
        "The parts of a layer that may be captured; unset: whole layers.",
    ),
    "granularity": (
        "part or layer or chunk",
        "layer",
        "How far one graph may reach.",
    ),
    "warmup_steps": (
        "a number from 0 to 1000000",
        "1",
        "Steps run eagerly before the first recording.",
    ),
    "max_slots": (
        "a number from 1 to 64",
        "8",
        "Microbatches in flight that get graphs of their own.",
    ),
    "max_banks": (
        "a number from 1 to 1024",
        "16",
        "The most banks that have graphs at the same time; one more evicts "
        "the least recently used.",
    ),
    "memory_limit": (
        "a number of bytes, or 1% to 100% of the device's",
        "0",
        "The most device memory of a session before inputs of graphs find "
        "none; 0: no limit. A pass whose inputs do not fit runs eagerly.",
    ),
    "driver": (
        "cuda or soft or a path with a /",
        "cuda",
        "The driver: CUDA's, the software device's, or the path of one.",
    ),
    "log": (
        "off or warn or info or debug",
        "warn",
        "What is logged. warn: what costs performance; info: also what was "
        "decided; debug: also every recording.",
    ),
    "trace": (
        "a path",
        "none",
        "Write a timeline here for Perfetto and chrome://tracing; %p "
        "becomes the process id.",
    ),
    "nvtx": (
        "0 or 1",
        "0",
        "1: each pass is a range of NVTX with the name of its segment, which "
        "Nsight Systems and other tools show.",
    ),
    "check": (
        "off or bitwise or ranks",
        "off",
        "bitwise: run each recorded pass eagerly too, and compare every "
        "byte of the outputs. ranks: compare what the ranks of a bank "
        "decide, at each pass.",
    ),
    "check_every": (
        "a number from 1 to 1000000",
        "1",
        "With CHECK: compare only every n-th recorded pass.",
    ),
    "verify": (
        "off or auto or always",
        "auto",
        "With PyTorch: run some replayed passes eagerly too, and compare "
        "every bit. auto: at growing distances, for at most 1 % of the time; "
        "always: each.",
    ),
    "nccl": (
        "nccl or soft or a path with a /",
        "nccl",
        "The NCCL that the host has loaded: libnccl.so.2, the software "
        "device's, or the path of one.",
    ),
    "timeout": (
        "a number from 1 to 86400",
        "60",
        "How many seconds a rank waits for other ranks before it gives up.",
    ),
    "watchdog": (
        "0 or 1",
        "0",
        "1: a thread names, on standard error, the replay that has not ended "
        "after TIMEOUT.",
    ),
    "freeze": (
        "a number from 0 to 1000000",
        "0",
        "Refuse new recordings from the n-th step after warmup on; 0: "
        "never.",
    ),
    "strict": (
        "0 or 1",
        "0",
        "1: a pass that runs eagerly is an error that says why, but for "
        "warmup, evaluation, and what options or the plan leave out.",
    ),
    "plugin_path": (
        "directories separated by colons",
        "none",
        "Directories that are searched for a model family's NAME.so before "
        "those of the library.",
    ),
    "offload": (
        "names separated by commas",
        "none",
        "Modules whose activations are copied to the host's memory and "
        "back, such as core_attn and moe_act; unset: none.",
    ),
    "offload_fraction": (
        "a number from 0 to 1, or auto",
        "1",
        "The share of the groups that is offloaded; the latest groups stay."
        " auto: the groups whose copies hide behind compute, by the times "
        "of a step.",
    ),
    "offload_min_bytes": (
        "a number of bytes",
        "1048576",
        "Tensors smaller than this stay on the device.",
    ),
    "offload_buffers": (
        "a number from 2 to 8",
        "2",
        "Device buffers in each ring; the groups of a module take them in "
        "turn.",
    ),
    "offload_pool_bytes": (
        "a number of bytes",
        "0",
        "The most pinned memory; 0: no limit. A group that finds none stays"
        " on the device.",
    ),
    "offload_keep_bytes": (
        "a number of bytes",
        "0",
        "This times the pipeline rank, so many bytes of the earliest groups "
        "of a chunk stay on the device.",
    ),
    "offload_prefetch": (
        "a number from 0 to 16",
        "0",
        "How many groups come back ahead of the one that is needed; 0: as "
        "many as the rings hold or, with FRACTION auto, what the measured "
        "times suggest.",
    ),
    "offload_in_flight": (
        "a number from 0 to 64",
        "0",
        "The most copies out of a ring that may be under way; one more "
        "makes the stream wait for the oldest. 0: no limit.",
    ),
    "offload_delay": (
        "0 or 1",
        "0",
        "1: copies start in gh_flush_delayed, in the gap after a launch.",
    ),
    "offload_apart": (
        "0 or 1",
        "0",
        "1: with OFFLOAD_DELAY, copies to the host begin when an exchange of "
        "gh_overlap_run has ended, not beside it.",
    ),
    "overlap": (
        "off or fixed or auto",
        "fixed",
        "The order of nodes in gh_overlap_run: off, one chunk after the "
        "other; fixed, the published one; auto, the best by measured times.",
    ),
    "ep_exchange": (
        "auto or nccl or copy or kernel",
        "auto",
        "How an exchange of tokens moves bytes: nccl; copy, by copies into "
        "the peers' memory; kernel, by a kernel that writes there; auto, copy "
        "where all ranks reach each other, and kernel for small parts where "
        "nothing runs beside.",
    ),
    "ep_exchange_small": (
        "a number of bytes, or measure",
        "4194304",
        "With EP_EXCHANGE auto: the largest part of an exchange that goes by "
        "the kernel where nothing runs beside; 0: none does. measure: what "
        "some milliseconds of exchanges say when one is made.",
    ),
}
