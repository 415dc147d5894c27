# tests/bench/local.mk - the benches, in small.
# SPDX-License-Identifier: Apache-2.0

dist_check_SCRIPTS += tests/bench/bench.t tests/bench/several.t
# A program that it runs.
tests/bench/several.log: tests/nccl/collectives.t
