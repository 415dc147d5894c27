# packages/local.mk - recipes of conda and spack.
# SPDX-License-Identifier: Apache-2.0

EXTRA_DIST += packages/conda/recipe.yaml packages/spack/package.py
