"""What ranks that share layers agree on.

SPDX-License-Identifier: Apache-2.0
"""
