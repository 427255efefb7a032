# SPDX-License-Identifier: Apache-2.0
"""A hostile far end for a real rdcp, which starts it instead of ssh:

    rdcp --rsh "python3 far_end.py SCENARIO" …

runs `far_end.py SCENARIO HOST rdcp --end'.  Each function below is a scenario."""

import os
import sys
import time

import peer
import wire

GREETING = dict(magic=wire.GREETING_MAGIC, version=wire.VERSION, release="0.1.0")
VERDICT = dict(code=0, host="", text="", **peer.total_of(), transport=2, encrypted=0, cipher=0, lanes=1, how="tcp", why="",
               ns=1, **{**peer.TIMES_NONE, "kind": 1, "ns_fill": 1, "ns_block": 1}, **peer.COUNTS_NONE)
ESCAPES = b"\x1b]0;owned\x07\x9b31m\r\x08\xe2\x80\xae"


class Far(peer.Session):
    def __init__(self):
        frames = peer.Frames(lambda: os.read(0, 65536), self.write)
        # ERROR means that the other end has given up.
        frames.fatal = "ERROR"
        super().__init__(frames, None, None)

    def write(self, data):
        """Writes at once: buffered bytes would be lost at the end."""
        while data:
            data = data[os.write(1, data):]

    def greet(self, **over):
        self.frames.send("GREETING", **{**GREETING, **over})

    def orders(self):
        self.greet()
        self.start = self.frames.expect("START")
        self.frames.expect("GO")
        self.role, self.secret = self.start["role"], self.start["secret"]

    def one_lane(self):
        """A session with one lane, for which the other end connects."""
        self.orders()
        self.hello()
        self.listen()
        lane = self.accept()
        self.frames.expect("CHOICE")
        return lane

    def linger(self, seconds=30):
        """Stays alive as long as the other end reads."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.frames.send("PING", cookie=0) and \
                not self.frames.over:
            time.sleep(0.1)

    def until_refused(self, seconds=10):
        """Stays alive until the other end fails; main() then reports that, as every end does."""
        self.frames.expect(timeout=seconds)


def send_file(far, name, data=b"evil", **over):
    lane = far.one_lane()
    lane.records(peer.file_record(**{"name": name, "size": len(data), **over}),
                 peer.data_record(data), peer.end_record(data))
    far.result()
    while lane.credit()["stored"] < lane.number:
        pass
    far.frames.send("END", **peer.total_of(data))
    far.frames.expect("DONE")


def honest(far):
    send_file(far, "f", b"honest")
    far.frames.send("VERDICT", **{**VERDICT, **peer.total_of(b"honest")})


# ---- scenarios without a greeting

def text(far):
    far.write(b"Welcome!\r\n\x1b[2J" + ESCAPES * 9 + b"\n")


def endless_text(far):
    while far.frames.raw(b"motd \x1b[2J\n" * 1000):
        pass


def zeros(far):
    far.write(bytes(100000))
    far.linger()


def long_frame(far):
    far.write(b"\xff\xff\xff\xff\x40\0\0\0")
    far.linger()


def version(far):
    far.greet(version=99, release=ESCAPES)
    far.linger(3)


def nothing(far):
    pass


def half_a_greeting(far):
    far.write(wire.message("GREETING", **GREETING)[:9])


def another_frame(far):
    far.frames.send("NOTE", level=1, text="first")
    far.linger()


def greeting_twice(far):
    far.greet()
    far.greet()
    far.linger()


# ---- scenarios after the greeting

def exit_after_greeting(far):
    far.orders()


def silent(far):
    far.orders()
    far.frames.mute = True
    time.sleep(30)


def silent_copy(far):
    lane = far.one_lane()
    lane.records(peer.file_record(size=9), peer.data_record(b"some"))
    far.frames.mute = True
    time.sleep(30)


def done_at_once(far):
    far.orders()
    far.frames.send("VERDICT", **VERDICT)
    far.linger()


def done_and_gone(far):
    far.orders()
    far.frames.send("VERDICT", **VERDICT)


def done_in_the_copy(far):
    lane = far.one_lane()
    lane.records(peer.file_record(size=9), peer.data_record(b"some"))
    far.frames.send("VERDICT", **VERDICT)
    far.linger()


def unknown_outcome(far):
    far.orders()
    far.frames.send("VERDICT", **{**VERDICT, "code": 200, "text": ESCAPES, "host": ESCAPES})
    far.linger()


def local_frames(far, name):
    far.orders()
    values = {"START": far.start, "WANT": dict(name="g"), "GO": {}, "CANCEL": dict(signo=9),
              "DETOUR": dict(port=22, why=""), "LISTENING": dict(port=0, why=""),
              "NOTE": dict(level=9, text=""), "VERDICT": {**VERDICT, "transport": 9},
              "PROGRESS": dict(bytes=0, total=0, files=0, total_known=2),
              "STUCK": dict(round=9, why=""), "RULE": dict(include=1, pattern="*"),
              "LISTED": dict(name="g"), "TAKEN": dict(name="g"),
              "MODULE": dict(version=wire.VERSION, name="g"), "LIST": dict(name="g"),
              "ENTRY": dict(kind=2, mode=0, size=0, mtime=0, name="g", about=""),
              "EVENT": dict(what=6, code=0, deleted=0, size=0, change="", digest="", path="f"),
              "FINDING": dict(state=1, family=0, rdma=0, addr=bytes(16), name="pcie", subject="",
                              what="", remedy="")}[name]
    far.frames.send(name, **values)
    far.linger()


def notes(far):
    far.orders()
    note = wire.message("NOTE", level=0, text=ESCAPES * 40)
    for _ in range(200):
        far.frames.raw(note * 20)
    far.frames.send("ERROR", code=11, host=ESCAPES, text=ESCAPES * 30)
    far.linger(3)


def progress(far):
    far.orders()
    for bytes_, total in [(1, 1), (peer.U64, 1), (0, peer.U64), (peer.U64, peer.U64), (5, 0)]:
        far.frames.send("PROGRESS", bytes=bytes_, total=total, files=peer.U64, total_known=1)
        time.sleep(0.35)
    far.frames.send("ERROR", code=11, host="", text="enough")
    far.linger(3)


def stuck(far):
    far.orders()
    for _ in range(1000):
        far.frames.send("STUCK", round=1, why=ESCAPES)
        far.frames.send("LISTENING", port=1, why="")
    far.linger(3)


def never_reads(far):
    far.orders()
    far.frames.read = lambda: time.sleep(60)
    pings = b"".join(wire.message("PING", cookie=i) for i in range(4000))
    for _ in range(100):
        far.frames.raw(pings)


def verdict_of_escapes(far):
    """Everything succeeds, and the report contains terminal control sequences."""
    lane = far.one_lane()
    lane.records(peer.file_record(size=4), peer.data_record(b"evil"), peer.end_record(b"evil"))
    far.result()
    while lane.credit()["stored"] < lane.number:
        pass
    far.frames.send("END", **peer.total_of(b"evil"))
    far.frames.expect("DONE")
    far.frames.send("VERDICT", **{**VERDICT, **peer.total_of(b"evil"), "how": ESCAPES,
                                  "why": ESCAPES * 20, "lanes": 64, "ns": peer.U64,
                                  "ns_fill": peer.U64, "ns_free": 1, "ns_block": peer.U64,
                                  "ns_store": peer.U64})


def store_verdict_of_escapes(far):
    """The same in the role of a sink."""
    lane = far.one_lane()
    head, data = lane.take_block()
    records = dict(wire.records(data))
    lane.grant(1)
    end = far.frames.expect("END")
    far.say_stored(records["FILE"]["id"])
    far.frames.send("DONE", **end)
    far.frames.send("VERDICT", **{**VERDICT, **end, "bytes": peer.U64, "how": ESCAPES,
                                  "why": ESCAPES * 20, "ns": 1})
    far.linger(1)


def error_of_escapes(far):
    far.one_lane()
    far.frames.send("ERROR", code=11, host=ESCAPES, text=ESCAPES * 40)
    far.linger(3)


def name_of(far, name):
    send_file(far, peer.NAMES[name])
    far.until_refused(1)


def extra_file(far):
    lane = far.one_lane()
    for i, name in enumerate(["f", "authorized_keys"], 1):
        lane.records(peer.file_record(id=i, name=name, size=4), peer.data_record(b"evil", id=i),
                     peer.end_record(b"evil", id=i))
    far.until_refused()


# ---- trees

TREES = {
    "other-directory": [peer.dir_record(name="other")],
    "contents": [peer.dir_record(name="", flags=peer.CONTENTS),
                 peer.small_records(b"evil", id=2, dir=1, name=".bashrc")],
    "file-beside": [peer.dir_record(name="dir"), peer.small_records(b"evil", id=2)],
    "symlink-instead": [peer.link_records("../outside", name="dir")],
    "up": [peer.dir_record(name=".."), peer.small_records(b"evil", id=2, dir=1)],
    "absolute": [peer.dir_record(name="/etc"), peer.small_records(b"evil", id=2, dir=1)],
    "file-up": [peer.dir_record(name="dir"), peer.small_records(b"evil", id=2, dir=1, name="..")],
    "file-with-a-slash": [peer.dir_record(name="dir"),
                          peer.small_records(b"evil", id=2, dir=1, name="../../outside/f")],
    "device": [peer.dir_record(name="dir"),
               peer.small_records(id=2, dir=1, type=peer.BLOCK, major=8, name="sda")],
    "hard-link-out": [peer.dir_record(name="dir"),
                      peer.small_records(id=2, dir=1, type=peer.HARD_LINK, link_to=1)],
    "delete": [peer.dir_record(name="dir"), peer.keep_record(1)],
    "attribute": [peer.dir_record(name="dir"), peer.xattr_record(name="security.evil")],
}


def tree(far, what):
    """Sends what `rdcp -r far:dir' did not ask for."""
    lane = far.one_lane()
    for records in TREES[what]:
        lane.records(records)
    far.until_refused(1 if what == "attribute" else 10)


def events_of_escapes(far):
    far.orders()
    for what in range(1, 6):
        for code in (0, 11):
            for deleted in (0, 1):
                far.frames.send("EVENT", what=what, code=code, deleted=deleted, size=peer.U64,
                                change=ESCAPES[:15], digest=ESCAPES * 6,
                                path=b"dir/" + ESCAPES * 1000)
    far.frames.send("EVENT", what=1, code=0, deleted=0, size=0, change="", digest="", path="")
    far.frames.send("ERROR", code=11, host="", text="enough")
    far.linger(3)


def events_without_end(far):
    far.orders()
    event = wire.message("EVENT", what=1, code=0, deleted=0, size=1, change=">f+++++++++", digest="",
                         path="p" * 4000)
    for _ in range(100):
        if not far.frames.raw(event * 100):
            return
    far.frames.send("ERROR", code=11, host="", text="enough")
    far.linger(3)


def main():
    scenario, *words = sys.argv[1].split(":")
    if sys.argv[-1] != "--end":
        # rdcp asks for a lane over ssh; there is none.
        sys.exit(1)
    far = Far()
    try:
        globals()[scenario](far, *words)
    except peer.Silence as silence:
        if silence.frame:
            # Report the first cause, as every end does.
            far.frames.send("VERDICT", **{**VERDICT, **silence.frame})
    except (OSError, EOFError):
        pass
    finally:
        far.close()
    # A thread is blocked in a read of stdin, so exit without joining it.
    os._exit(0)


if __name__ == "__main__":
    main()
