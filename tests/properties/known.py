# SPDX-License-Identifier: Apache-2.0
"""Seeds whose violations are not mended yet, with what is wrong."""

_SIZE = "a file that is left out by its size has its DST not looked at, with -T"
_ACLS = "--acls: a file that can't be read fails although --ignore-existing leaves what is at DST"

KNOWN = {2073: _SIZE, 5072: _ACLS}
