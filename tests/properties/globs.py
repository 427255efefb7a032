# SPDX-License-Identifier: Apache-2.0
"""Glob patterns as sources. A component that is a pattern begins with MARK, because names have wildcards too."""

import fnmatch
import os
import re

import names

MARK = "\ue000"


def is_glob(path):
    return MARK in path


def text_of(path):
    """The pattern as a user writes it; what else it has of wildcards is escaped."""
    if not is_glob(path):
        return path
    return "/".join(p[1:] if p.startswith(MARK) else names.escape(p) for p in path.split("/"))


def matches(pattern, name):
    if name.startswith(".") and not pattern.startswith("."):
        return False
    pattern, name = (os.fsencode(t).decode("latin-1") for t in (pattern, name))
    return re.fullmatch(fnmatch.translate(pattern), name) is not None


def expand(path, names_in):
    """The paths that match, in the order of glob(3). names_in(directory): the names in it; none if it is none."""
    found = [""]
    for part in path.split("/"):
        if part.startswith(MARK):
            found = [os.path.join(p, n) for p in found for n in names_in(p) if matches(part[1:], n)]
        else:
            found = [os.path.join(p, part) for p in found if not is_glob(path) or part in names_in(p)]
    return sorted(found, key=os.fsencode)
