"""How passes become graphs, and in whose memory.

SPDX-License-Identifier: Apache-2.0
"""
