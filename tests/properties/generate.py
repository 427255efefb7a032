# SPDX-License-Identifier: Apache-2.0
"""Generates a case from a seed: trees, a command, the existing target, and a fault."""

import os
import random

import globs
import names
from model import CHMODS, Model
from world import Node, acl_of, below, size_of

NOW = 1_500_000_000 * 10**9
SECOND = 10**9
NAMES = ["a", "b", "c", "d", "e.o", "f.c"]
PATTERNS = ["*.o", "a", "/a", "b/", "d/*", "*.c", "/b/**", "?", "s1", "/s1/c", "**/e.o"]
NOBODY = 65534

# Options that are flags, with their probability in a case. some_options() makes the others.
FLAGS = {"hard-links": .3, "update": .15, "ignore-existing": .12, "checksum": .15, "delete": .25,
         "delete-excluded": .06, "remove-source-files": .2, "inplace": .08, "sparse": .1, "no-sparse": .04,
         "verify": .1, "fsync": .08, "mkpath": .12, "copy-links": .08, "links": .03, "numeric-ids": .08,
         "relative": .08, "no-target-directory": .05, "one-file-system": .04, "backup": .08, "dry-run": .05,
         "preserve": .06, "perms": .06, "times": .08, "owner": .05, "group": .04, "devices": .06,
         "no-perms": .04, "no-times": .05, "no-owner": .03, "no-group": .03, "no-devices": .03, "no-recursive": .02,
         "acls": .03, "xattrs": .03, "itemize-changes": .06, "json": .05, "stats": .04, "verbose": .05,
         "quiet": .05, "print-digest": .05, "exclude-from": .05, "include-from": .05,
         "ignore-times": .05, "whole-file": .03, "progress": .03, "human-readable": .02, "ipv4": .03, "ipv6": .03,
         "-3": .03, "-C": .03}
VALUES = {"max-delete": (.08, ["0", "1", "2", "5", "100"]), "backup-dir": (.05, ["aside", "as/ide", "../aside", ".", "d", "../s1/d"]),
          "suffix": (.04, [".old", "~~"]), "chmod": (.08, sorted(CHMODS)), "chown": (.04, ["1234:1234"]),
          "max-size": (.07, ["0", "40", "1000"]), "min-size": (.05, ["1", "40", "1000"]),
          "lanes": (.3, ["1", "1", "2", "4"]), "depth": (.08, ["1", "3"]), "block-size": (.1, ["4k", "64k"]),
          "direct": (.05, ["on", "off", "auto"]), "memory": (.03, ["1M", "8M"]), "rails": (.02, ["1"]),
          "tos": (.02, ["af21", "0"]), "encrypt": (.1, ["on", "off", "auto"]),
          "compress": (.12, ["auto", "zstd", "zstd", "3", "19"]), "compress-level": (.03, ["1", "9"]), "compress-choice": (.04, ["zstd", "none"]), "bwlimit": (.02, ["1G"]), "timeout": (.05, ["9"]), "connect-timeout": (.03, ["9"]),
          "transport": (.06, ["tcp", "auto", "ssh"]), "failed": (.04, ["ASIDE/failed"]), "log-file": (.03, ["ASIDE/log"]),
          "address": (.03, ["127.0.0.1"]), "port-range": (.03, ["20000-59999"]), "daemon-port": (.05, ["1"]),
          "rdma-op": (.03, ["auto", "send", "write-imm", "write-send"]), "-l": (.02, ["8000000"]),
          "-P": (.02, ["2222"]), "-i": (.02, ["key"]), "-F": (.02, ["config"]), "-J": (.02, ["jump"]), "-o": (.02, ["User=a"])}
# Options that other functions here add.
MADE = {"recursive", "archive", "exclude", "include", "files-from", "from0", "rsh", "rdcp-path", "existing",
        "ignore-non-existing", "-S", "key-file"}
# Other words for an option.
SPELLINGS = {"recursive": ["-r"], "archive": ["-a"], "hard-links": ["-H"], "update": ["-u"], "copy-links": ["-L"],
             "one-file-system": ["-x"], "acls": ["-A"], "xattrs": ["-X", "--xattrs=all"], "dry-run": ["-n"], "backup": ["-b"],
             "verbose": ["-v", "-vv", "-vvv"], "quiet": ["-q"], "preserve": ["-p"], "times": ["-t"], "group": ["-g"],
             "no-target-directory": ["-T"], "ignore-times": ["-I"], "whole-file": ["-W"], "human-readable": ["-h"],
             "existing": ["--ignore-non-existing"], "progress": ["--progress=1"], "print-digest": ["--print-digest=sha256"],
             "ipv4": ["-4"], "ipv6": ["-6"], "rsh": ["-S"]}
# Options that no case has, with the reason.
ELSEWHERE = {"help": "copies nothing", "version": "copies nothing"}


class Case:
    """options: by name, True or a value; "rules" holds --include and --exclude in order. sources, target: (host,
    path). daemons: these hosts are not reached by ssh, but are modules of the rdcpd at url; module: their settings, as
    in rdcpd.conf(5). names: the odd names that names.apply() gives to plain ones; escapes: whether a remote source is
    escaped where it need not be."""

    def __init__(self, seed):
        self.seed, self.options, self.sources, self.target = seed, {}, [], ("", "t")
        self.world, self.umask, self.uid = {}, 0o022, 0
        self.unreachable, self.listed, self.fault = set(), [], None
        self.names, self.escapes = {}, False
        self.daemons, self.url, self.module = set(), "rdma://HOST/", {}
        self.spelled = {}   # {option: one of SPELLINGS}

    def words(self, sources=None):
        """The command line. sources: those of the case, expanded as by a shell."""
        words = []
        for name, value in self.options.items():
            if name in ("rules", "exclude-from", "include-from"):
                continue    # trial.py writes each rule to a file for the last two
            if name.startswith("-"):
                words.append(name if value is True else name + value)
            elif name in self.spelled:
                words.append(self.spelled[name])
            else:
                words.append("--" + name if value is True else "--%s=%s" % (name, value))
        words += ["--%s=%s" % rule for rule in self.options.get("rules", [])]
        if "files-from" in self.options and "--from0" in words:
            words.sort(key=lambda w: w == "--files-from=list")
        words.sort(key=lambda w: w.startswith("--no-"))    # they undo earlier options
        for host, path in sources or self.sources:
            words.append(self.remote(host, path if host in self.daemons else self.escaped(path)) if host else
                         globs.text_of(path))
        host, path = self.target
        words.append(self.remote(host, path) if host else path)
        return words

    def remote(self, host, path):
        return "%s%s/%s" % (self.url, host, path) if host in self.daemons else host + ":" + path

    # "The far end expands … in a SRC, glob patterns. If a file has the pattern itself as its name, that file is
    # copied": a name that the run may remove is escaped. Patterns match nothing in a directory that can't be
    # read.
    def escaped(self, path):
        if globs.is_glob(path):
            return globs.text_of(path)      # its directories can be read
        removes = self.has("remove-source-files") or (self.fault or {}).get("how") == "unlink"
        if names.is_wild(path) and (self.escapes or removes) and not self.uid:
            return names.escape(path)
        return path

    def has(self, *names):
        return all(self.options.get(n) for n in names)


# ---- trees ----------------------------------------------------------------------------------------

def some_size(rng, big):
    r = rng.random()
    if r < .1:
        return 0
    if r < .8 or not big:
        return rng.choice([8, 12, 12, 33, 60, 700])
    return rng.choice([5000, 270000, 300001, 1200000]) if r < .985 else 4500000


def some_file(rng, label, big=True):
    content = "%s:%d" % (label, some_size(rng, big))
    if size_of(content) > 200000 and rng.random() < .3:
        content += "/hole"
    return Node("file", content, rng.choice([0o644, 0o644, 0o600, 0o755, 0o640, 0o444]), some_time(rng))


def some_time(rng):
    return NOW + rng.randrange(5) * SECOND + rng.choice([0, 0, 0, 123456789])


def add_tree(rng, world, top, names=NAMES, depth=0, copy_links=False):
    world[top] = Node("dir", None, rng.choice([0o755, 0o755, 0o700, 0o750]), some_time(rng))
    for name in rng.sample(names, rng.randrange(1 if depth else 2, 5)):
        path, r = top + "/" + name, rng.random()
        if r < .28 and depth < 2:
            add_tree(rng, world, path, names, depth + 1, copy_links)
        elif r < .38:
            to = ["nowhere", "../" + name, "a"] if not copy_links else ["nowhere"]
            world[path] = Node("link", text=rng.choice(to + ["@/out/f", "@/out/d"]), mtime=some_time(rng))
        elif r < .41:
            world[path] = Node("fifo", None, 0o644, some_time(rng))
        else:
            world[path] = some_file(rng, path)


def add_hard_links(rng, world, tops, most):
    """Adds hard links to some files below tops, also from one top to another."""
    files = [p for p in world if world[p].kind == "file" and below_one(p, tops)]
    dirs = [p for p in world if world[p].kind == "dir" and below_one(p, tops)]
    rng.shuffle(files)
    for n, path in enumerate(files[:most]):
        for _ in range(rng.randrange(1, 3)):
            new = rng.choice(dirs) + "/" + rng.choice(NAMES + ["x%d" % n])
            if new not in world:
                node = world[path]
                node.ino = node.ino or "h:" + path
                world[new] = node.copy()


def below_one(path, tops):
    return any(below(path, t) for t in tops)


# ---- options --------------------------------------------------------------------------------------

def some_options(rng):
    o = {}
    r = rng.random()
    if r < .55:
        o["archive"] = True
    elif r < .95:
        o["recursive"] = True
    few = rng.choice([.3, 1, 1, 2])
    # Each option draws its own random numbers, so that a new option changes only the cases that have it.
    base = rng.random()
    for name, chance in FLAGS.items():
        if random.Random("%r %s" % (base, name)).random() < chance * few:
            o[name] = True
    for name, (chance, values) in VALUES.items():
        own = random.Random("%r %s" % (base, name))
        if own.random() < chance * few:
            o[name] = own.choice(values)
    if rng.random() < .2 * few:
        o["rules"] = [(rng.choice(["exclude", "exclude", "include"]), rng.choice(PATTERNS))
                      for _ in range(rng.randrange(1, 4))]
    if o.get("suffix") and not (o.get("backup") or o.get("backup-dir")):
        o["backup"] = True
    # Usually drop one of two conflicting options: a few refusals are enough.
    for a, b in (("inplace", "backup"), ("inplace", "sparse"), ("inplace", "backup-dir"), ("sparse", "no-sparse")):
        if a in o and b in o and rng.random() < .95:
            del o[b]
            if b.startswith("backup"):
                o.pop("suffix", None)
    return o


# ---- the existing target ------------------------------------------------------------------------------

def fill_target(rng, case):
    """Fills the target with entries that are equal to, older or newer than, or different from the expected ones."""
    world, top = case.world, case.target[1].rstrip("/")
    if os.path.dirname(top) and rng.random() < .7:
        world[os.path.dirname(top)] = Node("dir", None, 0o755, some_time(rng))
    r = rng.random()
    if r < .25:
        return
    if r < .29 and (not os.path.dirname(top) or os.path.dirname(top) in world):
        world[top] = some_file(rng, "old " + top)
        return
    trial = Case(case.seed)
    trial.__dict__.update(case.__dict__)
    trial.options = {n: v for n, v in case.options.items() if n not in (
        "delete", "delete-excluded", "backup", "backup-dir", "suffix", "dry-run", "remove-source-files", "inplace")}
    base = dict(world)
    base[top] = Node("dir", None, 0o755, some_time(rng))
    up = os.path.dirname(top)
    while up and up not in base:
        base[up] = Node("dir", None, 0o755, some_time(rng))
        up = os.path.dirname(up)
    world.update({p: n for p, n in base.items() if p not in world})
    if r < .33:
        return
    ideal = Model(trial, base)
    for path in sorted(ideal.after):
        if below(path, top) and path != top and os.path.dirname(path) in world and \
                world[os.path.dirname(path)].kind == "dir":
            add_old_entry(rng, case, path, ideal.after[path])
    dirs = [p for p in world if below(p, top) and world[p].kind == "dir"]
    for n in range(rng.choice([0, 1, 2, 3])):
        path = rng.choice(dirs) + "/" + rng.choice(NAMES + ["old%d" % n, "keep.o"])
        if path not in world and os.path.dirname(path) in world:
            if rng.random() < .3:
                add_tree(rng, world, path, depth=1)
            else:
                world[path] = some_file(rng, "old " + path, False)
    if rng.random() < .25:
        add_hard_links(rng, world, [top], 2)


def add_old_entry(rng, case, path, ideal):
    world, r = case.world, rng.random()
    if ideal.kind == "dir":
        if r < .75:
            world[path] = Node("dir", None, rng.choice([0o755, 0o711]), some_time(rng))
        elif r < .8:
            world[path] = some_file(rng, "old " + path, False)
        elif r < .84:
            world[path] = Node("link", text="@/out/d", mtime=some_time(rng))
        return
    mtime = ideal.mtime if ideal.mtime is not None else NOW + SECOND
    if r < .3:
        return
    if ideal.kind == "file" and isinstance(ideal.content, str):
        if r < .5:
            world[path] = Node("file", ideal.content, 0o644, mtime)     # equal
        elif r < .6:
            world[path] = Node("file", ideal.content, 0o600, some_time(rng))
        elif r < .65 and size_of(ideal.content) and not case.has("hard-links"):
            tail = ideal.content.rsplit(":", 1)[1]
            world[path] = Node("file", "false " + path + ":" + tail, 0o644, mtime)  # same size and time, different content
        elif r < .9:
            world[path] = some_file(rng, "old " + path)
    elif ideal.kind == "link" and r < .6:
        world[path] = Node("link", text=rng.choice([ideal.text, "other"]), mtime=some_time(rng))
    if path not in world:
        kind = rng.random()
        if kind < .4:
            add_tree(rng, world, path, depth=2)
        elif kind < .6:
            world[path] = Node("dir", None, 0o755, some_time(rng))
        elif kind < .8:
            world[path] = Node("link", text=rng.choice(["@/out/f", "nowhere"]), mtime=some_time(rng))
        else:
            world[path] = some_file(rng, "old " + path, False)


def add_lookalikes(rng, case):
    """Adds files that have the names of backups of other files, to the source and to the target."""
    suffix = case.options.get("suffix") or "~"
    for path in sorted(p for p in case.world if case.world[p].kind == "file" and
                       below_one(p, ["s1", "s2", case.target[1].rstrip("/")])):
        if rng.random() < .5 and "/" in path and path + suffix not in case.world:
            label = path if below_one(path, ["s1", "s2"]) else "old " + path
            case.world[path + suffix] = some_file(rng, label + suffix, False)
            case.world[path + suffix].uid, case.world[path + suffix].gid = case.world[path].uid, case.world[path].gid


# ---- sources ------------------------------------------------------------------------------------------

def some_sources(rng, case):
    """[path as written], all on one host."""
    world = case.world
    dirs = [p for p in world if world[p].kind == "dir" and below(p, "s1")]
    files = [p for p in world if world[p].kind == "file" and below(p, "s1")]
    r = rng.random()
    if case.options.get("files-from"):
        return [rng.choice(["s1", "s1/"])]
    if case.options.get("relative"):
        picked = rng.sample(dirs + files, min(len(dirs + files), rng.randrange(1, 3)))
        return [p.replace("s1/", "s1/./", 1) if rng.random() < .4 else p for p in picked]
    if r < .38:
        return ["s1/"]
    if r < .5:
        return ["s1"]
    if r < .56 and files:
        return [rng.choice(files)]
    if r < .64:
        # rdcp reads a FIFO that is named as a source as a stream, but no process writes to it here.
        for path in [p for p in world if os.path.dirname(p) == "s1" and world[p].kind == "fifo"]:
            world[path] = some_file(rng, path)
        return ["s1/" + globs.MARK + "*"]
    if r < .70 and "sl" in world:
        return [rng.choice(["sl", "sl/"])]
    if r < .82 and files:
        return rng.sample(dirs + files, min(len(dirs + files), rng.randrange(2, 5)))
    return [rng.choice(["s1", "s1/"]), rng.choice(["s2", "s2/"])]


WAYS = {"local": ("", ""), "push": ("", "h1"), "pull": ("h1", ""), "far": ("h1", "h2"), "itself": ("h1", "h1")}


def settle_way(rng, case, paths):
    way = rng.choices(list(WAYS), [5, 2, 2, 1, .5])[0]
    near, far = WAYS[way]
    case.sources = [(near, p) for p in paths]
    case.target = (far, case.target[1])
    # With several hosts the names differ, so that the order of the hosts does not matter.
    if len(paths) == 2 and paths[1].startswith("s2") and rng.random() < .6:
        for path in [p for p in case.world if below(p, "s2")]:
            del case.world[path]
        add_tree(rng, case.world, "s2", [n.upper() for n in NAMES], copy_links=case.has("copy-links"))
        # rdcp refuses options that concern all sources here; keep them in some cases.
        if rng.random() < .6:
            paths = [p.rstrip("/") for p in paths]
            for name in ("delete", "delete-excluded", "remove-source-files", "relative"):
                case.options.pop(name, None)
        case.sources = [(rng.choice(["", "h1"]), paths[0]), ("h2", paths[1])]
        if rng.random() < .1:
            case.unreachable = {"h9"}
            n = rng.randrange(2)
            case.sources[n] = ("h9", case.sources[n][1])


# ---- faults ---------------------------------------------------------------------------------------------

def some_fault(rng, case):
    r = rng.random()
    sources = [p for p in case.world if below_one(p, ["s1", "s2"])]
    files = [p for p in sources if case.world[p].kind == "file"]
    if r < .5 or case.unreachable:
        return
    if r < .6:
        case.fault = {"kind": "kill", "who": rng.choice(["all", "rdcp", "end"]), "after": rng.random() ** 2 * .05}
    elif r < .72 and files:
        make_unreadable(rng, case)
    elif r < .76:
        case.sources.insert(rng.randrange(len(case.sources) + 1), (case.sources[0][0], "absent"))
        case.fault = {"kind": "missing"}
        for bad in ("files-from", "no-target-directory"):
            case.options.pop(bad, None)
    elif r < .82:
        case.fault = {"kind": "full", "bytes": rng.choice([16384, 65536, 400000])}
    elif files:
        how = rng.choice(["append", "shrink", "touch", "rewrite", "replace", "replace", "unlink", "chmod", "link"])
        linked = [p for p in files if case.world[p].ino is not None]
        path = rng.choice(linked if linked and rng.random() < .7 else files)
        if how == "replace" and case.world[path].ino is not None and rng.random() < .5:
            case.options.update({"hard-links": True, "remove-source-files": True})
        case.fault = {"kind": "change", "how": how, "path": path, "ms": rng.choice([60, 120]), "after": rng.random() * .05}


def make_unreadable(rng, case):
    """Makes all names of a file, or a directory, unreadable."""
    sources = [p for p in case.world if below_one(p, ["s1", "s2"])]
    case.uid = NOBODY
    for node in case.world.values():
        node.uid = node.gid = NOBODY
    path = rng.choice([p for p in sources if case.world[p].kind == "file"] +
                      [p for p in sources if case.world[p].kind == "dir" and "/" in p])
    for p, node in case.world.items():
        if p == path or (node.ino is not None and node.ino == case.world[path].ino):
            node.mode = 0
    case.fault = {"kind": "unreadable", "path": path}


# The target is /dev/null or a FIFO, so nothing keeps the data.
def onto_stream(rng, case):
    file = some_file(rng, "f", rng.random() < .5)
    case.world = {"f": file, "out": Node("dir", None, 0o755, NOW)}
    case.options = {n: v for n, v in case.options.items()
                    if n not in ("archive", "recursive", "delete", "delete-excluded", "files-from", "relative", "rules",
                                 "max-delete", "max-size", "min-size", "no-target-directory", "backup", "backup-dir",
                                 "suffix", "dry-run")}
    if rng.random() < .7:
        case.options["remove-source-files"] = True
    case.sources = [("", "f")]
    if rng.random() < .5:
        case.target = (rng.choice(["", "h1"]), "/dev/null")
    else:
        case.target = (rng.choice(["", "h1"]), "pipe")
        case.world["pipe"] = Node("fifo", None, 0o644, NOW)
    case.fault = {"kind": "stream", "takes": rng.choice([1, 5, 10**9])}


def add_odd_names(rng, case):
    """Chooses odd names for half of the cases, and sometimes patterns made from them."""
    if rng.random() < .5:
        return
    case.names = names.draw(rng, case)
    case.escapes = rng.random() < .5
    if case.names and rng.random() < .25:
        some = [rng.choice(sorted(case.names)) for _ in range(rng.randrange(1, 3))]
        case.options["rules"] = case.options.get("rules", []) + [
            (rng.choice(["exclude", "exclude", "include"]), rng.choice(["%s", "%s", "/%s", "%s/", "/**/%s", "*%s"]) % n)
            for n in some]


# Which seeds have a daemon does not change when add_module() draws more, so all others stay the same.
def is_permitted(case, daemons):
    push, pull = case.target[0] in daemons, any(h in daemons for h, _ in case.sources)
    refused = ["delete", "delete-excluded", "copy-links"] + ["owner", "group", "devices", "chown"] * push + ["remove-source-files"] * pull
    return (push or pull) and not any(map(case.has, refused)) and not case.uid and not case.unreachable and \
        (case.fault or {}).get("kind") != "stream" and not (case.options.get("backup-dir") or "").startswith("..") and \
        not any(h in daemons and globs.is_glob(p) for h, p in case.sources)


def add_daemon(rng, case):
    """Lets the one remote host be a module of a rdcpd, in some of the cases where it could be one."""
    hosts = {h for h, _ in case.sources} | {case.target[0]}
    if rng.random() < .4 and hosts == {"", "h1"} and is_permitted(case, {"h1"}):
        case.daemons = {"h1"}


def add_pair(rng, case):
    """The same of one or more of several remote hosts."""
    hosts = sorted(({h for h, _ in case.sources} | {case.target[0]}) - {""})
    some = {h for h in hosts if rng.random() < .7}
    if rng.random() < .7 and len(hosts) > 1 and is_permitted(case, some):
        case.daemons = some


# What leads in a module from s1 or s2 to `out', or out of the module; "@/" is where the module is on the host.
MODULE_LINKS = ["nowhere", "@/out/f", "/out/f", "/out/d", "../out/f", "../out/d", "../../../../out/f"]
MODULE_PATTERNS = ["s1/*", "s1/?", "s1/[a-c]*"]
REFUSABLE = ["checksum", "hard-links", "update", "dry-run", "sparse", "verify", "inplace", "backup", "fsync", "relative",
             "existing", "ignore-existing", "xattrs", "numeric-ids", "recursive", "times", "perms", "acls", "mkpath"]


def add_module(rng, case):
    """Draws settings of modules, and the options and sources with which is_permitted() makes no daemon."""
    if not case.daemons:
        return
    push, pull = case.target[0] in case.daemons, any(h in case.daemons for h, _ in case.sources)
    alone = len({h for h, _ in case.sources}) == 1
    if push and alone and not pull and rng.random() < .06:
        onto_module(rng, case)
        return
    add_permissions(rng, case, push, pull, alone)
    o, module = case.options, case.module
    if push and rng.random() < .1:
        o.update([rng.choice([("owner", True), ("group", True), ("devices", True), ("chown", "1234:1234")])])
    if push and rng.random() < .15:
        module["incoming chmod"] = rng.choice(sorted(CHMODS))
    if "backup-dir" in o and rng.random() < .4:
        o["backup-dir"] = "../aside"
    if alone and rng.random() < .06:
        module["refuse options"] = rng.choice(REFUSABLE)
    for name in ("encryption required", "fsync"):
        if rng.random() < (.3 if o.get("encrypt") == "off" else .06):
            module[name] = "yes"
    if rng.random() < .2:
        follow_links(rng, case)
    if pull and alone and not case.has("files-from") and not case.has("relative") and rng.random() < .12:
        name_pattern(rng, case)
    if not case.fault and not case.unreachable and rng.random() < .12:
        make_unreadable(rng, case)


def onto_module(rng, case):
    """Makes the target a FIFO of the module."""
    onto_stream(rng, case)
    case.target, case.world["pipe"] = ("h1", "pipe"), Node("fifo", None, 0o644, NOW)
    case.names, case.listed, case.uid, case.daemons = {}, [], 0, {"h1"}


def add_permissions(rng, case, push, pull, alone):
    """Adds options that a module may permit. Usually it does."""
    o, module = case.options, case.module
    if alone and (case.has("recursive") or case.has("archive")) and not case.has("files-from"):
        for name, chance in (("delete", .3), ("delete-excluded", .06)):
            if rng.random() < chance:
                o[name] = True
    if alone and rng.random() < .2:
        o["remove-source-files"] = True
    if rng.random() < .85:
        if push and (case.has("delete") or case.has("delete-excluded")):
            module["delete"] = "yes"
        if pull and case.has("remove-source-files"):
            module["remove sources"] = "yes"


# "Attributes in trusted need a privilege that rdcpd does not keep"
def add_trusted(rng, case):
    """Adds attributes that no module has or takes to some files of the source."""
    if not case.daemons or case.uid or not case.has("xattrs") or len({h for h, _ in case.sources}) > 1 or rng.random() < .5:
        return
    if case.has("remove-source-files") and (case.has("delete") or case.has("delete-excluded")):
        return      # the manual does not say whether that deletes
    for path in sorted(p for p, n in case.world.items() if n.kind == "file" and n.ino is None and below_one(p, ["s1", "s2"])):
        if rng.random() < .4:
            node = case.world[path]
            node.xattrs = {**(node.xattrs or {}), "trusted.a": b"1"}


def follow_links(rng, case):
    """Adds --copy-links, and lets links lead where no tree contains itself then."""
    case.options["copy-links"] = True
    for path in sorted(p for p, n in case.world.items() if n.kind == "link" and below_one(p, ["s1", "s2"])):
        text = rng.choice(MODULE_LINKS)
        case.world[path].text = "../" * (path.count("/") - 1) + text if text.startswith("../") else text


def name_pattern(rng, case):
    """Makes a pattern one of the sources, which has no meaning in a module, and sometimes a file of that name."""
    path, n = rng.choice(MODULE_PATTERNS), rng.randrange(len(case.sources))
    case.sources[n] = (case.sources[n][0], path)
    if rng.random() < .5:
        case.world[path] = some_file(rng, path)
        case.world[path].uid = case.world[path].gid = case.uid or None


def add_kills(rng, case):
    """Lets a fault kill reruns, too."""
    if (case.fault or {}).get("kind") == "kill" and rng.random() < .7:
        case.fault["again"] = [some_kill(rng) for _ in range(rng.choice([1, 1, 1, 2]))]


def add_moment(rng, case):
    """Lets a source change, or a run be killed, when rdcp opens or first reads a file, or soon after; else that
    happens after some time."""
    fault = case.fault or {}
    tops = [p.partition("/" + globs.MARK)[0].rstrip("/").replace("/./", "/").replace("sl", "s1") for _, p in case.sources]
    files = sorted(p for p in case.world if case.world[p].kind == "file" and below_one(p, tops))
    if fault.get("kind") == "change":
        fault["when"] = rng.choice(["time", "open", "read", "read"])
    elif fault.get("kind") == "kill" and files:
        for plan in [fault, *fault.get("again", [])]:
            if rng.random() < .75:
                plan.update(when=rng.choice(["open", "read"]), path=rng.choice(files),
                            after=rng.choice([0, rng.random() ** 2 * .005]))


def add_attributes(rng, case):
    """Adds extended attributes, ACLs and devices to some cases, and options that keep them."""
    world = case.world
    if rng.random() < .65 and not case.has("acls") and not case.has("xattrs"):
        return
    for name in ("acls", "xattrs"):
        if rng.random() < .3:
            case.options[name] = True
    for path in sorted(p for p in world if world[p].kind in ("file", "dir") and world[p].ino is None):
        node = world[path]
        # "Attributes in trusted need a privilege that rdcpd does not keep"
        names = ["user.a", "user.é b"] + ["trusted.a"] * (not case.uid and not case.daemons)
        if rng.random() < .4:
            node.xattrs = {n: rng.choice([b"", b"1", b"old" * 40]) for n in rng.sample(names, rng.randrange(1, 3))}
        if rng.random() < .25:
            node.acls = acl_of(node.mode, rng.choice([1234, 5678]), rng.choice([4, 6, 7]))
            if node.kind == "dir" and below_one(path, ["s1", "s2"]) and rng.random() < .3:
                node.acls.update(acl_of(0o750, 1234, 5, True))
    tops = ["s1", "s2"] + ([case.target[1].rstrip("/")] if case.target[1].rstrip("/") in world else [])
    for path in sorted(p for p in world if world[p].kind == "dir" and below_one(p, tops)):
        if rng.random() < .2 and path + "/n" not in world:
            kind = rng.choice(["char", "block"])
            world[path + "/n"] = Node(kind, None, rng.choice([0o600, 0o666]), some_time(rng), text=rng.choice(["1:3", "7:9"]))


GLOBS = [["s1/?"], ["s1/[a-c]*"], ["s1/[!a]*"], ["s1/*.o"], ["s1/*/*"], ["s1/?/*"], ["s1/*/[a-d]"], ["s1/[a-c]/?"],
         ["s1/[a-c]*", "s1/[d-f]*"], ["s1/*.?", "s1/?"], ["s1/*", "s1/*/*"], ["s1/*", "s2/[a-c]"], ["s1/[a-d]", "s2/*"]]


def add_globs(rng, case):
    """Draws other patterns for most cases that have one as the only source."""
    if not any(globs.is_glob(p) for _, p in case.sources):
        return
    # rdcp reads a FIFO or a device that is named as a source, but nothing writes to one here.
    for path in sorted(p for p, n in case.world.items() if n.kind not in ("file", "dir") and below_one(p, ["s1", "s2"])):
        case.world[path] = some_file(rng, path)
        case.world[path].uid = case.world[path].gid = case.uid or None
    if len(case.sources) == 1 and rng.random() < .75:
        # Patterns match nothing in a directory that can't be read.
        some = rng.choice([g for g in GLOBS if not case.uid or all(p.count("/") == 1 for p in g)])
        host = case.sources[0][0]
        case.sources = [(host, "/".join([path.split("/")[0]] + [globs.MARK + p if names.is_wild(p) else p
                                                                for p in path.split("/")[1:]])) for path in some]


def spell(rng, case):
    """Writes some options in another way, and drops what cannot go with a case's hosts."""
    o = case.options
    for name, words in SPELLINGS.items():
        if (name in o or name == "rsh") and rng.random() < .4:
            case.spelled[name] = rng.choice(words)
    # rdcpd refuses it.
    if case.daemons and case.spelled.get("xattrs") == "--xattrs=all" and random.Random("%d-daemon xattrs" % case.seed).random() < .8:
        del case.spelled["xattrs"]
    # The daemons of the test have an IPv4 address only.
    if case.daemons or o.get("address") or o.get("ipv4"):
        o.pop("ipv6", None)
    if not case.daemons:
        o.pop("daemon-port", None)
    # ssh leads to other hosts only, and to no daemon.
    if o.get("-3") or o.get("transport") == "ssh" and (case.daemons or ("", "") in {(h, case.target[0]) for h, _ in case.sources}):
        o["transport"] = "auto"


def some_kill(rng):
    return {"who": rng.choice(["all", "rdcp", "end"]), "after": rng.random() ** 2 * .05}


def generate(seed):
    rng = random.Random("case %d" % seed)
    case = Case(seed)
    case.umask = rng.choice([0o022, 0o022, 0o077, 0o002])
    case.options = some_options(rng)
    world = case.world
    world["out"] = Node("dir", None, 0o755, NOW)
    world["out/f"] = Node("file", "outside:33", 0o644, NOW)
    world["out/d"] = Node("dir", None, 0o755, NOW)
    world["out/d/g"] = Node("file", "outside too:12", 0o644, NOW)
    if rng.random() < .04:
        onto_stream(rng, case)
        spell(random.Random("%d spelling" % seed), case)
        return case
    add_tree(rng, world, "s1", copy_links=case.has("copy-links"))
    add_tree(rng, world, "s2", copy_links=case.has("copy-links"))
    if rng.random() < .5:
        add_hard_links(rng, world, ["s1"], 3)
    if rng.random() < .1:
        world["sl"] = Node("link", text="s1")
    if rng.random() < .1 and not case.has("delete"):
        case.options["files-from"] = "list"
        case.options.pop("relative", None)
        case.options.pop("no-target-directory", None)
        if rng.random() < .3:
            case.options["from0"] = True
    case.target = ("", rng.choices(["t", "t/", "t/new", "t/new/"], [6, 3, 2, 1])[0])
    paths = some_sources(rng, case)
    if rng.random() < .2:
        for node in world.values():
            if rng.random() < .4 and node.ino is None:
                node.uid = node.gid = rng.choice([1234, NOBODY])
    if case.options.get("files-from"):
        things = [p[3:] for p in sorted(world) if below(p, "s1") and p != "s1"]
        case.listed = rng.sample(things, min(len(things), rng.randrange(1, 5)))
    settle_way(rng, case, paths)
    fill_target(rng, case)
    some_fault(rng, case)
    own = random.Random("%d lookalikes" % seed)
    if case.has("backup") and not case.has("backup-dir") and own.random() < .5:
        add_lookalikes(own, case)
    # A backup replaces what is in ../s1/d, so that has to be a source as a whole.
    if case.options.get("backup-dir") == "../s1/d" and any(p.rstrip("/") != "s1" for _, p in case.sources):
        case.options["backup-dir"] = "../aside"
    # Last, with random numbers of its own, so that all else that a seed generates stays unchanged.
    if random.Random("%d existing" % seed).random() < .06:
        case.options["existing"] = True
    add_odd_names(random.Random("%d names" % seed), case)
    add_kills(random.Random("%d kills" % seed), case)
    add_daemon(random.Random("%d daemon" % seed), case)
    add_pair(random.Random("%d pair" % seed), case)
    add_moment(random.Random("%d moment" % seed), case)
    add_attributes(random.Random("%d attributes" % seed), case)
    add_globs(random.Random("%d globs" % seed), case)
    add_module(random.Random("%d-daemon" % seed), case)
    add_trusted(random.Random("%d-daemon trusted" % seed), case)
    spell(random.Random("%d spelling" % seed), case)
    return case
