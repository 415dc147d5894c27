# Doxygen reads /** and /**<, and the headers have plain comments on fields.
# SPDX-License-Identifier: Apache-2.0
1s#/\*#/** @file#
s#^\( *\)/\* #\1/** #
/^ *\/\*/!s#\([^ /*].*\)/\* #\1/**< #
