# SPDX-License-Identifier: Apache-2.0
"""File systems of a test's own, in FUSE."""

import os
import subprocess

import pytest

from hosts import ROOT, wait_until

MAY_NOT = ("permitted", "denied", "not found", "No such device", "fusermount")


class Fuse:
    """SCRIPT of tests/rig shows at TMP_PATH/NAME (top) what is in TMP_PATH/below (below). Where it may not, skip."""

    def __init__(self, script, tmp_path, name, *words):
        self.below, self.top = tmp_path / "below", tmp_path / name
        self.below.mkdir()
        self.top.mkdir()
        # Not in the test's own environment: fusepy is the system's.
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
