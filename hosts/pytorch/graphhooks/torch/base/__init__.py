"""What all of the package reads: torch, tensors, memory, and what is said.

SPDX-License-Identifier: Apache-2.0
"""
