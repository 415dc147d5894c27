# tests/engine/local.mk - the training engine.
# SPDX-License-Identifier: Apache-2.0

# The kernels and the model on a driver that does everything at once; then
# the program itself on the software device.

EXTRA_LTLIBRARIES += libenginetest.la
libenginetest_la_SOURCES = \
	tests/engine/immediate.c \
	tests/engine/immediate.h \
	tests/engine/reference.c \
	tests/engine/reference.h \
	tests/engine/soft.c \
	tests/engine/soft.h
engine_test_cppflags = $(engine_cppflags) -I$(top_srcdir)/tests
libenginetest_la_CPPFLAGS = $(engine_test_cppflags)
libenginetest_la_LIBADD = libengine.la libtap.la

test_programs += \
	tests/engine/borders.t \
	tests/engine/faults.t \
	tests/engine/kernels.t \
	tests/engine/model.t \
	tests/engine/orders.t \
	tests/engine/packed.t \
	tests/engine/processes.t \
	tests/engine/scopes.t \
	tests/engine/several.t \
	tests/engine/stages.t \
	tests/engine/cp_attention.t \
	tests/engine/training.t
tests_engine_borders_t_CPPFLAGS = $(engine_test_cppflags)
tests_engine_borders_t_LDADD = libenginetest.la
tests_engine_packed_t_CPPFLAGS = $(engine_test_cppflags)
tests_engine_packed_t_LDADD = libenginetest.la
tests_engine_stages_t_CPPFLAGS = $(engine_test_cppflags)
tests_engine_stages_t_LDADD = libenginetest.la
tests_engine_several_t_CPPFLAGS = $(engine_test_cppflags)
tests_engine_several_t_LDADD = libenginetest.la
tests_engine_cp_attention_t_CPPFLAGS = $(engine_test_cppflags)
tests_engine_cp_attention_t_LDADD = libenginetest.la
tests_engine_processes_t_CPPFLAGS = $(engine_test_cppflags)
tests_engine_processes_t_LDADD = libenginetest.la
tests_engine_orders_t_CPPFLAGS = $(engine_test_cppflags)
tests_engine_orders_t_LDADD = libenginetest.la
tests_engine_scopes_t_CPPFLAGS = $(engine_test_cppflags)
tests_engine_scopes_t_LDADD = libenginetest.la
tests_engine_faults_t_CPPFLAGS = $(engine_test_cppflags)
tests_engine_faults_t_LDADD = libenginetest.la
tests_engine_kernels_t_SOURCES = tests/engine/kernels.c
if SANITIZED
tests_engine_kernels_t_SOURCES += hosts/engine/kernels/kernels_cpu.c
endif
tests_engine_kernels_t_CFLAGS = $(kernels_cflags)
tests_engine_kernels_t_CPPFLAGS = $(engine_test_cppflags)
tests_engine_kernels_t_LDADD = libenginetest.la
tests_engine_model_t_CPPFLAGS = $(engine_test_cppflags)
tests_engine_model_t_LDADD = libenginetest.la
tests_engine_training_t_CPPFLAGS = $(engine_test_cppflags)
tests_engine_training_t_LDADD = libenginetest.la
dist_check_SCRIPTS += \
	tests/engine/cp.t \
	tests/engine/ep.t \
	tests/engine/forecast.t \
	tests/engine/layers.t \
	tests/engine/limit.t \
	tests/engine/memory.t \
	tests/engine/modes.t \
	tests/engine/offload.t \
	tests/engine/offload_trace.t \
	tests/engine/options.t \
	tests/engine/pipeline.t \
	tests/engine/ranks.t \
	tests/engine/slots.t \
	tests/engine/stash.t \
	tests/engine/suspend.t
EXTRA_DIST += tests/engine/several.sh
