# hosts/engine/local.mk - a training engine.
# SPDX-License-Identifier: Apache-2.0

# One kernel source: PTX by nvcc, or as it came; C for the software device.
# The library is loaded at run time and never linked.  The engine has an
# include root of its own and not that of lib/, where there is a device/ too.

engine_cppflags = -I$(top_srcdir)/hosts/engine -I$(top_srcdir) \
	-I$(top_srcdir)/include

noinst_LTLIBRARIES += libenginekernels.la libengine.la
libenginekernels_la_SOURCES = \
	hosts/engine/kernels/dialect.h \
	hosts/engine/kernels/kernels.h \
	hosts/engine/kernels/kernels_cp.h \
	hosts/engine/kernels/kernels_cpu.c \
	hosts/engine/kernels/kernels_mamba.h \
	hosts/engine/kernels/kernels_mla.h \
	hosts/engine/kernels/kernels_moe.h
libenginekernels_la_CPPFLAGS = $(engine_cppflags)
# The software device spends its time in them.  A sanitizer, which makes them
# three times as slow, looks at those of tests/engine/kernels.t.
kernels_cflags = $(AM_CFLAGS) -ffp-contract=off
libenginekernels_la_CFLAGS = $(kernels_cflags) $(NO_SANITIZE)
EXTRA_DIST += $(engine_ptx_deps) hosts/engine/kernels/kernels.ptx.gz

libengine_la_SOURCES = \
	hosts/engine/cli/command.c \
	hosts/engine/cli/command.h \
	hosts/engine/cli/command_check.c \
	hosts/engine/cli/command_check_ep.c \
	hosts/engine/cli/command_check_pp.c \
	hosts/engine/cli/rank_threads.c \
	hosts/engine/cli/rank_threads.h \
	hosts/engine/cli/find.c \
	hosts/engine/cli/find.h \
	hosts/engine/cli/json.c \
	hosts/engine/cli/json.h \
	hosts/engine/cli/launch.c \
	hosts/engine/cli/launch.h \
	hosts/engine/cli/modes.c \
	hosts/engine/cli/modes.h \
	hosts/engine/cli/output.c \
	hosts/engine/cli/output.h \
	hosts/engine/cli/rendezvous.c \
	hosts/engine/cli/rendezvous.h \
	hosts/engine/cli/report.c \
	hosts/engine/cli/report.h \
	hosts/engine/cli/report_json.c \
	hosts/engine/step/bare.c \
	hosts/engine/step/bare.h \
	hosts/engine/step/borders.c \
	hosts/engine/step/borders.h \
	hosts/engine/step/embedding_head.c \
	hosts/engine/step/embedding_head.h \
	hosts/engine/step/environment.c \
	hosts/engine/step/environment.h \
	hosts/engine/step/exchanger.c \
	hosts/engine/step/exchanger.h \
	hosts/engine/step/host.c \
	hosts/engine/step/host.h \
	hosts/engine/step/host_banks.c \
	hosts/engine/step/host_suspend.c \
	hosts/engine/step/library.c \
	hosts/engine/step/library.h \
	hosts/engine/step/failure_pipe.c \
	hosts/engine/step/failure_pipe.h \
	hosts/engine/step/host_barrier.c \
	hosts/engine/step/host_barrier.h \
	hosts/engine/step/offload.c \
	hosts/engine/step/offload.h \
	hosts/engine/step/offload_request.c \
	hosts/engine/step/offload_request.h \
	hosts/engine/step/options.h \
	hosts/engine/step/landing.c \
	hosts/engine/step/landing.h \
	hosts/engine/step/microbatch.c \
	hosts/engine/step/microbatch.h \
	hosts/engine/step/overlap.c \
	hosts/engine/step/overlap.h \
	hosts/engine/step/pass_buffers.c \
	hosts/engine/step/pass_buffers.h \
	hosts/engine/step/pass_times.c \
	hosts/engine/step/pass_times.h \
	hosts/engine/step/passes.c \
	hosts/engine/step/passes.h \
	hosts/engine/step/pipeline.c \
	hosts/engine/step/pipeline.h \
	hosts/engine/step/pipeline_messages.c \
	hosts/engine/step/pipeline_messages.h \
	hosts/engine/step/pipeline_schedule.c \
	hosts/engine/step/pipeline_schedule.h \
	hosts/engine/step/pool.c \
	hosts/engine/step/pool.h \
	hosts/engine/step/cp_batches.c \
	hosts/engine/step/cp_batches.h \
	hosts/engine/step/ranks.c \
	hosts/engine/step/ranks.h \
	hosts/engine/step/schedule.c \
	hosts/engine/step/schedule.h \
	hosts/engine/step/stasher.c \
	hosts/engine/step/stasher.h \
	hosts/engine/step/step_graph.c \
	hosts/engine/step/step_graph.h \
	hosts/engine/step/text.c \
	hosts/engine/step/text.h \
	hosts/engine/step/train.c \
	hosts/engine/step/train.h \
	hosts/engine/step/trainer.c \
	hosts/engine/step/trainer.h \
	hosts/engine/model/backward.c \
	hosts/engine/model/buffers.c \
	hosts/engine/model/buffers.h \
	hosts/engine/model/cutter.h \
	hosts/engine/model/dispatch.c \
	hosts/engine/model/dispatch.h \
	hosts/engine/model/experts.c \
	hosts/engine/model/first_weights.c \
	hosts/engine/model/forward.c \
	hosts/engine/model/gemm.c \
	hosts/engine/model/gradients.c \
	hosts/engine/model/layers.c \
	hosts/engine/model/linear.c \
	hosts/engine/model/linear.h \
	hosts/engine/model/mamba.c \
	hosts/engine/model/mla.c \
	hosts/engine/model/model.c \
	hosts/engine/model/model.h \
	hosts/engine/model/moe.c \
	hosts/engine/model/optimizer.c \
	hosts/engine/model/optimizer.h \
	hosts/engine/model/parts.h \
	hosts/engine/model/saved.h \
	hosts/engine/model/stash.h \
	hosts/engine/model/cp_attention.c \
	hosts/engine/model/cp_attention.h \
	hosts/engine/device/comm.c \
	hosts/engine/device/comm.h \
	hosts/engine/device/device.c \
	hosts/engine/device/device.h \
	hosts/engine/device/exchange.c \
	hosts/engine/device/exchange.h
libengine_la_SOURCES += words/exchange.h words/nearest.c words/nearest.h
nodist_libengine_la_SOURCES = hosts/engine/kernels/ptx.c
libengine_la_CPPFLAGS = $(engine_cppflags) -DPKGLIBDIR='"$(pkglibdir)"' \
	-DPKGDATADIR='"$(pkgdatadir)"' \
	-DENGINE_DATA='"$(abs_top_srcdir)/hosts/engine/data"'
libengine_la_LIBADD = libenginekernels.la libdriver.la libpipeline.la \
	libpipelinebase.la -lm
CLEANFILES += hosts/engine/kernels/ptx.c hosts/engine/kernels/fresh.ptx

bin_PROGRAMS += gh-engine
gh_engine_SOURCES = hosts/engine/cli/main.c
gh_engine_CPPFLAGS = $(engine_cppflags)
gh_engine_LDADD = libengine.la

textdir = $(pkgdatadir)/text
dist_text_DATA = hosts/engine/data/shakespeare.txt
EXTRA_DIST += hosts/engine/README.md hosts/engine/data/README.md \
	hosts/engine/layers.txt

engine_ptx_deps = \
	hosts/engine/kernels/kernels.cu \
	hosts/engine/kernels/gemm.h \
	hosts/engine/kernels/kernels.def \
	hosts/engine/kernels/kernels.h \
	hosts/engine/kernels/kernels_cp.h \
	hosts/engine/kernels/kernels_mamba.h \
	hosts/engine/kernels/kernels_mla.h \
	hosts/engine/kernels/kernels_moe.h \
	hosts/engine/kernels/dialect.h

if HAVE_NVCC
hosts/engine/kernels/fresh.ptx: $(engine_ptx_deps) build-aux/ptx.sh
	@$(MKDIR_P) hosts/engine/kernels
	$(AM_V_GEN)(cd $(srcdir) && \
	    $(ptx_sh) $(NVCC) $(abs_builddir)/$@ $(engine_ptx_deps) -- \
	    -O3 -I.)
else
hosts/engine/kernels/fresh.ptx: hosts/engine/kernels/kernels.ptx.gz
	@$(MKDIR_P) hosts/engine/kernels
	$(AM_V_GEN)gzip -dc $(srcdir)/hosts/engine/kernels/kernels.ptx.gz > $@
endif
hosts/engine/kernels/ptx.c: hosts/engine/kernels/fresh.ptx build-aux/embed.sh
	$(embed_sh) hosts/engine/kernels/fresh.ptx engine_ptx > $@

ptx-engine: hosts/engine/kernels/fresh.ptx
	gzip -9nc hosts/engine/kernels/fresh.ptx \
	    > $(srcdir)/hosts/engine/kernels/kernels.ptx.gz
ptx: ptx-engine
.PHONY: ptx-engine
