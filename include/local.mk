# include/local.mk - the public headers.
# SPDX-License-Identifier: Apache-2.0

graphhooksincludedir = $(includedir)/graphhooks
graphhooksinclude_HEADERS = \
	include/graphhooks/aux.h \
	include/graphhooks/bank.h \
	include/graphhooks/base.h \
	include/graphhooks/border.h \
	include/graphhooks/exchange.h \
	include/graphhooks/family.h \
	include/graphhooks/gradient.h \
	include/graphhooks/host.h \
	include/graphhooks/layer.h \
	include/graphhooks/loader.h \
	include/graphhooks/memory.h \
	include/graphhooks/model.h \
	include/graphhooks/offload.h \
	include/graphhooks/overlap.h \
	include/graphhooks/plan.h \
	include/graphhooks/pool.h \
	include/graphhooks/ranks.h \
	include/graphhooks/run.h \
	include/graphhooks/session.h \
	include/graphhooks/stash.h \
	include/graphhooks/words.h
include_HEADERS = include/graphhooks.h
# For programs with kernels of their own on the software device.
graphhooksinclude_HEADERS += softcuda/softcuda.h softnccl/softnccl.h

pkgconfig_DATA = pkgconfig/graphhooks.pc
