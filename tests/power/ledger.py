# SPDX-License-Identifier: Apache-2.0
"""What rdcp(1) and rdrecv(1) allow on a disk after a cut.

For each path the ledger keeps the contents that it may have: the one that the last scan found, and those that jobs
since then may have stored. When a job reports a file as done, only one content is left. The promises:

- A file that is reported as done (by --json), and each file of a run with exit 0, is whole and has its name.
- A target has its old or its new content; with --inplace, any content until it is reported as done.
- With --remove-source-files, a file is whole at the target before it vanishes from the source.
- With --backup, the old content keeps a name.
- After exit 0, modes and times are those of the source if they were asked for, and no temporary is left.
"""

import collections
import os
import re

from scan import CONTENT, INODE, KIND, MODE, MTIME, SIZE

ANY = "any"
ABSENT = None
# The names of temporaries and markers, which killed runs may leave.
OWN = re.compile(r"(.*/)?\.sluice\.[^/]*\Z")

# The expected state of an entry.
Thing = collections.namedtuple("Thing", "content mode mtime")


def content_of(entry):
    return tuple(entry[KIND:CONTENT + 1])


def thing_of(entry):
    return Thing(content_of(entry), entry[MODE], entry[MTIME])


def show(content):
    if content is ABSENT:
        return "nothing"
    if content == ANY:
        return "anything"
    return content[KIND] if content[KIND] == "dir" else "%s of %s, %s" % (content[KIND], content[SIZE], content[CONTENT])


def parents(path):
    while os.path.dirname(path):
        path = os.path.dirname(path)
        yield path


class Ledger:
    def __init__(self):
        self.may = {}  # path: set of contents
        self.why = {}  # path: the report that narrowed it
        self.exact = {}  # path: Thing, with mode and time
        self.clean = set()  # directories without temporaries
        self.loose = set()  # directories that a program other than rdcp is changing
        self.removals = []  # (source, target, content)
        self.backups = []  # (path, backup, old content)
        self.linked = []  # paths of one inode
        self.reports = 0

    def holds(self, path):
        """The content that the last scan found at path, if no other has been allowed since."""
        content, = self.may.get(path, {ABSENT})
        return content

    # ---- what jobs do ------------------------------------------------------------------

    def allow(self, path, content):
        self.may.setdefault(path, {ABSENT}).add(content)
        self.exact.pop(path, None)
        self.why.pop(path, None)

    def promise(self, path, content, why):
        self.may[path] = {content}
        self.why[path] = why
        self.reports += 1
        if content is not ABSENT:
            for directory in parents(path):
                self.may[directory] = {("dir", 0, None)}

    def loosen(self, top):
        self.loose.add(top)

    def settle(self, top, entries):
        """top has exactly these entries, and they are on the disk."""
        self.loose.discard(top)
        for path in self.below(self.may, top):
            self.may[path] = {ABSENT}
            self.exact.pop(path, None)
            self.why.pop(path, None)
        for path, content in entries.items():
            self.may[path] = {content}

    @staticmethod
    def below(paths, top):
        return [p for p in paths if p == top or p.startswith(top + "/")]

    # ---- what a scan finds --------------------------------------------------------------

    def judge(self, found):
        """Returns (broken promises, number of reports). From then on the ledger has what was found."""
        broken = []
        for path in sorted(set(found) | set(self.may)):
            broken += self.judge_path(path, found.get(path))
        for source, target, content in self.removals:
            if self.content(found, source) != content and self.content(found, target) != content:
                broken.append("%s was removed, and %s is %s, not %s" %
                              (source, target, show(self.content(found, target)), show(content)))
        for path, backup, content in self.backups:
            if content not in (self.content(found, path), self.content(found, backup)):
                broken.append("the old content of %s (%s) has no name: the file is %s, and %s is %s" % (
                    path, show(content), show(self.content(found, path)), backup, show(self.content(found, backup))))
        for names in self.linked:
            if len({found[n][INODE] for n in names if n in found}) > 1:
                broken.append("%s are not one file any more" % " and ".join(names))
        reports = self.reports
        self.__init__()
        self.may = {path: {content_of(entry)} for path, entry in found.items()}
        return broken, reports

    @staticmethod
    def content(found, path):
        return content_of(found[path]) if path in found else ABSENT

    def judge_path(self, path, entry):
        content = content_of(entry) if entry else ABSENT
        if any(path == top or path.startswith(top + "/") for top in self.loose):
            return
        if OWN.match(path):
            for top in self.clean:
                if entry and path.startswith(top + "/"):
                    yield "%s is left after exit 0" % path
            return
        may = self.may.get(path, {ABSENT})
        if content not in may and ANY not in may:
            yield "%s is %s, not %s%s" % (path, show(content), " or ".join(sorted(show(c) for c in may)),
                                          " (%s)" % self.why[path] if path in self.why else "")
        want = self.exact.get(path)
        if want and entry and (entry[MODE], entry[MTIME]) != (want.mode, want.mtime):
            yield "%s has mode %o and time %d, not %o and %d, after exit 0" % (
                path, entry[MODE], entry[MTIME], want.mode, want.mtime)
