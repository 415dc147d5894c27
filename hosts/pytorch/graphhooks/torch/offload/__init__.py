"""What goes to the host's memory and comes back.

SPDX-License-Identifier: Apache-2.0
"""
