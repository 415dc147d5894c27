# tests/softcuda/local.mk - the software device.
# SPDX-License-Identifier: Apache-2.0

# The contract suite runs on the software device, or on a real driver with
# GRAPHHOOKS_TEST_DRIVER=cuda.

EXTRA_LTLIBRARIES += libcontract.la
libcontract_la_SOURCES = tests/driver/contract.c tests/driver/contract.h \
	tests/softcuda/controls.c tests/softcuda/controls.h
libcontract_la_LIBADD = libtap.la libdriver.la

driver_programs = \
	tests/driver/batches.t \
	tests/driver/capture.t \
	tests/driver/check_header.t \
	tests/driver/graphs.t \
	tests/driver/kernels.t \
	tests/driver/mapping.t \
	tests/driver/memory.t \
	tests/driver/peers.t \
	tests/driver/streams_events.t \
	tests/driver/words.t
test_programs += $(driver_programs)

tests_driver_capture_t_LDADD = libcontract.la
tests_driver_check_header_t_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_driver_check_header_t_LDADD = libtap.la
tests_driver_graphs_t_LDADD = libcontract.la
tests_driver_kernels_t_LDADD = libcontract.la
tests_driver_batches_t_LDADD = libcontract.la
tests_driver_mapping_t_LDADD = libcontract.la
tests_driver_memory_t_LDADD = libcontract.la
tests_driver_peers_t_LDADD = libcontract.la
tests_driver_streams_events_t_LDADD = libcontract.la
tests_driver_words_t_LDADD = libcontract.la

# What the software device adds: orders, races, failures, its clock.

softcuda_programs = \
	tests/softcuda/batches.t \
	tests/softcuda/clock.t \
	tests/softcuda/costs.t \
	tests/softcuda/devices.t \
	tests/softcuda/environment.t \
	tests/softcuda/faults.t \
	tests/softcuda/labels.t \
	tests/softcuda/lookup.t \
	tests/softcuda/mapping.t \
	tests/softcuda/rendezvous.t \
	tests/softcuda/oracle.t \
	tests/softcuda/order.t \
	tests/softcuda/outside.t \
	tests/softcuda/pinned.t \
	tests/softcuda/process.t \
	tests/softcuda/races.t \
	tests/softcuda/threads.t \
	tests/softcuda/unwritten.t \
	tests/softcuda/words.t
test_programs += $(softcuda_programs)

tests_softcuda_batches_t_LDADD = libcontract.la
tests_softcuda_clock_t_LDADD = libcontract.la
tests_softcuda_costs_t_LDADD = libcontract.la
tests_softcuda_devices_t_LDADD = libcontract.la
tests_softcuda_environment_t_LDADD = libcontract.la
tests_softcuda_faults_t_LDADD = libcontract.la
tests_softcuda_labels_t_LDADD = libcontract.la
tests_softcuda_lookup_t_LDADD = libcontract.la
tests_softcuda_mapping_t_LDADD = libcontract.la
tests_softcuda_rendezvous_t_LDADD = libcontract.la
tests_softcuda_oracle_t_LDADD = libcontract.la
tests_softcuda_order_t_LDADD = libcontract.la
tests_softcuda_outside_t_LDADD = libcontract.la
tests_softcuda_pinned_t_LDADD = libcontract.la
tests_softcuda_process_t_LDADD = libcontract.la
tests_softcuda_races_t_LDADD = libcontract.la
tests_softcuda_threads_t_LDADD = libcontract.la
tests_softcuda_words_t_LDADD = libcontract.la
tests_softcuda_unwritten_t_LDADD = libcontract.la
