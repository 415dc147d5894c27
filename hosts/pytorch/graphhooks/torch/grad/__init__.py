"""How gradients get to where autograd would put them.

SPDX-License-Identifier: Apache-2.0
"""
