"""Which graphs a call is of: its shape, and packed sequences.

SPDX-License-Identifier: Apache-2.0
"""
