# SPDX-License-Identifier: Apache-2.0
"""Seeds whose violations are not mended yet, with what is wrong."""

_ACLS = "--acls: a file that can't be read fails although --ignore-existing leaves what is at DST"

KNOWN = {5072: _ACLS}
