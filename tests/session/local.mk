# tests/session/local.mk - the library as a host sees it.
# SPDX-License-Identifier: Apache-2.0

EXTRA_LTLIBRARIES += libtoy.la
libtoy_la_SOURCES = \
	tests/support/banks.c \
	tests/support/banks.h \
	tests/support/by_hand.c \
	tests/support/by_hand.h \
	tests/support/hooks.c \
	tests/support/hooks.h \
	tests/support/lender.c \
	tests/support/lender.h \
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
	tests/support/saver.h \
	tests/support/saver/device.c \
	tests/support/saver/expect.c \
	tests/support/saver/groups.c \
	tests/support/saver/life.c \
	tests/support/saver/pass.c \
	tests/support/saver/shared.h \
	tests/support/saver/step.c \
	tests/support/saving.c \
	tests/support/saving.h \
	tests/support/shapes.c \
	tests/support/shapes.h \
	tests/support/toy.h \
	tests/support/toy/controls.c \
	tests/support/toy/device.c \
	tests/support/toy/expect.c \
	tests/support/toy/kernels.c \
	tests/support/toy/mischief.c \
	tests/support/toy/pass.c \
	tests/support/toy/session.c \
	tests/support/toy/shared.h \
	tests/support/toy/step.c \
	tests/support/trace_file.c \
	tests/support/trace_file.h
session_test_libs = libtoy.la libtap.la libgraphhooks.la libdriver.la

test_programs += \
	tests/session/passes.t \
	tests/session/priority.t \
	tests/session/hooks.t \
	tests/session/aux.t \
	tests/session/banks.t \
	tests/session/banks_capacity.t \
	tests/session/banks_faults.t \
	tests/session/banks_order.t \
	tests/session/banks_refused.t \
	tests/session/banks_room.t \
	tests/session/banks_said.t \
	tests/session/banks_tables.t \
	tests/session/borders.t \
	tests/session/breakage.t \
	tests/session/check.t \
	tests/session/corners.t \
	tests/session/crossing.t \
	tests/session/legacy.t \
	tests/session/mended.t \
	tests/session/open.t \
	tests/session/packed.t \
	tests/session/packed_order.t \
	tests/session/packed_refused.t \
	tests/session/packed_slots.t \
	tests/session/offload.t \
	tests/session/offload_auto.t \
	tests/session/offload_declare.t \
	tests/session/offload_faults.t \
	tests/session/offload_hand.t \
	tests/session/offload_order.t \
	tests/session/offload_places.t \
	tests/session/own.t \
	tests/session/own_faults.t \
	tests/session/order.t \
	tests/session/overlap.t \
	tests/session/overlap_exchanges.t \
	tests/session/overlap_faults.t \
	tests/session/overlap_offload.t \
	tests/session/overlap_order.t \
	tests/session/said.t \
	tests/session/families.t \
	tests/session/faults.t \
	tests/session/reentry.t \
	tests/session/services.t \
	tests/session/recordings.t \
	tests/session/no_exit.t \
	tests/session/host_capture.t \
	tests/session/stack.t \
	tests/session/unwritten.t \
	tests/session/variants.t \
	tests/session/prepare.t \
	tests/session/wgrad.t \
	tests/session/inputs.t \
	tests/session/capacities.t \
	tests/session/captures.t \
	tests/session/contexts.t \
	tests/session/chunks.t \
	tests/session/differences.t \
	tests/session/counts.t
tests_session_priority_t_SOURCES = tests/session/priority.c
tests_session_priority_t_LDADD = $(session_test_libs)
tests_session_passes_t_SOURCES = tests/session/passes.c
tests_session_passes_t_LDADD = $(session_test_libs)
tests_session_hooks_t_SOURCES = tests/session/hooks.c
tests_session_hooks_t_LDADD = $(session_test_libs)
tests_session_banks_t_SOURCES = tests/session/banks.c
tests_session_banks_t_LDADD = $(session_test_libs)
tests_session_banks_capacity_t_SOURCES = tests/session/banks_capacity.c
tests_session_banks_capacity_t_LDADD = $(session_test_libs)
tests_session_banks_refused_t_SOURCES = tests/session/banks_refused.c
tests_session_banks_refused_t_LDADD = $(session_test_libs)
tests_session_banks_room_t_SOURCES = tests/session/banks_room.c
tests_session_banks_room_t_LDADD = $(session_test_libs)
tests_session_banks_said_t_SOURCES = tests/session/banks_said.c
tests_session_banks_said_t_LDADD = $(session_test_libs)
tests_session_banks_tables_t_SOURCES = tests/session/banks_tables.c
tests_session_banks_tables_t_LDADD = $(session_test_libs)
tests_session_capacities_t_SOURCES = tests/session/capacities.c
tests_session_capacities_t_LDADD = $(session_test_libs)
tests_session_packed_t_SOURCES = tests/session/packed.c
tests_session_packed_t_LDADD = $(session_test_libs)
tests_session_packed_order_t_SOURCES = tests/session/packed_order.c
tests_session_packed_order_t_LDADD = $(session_test_libs)
tests_session_packed_refused_t_SOURCES = tests/session/packed_refused.c
tests_session_packed_refused_t_LDADD = $(session_test_libs)
tests_session_packed_slots_t_SOURCES = tests/session/packed_slots.c
tests_session_packed_slots_t_LDADD = $(session_test_libs)
tests_session_banks_order_t_SOURCES = tests/session/banks_order.c
tests_session_banks_order_t_LDADD = $(session_test_libs)
tests_session_banks_faults_t_SOURCES = tests/session/banks_faults.c
tests_session_banks_faults_t_LDADD = $(session_test_libs)
tests_session_overlap_t_SOURCES = tests/session/overlap.c
tests_session_overlap_t_LDADD = $(session_test_libs)
tests_session_overlap_faults_t_SOURCES = tests/session/overlap_faults.c
tests_session_overlap_faults_t_LDADD = $(session_test_libs)
tests_session_overlap_offload_t_SOURCES = tests/session/overlap_offload.c
tests_session_overlap_offload_t_LDADD = $(session_test_libs)
tests_session_overlap_exchanges_t_SOURCES = tests/session/overlap_exchanges.c
tests_session_overlap_exchanges_t_LDADD = $(session_test_libs)
tests_session_overlap_order_t_SOURCES = tests/session/overlap_order.c
tests_session_overlap_order_t_LDADD = $(session_test_libs)
tests_session_aux_t_SOURCES = tests/session/aux.c
tests_session_aux_t_LDADD = $(session_test_libs)
tests_session_borders_t_SOURCES = tests/session/borders.c
tests_session_borders_t_LDADD = $(session_test_libs)
tests_session_breakage_t_SOURCES = tests/session/breakage.c
tests_session_breakage_t_LDADD = $(session_test_libs)
tests_session_legacy_t_SOURCES = tests/session/legacy.c
tests_session_legacy_t_LDADD = $(session_test_libs)
tests_session_mended_t_SOURCES = tests/session/mended.c
tests_session_mended_t_LDADD = $(session_test_libs)
tests_session_corners_t_SOURCES = tests/session/corners.c
tests_session_corners_t_LDADD = $(session_test_libs)
tests_session_check_t_SOURCES = tests/session/check.c
tests_session_check_t_LDADD = $(session_test_libs)
tests_session_crossing_t_SOURCES = tests/session/crossing.c
tests_session_crossing_t_LDADD = $(session_test_libs)
tests_session_open_t_SOURCES = tests/session/open.c
tests_session_open_t_LDADD = $(session_test_libs)
tests_session_offload_t_SOURCES = tests/session/offload.c
tests_session_offload_t_LDADD = $(session_test_libs)
tests_session_offload_auto_t_SOURCES = tests/session/offload_auto.c
tests_session_offload_auto_t_LDADD = $(session_test_libs)
tests_session_offload_declare_t_SOURCES = tests/session/offload_declare.c
tests_session_offload_declare_t_LDADD = $(session_test_libs)
tests_session_offload_faults_t_SOURCES = tests/session/offload_faults.c
tests_session_offload_faults_t_LDADD = $(session_test_libs)
tests_session_offload_hand_t_SOURCES = tests/session/offload_hand.c
tests_session_offload_hand_t_LDADD = $(session_test_libs)
tests_session_offload_order_t_SOURCES = tests/session/offload_order.c
tests_session_offload_order_t_LDADD = $(session_test_libs)
tests_session_offload_places_t_SOURCES = tests/session/offload_places.c
tests_session_offload_places_t_LDADD = $(session_test_libs)
tests_session_own_t_SOURCES = tests/session/own.c
tests_session_own_t_LDADD = $(session_test_libs)
tests_session_own_faults_t_SOURCES = tests/session/own_faults.c
tests_session_own_faults_t_LDADD = $(session_test_libs)
tests_session_order_t_SOURCES = tests/session/order.c
tests_session_order_t_LDADD = $(session_test_libs)
tests_session_said_t_SOURCES = tests/session/said.c
tests_session_said_t_LDADD = $(session_test_libs)
tests_session_families_t_SOURCES = tests/session/families.c
tests_session_families_t_LDADD = $(session_test_libs)
tests_session_faults_t_SOURCES = tests/session/faults.c
tests_session_faults_t_LDADD = $(session_test_libs)
tests_session_reentry_t_SOURCES = tests/session/reentry.c
tests_session_reentry_t_LDADD = $(session_test_libs)
tests_session_services_t_SOURCES = tests/session/services.c
tests_session_services_t_LDADD = $(session_test_libs)
tests_session_recordings_t_SOURCES = tests/session/recordings.c
tests_session_recordings_t_LDADD = $(session_test_libs)
tests_session_no_exit_t_SOURCES = tests/session/no_exit.c
tests_session_no_exit_t_LDADD = $(session_test_libs)
tests_session_host_capture_t_SOURCES = tests/session/host_capture.c
tests_session_host_capture_t_LDADD = $(session_test_libs)
tests_session_stack_t_SOURCES = tests/session/stack.c
tests_session_stack_t_LDADD = $(session_test_libs)
tests_session_unwritten_t_SOURCES = tests/session/unwritten.c
tests_session_unwritten_t_LDADD = $(session_test_libs)
tests_session_variants_t_SOURCES = tests/session/variants.c
tests_session_variants_t_LDADD = $(session_test_libs)
tests_session_prepare_t_SOURCES = tests/session/prepare.c
tests_session_prepare_t_LDADD = $(session_test_libs)
tests_session_wgrad_t_SOURCES = tests/session/wgrad.c
tests_session_wgrad_t_LDADD = $(session_test_libs)
tests_session_inputs_t_SOURCES = tests/session/inputs.c
tests_session_inputs_t_LDADD = $(session_test_libs)
tests_session_captures_t_SOURCES = tests/session/captures.c
tests_session_captures_t_LDADD = $(session_test_libs)
tests_session_contexts_t_SOURCES = tests/session/contexts.c
tests_session_contexts_t_LDADD = $(session_test_libs)
tests_session_chunks_t_SOURCES = tests/session/chunks.c
tests_session_chunks_t_LDADD = $(session_test_libs)
tests_session_differences_t_SOURCES = tests/session/differences.c
tests_session_differences_t_LDADD = $(session_test_libs)
tests_session_counts_t_SOURCES = tests/session/counts.c
tests_session_counts_t_LDADD = $(session_test_libs)
