# SPDX-License-Identifier: Apache-2.0
"""Predicts what is at the target after a run, by the rules of the manual (man/rdcp.1).

Each rule of the manual is a function with the manual's sentence above it. The model reads no disk. It
takes the state before the run (a dictionary of world.py) and the options, and computes the state
after the run, the exit status and the fate of each source. Where the manual leaves something open, a
field is None (any value), a content is a set (any of its members), or a path is in `unchecked'."""

import os
import re
import stat

from globs import expand, is_glob, text_of
from world import DEVICES, Node, below, is_ours

CHMODS = {"F600,D711": lambda dir, mode: 0o711 if dir else 0o600,
          "go-rwx": lambda dir, mode: mode & ~0o077,
          "u+w": lambda dir, mode: mode | 0o200}


class Item:
    """An entry of the source, and its path at the target."""

    __slots__ = ("dest", "path", "node", "session", "implied", "contents", "root", "group", "fate", "same_by_time")

    def __init__(self, dest, path, node, session, implied=False, contents=False, root=False):
        self.dest, self.path, self.node, self.session = dest, path, node, session
        self.implied, self.contents, self.root = implied, contents, root
        self.group = self.fate = None
        self.same_by_time = False    # size and time are the same, the content is not


NAME_MAX = 255
SPECIAL = {"fifo", "other", *DEVICES}
IS_BACKUP_DIR, IS_STREAM = "it is --backup-dir", "DST is a device"
CHANGED, VANISHED, NOT_REMOVED = "it changed while it was read", "it vanished", "it changed before it was removed"
MOVE_MARKER = ".sluice.marker.000000006d6f7665"


class Refused(Exception):
    """rdcp refuses the command. codes: the possible exit statuses."""

    def __init__(self, why, *codes):
        super().__init__(why)
        self.codes = set(codes)


class Model:
    def __init__(self, case, state, unfinished=(), faulty=()):
        """unfinished: directories that an earlier run of this command made and did not finish. faulty: {path of
        a source file: CHANGED, VANISHED or NOT_REMOVED}, what another process makes of it during the run."""
        self.case, self.o, self.unfinished = case, case.options, set(unfinished)
        self.faulty, self.unremoved = dict(faulty), []
        self.unkept = []    # nodes of the source without whose metadata they are stored
        self.leftovers = {p: n for p, n in state.items() if is_ours(p)}
        self.before = {p: n for p, n in state.items() if not is_ours(p)}
        self.after = {p: n.copy() for p, n in self.before.items()}
        self.left_out = {}      # {target path: source path}: left out by size, but still occupies its name
        self.maybe_made = []    # directories that rdcp may have made before a source failed
        self.mkpath_dirs = set()
        self.items, self.root_names = [], {}
        self.source_names = {}      # {target directory: the names that the source has in it}
        self.copied, self.new = set(), set()
        self.untouched = set()      # target paths that rdcp leaves as they are, with their contents
        self.failed, self.deleted, self.replaced, self.unchecked = [], set(), set(), set()
        self.backups = set()
        self.old_backups = set()    # in directories that a backup replaces
        self.shared_backups = False     # the backups of two names would have one name
        self.contested = False  # two sources have one name: when the first was moved, another run moves the second there
        self.maybe_dirs = set()     # backup directories that may or may not be made
        self.fates = {}     # {source path: gone, stays or either}
        self.link_fates = set()     # the fates that followed links would have if they were files
        self.codes = {0}
        self.too_many = None   # (candidates for deletion, how many of them are deleted)
        self.refused = None
        self.doubt_named_twice = self.is_single = False    # one that changes while it is read
        self.inexact = None     # the reason why the model makes no exact prediction
        self.top = case.target[1].rstrip("/")
        # "a run … leaves a file .sluice.marker.* in SRC"
        self.marked_dirs = {self.resolve_links(p.rstrip("/").replace("/./", "/"), h) for h, p, _ in self.find_sources()}
        self.settle_options()
        try:
            self.run()
        except Refused as why:
            self.refused, self.codes = str(why), why.codes | ({5} if case.unreachable else set())
            self.after = {p: n.copy() for p, n in self.before.items()}
            for path in self.unchecked:
                if os.path.dirname(path) in self.after:
                    self.after[os.path.dirname(path)].mtime = None      # something may have been made in it
            self.fates = {}
        if self.o.get("dry-run"):
            self.after = {p: n.copy() for p, n in self.before.items()}
            self.fates, self.deleted, self.replaced, self.unchecked, self.too_many = {}, set(), set(), set(), None
            if any("read" in why for _, why in self.failed):
                self.codes = self.codes | {0}   # a dry run opens no file

    # ---- options -------------------------------------------------------------------------------

    # "-a: Same as -r --perms --times --owner --group --devices. To switch one of these off, add
    # --no-recursive, --no-perms … With --files-from, -a does not imply -r." "-p: Keep modes, times"
    def settle_options(self):
        o = self.o
        archive = bool(o.get("archive"))
        self.recursive = bool((o.get("recursive") or (archive and not o.get("files-from"))) and not o.get("no-recursive"))
        # "With -a, rdcp leaves these out" of what it writes into a module, in rdcpd(8).
        refused = ("owner", "group", "devices") if self.case.target[0] in self.case.daemons else ()
        for kept in ("perms", "times", "owner", "group", "devices"):
            on = kept not in refused and (o.get(kept) or archive or (kept in ("perms", "times") and o.get("preserve")))
            setattr(self, kept, bool(on and not o.get("no-" + kept)))
        # "-A: Keep ACLs, and modes as with --perms."
        self.perms = self.perms or bool(o.get("acls"))
        self.delete = bool(o.get("delete") or o.get("delete-excluded"))
        self.backup = bool(o.get("backup") or o.get("backup-dir"))
        # "If DIR is DST itself, --suffix is required."
        self.backup_dir = o.get("backup-dir")
        if self.backup_dir == "." and o.get("suffix"):
            self.backup_dir = None
        self.suffix = o.get("suffix") or ("" if self.backup_dir else "~")

    def run(self):
        roots = self.find_sources()
        self.is_single = len(roots) == 1 and not (roots[0][2] is not None and roots[0][2].kind == "dir" and
                                                  (self.recursive or self.o.get("files-from")))
        self.check_usage(roots)
        why, codes = self.find_what_modules_refuse()
        try:
            self.resolve_target(roots)
        except Refused as other:
            other.codes |= codes
            raise
        if why:
            raise Refused(why, *codes)
        if self.top in self.before and self.before[self.top].kind in SPECIAL:
            raise Refused(IS_STREAM, 0, 1)      # judge.stream() knows which
        self.check_backup_dir()
        for root in roots:
            self.enter_root(root)
        # "--mkpath: Create missing directories in the path to DST. Also create DST itself as a
        # directory": for a pattern of the far end, rdcp knows this only when the first match arrives.
        if not self.items and self.top in self.new and not (self.o.get("mkpath") and self.known_as_dir()):
            # rdcp may make it before it opens the file.
            if any(why == IS_BACKUP_DIR or self.relative and why == "can't be read" for _, why in self.failed):
                self.maybe_dirs.add(self.top)
            else:
                del self.after[self.top]
        self.uncheck_maybe_made()
        self.share_links()
        for item in self.items:
            self.store(item)
        self.link_groups()
        self.settle_shared()
        self.set_directories()
        if self.delete:
            self.delete_rest()
        self.remove_sources()
        self.settle_code(roots)

    # "--delete needs -r or -a, and cannot be combined with --files-from." "-T takes one SRC and cannot be
    # combined with --relative" "--files-from: The names are relative to the only SRC" "-b: Cannot be
    # combined with --inplace." "--sparse: Cannot be combined with --inplace or --no-sparse."
    def check_usage(self, roots):
        o = self.o
        # The shell expands a local pattern.
        sources = [r for r in roots if not r[0]] + [s for s in self.case.sources if s[0]]
        if self.delete and not self.recursive:
            raise Refused("--delete without -r", 1)
        if o.get("no-target-directory") and o.get("relative"):
            raise Refused("-T with --relative", 1)
        if o.get("no-target-directory") and len(sources) > 1:
            raise Refused("-T with several sources", 1)
        # "-T takes one SRC, also if it is a pattern that the far end expands": meanwhile the near end looks at DST.
        if o.get("no-target-directory") and len(roots) > 1:
            if o.get("mkpath"):
                self.leave_way_unchecked(os.path.dirname(self.case.target[1].rstrip("/")))
            raise Refused("-T with several matches", 1, 11, 23)
        if o.get("files-from") and len(sources) > 1:
            raise Refused("--files-from with several sources", 1)
        if self.delete and o.get("files-from"):
            raise Refused("--delete with --files-from", 1)
        if self.backup and o.get("inplace"):
            raise Refused("--backup with --inplace", 1)
        if self.backup_dir == ".":
            raise Refused("--backup-dir is DST", 1)
        if o.get("sparse") and (o.get("no-sparse") or o.get("inplace")):
            raise Refused("--sparse with --no-sparse or --inplace", 1)
        # "Options that concern all sources at once (--delete, --remove-source-files, --relative) and SRC/
        # are refused with several hosts"
        hosts = {h for h, _ in self.case.sources}
        if len(hosts) > 1 and (self.delete or o.get("remove-source-files") or o.get("relative") or
                               any(p.endswith("/") for _, p in self.case.sources)):
            if not self.recursive and o.get("mkpath"):
                self.leave_way_unchecked(self.top)  # it is made before SRC turns out to be a directory
            raise Refused("several hosts", *({1} if self.recursive else {1, 11, 23}))
        # With several hosts, rdcp detects equal names of sources before it copies.
        names = [(h, os.path.basename(p)) for h, p in self.case.sources if not p.endswith("/") and not is_glob(p)]
        if any(a[1] == b[1] and a[0] != b[0] for a in names for b in names):
            raise Refused("two hosts' sources have one name", 1, 11)

    # "What a client asks for is refused (1) if it is one of the following", in rdcpd(8).
    def find_what_modules_refuse(self):
        """(the reason or None, exit statuses)"""
        o, module = self.o, self.case.module
        push, pull = self.case.target[0] in self.case.daemons, any(h in self.case.daemons for h, _ in self.case.sources)
        # "With -a, rdcp leaves out the first three of these there, even if they are also given on their own."
        owners = not o.get("archive") and any(o.get(n) and not o.get("no-" + n) for n in ("owner", "group", "devices"))
        refused = {
            "--delete": push and self.delete and "delete" not in module,
            "--remove-source-files": pull and o.get("remove-source-files") and "remove sources" not in module,
            "--owner, --group, --devices or --chown": push and (owners or o.get("chown")),
            "--xattrs=all": o.get("xattrs") and self.case.spelled.get("xattrs") == "--xattrs=all",
            "--backup-dir with ..": push and ".." in (o.get("backup-dir") or "").split("/"),
            # "incoming chmod: … Clients cannot use --acls then when they write."
            "--acls": push and o.get("acls") and "incoming chmod" in module,
            "refuse options": self.has_option(module.get("refuse options")),
        } if push or pull else {}
        whys, codes = [why for why, is_so in refused.items() if is_so], set()
        if whys:
            codes.add(1)
        # "encryption required: … A client with --encrypt=off is refused (43)."
        if (push or pull) and "encryption required" in module and o.get("encrypt") == "off":
            whys.append("--encrypt=off")
            codes.add(43)
        if whys and len({h for h, _ in self.case.sources}) > 1:
            self.inexact = "one of several hosts refuses"
            return None, set()
        return (whys or [None])[0], codes

    # "Options that another one includes are meant, too, such as recursive for -a."
    def has_option(self, name):
        included = {"recursive": self.recursive, "times": self.times, "perms": self.perms, "backup": self.backup,
                    # "--remove-source-files: … Implies --fsync and, if times are kept and without --ignore-times, --checksum."
                    "fsync": self.o.get("fsync") or self.o.get("remove-source-files"),
                    "checksum": self.o.get("checksum") or self.o.get("remove-source-files") and self.times and not self.o.get("ignore-times")}
        return name is not None and bool(included.get(name, self.o.get(name)))

    # ---- sources -------------------------------------------------------------------------------

    # "The far end expands … in a SRC, glob patterns". The shell expands a local one.
    def find_sources(self):
        """[(host, path as written, node or None)]"""
        found = []
        for host, path in self.case.sources:
            hits = [path]
            if is_glob(path):
                hits = self.expand(host, path) or [text_of(path)]
            found += [(host, p, self.follow(p.rstrip("/").replace("/./", "/"), host)) for p in hits]
        return found

    # "If a file has the pattern itself as its name, that file is copied."
    def expand(self, host, path):
        if not is_glob(path):
            return [path]
        if host and text_of(path) in self.before:
            return [text_of(path)]
        dirs = {d for d, n in self.before.items() if n.kind == "dir"} | {""}
        return expand(path, lambda dir: [os.path.basename(p) for p in self.before if dir in dirs and os.path.dirname(p) == dir])

    # "rdcp follows a symbolic link that you name, as SRC or in the path to DST."
    def follow(self, path, host=""):
        """The node that path leads to through symbolic links, or None."""
        for _ in range(40):
            node = self.before.get(path)
            if node is None or node.kind != "link":
                return node
            path = self.link_leads(path, node, host)
        return None

    # "absolute paths, .. and symbolic links lead to nothing outside" a module, in rdcpd(8).
    def link_leads(self, path, node, host):
        if host in self.case.daemons:
            return os.path.normpath(os.path.join("/", os.path.dirname(path), node.text)).lstrip("/")
        if node.text.startswith("@/"):
            return node.text[2:]
        return os.path.normpath(os.path.join(os.path.dirname(path), node.text))

    def resolve_links(self, path, host=""):
        for _ in range(40):
            node = self.before.get(path)
            if node is None or node.kind != "link":
                break
            path = self.link_leads(path, node, host)
        return path

    def host_of(self, session):
        return self.case.sources[session][0]

    def session_of(self, host):
        hosts = [h for h, _ in self.case.sources]
        return hosts.index(host)

    def can_read(self, node):
        if self.case.uid == 0:
            return True
        bits = node.mode >> 6 if node.uid == self.case.uid else node.mode
        return bool(bits & 4) and (node.kind != "dir" or bits & 1)

    def can_reach(self, path):
        above = os.path.dirname(path)
        return not above or (self.before.get(above) is None or self.can_read(self.before[above])) and self.can_reach(above)

    # "If DST does not exist, SRC becomes DST … If DST is a directory, each SRC goes into it under the
    # last component of its name." "With a slash at the end (SRC/), or with -T, the contents of the directory
    # SRC go into DST itself." "Several sources, or several matches of a pattern, need a directory as DST."
    # "A missing directory in the path to DST is an error without --mkpath."
    def resolve_target(self, roots):
        # a/./b creates only b, so it needs no directories below DST.
        rest = roots[0][1].rpartition("/./")[2]
        self.relative = bool(self.o.get("relative")) and not (
            len(roots) == 1 and "/" not in rest and roots[0][2] is not None and roots[0][2].kind != "dir")
        if self.top.startswith("/"):
            raise Refused(IS_STREAM, 0, 1)
        text = self.case.target[1]
        top = text.rstrip("/")
        self.top = self.resolve_links(top)
        many, node = len(roots) > 1 or len(self.case.sources) > 1, self.before.get(self.top)
        trees = self.recursive or self.o.get("files-from")
        dirs = [r for r in roots if r[2] is not None and r[2].kind == "dir" and trees]
        self.into = True
        if all(r[2] is None for r in roots):
            # Which of two errors is reported is open.
            up = os.path.dirname(self.top)
            lacks = (many or text.endswith("/") or up and self.follow(up) is None) and not self.o.get("mkpath") if node is None else \
                node.kind != "dir" and (many or text.endswith("/"))
            # The manual does not say whether --mkpath makes its directories then.
            if self.o.get("mkpath"):
                self.leave_way_unchecked(self.top)
            raise Refused("no source", *({3} if len(self.case.sources) == 1 else {3, 23}), *([11] if lacks else []))
        # "While the marker exists, the same SRC continues in DST itself."
        marked = any(os.path.dirname(p) == self.top and ".marker." in p for p in self.leftovers)
        if node is None:
            above = os.path.dirname(self.top)
            if above and self.follow(above) is None and not self.o.get("mkpath"):
                raise Refused("a directory on the way is missing", 11)
            slash_or_many = text.endswith("/") or many
            trees = dirs or self.relative and self.recursive
            if slash_or_many and not self.o.get("mkpath") and (many or not trees):
                # The near end counts a pattern of the far end as one source until matches arrive.
                raise Refused("DST is no directory", 11, 23, *([0] if self.leaves_out_all(roots) else []))
            # "A file with -T and a slash is an error": with -r the far end reports this, after it has made the
            # directories in the path.
            if text.endswith("/") and self.o.get("no-target-directory") and not dirs:
                if self.recursive:
                    self.leave_way_unchecked(above)
                raise Refused("DST is a directory", 11, *([0] if self.leaves_out_all(roots) else []))
            self.make_way(above)
            if slash_or_many and self.o.get("mkpath") and not self.o.get("no-target-directory"):
                self.make_dir(self.top)
                self.mkpath_dirs.add(self.top)
            elif not (self.relative and not self.o.get("files-from")):
                self.into = False
            elif not self.o.get("existing"):
                self.make_dir(self.top)
        elif node.kind != "dir":
            if many or dirs or self.relative or text.endswith("/"):
                raise Refused("DST is no directory", 11, 23, *(
                    [0] if self.leaves_out_all(roots) and not text.endswith("/") else []))
            self.into = False
        else:
            self.into = not (marked and not many and not self.relative)
            if self.o.get("no-target-directory"):
                if not dirs:
                    raise Refused("DST is a directory", 11, *([0] if self.leaves_out_all(roots) else []))

    def known_as_dir(self):
        """Whether rdcp knows before the copy that DST must be a directory."""
        host, path = self.case.sources[0]
        if self.o.get("no-target-directory"):
            return False
        return self.case.target[1].endswith("/") or len(self.case.sources) > 1 or (not host and len(self.expand(host, path)) > 1)

    # "If the only SRC is excluded by a pattern, or is a file that --max-size or --min-size leaves out,
    # nothing is copied, and DST may be anything."
    def leaves_out_all(self, roots):
        return len(self.case.sources) == 1 and all(
            n is not None and (self.excludes_root(p, n) or n.kind == "file" and self.left_out_by_size(n))
            for _, p, n in roots)

    def excludes_root(self, path, node):
        if self.relative:
            return self.excluded(path.rpartition("/./")[2].rstrip("/"), node.kind == "dir")
        if node.kind == "dir" and (path.endswith("/") or self.o.get("no-target-directory")):
            return False
        return self.excluded(os.path.basename(path), node.kind == "dir")

    def make_way(self, path):
        if path and path not in self.after:
            self.make_way(os.path.dirname(path))
            self.make_dir(path)

    def make_dir(self, path):
        self.after[path] = Node("dir", None, 0o777 & ~self.case.umask)
        self.new.add(path)

    def enter_root(self, root):
        host, path, node = root
        session = self.session_of(host)
        name = os.path.basename(path.rstrip("/"))
        if host in self.case.unreachable:
            self.fail(path, "its host is not there")
            return
        if node is None:
            self.fail(path, "missing")
            return
        if not self.can_reach(path.rstrip("/").replace("/./", "/")):
            self.fail(path, "can't be read")
            if self.relative:      # rdcp may have made its parent directories
                self.maybe_made.append(os.path.dirname(os.path.join(self.top, path.rpartition("/./")[2].rstrip("/"))))
            # It may exist, so it occupies its name, as a file that can't be read does.
            elif not path.endswith("/"):
                self.root_names.setdefault(session, set()).add(name)
            return
        if self.o.get("files-from"):
            self.enter_listed(path, node, session)
            return
        if node.kind == "dir" and not self.recursive:
            self.fail(path, "a directory without -r")
            return
        if self.relative:
            self.enter_relative(path, node, session)
            return
        contents = node.kind == "dir" and (path.endswith("/") or bool(self.o.get("no-target-directory")))
        # "Several sources": of two sources with one last component, only the first is copied.
        if not contents and name in self.root_names.setdefault(session, set()):
            self.drop_second(None, name, path, node.kind == "dir")
            return
        self.root_names[session].add(name) if not contents else None
        dest = self.top if contents or not self.into else os.path.join(self.top, name)
        shown = "" if contents else name
        if shown and self.excluded(shown, node.kind == "dir"):
            return
        if node.kind == "dir":
            self.enter_dir(dest, self.resolve_links(path.rstrip("/"), host), node, session, shown, contents=contents,
                           root=not contents)
        # "-T: Treat DST as the name of the copied file or tree itself, even if a directory of that name
        # exists. If SRC is a file, an existing directory is an error."
        elif self.o.get("no-target-directory") and self.into:
            if not (node.kind == "file" and self.left_out_by_size(node)):
                self.fail(path, "DST is a directory")
            self.fates[path] = "stays"
        else:
            self.add_file(dest, path.replace("/./", "/"), node, session, root=True)

    # "--relative: Create the whole path of SRC as written below DST. For a/./b/c, create the part that
    # begins with b."
    def enter_relative(self, path, node, session):
        start, _, rest = path.rpartition("/./") if "/./" in path else ("", "", path)
        parts = rest.rstrip("/").split("/")
        # "If a pattern excludes SRC, nothing of its path is created."
        if self.excluded("/".join(parts), node.kind == "dir"):
            return
        if node.kind == "file" and not self.can_read(node):
            self.fail(path, "can't be read")
            self.maybe_made.append(os.path.dirname(os.path.join(self.top, *parts)))
            return
        at, shown = start, ""
        for part in parts[:-1]:
            at, shown = os.path.join(at, part), os.path.join(shown, part)
            dest = os.path.join(self.top, shown)
            self.note_name(os.path.dirname(dest), part, implied=True)
            if not any(i.dest == dest for i in self.items):
                self.items.append(Item(dest, at, self.before[self.resolve_links(at, self.host_of(session))], session, implied=True))
        shown = os.path.join(shown, parts[-1])
        dest = os.path.join(self.top, shown)
        self.note_name(os.path.dirname(dest), parts[-1], implied=True)
        if node.kind == "dir":
            self.enter_dir(dest, self.resolve_links(path.rstrip("/").replace("/./", "/"), self.host_of(session)), node, session, shown)
        else:
            self.add_file(dest, path.replace("/./", "/"), node, session, root=True)

    def enter_listed_parents(self, top, name, session):
        """False: one of them is --backup-dir, so that name fails with it."""
        at = ""
        for part in name.split("/")[:-1]:
            at = os.path.join(at, part)
            dest, path = os.path.join(self.top, at), os.path.join(top, at)
            if self.fail_backup_dir(dest, path):
                return False
            if not any(i.dest == dest for i in self.items):
                self.items.append(Item(dest, path, self.before[path], session, implied=True))
        return True

    # "--files-from: Copy only the names in FILE … The names are relative to the only SRC, and keep their
    # paths below DST. A listed directory is created; with -r it is copied with everything in it. Patterns
    # apply to the listed names, but not to their parent directories."
    def enter_listed(self, path, node, session):
        host = self.host_of(session)
        top = self.resolve_links(path.rstrip("/"), host)
        if node.kind != "dir":
            self.fail(path, "no directory")
            return
        if self.top not in self.after:
            self.items.append(Item(self.top, top, node, session, implied=True))
            if not self.o.get("existing"):
                self.new.add(self.top)
        for name in self.case.listed:
            thing = self.before.get(os.path.join(top, name))
            if thing is not None and thing.kind == "link" and self.o.get("copy-links"):
                thing = self.follow(os.path.join(top, name), host)
            if thing is None:
                self.fail(os.path.join(top, name), "missing")
                # rdcp may have made its parent directories.
                self.maybe_made.append(os.path.dirname(os.path.join(self.top, name)))
                continue
            if self.excluded(name, thing.kind == "dir"):
                continue
            if not self.can_reach(os.path.join(top, name)):
                self.fail(os.path.join(top, name), "can't be read")
                self.maybe_made.append(os.path.dirname(os.path.join(self.top, name)))
                continue
            if not self.enter_listed_parents(top, name, session):
                continue
            dest = os.path.join(self.top, name)
            if thing.kind == "dir":
                have = [i for i in self.items if i.dest == dest]
                for item in have:
                    item.implied = False
                if self.recursive:
                    self.enter_dir(dest, self.resolve_links(os.path.join(top, name), host), thing, session, name)
                elif not have:
                    self.items.append(Item(dest, os.path.join(top, name), thing, session))
            elif not any(i.dest == dest for i in self.items):
                self.add_entry(dest, os.path.join(top, name), thing, session)

    def uncheck_maybe_made(self):
        for path in self.maybe_made:
            while below(path, self.top) and path != self.top and not any(i.dest == path for i in self.items):
                self.leave_unchecked(path)
                path = os.path.dirname(path)

    def note_name(self, dir, name, implied=False):
        self.source_names.setdefault(dir, set()).add(name)
        if not implied:
            self.copied.add(dir)

    def claim(self, dest, path, dir, root=False):
        """Whether the entry at path may take the name dest. The first entry of a name counts. The second of
        two named sources fails."""
        if self.left_out.get(dest, path) != path:
            self.fates[path] = "stays"
            if dir or self.o.get("remove-source-files"):
                self.fail(path, "what a source before it has there is not replaced")
            return False
        for other in self.items:
            if other.dest == dest:
                if root and other.root and not self.relative:
                    self.drop_second(other, dest, path, dir)
                    return False
                if dir and other.node.kind == "dir":
                    return True
                if other.path != path:
                    self.drop_second(other, dest, path, dir)
                return False
        return True

    # If several sources have one name, the first counts (as with rsync). If the second can't be merged with
    # it, the second fails.
    def drop_second(self, other, dest, path, dir):
        self.contested = True
        # "a file whose name a file of an earlier source has; this is an error (23)"
        if other is None or dir != (other.node.kind == "dir") or other.root or self.o.get("remove-source-files"):
            self.fail(path, "what a source before it has there is not replaced")
        self.fates[path] = "stays"
        for p in self.before:
            if below(p, path):
                self.fates[p] = "stays"

    # "A file or directory of SRC with the path of DIR fails (23), with everything in it."
    def fail_backup_dir(self, dest, path):
        """Whether dest is DIR; then path fails."""
        if not self.backup_dir or dest != self.backup_top():
            return False
        self.note_name(os.path.dirname(dest), os.path.basename(dest), implied=True)
        self.fail(path, IS_BACKUP_DIR)
        for p in self.before:
            if below(p, path):
                self.fates[p] = "stays"
        return True

    def enter_dir(self, dest, path, node, session, shown, contents=False, root=False):
        if self.fail_backup_dir(dest, path) or not self.claim(dest, path, True, root):
            return
        if not any(i.dest == dest and i.session == session for i in self.items):
            self.items.append(Item(dest, path, node, session, contents=contents, root=root))
        if dest != self.top:
            self.source_names.setdefault(os.path.dirname(dest), set()).add(os.path.basename(dest))
        self.copied.add(dest)
        self.source_names.setdefault(dest, set())
        if not self.can_read(node):
            self.fail(path, "can't be read")
            return
        for child in sorted(p for p in self.before if os.path.dirname(p) == path):
            name = os.path.basename(child)
            thing = self.before[child]
            if thing.kind == "link" and self.o.get("copy-links"):
                thing = self.follow(child, self.host_of(session))
                if thing is None and self.excluded(os.path.join(shown, name), False):
                    continue
                if thing is None:
                    self.note_name(dest, name)
                    self.fail(child, "leads nowhere")
                    continue
            if self.excluded(os.path.join(shown, name), thing.kind == "dir"):
                continue
            self.note_name(dest, name)
            if thing.kind == "dir":
                self.enter_dir(os.path.join(dest, name), self.resolve_links(child, self.host_of(session)), thing, session,
                               os.path.join(shown, name))
            else:
                self.add_entry(os.path.join(dest, name), child, thing, session)

    def add_entry(self, dest, path, node, session):
        if node.kind == "link" and self.o.get("copy-links"):
            node = self.follow(path, self.host_of(session))
            if node is None:
                self.note_name(os.path.dirname(dest), os.path.basename(dest), implied=True)
                self.fail(path, "leads nowhere")
                return
        if node.kind in SPECIAL and not self.devices:
            return      # "skips … devices and FIFOs, unless --devices is given"
        self.add_file(dest, path, node, session)

    def add_file(self, dest, path, node, session, root=False):
        self.source_names.setdefault(os.path.dirname(dest), set()).add(os.path.basename(dest))
        if node.kind == "file" and root and not self.can_read(node):
            self.fail(path, "can't be read")
            return
        if node.kind == "file" and self.left_out_by_size(node):
            firsts = [i.path for i in self.items if i.dest == dest] or [self.left_out.setdefault(dest, path)]
            # "a file whose name a file of an earlier source has, even if --max-size or --min-size leaves out one of
            # them; this is an error (23)."
            if path not in firsts and self.o.get("remove-source-files"):
                self.fail(path, "what a source before it has there is not replaced")
            return
        if self.fail_backup_dir(dest, path) or not self.claim(dest, path, False, root):
            return
        self.items.append(Item(dest, path, node, session, root=root))

    # "--max-size: Leave out files larger than SIZE." "--min-size: Leave out files smaller than SIZE."
    def left_out_by_size(self, node):
        from world import size_of
        size = size_of(node.content)
        most, least = self.o.get("max-size"), self.o.get("min-size")
        return (most is not None and size > int(most)) or (least is not None and size < int(least))

    # "Patterns are tried in the order given, and the first one that matches decides. What no pattern matches
    # is copied. … A pattern that begins with a slash is matched from the top of the copied tree" "A pattern
    # with another slash, or with **, is matched against the end of the path." "Any other pattern is matched
    # against the last component of the name." "A pattern that ends with a slash matches only directories." "*
    # and ? do not match a slash; ** does."
    def excluded(self, path, dir):
        for verb, pattern in self.o.get("rules", []):
            # "A pattern that begins with "+ " includes, and one that begins with "- " excludes"
            if pattern.startswith(("+ ", "- ")):
                verb, pattern = "include" if pattern[0] == "+" else "exclude", pattern[2:]
            if matches(pattern, path, dir):
                return verb == "exclude"
        return False

    def fail(self, path, why):
        self.failed.append((path, why))

    # "Files that vanished from the source do not count as failed here."
    def any_broken(self):
        return any(why != VANISHED for _, why in self.failed)

    # ---- storing -------------------------------------------------------------------------------

    # "-H: Keep hard links among the files of all trees and other SRCs that are on one host"
    def share_links(self):
        if not self.o.get("hard-links"):
            return
        groups = {}
        for item in self.items:
            if item.node.kind == "file" and self.has_hard_links(item):
                groups.setdefault((item.session, item.node.ino), []).append(item)
        for key, items in groups.items():
            if len(items) > 1:
                for item in items:
                    item.group = key

    def names_of(self, ino):
        return [p for p, n in self.before.items() if n.ino == ino and ino is not None and n.kind == "file"
                and below(p, self.top)]

    def store(self, item):
        # "A module has no /proc. … With --acls such a file fails (23)" in rdcpd(8).
        if item.node.kind in SPECIAL and self.o.get("acls") and self.case.sources[item.session][0] in self.case.daemons:
            self.fail(item.path, "its ACL is out of reach")
            item.fate = "stays"
            return
        parent = os.path.dirname(item.dest)
        if parent in self.untouched or any(below(item.dest, p) for p in self.untouched):
            self.untouched.add(item.dest)
            item.fate = "stays"
            return
        if any(below(item.dest, p) and item.dest != p for p in self.unchecked):
            item.fate = "either"
            return
        if item.node.kind == "dir":
            self.store_dir(item)
        elif item.node.kind == "file":
            self.store_file(item)
        else:
            self.store_other(item)

    def store_dir(self, item):
        old = self.after.get(item.dest)
        if old is not None and old.kind == "dir":
            return
        if old is not None:
            # "--ignore-existing: If a file or link at DST has the name of a source directory, rdcp skips the
            # directory and everything in it."
            if self.o.get("ignore-existing"):
                self.untouched.add(item.dest)
                return
            self.set_aside(item.dest)
        # "--existing: rdcp creates nothing under a new name, and copies nothing into a missing directory."
        elif self.o.get("existing"):
            self.untouched.add(item.dest)
            return
        self.after[item.dest] = self.with_metadata(item.node, Node("dir", None, None), None)
        self.new.add(item.dest)

    # "Without --perms, a new file gets the mode of the source minus the umask … An existing file keeps its
    # mode, and also its owner" "-a: modes, times, owners, groups" "--chmod: Change the modes of the source
    # before they are used" "--chown: Give everything that is copied this owner or group"
    def with_metadata(self, source, node, old):
        """node, with the metadata that it gets from the source or keeps from the old entry."""
        mode = source.mode
        if mode is not None and self.o.get("chmod"):
            mode = CHMODS[self.o["chmod"]](source.kind == "dir", mode)
        # "incoming chmod: … They come after those of the client, and before the umask of rdcpd"
        incoming = self.case.target[0] in self.case.daemons and self.case.module.get("incoming chmod")
        if mode is not None and incoming:
            mode = CHMODS[incoming](source.kind == "dir", mode)
        if self.perms:
            node.mode = mode
        elif old is not None:
            node.mode = old.mode
        elif mode is not None:
            node.mode = mode & ~self.case.umask
        node.mtime = source.mtime if self.times else None
        ours = self.case.uid
        node.uid = source.uid if self.owner and ours == 0 else old.uid if old is not None else ours
        node.gid = source.gid if self.group and ours == 0 else old.gid if old is not None else ours
        if self.o.get("chown") and ours == 0:
            node.uid = node.gid = int(self.o["chown"].split(":")[0])
        self.set_attributes(source, node, old)
        if node.kind == "link":
            node.mode = None
        return node

    # "-A: Keep ACLs, and modes as with --perms." "-X: Keep extended attributes in the user namespace and, for root, in
    # trusted." "An existing file keeps its mode, and also its owner, ACL and extended attributes as far as permitted."
    # "With --perms, what replaces a file does not get its ACL and its extended attributes."
    def set_attributes(self, source, node, old):
        unread = source.mode is not None and not self.can_read(source) and (self.o.get("xattrs") or self.o.get("acls"))
        if node.kind not in ("file", "dir") or unread:
            node.xattrs = node.acls = None
            return
        node.xattrs = self.kept_xattrs(source) if self.o.get("xattrs") else {} if old is None else old.xattrs
        if self.o.get("acls"):
            # The mode is part of the ACL.
            node.acls = None if source.acls and self.o.get("chmod") else source.acls
        elif old is not None and old.acls:
            node.acls = None if self.perms else old.acls
        else:
            node.acls = {} if old is None else old.acls

    # "with --xattrs, those [in trusted] of files in a module are left out, and a file that would bring one into a module is
    # stored without it (23)", in rdcpd(8).
    def kept_xattrs(self, source):
        push, pull = self.case.target[0] in self.case.daemons, any(h in self.case.daemons for h, _ in self.case.sources)
        if not source.xattrs or not (push or pull):
            return source.xattrs
        kept = {n: v for n, v in source.xattrs.items() if not n.startswith("trusted.")}
        if not pull and kept != source.xattrs:
            self.unkept.append(source)
        return kept

    # "-u: Skip files that are newer at DST." "--ignore-existing: Skip files that exist at DST." "--checksum:
    # Skip files whose content is the same at DST, whatever their times." "Complete files are not sent again
    # if times are kept … and size and time are the same." (Here the file system at DST stores nanoseconds.)
    def decide(self, item, old):
        # "--existing: Update only what exists at DST, whether file, link, device, FIFO or directory."
        if old is None:
            return "leave" if self.o.get("existing") else "send"
        if self.o.get("ignore-existing"):
            return "leave"
        if old.kind != "file":
            return "send"
        if self.o.get("update") and old.mtime > item.node.mtime:
            return "leave"
        from world import size_of
        if self.o.get("checksum"):
            return "same" if old.content == item.node.content else "send"
        # "A file that is already at the target is removed from the source, too, if its content is the same;
        # the same time is not enough." "--ignore-times: Send files even if their size and time are the same"
        if self.times and self.o.get("remove-source-files") and not self.o.get("ignore-times"):
            return "same" if old.content == item.node.content else "send"
        if self.times and not self.o.get("ignore-times") and old.mtime == item.node.mtime and size_of(old.content) == size_of(item.node.content):
            return "same"
        return "send"

    def store_file(self, item):
        old, was = self.after.get(item.dest), self.before.get(item.dest)
        both = old is not None and was is not None and old.kind == was.kind
        what = self.decide(item, was if both else old)
        if what == "leave":
            equal = old is not None and old.kind == "file" and old.content == item.node.content
            item.fate = "either" if equal else "stays"
            return
        # rdcp opens a file that it does not send only for attributes to keep, or to compare contents. An
        # empty file has no content to compare.
        from world import size_of
        compared = what == "send" or self.o.get("acls") or self.o.get("xattrs") or (
            size_of(item.node.content) > 0 and (self.o.get("checksum") or self.o.get("remove-source-files")))
        if compared and not self.can_read(item.node) and self.has_equal_name(item):
            self.inexact = "a file that can't be read, and is linked to a name that has its size and time"
        if compared and not self.can_read(item.node):
            self.fail(item.path, "can't be read")
            item.fate = "stays"
            return
        # "A file that shrinks, or gets a new modification time at the same size, is an error". "The target keeps its
        # old content."
        if compared and self.faulty.get(item.path) in (CHANGED, VANISHED):
            self.fail(item.path, self.faulty[item.path])
            item.fate = "stays"
            return
        if what == "same" and old.content != item.node.content:
            item.fate = "stays"
            item.same_by_time = True
        if item.root and not self.recursive and not self.may_replace(item, old):
            return
        if old is not None and old.kind == "dir" and not self.clear_dir(item):
            return
        # "A device, a FIFO or standard output as DST is written in place": in a tree it is replaced, as a link is.
        if old is not None and old.kind in SPECIAL and item.root:
            self.inexact = "a device or FIFO at the target, for a named source"
        item.fate = item.fate or "gone"
        if what == "same":
            self.make_same(item, old)
            return
        # "With --remove-source-files, --update, --max-size or --min-size, rdcp replaces a file that has other hard links."
        alone = not any(map(self.o.get, ("remove-source-files", "update", "max-size", "min-size"))) or item.dest not in self.before or \
            len(self.names_of(self.before[item.dest].ino)) < 2
        if old is not None and old.kind == "file" and self.o.get("inplace") and alone:
            # "Write into the existing file …; you must have write permission for it."
            if self.case.uid and old.mode is not None and not old.mode & 0o200:
                if self.shares_target(item):
                    self.inexact = "--inplace into a file with other names that may not be written"
                self.fail(item.path, "its target may not be written")
                item.fate = "stays"
                return
            self.doubt_linked_mode(item)
            self.write_inplace(item, old)
            return
        if old is not None and old.kind != "dir":
            self.set_aside_file(item, old)
        existing = old if old is not None and old.kind == "file" else None
        if existing is not None and self.perms:
            existing = existing.copy()
            existing.xattrs, existing.acls = {}, {}
        new = Node("file", item.node.content, None, ino=("new", item.dest))
        self.after[item.dest] = self.with_metadata(item.node, new, existing)
        self.replaced.add(item.dest)

    def has_equal_name(self, item):
        """Whether another name of this file is not sent: rdcp may link this name to that one, without reading."""
        return item.group is not None and any(
            i.group == item.group and i is not item and i.dest in self.before and self.before[i.dest].kind == "file" and
            self.decide(i, self.before[i.dest]) == "same" for i in self.items)

    def doubt_linked_mode(self, item):
        """Another name of the target file may make it read-only, before or after this name is written."""
        linked = self.names_of(self.before[item.dest].ino) if item.dest in self.before else ()
        if self.case.uid and any(i.dest in linked and i is not item and not i.node.mode & 0o200 for i in self.items
                                 if i.node.kind == "file"):
            self.inexact = "--inplace into a file that another name makes read-only"

    # Without -r, a target file must be writable. In a tree rdcp replaces it regardless of its mode.
    def may_replace(self, item, old):
        if os.path.dirname(item.dest) != self.top and item.dest != self.top:
            return True
        if old is not None and old.kind == "dir" and item.group:
            self.inexact = "a hard link where a directory is, without -r"
        readonly = old is not None and old.kind == "file" and self.case.uid and not old.mode & 0o200
        if readonly or (old is not None and old.kind == "dir"):
            self.fail(item.path, "its target may not be written")
            item.fate = "stays"
            return False
        return True

    # "Files that are linked at the target but not in the source stay linked while they are the same.":
    # metadata that one name gets, the other names have too.
    def make_same(self, item, old):
        new = self.with_metadata(item.node, old.copy(), old)
        if not self.times:
            new.mtime = old.mtime
        self.after[item.dest] = new
        others = [p for p in self.names_of(self.before[item.dest].ino) if p != item.dest] if item.dest in self.before else []
        # A backup of another name of this file is still a name of it.
        for path in others + sorted(self.backups):
            node = self.after.get(path)
            if node is not None and node.ino == old.ino:
                node.open_metadata()
        if others:
            new.open_metadata()

    # "--inplace: Write into the existing file …"
    def write_inplace(self, item, old):
        names = self.names_of(self.before[item.dest].ino) if item.dest in self.before else [item.dest]
        new = self.with_metadata(item.node, Node("file", item.node.content, None, ino=old.ino), old)
        if isinstance(old.content, frozenset):
            new.content = old.content | {item.node.content}
        self.after[item.dest] = new
        if len(names) > 1 or item.group:
            for path in names:
                node = self.after.get(path)
                if node is None or node.kind != "file":
                    continue
                contents = node.content if isinstance(node.content, frozenset) else frozenset([node.content])
                node.content = contents | {item.node.content}
                node.open_metadata()
                node.ino = None
        self.replaced.add(item.dest)

    def shares_target(self, item):
        names = self.names_of(self.before[item.dest].ino) if item.dest in self.before else ()
        return any(i.dest in names and i is not item for i in self.items)

    # "Other hard links to the file change too, except those that SRC has as other files."
    def settle_shared(self):
        for item in self.items if self.o.get("inplace") else ():
            node = self.after.get(item.dest)
            if item.fate != "gone" or node is None or node.kind != "file" or not isinstance(item.node.content, str):
                continue
            # Names that count as the same keep what they have, and others of the group are linked to them.
            same = [i for i in self.items if i.same_by_time and (i is item or item.group and i.group == item.group)]
            contents = {item.node.content}.union(*(as_set(self.before[i.dest].content) for i in same))
            node.content = item.node.content if len(contents) == 1 else frozenset(contents)

    # "It copies a link found in a tree as a link." "--devices: Re-create devices … and FIFOs found in a tree."
    def store_other(self, item):
        old = self.after.get(item.dest)
        if self.o.get("existing" if old is None else "ignore-existing"):
            item.fate = "stays"
            return
        # "--devices: Re-create devices (root only)"; --dry-run makes none
        if item.node.kind in DEVICES and self.case.uid and not self.o.get("dry-run"):
            self.fail(item.path, "only root makes devices")
            item.fate = "stays"
            return
        if old is not None and old.kind == "dir" and not self.clear_dir(item):
            return
        item.fate = "gone"
        same = old is not None and old.kind == item.node.kind and old.text == item.node.text
        if old is not None and old.kind != "dir" and not same:
            self.set_aside(item.dest)
        existing = old if same else None
        new = Node(item.node.kind, None, None, text=item.node.text)
        self.after[item.dest] = self.with_metadata(item.node, new, existing)
        self.replaced.add(item.dest)

    def inside(self, dir):
        return [p for p in self.after if below(p, dir) and p != dir]

    # "A directory is also deleted with its contents if a file of the source has its name. Without --delete,
    # the file fails (23), unless the directory is empty." "excluded files stay": then the whole directory does.
    def clear_dir(self, item):
        inside = self.inside(item.dest)
        # "If a file comes with the name of a directory that has anything in it, the file fails (23), unless --backup
        # keeps the directory."
        if inside and (not self.delete or self.continues_move(item.path) and not self.backup):
            self.fail(item.path, "a directory is in the way")
            item.fate = "stays"
            return False
        if inside and not self.o.get("delete-excluded") and any(
                self.excluded(self.relative_name(p), self.after[p].kind == "dir") for p in inside):
            self.fail(item.path, "a directory with something protected is in the way")
            item.fate = "stays"
            return False
        if inside and self.o.get("max-delete") is not None:
            self.inexact = "--max-delete, and a directory in the way"
        if inside and self.backup:
            self.inexact = "a backup of a directory in the way"
        for path in inside + [item.dest]:
            self.deleted.add(path)
            del self.after[path]
        return True

    # ---- hard links ----------------------------------------------------------------------------

    # All copied names of one file become one file at the target. Names that rdcp skips (-u,
    # --ignore-existing) stay as they are.
    def link_groups(self):
        groups = {}
        for item in self.items:
            if item.group and (item.fate in ("gone", "either") or item.same_by_time) and item.dest in self.after \
                    and not below_any(item.dest, self.unchecked):
                if item.fate == "either" and self.decide(item, self.before.get(item.dest)) == "leave":
                    continue
                groups.setdefault(item.group, []).append(item)
        shared = set()      # paths that stayed linked to names of a group
        for key, items in groups.items():
            if len(items) < 2:
                continue
            old = any(i.dest in self.before and self.before[i.dest].kind == "file" for i in items)
            keepers = {self.after[i.dest].ino for i in items} - {None}
            # "Files that are linked at the target but not in the source stay linked while they are the same.":
            # here with names of an earlier group.
            joined = bool(shared & {i.dest for i in items})
            # The other names are linked to the file that has the same size and time.
            taken = {c for i in items if i.same_by_time for c in [self.before[i.dest].content]}
            # "Other hard links to the file change too": so do names that are linked to it now.
            taken |= {c for i in items if self.o.get("inplace") and isinstance(self.after[i.dest].content, frozenset)
                      for c in self.after[i.dest].content}
            for item in items:
                node = self.after[item.dest]
                if self.o.get("inplace") and node.ino is None:
                    if taken:
                        contents = node.content if isinstance(node.content, frozenset) else frozenset([node.content])
                        node.content = contents | taken
                    continue
                node.ino = ("group", key) if not joined else None
                if self.backup and item.dest in self.before:
                    self.doubt_backup(item.dest)    # rdcp may replace it although it is the same
                if old and not self.perms:
                    node.mode = None
                if old and not self.o.get("acls"):
                    node.acls = None
                if old and not self.o.get("xattrs"):
                    node.xattrs = None
                if not self.times:
                    node.mtime = None
                if old and not self.owner:
                    node.uid = None
                if old and not self.group:
                    node.gid = None
                if isinstance(node.content, str) and (taken or node.content != item.node.content):
                    node.content = frozenset([node.content, item.node.content]) | taken
            # All names of one file have the same metadata: a field that is open for one is open for all.
            for field in ("mode", "mtime", "uid", "gid"):
                if any(getattr(self.after[i.dest], field) is None for i in items):
                    for item in items:
                        setattr(self.after[item.dest], field, None)
            for path, node in self.after.items():
                if node.ino in keepers and path not in {i.dest for i in items}:
                    node.ino = None
                    node.open_metadata()
                    shared.add(path)

    # ---- directories ---------------------------------------------------------------------------

    # "Times are kept …, including those of directories and symbolic links."
    def set_directories(self):
        for item in self.items:
            if item.node.kind != "dir" or item.dest in self.untouched or self.after.get(item.dest) is None:
                continue
            node = self.after[item.dest]
            if node.kind != "dir":
                continue
            old = None if item.dest in self.new or item.dest in self.unfinished else self.before.get(item.dest)
            if item.implied:
                node.open_metadata()
                continue
            if item.dest in self.mkpath_dirs and not self.perms:
                node.open_metadata()
                continue
            firsts = [i for i in self.items if i.dest == item.dest]
            new = self.after[item.dest] = self.with_metadata(firsts[0].node, Node("dir", None, None), old)
            # The model leaves the metadata of merged directories open. So it does for DST with several source
            # hosts: later copies change its times.
            if len(firsts) > 1 or (item.dest == self.top and len({h for h, _ in self.case.sources}) > 1):
                new.open_metadata()
        for path, node in self.after.items():
            if node.kind == "dir" and below(path, self.top) and not any(i.dest == path for i in self.items):
                node.mtime = None
        above = os.path.dirname(self.top)
        while above:
            self.after[above].mtime = None
            above = os.path.dirname(above)

    # ---- deleting ------------------------------------------------------------------------------

    def relative_name(self, path):
        """path, relative to the top of the copied tree."""
        return path[len(self.top) + 1:]

    # "When everything else is stored, rdcp deletes what SRC … does not have from the directories of DST that
    # were copied." "excluded files stay" "If a directory of SRC could not be read, or a file could not be copied,
    # rdcp reports this and deletes nothing." "While this marker exists in a
    # directory that is copied, or above a SRC, no such run deletes anything, whatever its DST."
    def delete_rest(self):
        if self.any_broken() or self.continues_move():
            return
        gone = []
        for dir in sorted(self.copied):
            if dir in self.new or dir in self.untouched or self.before.get(dir) is None or self.before[dir].kind != "dir":
                continue
            for path in sorted(p for p in self.after if os.path.dirname(p) == dir):
                if os.path.basename(path) not in self.source_names[dir] and path in self.before:
                    self.collect_deletable(path, gone)
        most = self.o.get("max-delete")
        # "Delete at most N files and directories. If there were more and nothing failed, exit with 25."
        if most is not None and len(gone) > int(most):
            self.too_many = (set(gone), int(most))
            if self.backup:
                self.inexact = "--max-delete, and backups"
            self.codes = {25}
            return
        for path in gone:
            node = self.after.pop(path)
            self.deleted.add(path)
            if self.backup and node.kind != "dir":
                self.put_backup(path, node)

    def continues_move(self, path=None):
        """path: only a move of a directory above it."""
        return bool(self.o.get("remove-source-files") and not self.o.get("dry-run") and any(
            os.path.basename(p) == MOVE_MARKER and os.path.dirname(p) != self.top and
            (path is None or below(path, os.path.dirname(p))) for p in self.leftovers))

    def collect_deletable(self, path, gone):
        """Adds path and its contents to gone, without what must stay. Returns whether path itself stays."""
        node = self.after[path]
        if self.is_protected(path, node):
            return True
        stays = False
        if node.kind == "dir":
            for child in sorted(p for p in self.after if os.path.dirname(p) == path):
                stays = self.collect_deletable(child, gone) or stays
            stays = stays or (self.backup and not self.backup_dir and
                              any(below(p, path) and self.after[p].kind != "dir" for p in self.after))
        if not stays:
            gone.append(path)
        return stays

    # "--delete and --delete-excluded spare names that end with ~ (or with SUFFIX)." "--backup-dir: … --delete
    # spares DIR"
    def is_protected(self, path, node):
        if self.looks_like_backup(path):
            return True
        if self.backup_dir and (below(path, self.backup_top()) or below(self.backup_top(), path)):
            return True
        return not self.o.get("delete-excluded") and self.excluded(self.relative_name(path), node.kind == "dir")

    # ---- backups -------------------------------------------------------------------------------

    # "A relative DIR is below DST, or, if DST is a file, below the directory that contains DST."
    def backup_top(self):
        return os.path.normpath(os.path.join(self.backup_base(), self.backup_dir))

    def backup_base(self):
        """DST, or the directory that contains DST if DST is no directory."""
        node = self.before.get(self.top)
        return self.top if node is None or node.kind == "dir" else os.path.dirname(self.top)

    # "Keep what is replaced or deleted under its name with ~ appended."
    def set_aside(self, path):
        if not self.backup or path not in self.before:
            return
        self.put_backup(path, self.after[path])

    # "A file that is replaced by one with the same content gets no backup."
    def set_aside_file(self, item, old):
        if old.kind == "file" and (isinstance(old.content, frozenset) or old.content == item.node.content):
            if self.backup and (isinstance(old.content, frozenset) or not self.can_read(old)) and item.dest in self.before:
                self.doubt_backup(item.dest)
            return
        self.set_aside(item.dest)

    # "A backup replaces anything older of that name, whatever it is. If the source has a file of that
    # name too, or this run made another backup of that name, ~ is appended once more." "Keep backups
    # under their paths below DIR instead."
    def put_backup(self, path, node):
        to = self.backup_name(path)
        # Which of the two gets which name is open.
        while not self.backup_dir and to in self.backups:
            self.shared_backups = True
            self.leave_unchecked(to)
            to += self.suffix
            self.leave_unchecked(to)
        # The manual does not say what happens then.
        if len(os.fsencode(os.path.basename(to))) > NAME_MAX:
            self.inexact = "a backup whose name is too long"
        self.make_backup_dirs(os.path.dirname(to))
        for old in self.inside(to):
            del self.after[old]
            self.deleted.add(old)
            self.old_backups.add(old)
        self.deleted.add(to)
        self.after[to] = node.copy()
        self.backups.add(to)

    def looks_like_backup(self, path):
        return self.backup and not self.backup_dir and path.endswith(self.suffix)

    # "If DIR is a source or in one, the files that need a backup fail (23)."
    def check_backup_dir(self):
        if self.backup_dir and not below(self.backup_top(), "..") and any(
                below(self.backup_top(), self.resolve_links(p.rstrip("/"), h)) for h, p in self.case.sources):
            self.inexact = "--backup-dir in a source"

    def backup_name(self, path):
        if self.backup_dir:
            return os.path.join(self.backup_top(), os.path.relpath(path, self.backup_base() or ".") + self.suffix)
        to, taken = path + self.suffix, {i.dest for i in self.items}
        while to in taken:
            to += self.suffix
        return to

    def doubt_backup(self, path):
        """The backup of path, and the directories that lead to it, may or may not be made."""
        to, there = self.backup_name(path), set(self.after) - self.maybe_dirs
        self.leave_unchecked(to)
        self.make_backup_dirs(os.path.dirname(to))
        self.maybe_dirs |= set(self.after) - there

    def doubt_backups(self, paths):
        """The backups of paths, and the directories that lead only to them, may or may not be made."""
        names = {self.backup_name(p) for p in paths}
        for name in names:
            self.leave_unchecked(name)
            above = os.path.dirname(name)
            while above and above not in self.before and not any(below(b, above) for b in self.backups - names):
                self.maybe_dirs.add(above)
                above = os.path.dirname(above)

    def make_backup_dirs(self, path):
        above = path
        while above in self.maybe_dirs:
            self.maybe_dirs.discard(above)
            above = os.path.dirname(above)
        while path not in ("", "..") and path not in self.after:
            self.after[path] = Node("dir", None, None)
            path = os.path.dirname(path)
        if path in self.after and self.after[path].kind != "dir":
            self.inexact = "something is in the way of --backup-dir"
        elif path in self.after and not any(i.dest == path for i in self.items):
            self.after[path].mtime = None   # it has a new entry

    def leave_unchecked(self, path):
        self.unchecked.add(path)

    def leave_way_unchecked(self, path):
        """Of path and the directories that lead to it, those that are missing may be made."""
        while path and path not in self.before:
            self.leave_unchecked(path)
            path = os.path.dirname(path)

    # ---- the source ----------------------------------------------------------------------------

    # "--remove-source-files: remove each source file once it is stored" "The following stay in the source:"
    # "directories;" "with --ignore-existing or --existing, symbolic links, devices and FIFOs, and with -H also
    # some files that have several names."
    def remove_sources(self):
        if not self.o.get("remove-source-files"):
            return
        for item in self.items:
            if item.node.kind == "dir":
                continue
            fate = item.fate or "stays"
            if fate == "gone" and (self.o.get("ignore-existing") or self.o.get("existing")) and (
                    item.node.kind != "file" or (self.o.get("hard-links") and self.has_hard_links(item))):
                fate = "either"
            # "a file whose metadata could not be kept;"
            if fate == "gone" and any(n is item.node for n in self.unkept):
                fate = "stays"
            # "a symbolic link that was followed; this is an error (23, for a single file 11);"
            if self.before.get(item.path) is not None and self.before[item.path].kind == "link" and item.node.kind == "file":
                self.link_fates.add(fate)
                fate = "stays"
            # "--remove-source-files removes a source file only if it is still the file that was read."
            if fate != "stays" and self.faulty.get(item.path) == NOT_REMOVED:
                self.unremoved.append(item.path)
                fate = "stays"
            self.fates[item.path] = fate
        # "with --backup, FILE~, if a file failed"
        for path, fate in self.fates.items():
            if (self.failed or self.link_fates or self.unremoved or self.unkept) and fate == "gone" and self.looks_like_backup(path):
                self.fates[path] = "stays" if self.failed else "either"
        # "A file is removed … if one SRC is in another, when all files are stored."
        paths = [i.path for i in self.items if i.node.kind != "dir"]
        for path in {p for p in paths if paths.count(p) > 1}:
            self.settle_named_twice(path, [i for i in self.items if i.path == path])
        for path, fate in self.fates.items():
            if fate == "gone":
                self.after.pop(path, None)

    def settle_named_twice(self, path, items):
        if path in self.faulty:
            self.doubt_named_twice = True
            self.fates[path] = "either"
            for item in items:
                self.leave_unchecked(item.dest)
            if self.backup:
                self.doubt_backups({i.dest for i in items})
        elif any(i.fate == "gone" for i in items) and self.fates[path] == "stays":
            self.fates[path] = "either"

    def has_hard_links(self, item):
        return sum(n.ino == item.node.ino and n.ino is not None for n in self.before.values()) > 1

    # ---- the end -------------------------------------------------------------------------------

    # "A file that fails does not stop the others. rdcp … exits with 23."; 3 source missing, 11
    # reading or writing a file
    def settle_code(self, roots):
        single = self.is_single
        if not self.any_broken():
            unremoved = {11} if single else {23}
            # "If all failed files are files that vanished from the source after they had been found, the exit
            # status is 24."
            if self.failed:
                self.codes = {24}
            # "If there were more and nothing failed, exit with 25."
            if self.unremoved and not self.o.get("dry-run"):
                self.codes = {42} if single else {23}
            elif "gone" in self.link_fates and not self.o.get("dry-run"):
                self.codes = unremoved
            elif "either" in self.link_fates and not self.o.get("dry-run"):
                self.codes = self.codes | unremoved
            if self.doubt_named_twice:
                self.codes = self.codes | {23, 24}
            # "rdcp stores the file all the same, reports the first ten cases in full, and exits with 23."
            if self.unkept and not self.o.get("dry-run"):
                self.codes = self.codes - {0, 24, 25} | {23}
            return
        if single:
            self.codes = {3} if self.failed[0][1] == "missing" else {42} if self.failed[0][1] == CHANGED else {11}
            if "its host" in self.failed[0][1]:
                self.codes = {5}
        else:
            self.codes = {23}
            if all("its host" in why for _, why in self.failed):
                self.codes = {5, 23}
            elif not self.any_copied():
                self.codes = self.code_of_hosts(roots)
            # Under its other name it may be gone before it can fail.
            if self.doubt_named_twice:
                self.codes = self.codes | {24}

    def any_copied(self):
        failed = {p for p, _ in self.failed}
        return any(i.path not in failed for i in self.items)

    # "one of several hosts failed. (If nothing was copied from any host, the status is that of the first
    # failure.)"
    def code_of_hosts(self, roots):
        whys = {}
        for host, path, _ in sorted(roots, key=lambda r: self.session_of(r[0])):
            whys.setdefault(host, []).extend(why for p, why in self.failed if p == path)
        if len(whys) == 1 or not all(whys.values()):
            return {23}
        first, why = next(iter(whys.items()))
        if "its host" in why[0]:
            return {5}
        if sum(host == first for host, _, _ in roots) > 1:
            return {23}
        return {3} if why[0] == "missing" else {42} if why[0] == CHANGED else {11}


def as_set(content):
    return content if isinstance(content, frozenset) else frozenset([content])


def below_any(path, tops):
    return any(below(path, t) for t in tops)


def matches(pattern, path, dir):
    """Patterns match bytes."""
    pattern, path = (os.fsencode(t).decode("latin-1") for t in (pattern, path))
    if pattern.endswith("/"):
        if not dir:
            return False
        pattern = pattern[:-1]
    wild = any(c in pattern for c in "*?[")
    if pattern.startswith("/"):
        return full_match(translated(pattern[1:], wild), path)
    if pattern.startswith("**"):
        return full_match(translated(pattern, wild), "/" + path)    # ** also matches no directory, as in rsync
    if "/" in pattern or "**" in pattern:
        return full_match("(.*/)?" + translated(pattern, wild), path)
    return full_match(translated(pattern, wild), path.rsplit("/", 1)[-1])


def full_match(expression, text):
    return re.fullmatch(expression, text, re.DOTALL) is not None


# As in rsync, a backslash escapes only in a pattern with a wildcard. generate() makes no sets.
def translated(pattern, wild):
    out, i = "", 0
    while i < len(pattern):
        if pattern.startswith("**", i):
            out, i = out + ".*", i + 1
        elif pattern[i] == "*":
            out += "[^/]*"
        elif pattern[i] == "?":
            out += "[^/]"
        elif pattern[i] == "\\" and wild:
            out, i = out + re.escape(pattern[i + 1]), i + 1
        else:
            out += re.escape(pattern[i])
        i += 1
    return out


__all__ = ["CHANGED", "IS_STREAM", "NOT_REMOVED", "VANISHED", "Model", "stat"]
