# tests/bin/local.mk - the command.
# SPDX-License-Identifier: Apache-2.0

dist_check_SCRIPTS += \
	tests/bin/command.t \
	tests/bin/packages.t \
	tests/bin/pages.t \
	tests/bin/plan.t \
	tests/bin/quickstart.t
EXTRA_DIST += \
	tests/bin/golden/deepseek.txt \
	tests/bin/golden/dense.txt \
	tests/bin/golden/families.txt \
	tests/bin/golden/hybrid-mamba.txt \
	tests/bin/golden/hybrid.txt \
	tests/bin/golden/moe.txt \
	tests/bin/golden/offload-auto.txt \
	tests/bin/golden/offload.txt \
	tests/bin/golden/why.txt
