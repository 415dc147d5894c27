# tests/abi/local.mk - headers, symbols and words.
# SPDX-License-Identifier: Apache-2.0

abi_programs = \
	tests/abi/layout.t \
	tests/abi/layout-0.4.t \
	tests/abi/layout-0.5.t \
	tests/abi/layout-1.0.t \
	tests/abi/newer.t \
	tests/abi/old-0.4.t \
	tests/abi/old-0.5.t \
	tests/abi/old-1.0.t
abi_scripts = \
	tests/abi/abidiff.t \
	tests/abi/consumer.t \
	tests/abi/dist.t \
	tests/abi/docs.t \
	tests/abi/hardened.t \
	tests/abi/headers.t \
	tests/abi/hello.t \
	tests/abi/layers.t \
	tests/abi/listed.t \
	tests/abi/ptx.t \
	tests/abi/symbols.t
test_programs += $(abi_programs)
dist_check_SCRIPTS += $(abi_scripts)
EXTRA_DIST += build-aux/calls.awk build-aux/layers.awk lib/layers.txt softcuda/layers.txt
EXTRA_DIST += softnccl/layers.txt
EXTRA_DIST += tests/tap/pytest.sh tests/tap/tap.sh
EXTRA_DIST += tests/abi/consumer.c

tests_abi_layout_t_SOURCES = tests/abi/layout.c tests/abi/layout.def
tests_abi_layout_t_LDADD = libtap.la
tests_abi_newer_t_SOURCES = tests/abi/newer.c tests/abi/host.h
tests_abi_newer_t_LDADD = libtap.la
# Callers of old releases: -include gives them the headers of their release,
# whose layout is what it was.
old_sources = \
	tests/abi/host.h \
	tests/abi/old.c \
	tests/abi/old_caller.c \
	tests/abi/old_caller.h \
	tests/abi/old_since_0.2.c \
	tests/abi/old_since_0.3.c \
	tests/abi/old_since_0.4.c
old_0_4 = -include abi/old/graphhooks-0.4.h
tests_abi_layout_0_4_t_SOURCES = tests/abi/layout.c \
	tests/abi/old/layout-0.4.def
tests_abi_layout_0_4_t_CPPFLAGS = $(AM_CPPFLAGS) $(old_0_4) \
	-DLAYOUT='"abi/old/layout-0.4.def"'
tests_abi_layout_0_4_t_LDADD = libtap.la
tests_abi_old_0_4_t_SOURCES = $(old_sources) tests/abi/old/graphhooks-0.4.h
tests_abi_old_0_4_t_CPPFLAGS = $(AM_CPPFLAGS) $(old_0_4)
tests_abi_old_0_4_t_LDADD = libtap.la libdriver.la
old_0_5 = -include abi/old/graphhooks-0.5.h
tests_abi_layout_0_5_t_SOURCES = tests/abi/layout.c \
	tests/abi/old/layout-0.5.def
tests_abi_layout_0_5_t_CPPFLAGS = $(AM_CPPFLAGS) $(old_0_5) \
	-DLAYOUT='"abi/old/layout-0.5.def"'
tests_abi_layout_0_5_t_LDADD = libtap.la
tests_abi_old_0_5_t_SOURCES = $(old_sources) tests/abi/old_since_0.5.c \
	tests/abi/old/graphhooks-0.5.h
tests_abi_old_0_5_t_CPPFLAGS = $(AM_CPPFLAGS) $(old_0_5)
tests_abi_old_0_5_t_LDADD = libtap.la libdriver.la
old_1_0 = -include abi/old/graphhooks-1.0.h
tests_abi_layout_1_0_t_SOURCES = tests/abi/layout.c \
	tests/abi/old/layout-1.0.def
tests_abi_layout_1_0_t_CPPFLAGS = $(AM_CPPFLAGS) $(old_1_0) \
	-DLAYOUT='"abi/old/layout-1.0.def"'
tests_abi_layout_1_0_t_LDADD = libtap.la
tests_abi_old_1_0_t_SOURCES = $(old_sources) tests/abi/old_since_0.5.c \
	tests/abi/old_since_1.0.c tests/abi/old/graphhooks-1.0.h
tests_abi_old_1_0_t_CPPFLAGS = $(AM_CPPFLAGS) $(old_1_0)
tests_abi_old_1_0_t_LDADD = libtap.la libdriver.la
