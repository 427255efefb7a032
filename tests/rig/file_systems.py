# SPDX-License-Identifier: Apache-2.0
"""Mounts file systems for a test, also by FUSE. Where mounting is not permitted, the test is skipped."""

import contextlib
import os
import shutil
import subprocess

import pytest

from hosts import ROOT, USER, wait_until

MAY_NOT = ("permitted", "denied", "not found", "No such device", "fusermount")


EXT4 = ("mkfs.ext4", "-q", "-F")


@contextlib.contextmanager
def mounted(at, *words):
    """Runs `mount WORDS AT', and unmounts at the end of the with statement."""
    at.mkdir(exist_ok=True)
    if USER:
        pytest.skip("may not mount")
    r = subprocess.run(["mount", *words, at], capture_output=True, text=True, check=False)
    if r.returncode:
        pytest.skip("may not mount: " + r.stderr.strip())
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", at], check=True)


@contextlib.contextmanager
def mounted_image(image, size, at, make=EXT4):
    """Mounts a new file system in a sparse file. make: the command that makes it."""
    if not shutil.which(make[0]):
        pytest.skip("no " + make[0])
    with open(image, "wb") as f:
        f.truncate(size)
    subprocess.run([*make, image], check=True, capture_output=True)
    with mounted(at, "-o", "loop", image):
        yield at


class Fuse:
    """Mounts the file system of a script in tests/rig. It shows the files of tmp_path/below at tmp_path/NAME (top)."""

    def __init__(self, script, tmp_path, name, *words):
        self.below, self.top = tmp_path / "below", tmp_path / name
        self.below.mkdir()
        self.top.mkdir()
        # Debian's fusepy belongs to the system's Python, not to the one that runs the test.
        self.proc = subprocess.Popen(["/usr/bin/python3", ROOT / "tests" / "rig" / script, self.below, self.top,
                                      *map(str, words)], stderr=subprocess.PIPE)
        try:
            wait_until(lambda: self.proc.poll() is not None or os.path.ismount(self.top))
            assert self.proc.poll() is None, self.proc.stderr.read()
        except AssertionError as e:
            self.close()
            if any(why in str(e) for why in MAY_NOT):
                pytest.skip("may not mount with FUSE: %s" % e)
            raise

    def close(self):
        subprocess.run(["umount", "-l", self.top], capture_output=True)
        self.proc.kill()
        self.proc.wait()
