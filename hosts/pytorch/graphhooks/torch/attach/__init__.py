"""What attach() makes of a model.

SPDX-License-Identifier: Apache-2.0
"""
