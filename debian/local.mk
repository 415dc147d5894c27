# debian/local.mk - packages for Debian.
# SPDX-License-Identifier: Apache-2.0

EXTRA_DIST += \
	debian/changelog \
	debian/control \
	debian/copyright \
	debian/graphhooks-doc.install \
	debian/graphhooks-plugins.install \
	debian/graphhooks-plugins.lintian-overrides \
	debian/graphhooks-tools.install \
	debian/libgraphhooks-dev.install \
	debian/libgraphhooks0.install \
	debian/rules \
	debian/source/format \
	debian/tests/control \
	debian/tests/demo \
	debian/tests/host \
	debian/tests/python

# The tarball builds without a network, as packages, which install and work.
check-debian: dist
	$(SHELL) $(srcdir)/build-aux/check-debian.sh $(distdir).tar.gz
EXTRA_DIST += build-aux/check-debian.sh
.PHONY: check-debian
