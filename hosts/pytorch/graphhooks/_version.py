"""The package's version: that of configure.ac, which a test holds it to.

SPDX-License-Identifier: Apache-2.0
"""

__version__ = "1.0.3"
