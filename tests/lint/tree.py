# SPDX-License-Identifier: Apache-2.0
"""Shared by the lints: the files of the tree, and C without comments and string literals."""

import os
import pathlib
import re
import sys


def root():
    """The tree to check: the argument, or the tree of this file."""
    if len(sys.argv) > 1:
        return pathlib.Path(sys.argv[1]).resolve()
    return pathlib.Path(__file__).resolve().parents[2]


def files(top, *suffixes):
    """The files of the tree, without builds and hidden files except .ci, as relative paths."""
    found = []
    for at, dirs, names in os.walk(top):
        here = pathlib.Path(at)
        if "meson-private" in dirs:  # a build
            dirs[:] = []
            continue
        dirs[:] = sorted(d for d in dirs if d == ".ci" or not (
            d.startswith(".") or d == "__pycache__" or (here == top and d.startswith("build"))))
        for name in sorted(names):
            path = here / name
            # In a worktree of git, .git is a file.
            if name == ".git" or path.is_symlink() or not path.is_file() or name.endswith(".pyc"):
                continue
            if not suffixes or path.suffix in suffixes:
                found.append(path.relative_to(top))
    return found


_BLANK = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def code(text):
    """C with comments and string literals blanked, except the names in #include. Line numbers stay
    the same."""
    def blank(m):
        start = text.rfind("\n", 0, m.start()) + 1
        if m.group()[0] == '"' and re.match(r"\s*#\s*include\b", text[start:m.start()]):
            return m.group()
        return re.sub(r"[^\n]", " ", m.group())
    return _BLANK.sub(blank, text)


class Report:
    """Prints findings, one line each. end() returns the exit status."""

    def __init__(self):
        self.count = 0

    def say(self, path, line, text):
        self.count += 1
        print("%s:%d: %s" % (path, line, text))

    def end(self):
        return 1 if self.count else 0
