# SPDX-License-Identifier: Apache-2.0
"""Finds the violations of a run: [(kind, text)]. exact() compares the result with the model. bounds()
judges a run that was interrupted or whose source changed: no file is torn or lost, and nothing else
changed."""

import os

from model import IS_STREAM, MOVE_MARKER, below_any
from world import below, is_ours, size_of

ALWAYS = ("kind", "text", "content", "mode", "mtime", "uid", "gid", "xattrs", "acls")
MARKER_LINE = 17    # bytes, for each move that was not completed
KINDS = {"mtime": "time", "uid": "owner", "gid": "owner", "text": "content", "kind": "type"}


def compare_nodes(path, want, got, found):
    for field in ALWAYS:
        w, g = getattr(want, field), getattr(got, field)
        if w is None and not (field in ("text", "content") and want.kind == "link"):
            continue
        if w != g and not (isinstance(w, frozenset) and g in w):
            found.append((KINDS.get(field, field), "%s: %s is %s, expected %s" % (
                path, field, shown(field, g), shown(field, w))))
            if field == "kind":
                return


def shown(field, value):
    if field == "mode":
        return "%04o" % value
    if field == "mtime":
        return "%.9f" % (value / 1e9 - 1_500_000_000)
    return sorted(value) if isinstance(value, frozenset) else value


def is_unchecked(path, model):
    return any(below(path, p) for p in model.unchecked)


def exact(model, after, code):
    found = []
    if code not in model.codes and not model.inexact:
        found.append(("exit", "exit status %s, expected %s (%s)" % (
            code, sorted(model.codes), model.refused or "; ".join("%s: %s" % f for f in model.failed) or "nothing fails")))
    check_leftovers(model, after, code, found)
    if model.inexact:
        return found
    want, got = dict(model.after), {p: n for p, n in after.items() if not is_ours(p)}
    drop_undecided(model, want, got)
    if model.too_many and not model.backup:
        check_max_delete(model, want, got, found)
    for path in sorted(set(want) | set(got)):
        if is_unchecked(path, model):
            continue
        if path not in got:
            found.append((why_missing(model, path), "%s: is gone, expected %s" % (path, want[path])))
        elif path not in want:
            found.append((why_extra(model, path), "%s: is there, a %s" % (path, got[path])))
        else:
            compare_nodes(path, want[path], got[path], found)
    check_links(model, want, got, found)
    return found


def status(model, after, code, failures, killed=False):
    """Judges the exit status of a run that a fault may have ended with one of failures, and what it left. With any
    other status, the run is as if there had been no fault. killed: a process of the run was."""
    if code not in failures:
        return exact(model, after, code)
    left = leftovers(model, after, code, killed)
    if not killed and code not in model.codes and not model.inexact and not rewrites(model) and \
            not exact(model, after, min(model.codes)):
        left.append(("exit", "exit status %s, but nothing failed" % code))
    return left


def rewrites(model):
    """Whether a file may be copied that the target has with the same content: it does not show that this failed."""
    return any(i.node.kind == "file" and i.dest in model.before and model.before[i.dest].content == i.node.content
               for i in model.items)


PIPE_ROOM = 1 << 20     # what a pipe holds at most, and more than its reader takes at once


# "A device, a FIFO or standard output as DST is written in place, never removed and never replaced." "rdcp refuses
# (1) a device, a FIFO or a descriptor as DST": with --remove-source-files.
def stream(model, before, after, code, takes, got):
    """Judges a copy of the file f to a device or, if takes is not None, to a pipe from which somebody reads that
    many bytes. got: the content that was read."""
    found, node = [], before["f"]
    want = model.codes
    if model.refused is None or model.refused == IS_STREAM:
        want = {1} if model.o.get("remove-source-files") else {0}
    skips = model.o.get("ignore-existing") or model.o.get("update")     # the target may be newer
    if want == {0} and takes is not None and takes < size_of(node.content):
        must_fail = size_of(node.content) > takes + 2 * PIPE_ROOM and not skips
        want = {11} if must_fail else {0, 11}
    elif code == 0 and takes is not None and got != node.content and not (skips and size_of(got) == 0):
        found.append(("content", "the pipe got %s, expected %s" % (got, node.content)))
    if code not in want:
        found.append(("exit", "exit status %s, expected %s" % (code, sorted(want))))
    for path in sorted(set(before) | set(after)):
        if path not in before or path not in after:
            found.append(("source-gone" if path == "f" else "extra", "%s: is gone, or is there" % path))
        else:
            compare_nodes(path, before[path].copy(mtime=before[path].mtime if path == "f" else None), after[path], found)
    return found


def check_leftovers(model, after, code, found):
    found += leftovers(model, after, code, False)


LARGE = 4 << 20


# "An interrupted run leaves complete files, possibly some temporaries, and, in a directory that it created as DST,
# an empty file .sluice.marker.*." "Each run cleans up after killed runs": after exit 0 nothing is left.
def leftovers(model, after, code, killed):
    """What rdcp left, and may not leave."""
    dry = model.o.get("dry-run")
    ours = [p for p in sorted(after) if is_ours(p) and not (dry and p in model.leftovers)]
    return [("leftover", "%s: %s" % (p, after[p])) for p in ours
            if code == 0 or p not in model.leftovers and (dry or not may_be_left(model, p, after[p], killed))]


def may_be_left(model, path, node, killed):
    if node.kind != "file" and not killed:
        return False
    dir = os.path.dirname(path)
    if ".marker." in os.path.basename(path):
        lines = size_of(node.content) if os.path.basename(path) == MOVE_MARKER else 0
        return size_of(node.content) == lines and lines % MARKER_LINE == 0 and may_hold_marker(model, dir)
    # "The temporary of a file of 4 MiB or more is compared piece by piece … Streams and smaller files start again.
    # They leave a temporary only if the sink was killed."
    items = [i for i in model.items if os.path.dirname(i.dest) == dir]
    return killed and bool(items) or any(i.node.kind == "file" and size_of(i.node.content) >= LARGE for i in items)


# "A marker in a directory that a run has created as DST and not completed, or in a SRC that a run with --delete and
# --remove-source-files has begun to empty and not completed."
def may_hold_marker(model, dir):
    if dir == model.top:
        return dir not in model.before or any(os.path.dirname(p) == dir for p in model.leftovers)
    return dir in model.marked_dirs and model.delete and bool(model.o.get("remove-source-files"))


def drop_undecided(model, want, got):
    for path in model.maybe_dirs:
        if path not in got:
            want.pop(path, None)
    for path, fate in model.fates.items():
        if fate == "either" and path in want and path not in got:
            del want[path]
    if model.o.get("remove-source-files"):
        for path, node in want.items():
            if node.kind == "dir" and (any(os.path.dirname(p) == path for p in model.fates) or
                                       model.delete and path in model.marked_dirs):
                node.mtime = None


def check_max_delete(model, want, got, found):
    candidates, most = model.too_many
    gone = [p for p in candidates if p not in got]
    if len(gone) != most:
        found.append(("deleted", "%d of %d are deleted, expected %d (--max-delete)" % (len(gone), len(candidates), most)))
    for path in candidates:
        want.pop(path, None)
        got.pop(path, None)
    for path in {os.path.dirname(p) for p in candidates}:
        if path in want:
            want[path].mtime = want[path].mtime if path in model.copied else None


def why_missing(model, path):
    if path in model.fates or not below(path, model.top):
        return "source-gone" if model.fates.get(path) != "gone" else "source-stays"
    return "missing" if path not in model.before else "deleted"


def why_extra(model, path):
    if model.fates.get(path) == "gone":
        return "source-stays"
    if path in model.deleted:
        return "not-deleted"
    return "extra"


def check_links(model, want, got, found):
    """Checks that names are hard links to one file if, and only if, the model says so."""
    forth, back = {}, {}
    for path in sorted(want):
        w, g = want[path], got.get(path)
        if g is None or w.kind != "file" or g.kind != "file" or w.ino is None or is_unchecked(path, model):
            continue
        first = forth.setdefault(w.ino, (g.ino, path))
        other = back.setdefault(g.ino, (w.ino, path))
        if first[0] != g.ino:
            found.append(("links", "%s and %s: are two files, expected one" % (first[1], path)))
        elif other[0] != w.ino:
            found.append(("links", "%s and %s: are one file, expected two" % (other[1], path)))


# ---- invariants -----------------------------------------------------------------------------------

def lost(need, after):
    """need: sets of contents. At least one content of each set must exist somewhere."""
    there = {n.content for n in after.values() if n.kind == "file"}
    return [("lost", "the content %s is neither in a source nor at the target" % " or ".join(sorted(some)))
            for some in need if not some & there]


def lost_backups(model, before, after, changed=False):
    """"Keep what is replaced or deleted": however the run ended, every content except that of older backups
    exists somewhere. changed: a source changed, so files may be replaced that the model leaves alone."""
    if not model.backup or model.refused:
        return []
    doomed = model.too_many[0] if model.too_many else set()     # --max-delete leaves open which
    over = model.backups | model.unchecked
    if changed or model.inexact or doomed:
        over |= {model.backup_name(p) for p in model.deleted | doomed | {i.dest for i in model.items}}
    over -= {i.dest for i in model.items}
    there = {n.content for n in after.values() if n.kind == "file"}
    return [("lost", "the content %s of %s has no backup" % (n.content, p)) for p, n in sorted(before.items())
            if n.kind == "file" and below(p, model.top) and not is_ours(p) and n.content not in there
            and not below_any(p, over)]


def contents_of(case, state):
    tops = [p.split("/", 1)[0] for _, p in case.sources]
    tops = {case.world["sl"].text if t == "sl" else t for t in tops}
    return [frozenset([n.content]) for p, n in sorted(state.items())
            if n.kind == "file" and p.split("/", 1)[0] in tops and not is_ours(p)]


def bounds(model, before, after, code, versions, changed):
    """versions: {source path: the contents that it had during the run}. changed: paths that another process
    changed; they may have any content."""
    found = []
    possible = {}
    inodes = {}
    for item in model.items:
        some = possible.setdefault(item.dest, set())
        some.add(item.node.content or item.node.kind)
        some |= versions.get(item.path, set())
        # The other names may be linked to a target file that has the same size and time.
        if item.same_by_time and item.group:
            some.add(before[item.dest].content)
        if item.node.ino is not None:
            inodes.setdefault(item.node.ino, set()).update(some)
    for item in model.items:
        if item.node.ino is not None:
            possible[item.dest] |= inodes[item.node.ino]
    for path in sorted(set(before) | set(after)):
        if path in changed or is_ours(path):
            continue
        if not below(path, model.top) and path not in model.backups:
            check_outside(model, path, before.get(path), after.get(path), found)
        else:
            check_at_target(model, path, before.get(path), after.get(path), code, possible, found)
    return found


def check_outside(model, path, old, new, found):
    if below(model.top, path):
        return      # --mkpath makes the directories in the path to the target
    if new is None:
        if not (model.o.get("remove-source-files") and path in model.fates and model.fates[path] != "stays"):
            found.append(("source-gone", "%s: is gone" % path))
    elif old is None:
        if not model.backup:
            found.append(("outside", "%s: is there" % path))
    elif (old.kind, old.content, old.text) != (new.kind, new.content, new.text):
        found.append(("outside", "%s: is %s, was %s" % (path, new, old)))


def check_at_target(model, path, old, new, code, possible, found):
    over = path in possible
    if new is None:
        may_go = path in model.deleted or (model.too_many and path in model.too_many[0]) or any(
            below(path, p) for p in possible if model.after.get(p) is None or model.after[p].kind != "dir")
        if old is not None and not may_go and not (over and model.inexact) and not is_unchecked(path, model):
            found.append(("deleted", "%s: is gone, although no option asked for that; it was %s" % (path, old)))
        return
    if old is not None and (old.kind, old.content, old.text) == (new.kind, new.content, new.text):
        return
    if new.kind == "dir" and path in model.after or path.endswith("+"):
        return      # made by --mkpath, or by another process at the source
    if old is None and is_unchecked(path, model):
        return      # the model leaves it open
    if not over and not model.backup and old is None:
        found.append(("extra", "%s: is there, a %s" % (path, new)))
    elif new.kind == "file" and over and new.content not in possible[path] and not model.o.get("inplace") and not model.backup:
        found.append(("torn", "%s: is %s, which is neither old nor new (%s)" % (path, new, sorted(possible[path]))))
    elif not over and not model.backup and not (model.o.get("inplace")):
        found.append(("content", "%s: is %s, was %s, and no source has this path" % (path, new, old)))


def deletions_after_failure(model, before, after, code):
    """"When everything else is stored, rdcp deletes what SRC … does not have": then all of SRC is at the target.
    "If a directory of SRC could not be read, or a file could not be copied, rdcp reports this and deletes nothing."
    Files that vanished (24) do not count."""
    if code in (0, 24) or not model.delete:
        return []
    dests = {i.dest for i in model.items}
    some = model.deleted | (model.too_many[0] if model.too_many else set())
    gone = [p for p in sorted(some) if p in before and p not in after and
            not any(below(p, d) for d in dests if d not in model.copied) and p not in model.backups | model.old_backups]
    lacks = [p for p in sorted(dests) if is_lacking(model, p, after.get(p))]
    why = "some files failed" if model.any_broken() else "%s is not stored" % lacks[0] if lacks else None
    return [("deleted-early", "%s: is deleted, although %s (exit status %s)" % (p, why, code)) for p in gone if why]


def is_lacking(model, path, got):
    """Whether got is not what the model wants at path."""
    want = model.after.get(path)
    if want is None or is_unchecked(path, model):
        return False
    if got is None or got.kind != want.kind or got.text != want.text:
        return True
    wanted = want.content if isinstance(want.content, frozenset) else {want.content}
    return want.kind == "file" and got.content not in wanted
