# SPDX-License-Identifier: Apache-2.0
"""./try and ./check for a user without sudo, without python3 or meson, or with a tree that can't be written."""

import os
import shlex
import shutil
import subprocess

import pytest

from file_systems import mounted
from hosts import BIN, ROOT, USER

pytestmark = pytest.mark.needs("tcp", why="on one host, once")
# What a user may lack.
LACKS = {"sudo", "meson", "ninja", "python3", "apt-get", "apt-cache", "dpkg-query", "dnf", "rpm", "id"}


class Place:
    """A tree with the scripts alone, and the programs that a user has."""

    def __init__(self, tmp_path):
        self.tree, self.bin, self.tmp = tmp_path / "a tree", tmp_path / "bin", tmp_path / "tmp"
        for name in ("check", "try", "tests/packages", "tests/rig/rsh"):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.tree / name)
        self.bin.mkdir()
        self.tmp.mkdir()
        for directory in ("/bin", "/usr/bin"):
            for name in set(os.listdir(directory)) - LACKS - set(os.listdir(self.bin)):
                (self.bin / name).symlink_to("%s/%s" % (directory, name))
        self.add("id", "echo 1000")
        self.add("apt-get", "echo apt-get was run; exit 99")

    def add(self, name, script):
        (self.bin / name).write_text("#!/bin/sh\n%s\n" % script)
        (self.bin / name).chmod(0o755)

    def add_build(self):
        """All packages are there, and a build takes no time."""
        self.add("dpkg-query", "echo installed")
        self.add("meson", 'for dir; do :; done; mkdir -p "$dir/src"; : >"$dir/build.ninja"')
        self.add("ninja", 'ln -s %s "$2/src/rdcp"' % shlex.quote(str(BIN / "rdcp")))

    def run(self, *argv):
        r = subprocess.run(argv, env={"PATH": str(self.bin), "HOME": str(self.tmp), "TMPDIR": str(self.tmp), "LC_ALL": "C.UTF-8"},
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100, check=False)
        assert "Traceback" not in r.stdout and "apt-get was run" not in r.stdout and ": line " not in r.stdout, r.stdout
        return r.returncode, r.stdout


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def read_only(place):
    """The place, whose tree can't be written, by root neither."""
    if USER:
        for directory, _, _ in os.walk(place.tree):
            os.chmod(directory, 0o555)
        yield place
        for directory, _, _ in os.walk(place.tree):
            os.chmod(directory, 0o755)
        return
    with mounted(place.tree, "--bind", place.tree):
        subprocess.run(["mount", "-o", "remount,ro,bind", place.tree], check=True)
        yield place


def test_check_without_sudo_names_what_is_missing(place):
    place.add("dpkg-query", ":")
    code, said = place.run(place.tree / "check", "lint")
    assert code == 1 and "neither root nor sudo: can't run env DEBIAN_FRONTEND=noninteractive apt-get" in said, said
    assert said.rstrip().endswith("check: meson is missing, and could not be installed: see README.md for the packages"), said


def test_check_without_python_names_it(place):
    place.add("dpkg-query", ":")
    script = (place.tree / "check").read_text()
    assert "\npy=/usr/bin/python3\n" in script
    (place.tree / "check").write_text(script.replace("\npy=/usr/bin/python3\n", "\npy=%s/python3\n" % place.bin))
    code, said = place.run(place.tree / "check", "lint")
    assert code == 1 and "python3 is missing, and could not be installed" in said, said


def test_try_without_sudo_names_the_packages(place):
    place.add("dpkg-query", ":")
    code, said = place.run(place.tree / "try", "/etc/passwd")
    assert code == 1 and "installing: gcc libc6-dev meson" in said, said
    assert said.rstrip().splitlines()[-1].startswith("packages: neither root nor sudo: can't run "), said


@pytest.mark.parametrize("memory", [True, False], ids=["in memory", "in TMPDIR"])
def test_try_where_names_have_blanks(place, memory):
    place.add_build()
    place.tmp = place.tmp / "a tmp"
    place.tmp.mkdir()
    file = place.tmp / "a file"
    file.write_bytes(b"x" * 100000)
    if not memory:
        script = (place.tree / "try").read_text()
        assert "/dev/shm" in script
        (place.tree / "try").write_text(script.replace("/dev/shm", shlex.quote(str(place.tmp / "no memory"))))
    code, said = place.run(place.tree / "try", file)
    assert code == 0 and said.rstrip().endswith("the digests agree"), said
    assert "== rdcp -v %s elsewhere:%s" % (file, "/dev/shm" if memory else place.tmp) in said, said
    assert (place.tree / "build/release/src/rdcp").exists() and os.listdir(place.tmp) == ["a file"]


@pytest.mark.may_skip("any", "to mount takes root, and a container that may")
def test_try_in_a_read_only_tree(read_only):
    read_only.add_build()
    code, said = read_only.run(read_only.tree / "try", "/etc/passwd")
    assert code == 0 and "can't be written: building in %s/" % read_only.tmp in said, said
    assert said.rstrip().endswith("the digests agree"), said
    assert os.listdir(read_only.tmp) == []


@pytest.mark.may_skip("any", "to mount takes root, and a container that may")
def test_check_in_a_read_only_tree_reports_it(read_only):
    read_only.add_build()
    code, said = read_only.run(read_only.tree / "check", "lint")
    assert code == 1 and said == "check: %s can't be written: builds and results go to %s/build\n" % (read_only.tree, read_only.tree), said
