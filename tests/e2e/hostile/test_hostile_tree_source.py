# SPDX-License-Identifier: Apache-2.0
"""A hostile sink and an honest tree: false answers, cells and results, and questions without answers."""

import os
import threading
import time

import pytest

from arena import SOON, Store, ends, fails, manifest
from hosts import COUNT, SLOW, pattern

import wire
from peer import ASK, CELL, SYMLINK, total_of


def tree_source(arena, flags=(), wants=("outside",), answer=None, store=True, **how):
    e = arena.source(wants=wants, flags=["RECURSIVE", *flags], **how).orders()
    (lane,) = e.open()
    return e, Store(e, lane, answer, store)


def big_tree(arena, size=5 << 20, count=1):
    """With a file that is large enough to be asked about."""
    for i in range(count):
        (arena.top / "outside" / ("big%d" % i if i else "big")).write_bytes(pattern(size))
    arena.before = manifest(arena.top, arena.target)


def test_honest_sink_receives_a_tree(arena):
    e, store = tree_source(arena, flags=["DELETE"])
    done = e.frames.expect("END")
    names = {v["name"]: (n, v) for n, v in store.records if n in ("FILE", "DIR") and v["name"]}
    assert set(names) == {b"outside", b"sub", b"f", b"way"}
    assert names[b"way"][1]["type"] == SYMLINK
    assert {n for n, v in store.records} >= {"DIR", "FILE", "DATA", "FILE_END", "KEEP"}
    assert (done["files"], done["others"], done["failed"]) == (2, 3, 0)
    e.frames.send("DONE", **done)
    ends(e, 0)


ASKED = {
    "an-answer-about-nothing": lambda e, f: e.answer_with(SEND=[99]),
    "a-clone-of-what-was-not-offered": lambda e, f: e.answer_with(CLONED=[f]),
    "an-answer-of-id-0": lambda e, f: e.answer_with(SEND=[0]),
    "an-answer-about-a-directory": lambda e, f: e.answer_with(SAME=[1]),
    "an-answer-twice": lambda e, f: e.answer_with(SAME=[f, f]),
    "two-answers": lambda e, f: e.answer_with(SAME=[f], SEND=[f]),
    "answer-0": lambda e, f: e.frames.send("ANSWERS", answers=[dict(file=f, answer=0)]),
    "answer-5": lambda e, f: e.frames.send("ANSWERS", answers=[dict(file=f, answer=5)]),
    "no-answers": lambda e, f: e.frames.send("ANSWERS", answers=[]),
    "4097-answers": lambda e, f: e.answer_with(SEND=[f] * 4097),
    "stored": lambda e, f: e.say_stored(f),
    "stored-a-directory": lambda e, f: e.say_stored(1),
    "stored-4097": lambda e, f: e.say_stored(*[f] * 4097),
    "cells-off-a-cell": lambda e, f: cells(e, f, pos=1),
    "cells-off-a-cell-by-much": lambda e, f: cells(e, f, pos=CELL // 2),
    "cells-at-2^63": lambda e, f: cells(e, f, pos=1 << 63),
    "cells-beyond-2^63": lambda e, f: cells(e, f, pos=(1 << 63) - CELL, count=2),
    "cells-of-nothing": lambda e, f: cells(e, f, count=0),
    "2049-cells": lambda e, f: cells(e, f, count=2049),
    "cells-beyond-the-file": lambda e, f: cells(e, f, count=22),
    "cells-far-beyond": lambda e, f: cells(e, f, pos=1 << 40),
    "cells-twice": lambda e, f: (cells(e, f, count=3), cells(e, f, count=3)),
    "cells-backwards": lambda e, f: (cells(e, f, pos=4 * CELL), cells(e, f)),
    "cells-of-a-directory": lambda e, f: cells(e, 1),
    "cells-of-nobody": lambda e, f: cells(e, 99),
    "cells-and-send": lambda e, f: (cells(e, f), e.answer_with(SEND=[f])),
    "cells-and-same": lambda e, f: (cells(e, f), e.answer_with(SAME=[f])),
    "cells-after-the-answer": lambda e, f: (e.answer_with(SAME=[f]), cells(e, f)),
    "a-failure-twice": lambda e, f: [e.frames.send("FILE_RESULT", file=f, code=11, text="no")
                                     for _ in range(2)],
    "a-failure-and-an-answer": lambda e, f: (
        e.frames.send("FILE_RESULT", file=f, code=11, text="no"), e.answer_with(SEND=[f])),
    "a-failure-of-nothing": lambda e, f: e.frames.send("FILE_RESULT", file=0, code=11, text="no"),
    "a-failure-of-no-file": lambda e, f: e.frames.send("FILE_RESULT", file=99, code=11, text="no"),
    "done": lambda e, f: e.frames.send("DONE", **total_of(others=3)),
}
# Answers that a source may ignore: then it continues, and the test ends the session.
IGNORED = {"cells-and-send", "cells-and-same", "cells-of-nobody"}


def cells(e, file, pos=0, count=1):
    return e.frames.send("CELLS", file=file, pos=pos,
                         digests=[dict(low=i + 1, high=7) for i in range(count)])


@pytest.mark.parametrize("what", ASKED)
def test_invalid_answers_fail(arena, what):
    # In a session that may remove sources.
    (arena.target / "tree" / "sub").mkdir(parents=True)
    big = arena.target / "tree" / "big"
    big.write_bytes(pattern(5 << 20))
    (arena.target / "tree" / "sub" / "f").write_bytes(b"small")
    said = []

    def answer(e, values):
        if not said:
            said.append(values)
            ASKED[what](e, values["id"])
    e, _ = tree_source(arena, answer=answer, flags=["REMOVE_SOURCE"], wants=["target/tree"])
    if what in IGNORED:
        time.sleep(0.5 * SLOW)
        e.frames.send("CANCEL", signo=2)
        ends(e, 12, 20)
    else:
        fails(e, 12)
    # It may have been sent and stored.
    assert big.exists() or what == "cells-and-send"


@pytest.mark.parametrize("answer", ["COMPARE", "RESUME"])
@pytest.mark.parametrize("told", ["nothing", "wrong", "half", "zeros"])
def test_false_cells_cause_no_wrong_file(arena, answer, told):
    """A source leaves out only bytes whose cells match its own."""
    big_tree(arena)
    data = (arena.top / "outside" / "big").read_bytes()

    def say(e, values):
        if values["name"] != b"big":
            e.answer_with(SEND=[values["id"]])
            return
        count = {"nothing": 0, "wrong": 20, "half": 10, "zeros": 20}[told]
        digests = [dict(zip(("low", "high"), wire.hash128(
            {"half": data[i * CELL:(i + 1) * CELL], "zeros": bytes(CELL),
             "wrong": b"x"}.get(told, b""), i * CELL))) for i in range(count)]
        if digests:
            e.frames.send("CELLS", file=values["id"], pos=0, digests=digests)
        e.answer_with(**{answer: [values["id"]]})
    e, store = tree_source(arena, answer=say,
                           flags=["CHECKSUM"] if answer == "COMPARE" else [])
    done = e.frames.expect("END")
    big = [v for n, v in store.records if n == "FILE" and v["name"] == b"big"]
    assert len(big) == 2, big
    had = sum(v["len"] for n, v in store.records if n == "HAVE" and v["id"] == big[0]["id"])
    assert had == (10 * CELL if told == "half" and answer == "RESUME" else 0)
    assert done["same"] == 0 and done["failed"] == 0
    e.frames.send("DONE", **done)
    ends(e, 0)


@pytest.mark.parametrize("answer", ["COMPARE", "RESUME"])
def test_cells_beyond_the_bound_are_ignored(arena, answer):
    """The source does not rely on cells that it cannot keep: it sends the file as if there were none."""
    big_tree(arena)
    data = (arena.top / "outside" / "big").read_bytes()

    def say(e, values):
        if values["name"] != b"big":
            e.answer_with(SEND=[values["id"]])
            return
        for i in range(20):
            e.frames.send("CELLS", file=values["id"], pos=i * CELL, digests=[
                dict(zip(("low", "high"), wire.hash128(data[i * CELL:(i + 1) * CELL], i * CELL)))])
        e.answer_with(**{answer: [values["id"]]})
    # Two cells, each sent alone.
    e, store = tree_source(arena, answer=say, flags=["CHECKSUM"] if answer == "COMPARE" else [],
                           env={"SLUICE_FAULT": "bound:by=%d" % ((256 << 20) // 224)})
    done = e.frames.expect("END")
    assert (done["same"], done["failed"]) == (0, 0)
    had = sum(v["len"] for n, v in store.records if n == "HAVE")
    assert had == (2 * CELL if answer == "RESUME" else 0)
    e.frames.send("DONE", **done)
    ends(e, 0)


def test_sink_that_answers_same_to_everything(arena):
    """The source has only the sink's answer: it sends nothing, and removes nothing that it has not sent."""
    e, store = tree_source(arena, flags=["QUICK"],
                           answer=lambda e, v: e.answer_with(SAME=[v["id"]]))
    done = e.frames.expect("END")
    assert (done["files"], done["same"]) == (0, 2)
    assert not [1 for n, v in store.records if n == "DATA" and v["bytes"] not in (b"sub",)]
    e.frames.send("DONE", **done)
    ends(e, 0)


@pytest.mark.parametrize("new", [True, False])
def test_no_questions_below_a_new_directory(arena, new):
    """From the moment the source knows that it is new, except questions already in flight."""
    top = arena.target / "many"
    (top / "sub").mkdir(parents=True)
    count = 400
    for i in range(count):
        (top / ("sub/%d" % i if i % 2 else str(i))).touch()
    ready, heard = threading.Event(), threading.Event()

    def answer(e, values):
        ready.wait(SOON)
        if not heard.is_set():
            # It received the first report before it answers the second; until then it has no credit.
            if new:
                (tree,) = [v["id"] for n, v in store.records if n == "DIR" and v["parent"] == 0]
                e.answer_with(NEW=[tree])
            e.frames.send("PING", cookie=5)
            e.frames.expect("PONG")
            heard.set()
        e.answer_with(SEND=[values["id"]])
    e = arena.source(wants=["target/many"], flags=["RECURSIVE", "QUICK"], depth=2, block_size=4096).orders()
    (lane,) = e.open()
    store = Store(e, lane, answer)
    ready.set()
    assert heard.wait(SOON)
    done = e.frames.expect("END")
    assert done["files"] == count and done["failed"] == 0
    asked = sum(1 for n, v in store.records if n == "FILE" and v["flags"] & ASK)
    # Two blocks of questions, and a third that waits for a credit.
    assert asked <= 3 * 4096 // 80 if new else asked == count
    e.frames.send("DONE", **done)
    ends(e, 0)


def test_unanswered_questions_are_bounded(arena):
    """A bounded number of questions; each uses no descriptor and little memory."""
    top = arena.target / "many"
    top.mkdir()
    count = 20000
    for i in range(count):
        (top / ("n%d" % i)).touch()
    arena.memory_max += 30 << 20
    e, store = tree_source(arena, wants=["target/many"], flags=["QUICK"])
    time.sleep(2 * SLOW)
    asked = sum(1 for n, v in store.records if n == "FILE")
    assert 100 <= asked < count
    assert len(os.listdir("/proc/%d/fd" % e.proc.proc.pid)) < 200
    e.frames.send("CANCEL", signo=2)
    ends(e, 20)


def test_sink_that_stores_nothing_blocks_the_end(arena):
    """Without results the source sends neither the hard links nor END."""
    e, store = tree_source(arena, store=False)
    store.until("FILE_END")
    time.sleep(0.5 * SLOW)
    assert not [1 for n, v in store.records if n == "FILE" and v["type"] == SYMLINK]
    e.frames.send("DONE", **total_of())
    fails(e, 12)


DONES = {
    "fewer-others": dict(others=2), "more-others": dict(others=4), "same": dict(same=1),
    "failed": dict(failed=1), "files": dict(files=3), "all-the-same": dict(files=0, same=2, bytes=0,
                                                                        digest_low=0, digest_high=0),
    "others-as-files": dict(files=5, others=0),
}


@pytest.mark.parametrize("what", DONES)
def test_wrong_done_of_a_tree_exits_41(arena, what):
    e, _ = tree_source(arena)
    done = e.frames.expect("END")
    e.frames.send("DONE", **{**done, **DONES[what]})
    fails(e, 41)


def test_incomplete_done_is_accepted(arena):
    e, _ = tree_source(arena)
    e.frames.send("DONE", **{**e.frames.expect("END"), "incomplete": 1})
    fails(e, 12)


def test_directories_may_fail_at_the_end(arena):
    """A sink may report that; the source accepts that and nothing else."""
    e, store = tree_source(arena)
    done = e.frames.expect("END")
    sub = store.until("DIR", name=b"sub")["id"]
    e.frames.send("FILE_RESULT", file=sub, code=11, text="\x1b[31mno")
    e.frames.send("DONE", **{**done, "others": done["others"] - 1, "failed": 1})
    ends(e, 23)


def test_second_failure_of_a_directory_fails(arena):
    e, store = tree_source(arena)
    e.frames.expect("END")
    sub = store.until("DIR", name=b"sub")["id"]
    for _ in range(2):
        e.frames.send("FILE_RESULT", file=sub, code=11, text="no")
    fails(e, 12)


def test_failed_deletions_are_reported(arena):
    """Results without a source file arrive after END, and are not counted."""
    e, _ = tree_source(arena, flags=["DELETE"])
    done = e.frames.expect("END")
    e.frames.send("FILE_RESULT", file=0, code=11, text="\x1b[31mmine")
    e.frames.send("FILE_RESULT", file=0, code=25, text="the rest")
    e.frames.send("DONE", **done)
    said = ends(e, 23, 25)
    assert b"\x1b" not in bytes(e.proc.err), said


def test_endless_results_use_no_memory(arena):
    """Hundreds of thousands of failures without a file: they use no memory."""
    e, _ = tree_source(arena, flags=["DELETE"])
    e.frames.expect("END")
    result = wire.message("FILE_RESULT", file=0, code=11, text="\x1b[31m" * 100)
    for _ in range(200 * COUNT):
        if not e.frames.raw(result * 100):
            break
    e.frames.send("CANCEL", signo=2)
    ends(e, 20, 12, within=30)
