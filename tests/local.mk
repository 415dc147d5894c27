# tests/local.mk - the harness, and what all tests share.
# SPDX-License-Identifier: Apache-2.0

# One program per module, all of them speaking TAP.  A test finds the build
# by these variables; $srcdir and $builddir are those of the top.  What the
# caller has set for the library decides no point.

TEST_EXTENSIONS = .t
T_LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) \
	$(top_srcdir)/build-aux/tap-driver.sh
# Programs of tests are made when they are to run: make check TESTS=... makes no
# others.  What takes long begins first: those whose ranks wait for seconds, and
# scripts.
first_programs = tests/session/ranks/lost.t tests/exchange/suspend.t
all_programs = $(first_programs) $(test_programs)
EXTRA_PROGRAMS = $(all_programs)
CLEANFILES += $(all_programs) $(EXTRA_LTLIBRARIES)
TESTS = $(first_programs) $(dist_check_SCRIPTS) $(test_programs)
build-tests: all
	@$(MAKE) $(AM_MAKEFLAGS) $(all_programs)
.PHONY: build-tests
AM_TESTS_ENVIRONMENT = \
	for v in `env | sed -n 's/^\(GRAPHHOOKS_[A-Z0-9_]*\)=.*/\1/p'`; do \
		case $$v in GRAPHHOOKS_TEST_*) ;; *) unset $$v ;; esac; \
	done; \
	srcdir='$(abs_top_srcdir)'; export srcdir; \
	builddir='$(abs_top_builddir)'; export builddir; \
	CC='$(CC)'; CXX='$(CXX)'; export CC CXX; \
	sanitize='$(SANITIZE)'; export sanitize; \
	TSAN_OPTIONS="suppressions=$(abs_top_srcdir)/tests/tsan.supp print_suppressions=0 $$TSAN_OPTIONS"; \
	export TSAN_OPTIONS; \
	NVCC='$(NVCC)'; export NVCC; \
	have_jansson='$(have_jansson)'; export have_jansson; \
	PKG_CONFIG='$(PKG_CONFIG)'; export PKG_CONFIG; \
	MAKE='$(MAKE)'; export MAKE; \
	ptx_sources='$(kernels_ptx_deps): $(engine_ptx_deps)'; \
	export ptx_sources; \
	LD_LIBRARY_PATH="$(abs_top_builddir)/.libs$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}"; \
	export LD_LIBRARY_PATH;

EXTRA_LTLIBRARIES += libtap.la
libtap_la_SOURCES = tests/tap/apart.c tests/tap/tap.c tests/tap/tap.h
dist_check_SCRIPTS += tests/tap/mutate.t tests/tap/report.t

# Programs that look inside the library link it whole, without the .so.
core_test_libs = libtap.la libcore.la
# Those of hosts name none.
LDADD = $(session_test_libs)

# It installs, and libtool relinks what it installs: each library of the build
# is away for a moment.  So it comes after all other tests.
tests/abi/consumer.log: $(TEST_LOGS:tests/abi/consumer.log=)

# For .ci/run.
print-tests:
	@for test in $(TESTS); do echo "$$test"; done
# For build-aux/mutate.py.
print-programs:
	@for test in $(all_programs); do echo "$$test"; done
.PHONY: print-tests print-programs

# The programs of tests that begin threads, or have the library do so, as their
# sources say; but for one whose ranks have a second for each point.
print-threaded:
	@for program in $(all_programs); do \
	    if [ $$program != tests/exchange/drops.t ] && grep -qsE \
	        'pthread_create|GRAPHHOOKS_WATCHDOG=1|"tests/nccl/ranks\.h"|(sharer|trader)\.h"' \
	        $(srcdir)/$${program%.t}.c; then echo "$$program"; fi; \
	done

# These under ThreadSanitizer, in a build of their own below this one.  It does not
# see fences, and gcc says so of each: those here are for other processes.
check-threads:
	@mkdir -p threads && cd threads && \
	    $(abs_top_srcdir)/configure -q --enable-werror \
	        --enable-sanitizer=thread CC='$(CC)' \
	        CFLAGS='$(CFLAGS) -Wno-tsan' && \
	    GRAPHHOOKS_TEST_SEEDS=3 $(MAKE) check \
	        TESTS="`$(MAKE) -s --no-print-directory print-threaded`"
.PHONY: print-threaded check-threads

# The wheels of all machines, built, installed and tried.
check-wheels:
	WORK='$(abs_builddir)/wheels' $(SHELL) $(srcdir)/build-aux/wheels.sh \
	    wheels/dist
	WORK='$(abs_builddir)/wheels' $(SHELL) \
	    $(srcdir)/build-aux/check-wheels.sh wheels/dist
.PHONY: check-wheels

# For a night: breaks functions by rule, and prints for each room how many breaks
# the programs of tests notice.
nightly: check-threads check-wheels check-debian html
	python3 $(srcdir)/build-aux/mutate.py
.PHONY: nightly

# For tests/abi/dist.t.
print-distfiles:
	@for file in $(DISTFILES); do echo "$$file"; done | sed 's|^$(srcdir)/||'
.PHONY: print-distfiles

# Programs under valgrind, for values that nothing has set: all but the engine's,
# those that do the same again in another order or with another call that fails,
# those that hold ranks to a second, and one that reads what nothing has written.
# The longest comes first.
check-valgrind: all
	@tests=; for program in $(all_programs); do \
	    case $$program in \
	    tests/engine/* | tests/session/passes/unwritten.t) ;; \
	    tests/session/ranks/lost.t | tests/session/ranks/faults.t) ;; \
	    tests/session/ranks/order.t | tests/session/passes/watchdog.t) ;; \
	    tests/exchange/parting.t | tests/exchange/faults.t) ;; \
	    tests/exchange/suspend.t | tests/exchange/processes.t) ;; \
	    tests/exchange/drops.t | tests/exchange/exchange.t) ;; \
	    tests/session/offload/host_memory_faults.t) ;; \
	    tests/session/overlap/overlap.t) tests="$$tests $$program" ;; \
	    tests/session/overlap/*) ;; \
	    tests/session/offload/faults.t | tests/session/offload/auto.t) ;; \
	    tests/session/offload/order.t | tests/session/banks/order.t) ;; \
	    tests/session/passes/faults.t | tests/session/banks/faults.t) ;; \
	    tests/nccl/seeds.t) ;; \
	    tests/stash/stash.t) tests="$$program $$tests" ;; \
	    *) tests="$$tests $$program" ;; \
	    esac; \
	done; \
	$(MAKE) $(AM_MAKEFLAGS) check TESTS="$$tests" \
	    T_LOG_COMPILER='$(SHELL) ./libtool --mode=execute valgrind -q \
	        --error-exitcode=99 --leak-check=full \
	        --errors-for-leak-kinds=definite \
	        --suppressions=$(abs_srcdir)/tests/valgrind.supp'
EXTRA_DIST += tests/valgrind.supp tests/tsan.supp
.PHONY: check-valgrind
