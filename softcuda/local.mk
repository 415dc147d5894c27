# softcuda/local.mk - the software device.
# SPDX-License-Identifier: Apache-2.0

# Nothing of lib/ is in it, and it links libc alone.  It stays loaded: threads
# tell it when they end.

pkglib_LTLIBRARIES += libgraphhooks-softcuda.la
libgraphhooks_softcuda_la_SOURCES = \
	softcuda/api/visits.c \
	softcuda/api/visits.h \
	softcuda/api/batch.c \
	softcuda/api/batch.h \
	softcuda/api/capture.c \
	softcuda/api/capture.h \
	softcuda/api/control.c \
	softcuda/api/control.h \
	softcuda/api/device.c \
	softcuda/api/device.h \
	softcuda/api/entries.c \
	softcuda/api/event.c \
	softcuda/api/event.h \
	softcuda/api/exec.c \
	softcuda/api/exec.h \
	softcuda/api/graph.c \
	softcuda/api/graph.h \
	softcuda/api/handle.c \
	softcuda/api/handle.h \
	softcuda/api/ipc.c \
	softcuda/api/ipc.h \
	softcuda/api/issue.c \
	softcuda/api/issue.h \
	softcuda/api/collective_calls.c \
	softcuda/api/mapping.c \
	softcuda/api/mapping.h \
	softcuda/api/memops.c \
	softcuda/api/memops.h \
	softcuda/api/memory.c \
	softcuda/api/memory.h \
	softcuda/api/module.c \
	softcuda/api/module.h \
	softcuda/api/nodes.c \
	softcuda/api/nodes.h \
	softcuda/api/process.c \
	softcuda/api/process.h \
	softcuda/api/settings.c \
	softcuda/api/settings.h \
	softcuda/api/stream.c \
	softcuda/api/stream.h \
	softcuda/check/pinned_pattern.c \
	softcuda/check/pinned_pattern.h \
	softcuda/check/labels.c \
	softcuda/check/labels.h \
	softcuda/check/race.c \
	softcuda/check/race.h \
	softcuda/check/report.c \
	softcuda/check/report.h \
	softcuda/check/unmapped.c \
	softcuda/check/unmapped.h \
	softcuda/check/unwritten.c \
	softcuda/check/unwritten.h \
	softcuda/engine/alloc.c \
	softcuda/engine/alloc.h \
	softcuda/engine/calls.c \
	softcuda/engine/calls.h \
	softcuda/engine/context.c \
	softcuda/engine/context.h \
	softcuda/engine/copiers.c \
	softcuda/engine/copiers.h \
	softcuda/engine/costs.c \
	softcuda/engine/costs.h \
	softcuda/engine/engine.c \
	softcuda/engine/engine.h \
	softcuda/engine/flags.c \
	softcuda/engine/flags.h \
	softcuda/engine/rendezvous.c \
	softcuda/engine/rendezvous.h \
	softcuda/engine/op.c \
	softcuda/engine/op.h \
	softcuda/engine/order.c \
	softcuda/engine/order.h \
	softcuda/engine/outside.c \
	softcuda/engine/outside.h \
	softcuda/engine/peer.c \
	softcuda/engine/peer.h \
	softcuda/engine/ranges.c \
	softcuda/engine/ranges.h \
	softcuda/engine/run_queue.c \
	softcuda/engine/run_queue.h \
	softcuda/engine/run.c \
	softcuda/engine/run.h \
	softcuda/engine/shared.h \
	softcuda/engine/soft.c \
	softcuda/engine/soft.h \
	softcuda/engine/versions.def \
	softcuda/engine/wait.c \
	softcuda/engine/wait.h \
	softcuda/engine/work.c \
	softcuda/engine/work.h \
	softcuda/collectives.h \
	softcuda/softcuda.h \
	words/nearest.c \
	words/nearest.h
libgraphhooks_softcuda_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version \
	-no-undefined -Wl,-z,nodelete -export-symbols-regex '^(cu|softcuda_)'
