# plugins/local.mk - the families of models.
# SPDX-License-Identifier: Apache-2.0

# Each is one file of its name that knows the public headers alone, and links
# libc.

family_ldflags = $(AM_LDFLAGS) -module -avoid-version -no-undefined \
	-export-symbols-regex '^graphhooks_family_v'
pkglib_LTLIBRARIES += \
	plugins/example.la \
	plugins/gpt.la \
	plugins/mamba.la \
	plugins/mla.la \
	plugins/stack.la
EXTRA_DIST += plugins/parts.h
plugins_example_la_LDFLAGS = $(family_ldflags)
plugins_gpt_la_LDFLAGS = $(family_ldflags)
plugins_mamba_la_LDFLAGS = $(family_ldflags)
plugins_mla_la_LDFLAGS = $(family_ldflags)
plugins_stack_la_LDFLAGS = $(family_ldflags)

# What is only built finds them as what is installed does: in graphhooks/
# beside the library.
all-local: .libs/graphhooks
.libs/graphhooks: libgraphhooks.la plugins/gpt.la
	$(AM_V_GEN)rm -f $@ && $(LN_S) ../plugins/.libs $@
