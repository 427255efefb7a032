# SPDX-License-Identifier: Apache-2.0
"""Seeds whose violations are not mended yet, with what is wrong."""

_GLOB = "a pattern at the far end that matches several names makes DST one of them"
_LEFT = "--ignore-existing: a directory of the first level that stays what it is fails (23)"
_DIGEST = "--print-digest with -u or --ignore-existing: a file that stays is read as long as the source's"

KNOWN = {15: _GLOB, 91: _LEFT, 312: _DIGEST}
