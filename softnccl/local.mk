# softnccl/local.mk - NCCL for ranks that are threads, on the software device.
# SPDX-License-Identifier: Apache-2.0

noinst_LTLIBRARIES += libsoftnccl_core.la
libsoftnccl_core_la_SOURCES = \
	softnccl/calls.c \
	softnccl/comms.c \
	softnccl/enter.c \
	softnccl/enter.h \
	softnccl/gather.c \
	softnccl/gather.h \
	softnccl/group.c \
	softnccl/group.h \
	softnccl/match.c \
	softnccl/match.h \
	softnccl/move.c \
	softnccl/move.h \
	softnccl/report.c \
	softnccl/report.h \
	softnccl/softnccl.h \
	softnccl/state.c \
	softnccl/state.h \
	softnccl/stuck.c \
	softnccl/stuck.h \
	softnccl/types.c \
	softnccl/types.h

pkglib_LTLIBRARIES += libsoftnccl.la
libsoftnccl_la_SOURCES =
libsoftnccl_la_LIBADD = libsoftnccl_core.la
libsoftnccl_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version \
	-no-undefined -Wl,-z,nodelete -export-symbols-regex '^(nccl|softnccl_)'
