# bin/local.mk - the graphhooks command.
# SPDX-License-Identifier: Apache-2.0

bin_PROGRAMS += graphhooks
graphhooks_SOURCES = \
	bin/child.c \
	bin/child.h \
	bin/costs.c \
	bin/costs.h \
	bin/describe.h \
	bin/families.c \
	bin/families.h \
	bin/foresee.c \
	bin/foresee.h \
	bin/graphhooks.c \
	bin/info.c \
	bin/info.h \
	bin/measured.c \
	bin/measured.h \
	bin/memory.c \
	bin/memory.h \
	bin/nodes.h \
	bin/orders.c \
	bin/orders.h \
	bin/pipeline.c \
	bin/pipeline.h \
	bin/plan.c \
	bin/plan.h \
	bin/table.c \
	bin/why.c \
	bin/words.c \
	bin/words.h
graphhooks_CPPFLAGS = $(AM_CPPFLAGS) -DPKGLIBDIR='"$(pkglibdir)"'
graphhooks_CFLAGS = $(AM_CFLAGS)
graphhooks_LDADD = libpipeline.la libcore.la

# Only the command reads JSON; the library needs libc alone.
if HAVE_JANSSON
graphhooks_SOURCES += bin/describe.c bin/fields.c bin/fields.h \
	bin/measured_read.c bin/nodes.c
graphhooks_CFLAGS += $(JANSSON_CFLAGS)
graphhooks_LDADD += $(JANSSON_LIBS)
else
graphhooks_SOURCES += bin/describe_none.c
endif

# ---- graphhooks-conform: the rules of families, for anyone's --------------

bin_PROGRAMS += graphhooks-conform
graphhooks_conform_SOURCES = \
	bin/child.c \
	bin/child.h \
	tests/plugin/conform.c \
	tests/plugin/elf.c \
	tests/plugin/elf.h \
	tests/plugin/models.c \
	tests/plugin/models.h
graphhooks_conform_LDADD = libtap.la libcore.la

# ---- bash's completion, under the names of both commands -------------------

EXTRA_DIST += bin/completion.bash
completionsdir = $(datadir)/bash-completion/completions
install-data-local:
	$(MKDIR_P) $(DESTDIR)$(completionsdir)
	$(INSTALL_DATA) $(srcdir)/bin/completion.bash \
	    $(DESTDIR)$(completionsdir)/graphhooks
	cd $(DESTDIR)$(completionsdir) && rm -f gh-engine && \
	    $(LN_S) graphhooks gh-engine
uninstall-local:
	rm -f $(DESTDIR)$(completionsdir)/graphhooks \
	    $(DESTDIR)$(completionsdir)/gh-engine
