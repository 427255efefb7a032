# SPDX-License-Identifier: Apache-2.0
"""Every example of the README is run as it stands, in shells, on the two test hosts."""

import os
import re
import socket
import subprocess

import pytest

from hosts import DEMAND, FAR, NEAR, OP, ROOT, RSH, pattern, program

DATA = pattern(600_000)


def examples():
    """Blocks of commands under "Use it": each a list of lines, comments cut off."""
    text = (ROOT / "README.md").read_text().split("\n## Use it\n")[1].split("\n### ")[0]
    blocks, block = [], []
    for line in text.splitlines() + [""]:
        if line.startswith("    "):
            block.append(re.sub(r"\s{2,}#.*", "", line.strip()))
        elif block:
            blocks.append(block)
            block = []
    return blocks


def groups():
    """A receiver with its sender, or lines that stand alone."""
    for block in examples():
        lines = [l for l in block if l]
        while lines:
            if lines[0].startswith("rdrecv") and len(lines) > 1 and "rdsend" in lines[1]:
                yield lines[:2]
                lines = lines[2:]
            else:
                yield lines[:1]
                lines = lines[1:]


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


@pytest.fixture
def shell(bench, tmp_path):
    """Runs a line on a host, in that host's own folder, with our programs on the PATH."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("rdsend", "rdrecv"):
        script(tools / name, 'case "$1" in --make-key) exec %s "$@";; esac\nexec %s %s "$@"\n' % (
            program(name), program(name), " ".join([DEMAND, *OP])))
    script(tools / "rdcp", 'exec %s %s --rsh %s --rdcp-path %s "$@"\n' % (
        program("rdcp"), " ".join([DEMAND, *OP]), RSH, program("rdcp")))
    script(tools / "zfs", 'case $1 in send) cat file;; recv) cat > received;; esac\n')
    homes = {}
    for h in (NEAR, FAR):
        homes[h.name] = tmp_path / h.name
        homes[h.name].mkdir()
        (homes[h.name] / "pw").write_text("a password\n")
        (homes[h.name] / "path").mkdir()
        (homes[h.name] / "directory").mkdir()
    env = {"PATH": "%s:%s" % (tools, os.environ["PATH"])}
    # Each in the folder of its own: a file is no copy of itself.
    hosts = "\n".join("%s %s" % (n, " ".join([*h.prefix, "env", "-C", str(homes[h.name])])) for n, h in
                      (("host", FAR), ("host1", NEAR), ("host2", FAR)))
    env["SLUICE_TEST_HOSTS"] = hosts
    home = {"far": homes["far"]}

    def start(host, line, **how):
        line = line.replace("~/", str(homes[host.name]) + "/")
        return bench.start(["bash", "-o", "pipefail", "-c", line], host=host, cwd=homes[host.name],
                           env=env, home=homes["far"], **how)
    start.homes = homes
    return start


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


COPIES = [g[0] for g in groups() if g[0].startswith("rdcp") or "| rdcp" in g[0]]
STREAMS = [g for g in groups() if len(g) == 2]


def test_there_are_examples():
    assert len(COPIES) >= 5 and len(STREAMS) >= 5


@pytest.mark.parametrize("line", COPIES)
def test_copies(shell, line):
    near, far = shell.homes["near"], shell.homes["far"]
    sources = {"file": DATA, "a": b"a", "b": b"b", "c": b"c", "run1.dat": b"1", "run2.dat": b"2"}
    for name, data in sources.items():
        (near / name).write_bytes(data)
        (far / name).write_bytes(data)
    for home in (near, far):
        (home / "tree" / "sub").mkdir(parents=True)
        (home / "tree" / "sub" / "x.o").write_bytes(DATA)
        (home / "bad").write_bytes(b"tree/sub/x.o\0")
    if "host:path" in line:
        (far / "path" / "file").write_bytes(DATA)
    r = shell(NEAR, line)
    assert r.wait() == 0, r.errors()


@pytest.mark.parametrize("pair", STREAMS, ids=lambda p: p[1])
def test_streams(shell, pair):
    port = free_port()
    near, far = shell.homes["near"], shell.homes["far"]
    if "pzstd" in pair[1] and subprocess.run(["which", "pzstd"], stdout=subprocess.DEVNULL).returncode:
        pytest.skip("no pzstd here")
    (near / "file").write_bytes(DATA)
    for home in (near, far):
        made = shell(NEAR, "rdsend --make-key %s/.sluice-key" % near) if home is near else None
        if made:
            assert made.wait() == 0, made.errors()
    (far / ".sluice-key").write_bytes((near / ".sluice-key").read_bytes())
    (far / ".sluice-key").chmod(0o600)
    fill = lambda line: line.replace("12345", str(port)).replace("HOST", FAR.address)
    sink = shell(FAR, fill(pair[0]).replace("rdrecv ", "rdrecv -v "))
    sink.expect("listening on")
    source = shell(NEAR, fill(pair[1]))
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    got = far / ("received" if (far / "received").exists() else "file")
    assert got.read_bytes() == DATA


def test_through_a_host_in_the_middle(shell):
    line = next(g[0] for g in groups() if len(g) == 1 and "rdsend NEXT" in g[0])
    near, far = shell.homes["near"], shell.homes["far"]
    (near / "file").write_bytes(DATA)
    there, here = free_port(), free_port()
    last = shell(FAR, "rdrecv -v %d KEY file" % there)
    last.expect("listening on")
    middle = shell(FAR, line.replace("rdrecv ", "rdrecv -v ").replace("NEXT 12345", "%s %d" % (
        FAR.address, there)).replace("12345", str(here)))
    middle.expect("listening on")
    first = shell(NEAR, "rdsend %s %d KEY < file" % (FAR.address, here))
    assert [p.wait() for p in (first, middle, last)] == [0, 0, 0], \
        first.errors() + middle.errors() + last.errors()
    assert (far / "file").read_bytes() == DATA
