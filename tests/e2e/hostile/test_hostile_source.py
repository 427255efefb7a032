# SPDX-License-Identifier: Apache-2.0
"""A hostile sink: results, verdicts and ends that a source must reject."""

import pytest

from arena import ends, fails, open_source, serve, take_all
from hosts import pattern

import wire
from peer import U32, U64, total_of

# ---- an honest sink succeeds (otherwise the tests below mean nothing) -------------------------

def test_honest_sink_is_served(arena):
    e, (lane,) = open_source(arena)
    records, end = serve(e, lane)
    assert records["DATA"]["bytes"] == b"outside"
    assert end == total_of(b"outside")
    e.frames.send("DONE", **end)
    ends(e, 0)


# ---- a hostile sink ---------------------------------------------------------------------------

RESULTS = {
    "stored-nothing": ("STORED", dict(files=[])),
    "stored-no-file": ("STORED", dict(files=[dict(file=0)])),
    "stored-another-file": ("STORED", dict(files=[dict(file=1), dict(file=2)])),
    "stored-the-last-file": ("STORED", dict(files=[dict(file=U32)])),
    "stored-twice-at-once": ("STORED", dict(files=[dict(file=1), dict(file=1)])),
    "a-failure-of-another": ("FILE_RESULT", dict(file=9, code=11, text="disk full")),
    "a-failure-that-is-none": ("FILE_RESULT", dict(file=1, code=0, text="")),
    "an-answer-without-a-question": ("ANSWERS", dict(answers=[dict(file=1, answer=2)])),
    "an-answer-about-another": ("ANSWERS", dict(answers=[dict(file=9, answer=1)])),
    "cells-without-a-question": ("CELLS", dict(file=1, pos=0, digests=[dict(low=1, high=1)])),
    "cells-of-another": ("CELLS", dict(file=9, pos=0, digests=[dict(low=1, high=1)])),
}


@pytest.mark.parametrize("what", RESULTS)
def test_results_for_unsent_files_fail(arena, what):
    e, (lane,) = open_source(arena, wants=["target/f"], flags=["REMOVE_SOURCE"], target="")
    take_all(e, lane)
    name, values = RESULTS[what]
    e.frames.send(name, **values)
    fails(e, 12)
    # A file that is reported as stored may be gone.
    assert (arena.target / "f").exists() or dict(file=1) in values.get("files", [])


def test_second_result_fails(arena):
    e, (lane,) = open_source(arena)
    take_all(e, lane)
    e.say_stored(1)
    e.say_stored(1)
    fails(e, 12)


def test_result_before_the_file_was_read_removes_nothing(arena):
    """Success for a file that is still being sent: it is not removed."""
    (arena.target / "big").write_bytes(pattern(64 * 16384))
    e, (lane,) = open_source(arena, wants=["target/big"], flags=["REMOVE_SOURCE"], depth=4)
    lane.take_block()
    e.say_stored(1)
    fails(e, 12)
    assert (arena.target / "big").exists()


@pytest.mark.parametrize("answer", ["failure", "silence", "hang-up", "error", "unknown-outcome"])
def test_only_success_removes_a_source(arena, answer):
    e, (lane,) = open_source(arena, wants=["target/f"], flags=["REMOVE_SOURCE"], timeout_ms=1000)
    take_all(e, lane)
    if answer == "failure":
        e.frames.expect("END")
        e.frames.send("FILE_RESULT", file=1, code=11, text="no")
        e.frames.send("DONE", **total_of(failed=1))
        fails(e, 11)
    elif answer == "unknown-outcome":
        e.frames.expect("END")
        e.frames.send("FILE_RESULT", file=1, code=200, text="no")
        e.frames.send("DONE", **total_of(failed=1))
        fails(e, 12)
    elif answer == "silence":
        e.frames.mute = True
        fails(e, 30)
    elif answer == "hang-up":
        e.hang_up()
        fails(e, 44, verdict=False)
    else:
        e.frames.send("ERROR", code=22, host="", text="\x1b[31mno\x9b")
        fails(e, 22)
    assert (arena.target / "f").read_bytes() == b"old"


def test_changed_source_is_not_removed(arena):
    e, (lane,) = open_source(arena, wants=["target/f"], flags=["REMOVE_SOURCE"])
    take_all(e, lane)
    (arena.target / "f").write_bytes(b"newer")
    e.frames.expect("END")
    e.say_stored(1)
    e.frames.send("DONE", **total_of(b"old"))
    fails(e, 42, 23)
    assert (arena.target / "f").read_bytes() == b"newer"


DONES = {
    "no-files": dict(files=0), "more-files": dict(files=2), "failed": dict(failed=1),
    "all-failed": dict(failed=U64), "same": dict(same=1), "others": dict(others=1),
    "all-the-same": dict(files=0, same=1), "more-bytes": dict(bytes=U64), "other-digest": dict(digest_low=1),
    "other-digest-above": dict(digest_high=1),
}


@pytest.mark.parametrize("what", DONES)
def test_wrong_done_exits_41(arena, what):
    e, (lane,) = open_source(arena)
    _, end = serve(e, lane)
    e.frames.send("DONE", **{**end, **DONES[what]})
    fails(e, 41)


def test_done_without_results_exits_41(arena):
    e, (lane,) = open_source(arena)
    take_all(e, lane)
    e.frames.send("DONE", **e.frames.expect("END"))
    fails(e, 41)


@pytest.mark.parametrize("when", ["before-the-lanes", "before-a-block", "before-end"])
def test_done_before_end_fails(arena, when):
    e = arena.source().orders()
    if when == "before-the-lanes":
        e.hello()
    else:
        lane = e.open()[0]
        if when == "before-end":
            lane.take_block()
    e.frames.send("DONE", **total_of(b"outside"))
    fails(e, 12)


def test_error_after_done_is_ignored(arena):
    e, (lane,) = open_source(arena)
    _, end = serve(e, lane)
    e.frames.raw(wire.message("DONE", **end) +
                 wire.message("ERROR", code=11, host="", text="late"))
    ends(e, 0)
