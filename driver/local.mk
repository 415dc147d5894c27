# driver/local.mk - one table of driver entry points.
# SPDX-License-Identifier: Apache-2.0

noinst_LTLIBRARIES += libdriver.la
libdriver_la_SOURCES = \
	driver/constants.def \
	driver/driver.h \
	driver/entries.def \
	driver/load.c \
	driver/nccl.h \
	driver/nccl_constants.def \
	driver/nccl_entries.def \
	driver/nccl_load.c
