# tests/fuzz/local.mk - the drivers of fuzzers, on inputs of fixed seeds.
# SPDX-License-Identifier: Apache-2.0

EXTRA_DIST += tests/fuzz/corpus/env-0.txt tests/fuzz/corpus/env-1.txt \
	tests/fuzz/corpus/env-2.txt
test_programs += tests/fuzz/env.t tests/fuzz/session.t
fuzz_common = tests/fuzz/seeds.c tests/fuzz/fuzz.h
tests_fuzz_env_t_SOURCES = tests/fuzz/env_fuzz.c $(fuzz_common)
tests_fuzz_env_t_LDADD = $(core_test_libs)
tests_fuzz_session_t_SOURCES = tests/fuzz/session_fuzz.c $(fuzz_common)
if HAVE_JANSSON
test_programs += tests/fuzz/describe.t
tests_fuzz_describe_t_SOURCES = tests/fuzz/describe_fuzz.c bin/describe.c \
	bin/costs.c bin/fields.c bin/measured_read.c bin/nodes.c bin/words.c \
	$(fuzz_common)
tests_fuzz_describe_t_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/bin
tests_fuzz_describe_t_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_fuzz_describe_t_LDADD = $(core_test_libs) $(JANSSON_LIBS)
else
EXTRA_DIST += tests/fuzz/describe_fuzz.c
endif
