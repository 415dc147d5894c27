"""Whether a call is what was recorded: settings, attributes, places.

SPDX-License-Identifier: Apache-2.0
"""
