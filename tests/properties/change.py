# SPDX-License-Identifier: Apache-2.0
"""Changes a source file during a run, and knows what the run may then have found."""

import errno
import os
import threading
import time

import world
from model import CHANGED, NOT_REMOVED, VANISHED, Model
from watch import Watch

FAILURES = {"shrink": [CHANGED], "touch": [CHANGED], "rewrite": [CHANGED], "unlink": [VANISHED]}


class Change:
    """versions: {source path: the contents that it has during the run}. paths: those that change, or may be made."""

    def __init__(self, trial, before):
        self.trial, self.case, self.before = trial, trial.case, before
        fault = trial.fault
        self.path, self.how, self.when = fault["path"], fault["how"], fault.get("when", "time")
        self.at = os.path.join(trial.root, self.path)
        self.fd = self.thread = self.watch = None
        self.now = {}       # {path: node or None}: what the change made of it
        node = before[self.path]
        self.old_content = node.content
        full = world.bytes_of(node.content)
        for data in (full + b"more", full[:len(full) // 2]):
            world.CONTENTS.setdefault(world.fingerprint(data), "changed %s:%d" % (self.path, len(data)))
        self.new = self.new_content()
        self.names = [p for p, n in before.items() if n.ino == node.ino and n.kind == "file"]
        self.paths = {*self.names, self.path + "+"}
        self.versions = {name: {self.new, node.content} for name in self.names}
        self.incoming = trial.aside + "/incoming"
        if self.how == "replace":
            world.write(self.incoming, self.new)
            os.chmod(self.incoming, 0o644)

    def new_content(self):
        old = self.old_content
        size = world.size_of(old)
        if self.how == "append":
            return world.name_of(world.bytes_of(old) + b"more")
        if self.how == "shrink":
            return world.name_of(world.bytes_of(old)[:size // 2])
        if self.how in ("rewrite", "replace"):
            return world.register("new:%d" % size)
        return old

    def needs(self, need):
        """need, as judge.contents_of() makes it, without what the change destroys."""
        gone = frozenset([self.old_content])
        if self.how in ("append", "shrink", "rewrite"):
            return [gone | {self.new} if some == gone else some for some in need]
        if self.how in ("replace", "unlink") and len(self.names) == 1:
            return [some for some in need if some != gone]
        return need

    # ---- changing ----------------------------------------------------------------------------

    def prepare(self):
        """Call before the run starts. Returns whether the run stops at the moment of the change."""
        if self.how in ("append", "rewrite"):
            self.fd = os.open(self.at, os.O_WRONLY)
        if self.when != "time":
            try:
                self.watch = Watch(self.at, self.when, self.change)
            except OSError:
                self.trial.log.append("no process can be stopped here")
        return self.watch is not None

    def start(self):
        """Call when the run has started."""
        if not self.watch:
            self.thread = threading.Thread(target=self.change_later)
            self.thread.start()

    def finish(self):
        if self.watch:
            self.watch.stop()
        else:
            self.thread.join()
        if self.fd is not None:
            os.close(self.fd)

    def change_later(self):
        time.sleep(self.trial.fault["after"])
        self.change()

    def change(self):
        try:
            self.change_file()
        except FileNotFoundError:
            self.trial.log.append("nothing to change")
        except OSError as e:
            if e.errno != errno.ENAMETOOLONG:   # of a new link
                raise
        else:
            self.record()

    def change_file(self):
        at, how = self.at, self.how
        st = os.lstat(at)
        if how == "append":
            os.pwrite(self.fd, b"more", st.st_size)
        elif how == "shrink":
            os.truncate(at, st.st_size // 2)
        elif how == "touch":
            os.utime(at)
        elif how == "rewrite":
            os.pwrite(self.fd, world.bytes_of(self.new), 0)
            # A write sets the time when it begins: a file that is opened during the only write, and read before
            # its end, does not seem to change.
            os.utime(self.fd)
        elif how == "replace":
            os.rename(self.incoming, at)
            self.trial.need.append(frozenset([self.new]))
        elif how == "unlink":
            os.unlink(at)
        elif how == "chmod":
            os.chmod(at, 0o604)
        elif how == "link":
            os.link(at, at + "+")

    def record(self):
        """Reads all but the content, because the run may wait until the file can be read."""
        changed = [self.path] if self.how in ("replace", "unlink") else self.names
        for path in [*changed, *[self.path + "+"] * (self.how == "link"), os.path.dirname(self.path)]:
            try:
                node = world.read_metadata(os.path.join(self.trial.root, path), self.trial.root)
                node.content = self.new if node.kind == "file" else None
            except FileNotFoundError:
                node = None
            self.now[path] = node

    # ---- what the run may have found -----------------------------------------------------------

    def views(self):
        """Models of a run that found the file as it was before, or as it is afterwards, and that did, or did
        not, notice the change."""
        if not self.now:
            return [self.view(self.before, ())]
        after = {p: n for p, n in {**self.before, **self.now}.items() if n is not None}
        whys = list(FAILURES.get(self.how, []))
        if self.is_seen_by_reader():
            return [self.view(state, whys) for state in (self.before, after)]
        if self.case.has("remove-source-files"):
            whys.append(NOT_REMOVED)
        return [self.view(state, some) for some in ([], *([w] for w in whys)) for state in (self.before, after)]

    def is_seen_by_reader(self):
        """Whether the run must notice the change."""
        return self.watch and self.watch.fired and self.when == "read" and CHANGED in FAILURES.get(self.how, ()) and \
            len(self.names) == 1 and not self.case.has("checksum") and not self.case.has("remove-source-files")

    def view(self, state, whys):
        inodes = {n.ino for n in (self.before[self.path], self.now.get(self.path)) if n is not None}
        model = Model(self.case, state)
        hit = [i for i in model.items if i.node.kind == "file" and i.node.ino in inodes]
        if VANISHED in whys:
            model = Model(self.case, state, faulty={i.path: VANISHED for i in hit if i.path == self.path})
            # It may be gone before its size, or whether the target has it, is asked for.
            if model.codes == {0}:
                model.codes = {0, 24}
        elif whys:
            model = Model(self.case, state, faulty={i.path: w for i in hit for w in whys})
        model.unchecked |= self.paths
        for item in hit:
            # It may fail, or be found changed, under one of its names, and not under another.
            if whys and len(hit) > 1:
                model.leave_unchecked(item.dest)
            if model.backup and len(hit) > 1:
                model.doubt_backup(item.dest)
            if item.dest in model.after and self.now:
                self.open_up(model.after[item.dest])
        self.open_up_dirs(model)
        return model

    def open_up(self, node):
        """The names of the changed file may have any of its contents, if they have one of them."""
        versions = self.versions[self.path]
        contents = node.content if isinstance(node.content, frozenset) else frozenset([node.content])
        if contents & versions:
            node.content = contents | versions
            node.ino = None
            node.open_metadata()

    def open_up_dirs(self, model):
        """A change of a name changes the time of its directory."""
        dir = os.path.dirname(self.path)
        for item in model.items:
            if item.path == dir and item.dest in model.after:
                model.after[item.dest].mtime = None
                if self.how == "link":
                    model.leave_unchecked(os.path.join(item.dest, os.path.basename(self.path) + "+"))
        if dir in model.after:
            model.after[dir].mtime = None
