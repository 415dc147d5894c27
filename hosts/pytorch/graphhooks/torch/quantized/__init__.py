"""Transformer Engine's FP8.

SPDX-License-Identifier: Apache-2.0
"""
