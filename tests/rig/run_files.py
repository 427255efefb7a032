# SPDX-License-Identifier: Apache-2.0
"""The directory in which a run of pytest keeps the files of its tests.

pytest's own is below /tmp/pytest-of-USER, and each run of pytest that begins, of whatever tests, makes that private
again: other users, whom a test has let in (hosts.open_up), lose their way to its files. So each run has one of its
own. It stays after a failure; the latest three do."""

import fcntl
import os
import pathlib
import subprocess
import tempfile

import pytest

PREFIX = "sluice-run-"
KEPT = 3
DIRECTORY = pytest.StashKey()


def remove(directory):
    subprocess.run(["rm", "-rf", "--one-file-system", directory], stderr=subprocess.DEVNULL, check=False)


class Directory:
    """Held, by a lock, as long as its run lasts."""

    def __init__(self, path):
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.failed = False
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.held = True
        except BlockingIOError:
            self.held = False

    def close(self):
        if self.held and not self.failed:
            remove(self.path)
        os.close(self.fd)


def remove_old():
    """Removes what ended runs have left, except for the latest."""
    ended = []
    for path in pathlib.Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        try:
            about = path.lstat()
            found = Directory(path) if about.st_uid == os.geteuid() else None
        except OSError:
            continue
        if found and found.held:
            ended.append((about.st_mtime, found))
        elif found:
            found.close()
    ended.sort(key=lambda entry: entry[0])
    for n, (_, directory) in enumerate(ended):
        directory.failed = n >= len(ended) - KEPT
        directory.close()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    # A worker's is below that of its controller.
    if config.option.basetemp is not None or hasattr(config, "workerinput"):
        return
    remove_old()
    mine = config.stash[DIRECTORY] = Directory(tempfile.mkdtemp(prefix=PREFIX))
    config.option.basetemp = mine.path + "/tests"
    config.add_cleanup(mine.close)


def pytest_sessionfinish(session, exitstatus):
    mine = session.config.stash.get(DIRECTORY, None)
    if mine:
        mine.failed = exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
