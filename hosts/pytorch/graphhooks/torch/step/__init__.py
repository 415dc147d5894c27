"""A call of a module in a step, and what stands for it in autograd.

SPDX-License-Identifier: Apache-2.0
"""
