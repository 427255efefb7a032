# SPDX-License-Identifier: Apache-2.0
"""filter, listed and modes compared with rsync, on random trees, patterns and modes.

SLUICE_SEED is the seed (it is printed when something differs), SLUICE_COUNT multiplies the cases.
"""

import concurrent.futures
import os
import pathlib
import random
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
DUMP = os.environ.get("SELECT_DUMP", ROOT / "build" / "release" / "tests" / "select_dump")
COUNT = int(os.environ.get("SLUICE_COUNT", "1"))
SEED = int(os.environ.get("SLUICE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
ENV = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"}

# Few and similar names, so that patterns match them; and the parts of patterns.
NAMES = [b"a", b"b", b"c", b"ab", b"abc", b"b.c", b"a.c", b".a", b"a b", b"*", b"[", b"]", b"a]",
         b"?", b"\\", b"\\a", b"a*", b"[a]", b"-", b"!", b"^b", b"A", b"9", b"\xc3\xa4", b"\xff",
         b"a\nb", b"#a", b";", b"..b", b"+ a", b"- a", b"a" * 40]
PIECES = [b"a", b"b", b"c", b"a", b"b", b".", b"*", b"*", b"*", b"**", b"***", b"?", b"/", b"/",
          b"[ab]", b"[!a]", b"[^b]", b"[a-c]", b"[]a]", b"[a-]", b"[-b]", b"[!]]", b"[[:alpha:]]",
          b"[![:alnum:].]", b"[[:upper:][:digit:]]", b"[\\]a]", b"[\\a-c]", b"[+--]", b"[.-~]",
          b"[a", b"[[:x:]]", b"[[:alpha]", b"[[:]", b"\\", b"\\*", b"\\[", b"\\a", b"]", b" ",
          b"\xc3\xa4", b"\xff", b"[\x80-\xff]"]


def run(argv, given=b"", ok=(0,)):
    done = subprocess.run([os.fsencode(str(a)) if not isinstance(a, bytes) else a for a in argv],
                          input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV)
    assert done.returncode in ok, (argv, done.returncode, done.stderr)
    return done.stdout


def dump(cases):
    """What the programs' functions say of each case, all in one process."""
    out = run([DUMP], b"".join(word + b"\0" for case in cases for word in [*case, b""]))
    answers = [[]]
    for word in out.split(b"\0")[:-1]:
        if word:
            answers[-1].append(word)
        else:
            answers.append([])
    assert answers.pop() == [] and len(answers) == len(cases)
    return answers


def rsync_names(*args, given=b""):
    """The names that rsync would transfer, without trailing slashes."""
    out = run(["rsync", "-n", "--out-format=%n", *args], given)
    names = (re.sub(rb"\\#(\d{3})", lambda m: bytes([int(m.group(1), 8)]), line)
             for line in out.split(b"\n"))
    return {n.rstrip(b"/") for n in names} - {b"", b"."}


def grow(rng, top, depth=0, below=b""):
    """Makes a tree; returns its paths, each after a d or f, parents first."""
    paths = []
    for name in rng.sample(NAMES, rng.randrange(3, 9)):
        path = below + name
        if depth < 4 and rng.random() < 0.5:
            os.mkdir(os.path.join(top, path))
            paths += [b"d" + path] + grow(rng, top, depth + 1, path + b"/")
        else:
            open(os.path.join(top, path), "wb").close()
            paths.append(b"f" + path)
    return paths


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    rng = random.Random(SEED)
    made = []
    for i in range(4):
        top = os.fsencode(tmp_path_factory.mktemp("tree%d" % i))
        made.append((top, grow(rng, top)))
    return made


def in_parallel(one, count):
    """For each random generator: it mostly waits for rsync."""
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        return list(pool.map(lambda i: one(random.Random(SEED * 1000003 + i)), range(count * COUNT)))


def compare(count, draw, trees):
    """Of many cases, drawn from random trees, what we take and what rsync takes."""
    drawn = in_parallel(lambda rng: draw(rng, *rng.choice(trees)), count)
    for ours, (case, theirs) in zip(dump([case for case, _ in drawn]), drawn):
        assert (sorted(set(ours) - theirs), sorted(theirs - set(ours))) == ([], []), \
            "taken by us alone, by rsync alone, with SLUICE_SEED=%d: %r" % (SEED, case)


def pattern(rng, paths):
    if rng.random() < 0.25:  # an existing name, or its end
        parts = rng.choice(paths)[1:].split(b"/")
        made = b"/".join(parts[rng.randrange(len(parts)):])
        if rng.random() < 0.4:
            at = rng.randrange(len(made))
            made = made[:at] + rng.choice([b"*", b"?", b"**", b"[!/]"]) + made[at + 1:]
    else:
        made = b"".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 7)))
    made = rng.choice([b"", b"", b"", b"/", b"**/", b"*/"]) + made
    made += rng.choice([b"", b"", b"", b"", b"/", b"/*", b"/**", b"/***"])
    if rng.random() < 0.04:
        made = rng.choice([b"+ ", b"- "]) + made
    return made if rng.random() < 0.98 else b"!"


def draw_filter(rng, top, paths):
    rules = [(rng.choice([b"+", b"-"]), pattern(rng, paths)) for _ in range(rng.randrange(1, 7))]
    if rng.random() < 0.3:
        rules += [(b"+", b"*/"), (b"-", b"*")]
    options = [(b"--include=" if sign == b"+" else b"--exclude=") + text for sign, text in rules]
    theirs = rsync_names("-r", *options, top + b"/", top + b".none/")
    return [b"filter", *(sign + text for sign, text in rules), b"", *paths], theirs


def test_filter_matches_rsync(trees):
    compare(240, draw_filter, trees)


def draw_list(rng, top, paths):
    names = [p[1:] for p in rng.sample(paths, min(len(paths), rng.randrange(1, 8)))]
    # For rsync a name that begins with # or ; is a comment even with --from0, and /./ would mean -R.
    from0 = rng.random() < 0.5 or any(b"\n" in n for n in names)
    spelled = [(b"./" if n[:1] in b"#;" else rng.choice([b"", b"", b"/", b"./", b".//"])) +
               n.replace(b"/", rng.choice([b"/", b"//"])) for n in names]
    end = b"\0" if from0 else b"\n"
    recursive = rng.random() < 0.5
    theirs = rsync_names(*["-r"] * recursive, *["--from0"] * from0, "--files-from=-",
                         top + b"/", top + b".none/", given=b"".join(s + end for s in spelled))
    return [b"recursive" if recursive else b"listed", *spelled, b"", *paths], theirs


def test_listed_names_match_rsync(trees):
    compare(80, draw_list, trees)


# ---- modes ---------------------------------------------------------------------------------


def clause(rng):
    scope = rng.choice(["", "", "D", "F"])
    if rng.random() < 0.2:
        return scope + "%o" % rng.choice([0, 0o755, 0o644, 0o7777, rng.randrange(0o10000)])
    who = "".join(rng.choice("ugoa") for _ in range(rng.randrange(3)))
    # In this order: rsync forgets a t before an s that applies to nobody.
    what = "".join(sorted(rng.choice("rwxXst") for _ in range(rng.randrange(5))))
    return scope + who + rng.choice("+-=") + what


def mode_of(line):
    """The mode in a line of rsync's --list-only."""
    text, mode = line[1:10].decode(), 0
    for i, c in enumerate(text):
        mode |= (c in "rwxst") << (8 - i)
        mode |= (c in "sStT") << (11 - i // 3)
    return mode


def rsync_version():
    out = subprocess.run(["rsync", "--version"], capture_output=True).stdout
    return tuple(int(n) for n in re.search(rb"version (\d+)\.(\d+)", out).groups())


# Earlier versions apply s to directories and g=u,+X differently.
@pytest.mark.skipif(rsync_version() < (3, 5), reason="rsync before 3.5 gives other modes")
def test_modes_match_rsync(tmp_path):
    rng = random.Random(SEED)
    modes = [0, 0o777, 0o7777, 0o644, 0o755, 0o111] + [rng.randrange(0o10000) for _ in range(26)]
    things = []
    for i, mode in enumerate(modes):
        (tmp_path / ("f%02d" % i)).touch()
        (tmp_path / ("d%02d" % i)).mkdir()
        for kind in "df":
            path = tmp_path / ("%s%02d" % (kind, i))
            path.chmod(mode)  # not all of it where a file system or a user may not
            things.append((path.name, "%s%o" % (kind, path.stat().st_mode & 0o7777)))

    def one(rng):
        text = ",".join(clause(rng) for _ in range(rng.randrange(1, 5)))
        out = run(["rsync", "--dirs", "--list-only", "--chmod=" + text, str(tmp_path) + "/"])
        return text, {line.split()[-1].decode(): "%o" % mode_of(line) for line in out.splitlines()}
    try:
        drawn = in_parallel(one, 60)
        answers = dump([[b"modes", text.encode(), *(mode.encode() for _, mode in things)] for text, _ in drawn])
        for ours, (text, theirs) in zip(answers, drawn):
            assert len(ours) == len(things)
            for (name, mode), our in zip(things, ours):
                assert our.decode() == theirs[name], "--chmod=%s of %s, SLUICE_SEED=%d" % (text, mode, SEED)
    finally:
        for name, mode in things:
            (tmp_path / name).chmod(0o700)
