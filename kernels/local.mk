# kernels/local.mk - the library's device code.
# SPDX-License-Identifier: Apache-2.0

# PTX is made here when there is an nvcc, or taken as it came; `make ptx`
# renews what comes with the sources.  tests/abi/ptx.t compares checksums.

libcore_la_SOURCES += kernels/kernels.c kernels/kernels.h
nodist_libcore_la_SOURCES = kernels/ptx.c
CLEANFILES += kernels/ptx.c kernels/fresh.ptx
EXTRA_DIST += kernels/kernels.cu kernels/kernels.ptx build-aux/ptx.sh \
	build-aux/pack.sh
kernels_ptx_deps = kernels/kernels.cu kernels/kernels.h

ptx_sh = $(SHELL) build-aux/ptx.sh
embed_sh = $(AM_V_GEN)$(SHELL) $(top_srcdir)/build-aux/embed.sh
pack_sh = $(AM_V_GEN)$(SHELL) $(top_srcdir)/build-aux/pack.sh

if HAVE_NVCC
kernels/fresh.ptx: $(kernels_ptx_deps) build-aux/ptx.sh
	@$(MKDIR_P) kernels
	$(AM_V_GEN)(cd $(srcdir) && \
	    $(ptx_sh) $(NVCC) $(abs_builddir)/$@ $(kernels_ptx_deps) -- -I.)
kernels/ptx.c: kernels/fresh.ptx build-aux/pack.sh
	$(pack_sh) kernels/fresh.ptx gh_kernels_packed > $@
else
kernels/ptx.c: kernels/kernels.ptx build-aux/pack.sh
	@$(MKDIR_P) kernels
	$(pack_sh) $(srcdir)/kernels/kernels.ptx gh_kernels_packed > $@
endif

ptx-kernels: kernels/fresh.ptx
	cp kernels/fresh.ptx $(srcdir)/kernels/kernels.ptx
ptx: ptx-kernels
.PHONY: ptx ptx-kernels
