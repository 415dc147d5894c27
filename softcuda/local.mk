# softcuda/local.mk - the software device.
# SPDX-License-Identifier: Apache-2.0

# Nothing of lib/ is in it, and it links libc alone.  It stays loaded: threads
# tell it when they end.

pkglib_LTLIBRARIES += libgraphhooks-softcuda.la
libgraphhooks_softcuda_la_SOURCES = \
	softcuda/alloc.c \
	softcuda/alloc.h \
	softcuda/batch.c \
	softcuda/batch.h \
	softcuda/attend.c \
	softcuda/attend.h \
	softcuda/calls.c \
	softcuda/calls.h \
	softcuda/capture.c \
	softcuda/capture.h \
	softcuda/context.c \
	softcuda/context.h \
	softcuda/control.c \
	softcuda/control.h \
	softcuda/copiers.c \
	softcuda/copiers.h \
	softcuda/costs.c \
	softcuda/costs.h \
	softcuda/device.c \
	softcuda/device.h \
	softcuda/engine.c \
	softcuda/engine.h \
	softcuda/entries.c \
	softcuda/event.c \
	softcuda/event.h \
	softcuda/exec.c \
	softcuda/exec.h \
	softcuda/flags.c \
	softcuda/flags.h \
	softcuda/fresh.c \
	softcuda/fresh.h \
	softcuda/graph.c \
	softcuda/graph.h \
	softcuda/handle.c \
	softcuda/handle.h \
	softcuda/ipc.c \
	softcuda/ipc.h \
	softcuda/issue.c \
	softcuda/issue.h \
	softcuda/labels.c \
	softcuda/labels.h \
	softcuda/meet.c \
	softcuda/meet.h \
	softcuda/meeting.h \
	softcuda/meetings.c \
	softcuda/memops.c \
	softcuda/memops.h \
	softcuda/memory.c \
	softcuda/memory.h \
	softcuda/module.c \
	softcuda/module.h \
	softcuda/nodes.c \
	softcuda/nodes.h \
	softcuda/op.c \
	softcuda/op.h \
	softcuda/order.c \
	softcuda/order.h \
	softcuda/peer.c \
	softcuda/peer.h \
	softcuda/race.c \
	softcuda/race.h \
	softcuda/ready.c \
	softcuda/ready.h \
	softcuda/report.c \
	softcuda/report.h \
	softcuda/run.c \
	softcuda/run.h \
	softcuda/settings.c \
	softcuda/settings.h \
	softcuda/shared.h \
	softcuda/soft.c \
	softcuda/soft.h \
	softcuda/softcuda.h \
	softcuda/stream.c \
	softcuda/stream.h \
	softcuda/unwritten.c \
	softcuda/unwritten.h \
	softcuda/versions.def \
	softcuda/wait.c \
	softcuda/wait.h \
	softcuda/work.c \
	softcuda/work.h \
	words/nearest.c \
	words/nearest.h
libgraphhooks_softcuda_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version \
	-no-undefined -Wl,-z,nodelete -export-symbols-regex '^(cu|softcuda_)'
