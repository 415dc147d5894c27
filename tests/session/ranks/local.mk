# tests/session/ranks/local.mk - several ranks that share a bank.
# SPDX-License-Identifier: Apache-2.0

# As tests/nccl: threads on softnccl, processes on NCCL.

EXTRA_LTLIBRARIES += libsharer.la
libsharer_la_SOURCES = tests/session/ranks/sharer.c tests/session/ranks/sharer.h
libsharer_la_LIBADD = libranks.la libgraphhooks.la
# Shared objects that are loaded by their paths; -rpath makes them shared.
EXTRA_LTLIBRARIES += libnccl_old.la libnccl_part.la
libnccl_old_la_SOURCES = tests/session/ranks/fake_nccl.c
libnccl_old_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_VERSION=21903
libnccl_old_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -rpath /none
libnccl_part_la_SOURCES = tests/session/ranks/fake_nccl.c
libnccl_part_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_VERSION=22005 -DFAKE_PART
libnccl_part_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -rpath /none

ranks_programs = \
	tests/session/ranks/agree.t \
	tests/session/ranks/faults.t \
	tests/session/ranks/groups.t \
	tests/session/ranks/order.t \
	tests/session/ranks/suspend.t \
	tests/session/ranks/overlap.t
test_programs += $(ranks_programs)

tests_session_ranks_agree_t_LDADD = libsharer.la
tests_session_ranks_faults_t_LDADD = libsharer.la
tests_session_ranks_groups_t_LDADD = libsharer.la
tests_session_ranks_order_t_LDADD = libsharer.la
tests_session_ranks_suspend_t_LDADD = libsharer.la
tests_session_ranks_overlap_t_LDADD = libsharer.la
test_programs += tests/fuzz/ranks.t
tests_fuzz_ranks_t_LDADD = libsharer.la libtrader.la
tests_session_ranks_lost_t_LDADD = libsharer.la
EXTRA_tests_session_ranks_lost_t_DEPENDENCIES = libnccl_old.la libnccl_part.la
