# tests/stash/local.mk - rows that are kept in pages.
# SPDX-License-Identifier: Apache-2.0

# As tests/nccl: threads on softnccl, processes on NCCL.

test_programs += tests/stash/stash.t
tests_stash_stash_t_LDADD = libranks.la libgraphhooks.la
