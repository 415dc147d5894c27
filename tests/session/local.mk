# tests/session/local.mk - the library as a host sees it.
# SPDX-License-Identifier: Apache-2.0

EXTRA_LTLIBRARIES += libtoy.la
libtoy_la_SOURCES = \
	tests/support/banks.c \
	tests/support/banks.h \
	tests/support/by_hand.c \
	tests/support/by_hand.h \
	tests/support/heard.c \
	tests/support/heard.h \
	tests/support/hooks.c \
	tests/support/hooks.h \
	tests/support/lender.c \
	tests/support/lender.h \
	tests/support/orders.c \
	tests/support/orders.h \
	tests/support/packed.c \
	tests/support/packed.h \
	tests/support/pair.h \
	tests/support/pair/device.c \
	tests/support/pair/expect.c \
	tests/support/pair/groups.c \
	tests/support/pair/life.c \
	tests/support/pair/node.c \
	tests/support/pair/parts.c \
	tests/support/pair/pass.c \
	tests/support/pair/shared.h \
	tests/support/pair/step.c \
	tests/support/saving.c \
	tests/support/saving.h \
	tests/support/sweeps.c \
	tests/support/sweeps.h \
	tests/support/toy.h \
	tests/support/toy/controls.c \
	tests/support/toy/device.c \
	tests/support/toy/expect.c \
	tests/support/toy/groups.c \
	tests/support/toy/kernels.c \
	tests/support/toy/mischief.c \
	tests/support/toy/pass.c \
	tests/support/toy/session.c \
	tests/support/toy/shared.h \
	tests/support/toy/step.c \
	tests/support/trace_file.c \
	tests/support/trace_file.h
EXTRA_LTLIBRARIES += tests/support/nvtx_tool.la
tests_support_nvtx_tool_la_SOURCES = tests/support/nvtx_tool.c
tests_support_nvtx_tool_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version \
	-no-undefined -rpath /nowhere \
	-export-symbols-regex '^(Init|nvtx_tool_)'
EXTRA_tests_session_passes_nvtx_t_DEPENDENCIES = tests/support/nvtx_tool.la
session_test_libs = libtoy.la libtap.la libgraphhooks.la libdriver.la

test_programs += \
	tests/session/passes/passes.t \
	tests/session/passes/priority.t \
	tests/session/passes/hooks.t \
	tests/session/passes/aux.t \
	tests/session/passes/gradient.t \
	tests/session/passes/borders.t \
	tests/session/passes/breakage.t \
	tests/session/passes/check.t \
	tests/session/passes/edge_cases.t \
	tests/session/passes/beside_host_capture.t \
	tests/session/passes/legacy.t \
	tests/session/passes/regressions.t \
	tests/session/passes/open.t \
	tests/session/passes/order.t \
	tests/session/passes/warnings.t \
	tests/session/passes/families.t \
	tests/session/passes/faults.t \
	tests/session/passes/reentry.t \
	tests/session/passes/services.t \
	tests/session/passes/recordings.t \
	tests/session/passes/no_exit.t \
	tests/session/passes/host_capture.t \
	tests/session/passes/stack.t \
	tests/session/passes/suspend.t \
	tests/session/passes/unwritten.t \
	tests/session/passes/variants.t \
	tests/session/passes/prepare.t \
	tests/session/passes/wgrad.t \
	tests/session/passes/inputs.t \
	tests/session/passes/captures.t \
	tests/session/passes/contexts.t \
	tests/session/passes/chunks.t \
	tests/session/passes/differences.t \
	tests/session/passes/nvtx.t \
	tests/session/passes/watchdog.t \
	tests/session/passes/counts.t \
	tests/session/banks/banks.t \
	tests/session/banks/capacity.t \
	tests/session/banks/faults.t \
	tests/session/banks/order.t \
	tests/session/banks/refused.t \
	tests/session/banks/room.t \
	tests/session/banks/messages.t \
	tests/session/banks/tables.t \
	tests/session/banks/packed.t \
	tests/session/banks/packed_order.t \
	tests/session/banks/packed_refused.t \
	tests/session/banks/packed_slots.t \
	tests/session/banks/padding.t \
	tests/session/offload/offload.t \
	tests/session/offload/auto.t \
	tests/session/offload/declare.t \
	tests/session/offload/suspend.t \
	tests/session/offload/faults.t \
	tests/session/offload/hand.t \
	tests/session/offload/order.t \
	tests/session/offload/addresses.t \
	tests/session/offload/host_memory.t \
	tests/session/offload/host_memory_faults.t \
	tests/session/overlap/overlap.t \
	tests/session/overlap/exchanges.t \
	tests/session/overlap/faults.t \
	tests/session/overlap/offload.t \
	tests/session/overlap/order.t
