# SPDX-License-Identifier: Apache-2.0
"""Seeds whose violations are not mended yet, with what is wrong."""

_SIZE = "a file that is left out by its size has its DST not looked at, with -T"
_LINKED = "the model knows of no backup of what is linked anew beside names that can't be read"
_HOSTS = "the model does not know which of two failed hosts gives the exit status"
_INPLACE = "the model lets an ordinary user write in place into a file of mode 0444"

KNOWN = {2073: _SIZE, 1598: _LINKED,
         1933: _HOSTS, 2035: _INPLACE}
