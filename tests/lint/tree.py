# SPDX-License-Identifier: Apache-2.0
"""What the lints have in common: the tree's files, and C without comments and texts."""

import os
import pathlib
import re
import sys


def root():
    """The tree to look at: the argument, else the one that this file is in."""
    if len(sys.argv) > 1:
        return pathlib.Path(sys.argv[1]).resolve()
    return pathlib.Path(__file__).resolve().parents[2]


def files(top, *suffixes):
    """The tree's own files (nothing built, nothing hidden but .ci), as paths relative to it."""
    found = []
    for at, dirs, names in os.walk(top):
        here = pathlib.Path(at)
        if "meson-private" in dirs:  # somebody's build
            dirs[:] = []
            continue
        dirs[:] = sorted(d for d in dirs if d == ".ci" or not (
            d.startswith(".") or d == "__pycache__" or (here == top and d.startswith("build"))))
        for name in sorted(names):
            path = here / name
            # .git is a file in a work tree of git's.
            if name == ".git" or path.is_symlink() or not path.is_file() or name.endswith(".pyc"):
                continue
            if not suffixes or path.suffix in suffixes:
                found.append(path.relative_to(top))
    return found


_BLANK = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def code(text):
    """C with comments and the insides of texts blanked; lines stay where they are.  Names in
    #include are kept."""
    def blank(m):
        start = text.rfind("\n", 0, m.start()) + 1
        if m.group()[0] == '"' and re.match(r"\s*#\s*include\b", text[start:m.start()]):
            return m.group()
        return re.sub(r"[^\n]", " ", m.group())
    return _BLANK.sub(blank, text)


class Report:
    """Findings, one line each; end() is the exit code."""

    def __init__(self):
        self.count = 0

    def say(self, path, line, text):
        self.count += 1
        print("%s:%d: %s" % (path, line, text))

    def end(self):
        return 1 if self.count else 0
