# SPDX-License-Identifier: Apache-2.0
"""Gives entries of a case odd names. generate() makes all trees with plain names, and draws the odd ones
last, with random numbers of its own; apply() puts them everywhere: trees, links, command line, patterns,
lists. So a case has the same trees and options with and without them."""

import copy
import os
import re

from world import below

LONGEST = 255
SMALL, LARGE = "name", "NAME"
# Each {n} is a plain name, which makes the odd ones different from each other.
ODD = ["two  {n}", " {n}", "{n} ", "-{n}", "--delete-{n}", "- {n}", "+ {n}", ".{n}", "..{n}", "...{n}", "{n}~", "~{n}", "~root{n}", "{n}\\",
       "\\{n}", "a\\b{n}", "\\*{n}", "*{n}", "**{n}", "{n}?", "[{n}]", "[{n}", "{n}]", "[!{n}-]", "{{{n},x}}", "'{n}'",
       "\"{n}", "`{n}`", "$(id){n}", "$HOME{n}", ";{n}", "#{n}", "!{n}", "{n}|x&", "{n}\n", "\n{n}", "x\ny{n}", "{n}\r",
       "{n}\t", "\x1b[31m{n}", "\x7f\x01{n}", "{n}\udcff", "\udce9{n}", "\udcc3{n}", "{n}\udced\udca0\udc80", "é{n}", "e\u0301{n}", "名{n}",
       "\u202e{n}", "😀{n}", "h1:{n}", "{n}:", "%n%s{n}", "{n}=x", "{n},", "{n}.old", "@{n}", "+{n}x", "nul{n}.",
       ".sluice-{n}", ".sluice.{n}", ".sluice.marker.{n}", ".sluice.0123456789ABCDEF{n}", ".sluice.0123456789abcdef.{n}",
       "x.sluice.0123456789abcdef{n}", "LONG", "LONG", "LONG", "LONG", "CASE", "CASE", "CASE", "CASE", "!", "-", "~", "\\", " ", "\n", "...",
       "\udc80", "]", "[", "?", "\r", "#", "-r", "--", "{n}.sluice.0123456789abcdef", ".sluice.", ".sluice"]
# On the command line these begin with no -, no ~ and have no colon.
ODD_TOP = ["two  {n}", " {n}", "{n} ", ".{n}", "..{n}", "{n}~", "{n}\\", "a\\b{n}", "*{n}", "{n}?", "[{n}]", "[{n}", "\\[{n}",
           "'{n}'", "\"{n}", "$(id){n}", ";{n}", "#{n}", "{n}|x&", "{n}\n", "x\ny{n}", "{n}\udcff", "é{n}", "@{n}", "+ {n}", "LONG",
           "CASE", ".sluice-{n}", ".sluice.{n}", "\x1b[31m{n}", "{n}=x"]
TOPS = {"s1", "s2", "t"}
LEADS_OUT = re.compile(r"(@?/|(\.\./)+)?out(/|$)")
FIXED = {"", ".", "..", "*", "@", "out", "nowhere", "other", "absent", "aside", "as", "ide", "list", "sl", "f", "pipe"}


def components(world):
    """The names that may become odd ones, in order."""
    found = {part for path in world if not below(path, "out") for part in path.split("/")}
    return sorted(found - FIXED)


def draw(rng, case):
    """{plain name: odd name}"""
    suffix = case.options.get("suffix") or "~"
    plain = components(case.world)
    # The name of a backup follows from that of its file.
    plain = [p for p in plain if not (p.endswith(suffix) and p[:-len(suffix)] in plain)]
    chosen = [p for p in plain if rng.random() < rng.choice([.3, .6, 1])]
    taken, names = set(plain) | FIXED, {}
    for name in chosen:
        for _ in range(20):
            odd = one(rng, name, case, names)
            if odd not in taken and len(os.fsencode(odd)) <= LONGEST:
                names[name] = odd
                taken.add(odd)
                break
    return names


def one(rng, name, case, names):
    top = name in TOPS or name == "new"
    # --backup-dir may be this name.
    odd = rng.choice(ODD_TOP if top or name == "d" else ODD)
    base, dot, end = name.partition(".")
    if odd == "LONG":
        most = LONGEST
        if case.has("backup") or case.options.get("backup-dir"):
            most -= rng.choice([0, 20, 20])     # --suffix may not fit
        # Ends in the middle of a character, sometimes.
        fill = rng.choice(["l", "\udcfe", "é", "*"])
        data = os.fsencode(base + fill * LONGEST)[:most - len(dot + end)]
        return os.fsdecode(data) + dot + end
    if odd == "CASE":
        others = [o for p, o in names.items() if o.swapcase() != o and (p not in TOPS) == (name not in TOPS)]
        odd = rng.choice(others).swapcase() if others else SMALL
        return odd if len(os.fsencode(odd)) <= LONGEST else LARGE
    # Patterns such as *.o match the last part of a name.
    return odd.format(n=base) + dot + end


# ---- renaming --------------------------------------------------------------------------------------


class Renamer:
    def __init__(self, names, suffix):
        self.names, self.suffix = names, suffix

    def part(self, name):
        if name in self.names:
            return self.names[name]
        if name.endswith(self.suffix) and name != self.suffix and name[:-len(self.suffix)] in self.names:
            return self.names[name[:-len(self.suffix)]] + self.suffix
        return name

    def path(self, path):
        if LEADS_OUT.match(path):
            return path
        return "/".join(self.part(p) for p in path.split("/"))

    # "Patterns are those of rsync(1)": a backslash escapes in a pattern with a wildcard, and stands for itself
    # in any other. "A pattern that begins with "+ " includes … ! discards all patterns before it."
    def pattern(self, verb, pattern):
        parts = re.split(r"(/|^\*(?=[^*]))", pattern)
        odd = [self.part(p) for p in parts]
        if is_wild("".join(odd)):
            odd = [escape(o) if o != p else p for p, o in zip(parts, odd)]
        new = "".join(odd)
        return explicit(verb, new) if new == "!" or new.startswith(("+ ", "- ")) else new


def is_wild(text):
    return any(c in text for c in "*?[")


def escape(name):
    return re.sub(r"([\\*?\[])", r"\\\1", name)


def explicit(verb, pattern):
    """The pattern with its verb, so that nothing in it has another meaning."""
    return ("- " if verb == "exclude" else "+ ") + pattern


def is_one_line(text):
    """Whether text may be a line of a list. (rdcp takes \\r\\n for the end of a line.)"""
    return "\n" not in text and not text.endswith("\r")


def apply(case):
    """A copy of the case that has its odd names everywhere."""
    suffix = case.options.get("suffix") or "~"
    r = Renamer(case.names, suffix)
    new = copy.copy(case)
    new.options, new.fault, new.world = dict(case.options), copy.deepcopy(case.fault), {}
    for path, node in case.world.items():
        to = r.path(path)
        # The name of a backup may be too long.
        if all(len(os.fsencode(p)) <= LONGEST for p in to.split("/")):
            new.world[to] = node.copy(text=r.path(node.text) if node.text is not None else None)
    new.sources = [(host, r.path(path)) for host, path in case.sources]
    new.target = (case.target[0], case.target[1] if case.target[1].startswith("/") else r.path(case.target[1]))
    new.listed = [r.path(n) for n in case.listed]
    if case.options.get("rules"):
        new.options["rules"] = [(verb, r.pattern(verb, pattern)) for verb, pattern in case.options["rules"]]
    if case.options.get("backup-dir"):
        new.options["backup-dir"] = r.path(case.options["backup-dir"])
    for plan in [new.fault, *new.fault.get("again", [])] if new.fault else ():
        if "path" in plan:
            plan["path"] = r.path(plan["path"])
    if new.listed and not all(is_one_line(n) for n in new.listed):
        new.options["from0"] = True
    return new


def list_text(case):
    """The list for --files-from."""
    if case.has("from0"):
        return "".join(n + "\0" for n in case.listed)
    # A line that begins with # or ; is a comment.
    return "".join(("./" if n[0] in "#;" else "") + n + "\n" for n in case.listed)
