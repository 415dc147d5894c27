# tests/plugin/local.mk - families, right and wrong.
# SPDX-License-Identifier: Apache-2.0

# Fixtures are compiled by the tests, as a family outside of the tree is.

dist_check_SCRIPTS += tests/plugin/conformance.t
EXTRA_DIST += tests/plugin/fixture.c tests/plugin/fixtures.txt
