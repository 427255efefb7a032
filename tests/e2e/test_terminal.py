# SPDX-License-Identifier: Apache-2.0
"""The progress line on a terminal that is resized, and of a job that a shell stops and continues."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pytest

from hosts import SLOW, environment, leftovers, program, wait_until

LIVE = re.compile(rb"\r([^\r\n\x1b]*[^\r\n\x1b ])\x1b\[K")
PROMPT = b"ready> "
PIECE = 10 << 10
pytestmark = pytest.mark.needs("tcp", why="a terminal is the same with any transport")


class Terminal:
    """A terminal with a shell, in which an rdcp copies what feed() writes."""

    def __init__(self, tmp_path):
        self.out, self.fifo, self.shown = tmp_path / "out", tmp_path / "in", b""
        os.mkfifo(self.fifo)
        self.fd, theirs = pty.openpty()
        self.resize(80)
        self.shell = subprocess.Popen(["bash", "--norc", "--noediting", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path,
                                      env={**environment(None), "PS1": PROMPT.decode(), "TERM": "dumb"},
                                      preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)))
        os.close(theirs)
        self.expect(PROMPT)
        self.type("%s --transport=tcp --lanes=1 --block-size=4k in out\n" % program("rdcp"))
        self.pipe = open(self.fifo, "wb", buffering=0)
        self.fed = 0

    def resize(self, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def type(self, text):
        os.write(self.fd, text.encode())

    def feed(self):
        self.pipe.write(bytes(PIECE))
        self.fed += PIECE

    def is_stored(self):
        """All but what a block may still wait for."""
        return sum((self.out.parent / name).stat().st_size for name in leftovers(self.out.parent)) > self.fed - PIECE

    def read(self, seconds):
        """What comes in this time, at the least nothing."""
        end, begin = time.monotonic() + seconds, len(self.shown)
        while (left := end - time.monotonic()) > 0 and select.select([self.fd], [], [], left)[0]:
            try:
                self.shown += os.read(self.fd, 4096)
            except OSError:
                break
        return self.shown[begin:]

    def expect(self, what):
        """Reads up to this text, or what is true of what was read."""
        begin, end = len(self.shown), time.monotonic() + 20 * SLOW
        true = what if callable(what) else lambda new: what in new
        while not true(self.shown[begin:]):
            assert time.monotonic() < end, self.shown[begin:]
            self.read(0.05)
        return self.shown[begin:]

    def expect_live(self, fits=lambda line: True):
        """Feeds the copy until such a line is shown; returns it."""
        begin, end = len(self.shown), time.monotonic() + 20 * SLOW
        while not (found := [line for line in LIVE.findall(self.shown[begin:]) if fits(line.decode())]):
            assert time.monotonic() < end, self.shown[begin:]
            self.feed()
            self.read(0.1)
        return found[0].decode()

    def finish(self):
        """The exit code, and what is shown up to then."""
        self.pipe.close()
        shown = self.expect(PROMPT)
        self.type("echo code=$?\n")
        code = re.search(rb"code=(\d+)", self.expect(re.compile(rb"code=\d").search))
        return int(code[1]), shown

    def close(self):
        self.pipe.close()
        os.close(self.fd)
        self.shell.kill()
        self.shell.wait()


@pytest.fixture
def terminal(tmp_path):
    with contextlib.closing(Terminal(tmp_path)) as t:
        yield t


def send_to_background(terminal):
    terminal.expect_live()
    terminal.type("\x1a")
    terminal.expect(re.compile(rb"Stopped(.|\n)*ready> ").search)
    terminal.type("bg\n")
    terminal.expect(PROMPT)


def test_progress_line_follows_the_width_of_the_terminal(terminal):
    """A line that is too wide would wrap, and each update would add one."""
    whole = lambda line: len(line) > 15  # noqa: E731
    terminal.expect_live(whole)
    for columns, fits in ((15, lambda line: len(line) == 14), (8, lambda line: len(line) == 7), (80, whole)):
        terminal.resize(columns)
        terminal.expect_live(fits)
        # From then on, all lines have this width.
        begin = len(terminal.shown)
        for _ in range(3):
            terminal.expect_live()
        assert all(fits(line.decode()) for line in LIVE.findall(terminal.shown[begin:])), terminal.shown[begin:]
    code, shown = terminal.finish()
    assert code == 0 and terminal.out.stat().st_size == terminal.fed, shown


def test_stopped_and_continued_job_prints_no_progress_in_the_background(terminal):
    send_to_background(terminal)
    for _ in range(10):
        terminal.feed()
        wait_until(terminal.is_stored)
        assert LIVE.search(terminal.read(0.1)) is None, terminal.shown
    terminal.type("fg\n")
    terminal.expect_live()
    code, shown = terminal.finish()
    assert code == 0 and terminal.out.stat().st_size == terminal.fed, shown


def test_job_that_ends_in_the_background_leaves_the_prompt_alone(terminal):
    send_to_background(terminal)
    terminal.feed()
    begin = len(terminal.shown)
    terminal.pipe.close()
    wait_until(terminal.out.exists)
    terminal.type("wait; echo code=$?\n")
    terminal.expect(re.compile(rb"code=0").search)
    assert b"\x1b" not in terminal.shown[begin:] and terminal.out.stat().st_size == terminal.fed, terminal.shown[begin:]
