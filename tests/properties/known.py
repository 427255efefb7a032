# SPDX-License-Identifier: Apache-2.0
"""Seeds whose violations are not mended yet, with what is wrong."""

_GLOB = "--mkpath does not make DST for several matches of a pattern at the far end"
_LEFT = "--ignore-existing: a directory of the first level that stays what it is fails (23)"

KNOWN = {15: _GLOB, 91: _LEFT}
