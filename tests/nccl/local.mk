# tests/nccl/local.mk - softnccl.
# SPDX-License-Identifier: Apache-2.0

# One contract suite for softnccl, whose ranks are threads, and for NCCL, whose
# ranks are processes: GRAPHHOOKS_TEST_DRIVER=cuda and
# GRAPHHOOKS_TEST_NCCL=/path/to/libnccl.so.2.

EXTRA_LTLIBRARIES += libranks.la
libranks_la_SOURCES = tests/nccl/loaded.c tests/nccl/ranks.c \
	tests/nccl/ranks.h
libranks_la_LIBADD = libtap.la libdriver.la

nccl_programs = \
	tests/nccl/check_header.t \
	tests/nccl/collectives.t \
	tests/nccl/comms.t \
	tests/nccl/graphs.t \
	tests/nccl/races.t \
	tests/nccl/reports.t \
	tests/nccl/seeds.t
test_programs += $(nccl_programs)

tests_nccl_check_header_t_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_nccl_check_header_t_LDADD = libtap.la
tests_nccl_collectives_t_LDADD = libranks.la
tests_nccl_comms_t_LDADD = libranks.la
tests_nccl_graphs_t_LDADD = libranks.la
tests_nccl_races_t_LDADD = libranks.la
tests_nccl_reports_t_LDADD = libranks.la
tests_nccl_seeds_t_LDADD = libranks.la
