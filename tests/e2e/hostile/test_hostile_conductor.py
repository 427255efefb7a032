# SPDX-License-Identifier: Apache-2.0
"""A hostile far end of a real rdcp (tests/hostile/far_end.py)."""

import pytest

from arena import rdcp, untouched

from peer import NAMES

# ---- the far end of an rdcp --------------------------------------------------------------------------

def test_honest_far_end_is_accepted(arena):
    run = rdcp(arena, "honest")
    assert run.code == 0, run.errors()
    assert (arena.target / "f").read_bytes() == b"honest"


@pytest.mark.parametrize("scenario, codes", [
    ("text", [5]), ("endless_text", [5]), ("zeros", [5]), ("long_frame", [5]), ("version", [2]),
    ("nothing", [5]), ("half_a_greeting", [5]), ("another_frame", [5, 12]),
    ("greeting_twice", [12]), ("exit_after_greeting", [44]), ("silent", [35, 30]),
    ("silent_copy", [30]), ("done_at_once", range(1, 256)), ("done_and_gone", range(1, 256)),
    ("done_in_the_copy", range(1, 256)), ("unknown_outcome", [12]), ("notes", [11]),
    ("progress", [11]), ("stuck", range(1, 256)), ("never_reads", range(1, 256)),
    ("error_of_escapes", [11]), ("extra_file", [12])] +
    [("local_frames:" + name, [12]) for name in
     ("START", "WANT", "GO", "CANCEL", "DETOUR", "LISTENING", "NOTE", "VERDICT", "PROGRESS",
      "STUCK", "RULE", "LISTED", "EVENT", "FINDING", "TAKEN", "MODULE", "LIST",
      "ENTRY")],
    ids=lambda x: x if isinstance(x, str) else "")
def test_hostile_far_end_fails_rdcp(arena, scenario, codes):
    """rdcp fails in time, with messages that are safe for its terminal; the target is unchanged."""
    run = rdcp(arena, scenario, "--progress=1")
    assert run.code in codes, (run.code, run.errors())
    assert run.errors().strip()
    if scenario == "extra_file":
        # The first name is the requested one.
        (arena.target / "f").write_bytes(b"old")
    untouched(arena)


@pytest.mark.parametrize("scenario", ["done_at_once", "done_and_gone", "silent", "stuck",
                                      "error_of_escapes", "never_reads", "local_frames:START"])
def test_far_end_that_stores_nothing_fails_rdcp(arena, scenario):
    """A host that only reports success has not stored the file."""
    (arena.target / "mine").write_bytes(b"mine")
    run = rdcp(arena, scenario, "--remove-source-files", sources=["target/mine"],
               target="far:there")
    assert run.code not in (0, -9), run.errors()
    assert (arena.target / "mine").read_bytes() == b"mine"


@pytest.mark.parametrize("name", NAMES)
def test_names_from_a_far_end_are_checked(arena, name):
    """The target is a directory, in which the source chooses the name."""
    run = rdcp(arena, "name_of:" + name, target=arena.target)
    assert run.code == 12, (run.code, run.errors())
    untouched(arena)


@pytest.mark.parametrize("option", ["-v", "--json", "-vvv"])
def test_text_from_a_far_end_is_escaped(arena, option):
    for scenario, how in (("verdict_of_escapes", {}),
                          ("store_verdict_of_escapes", dict(sources=["outside/f"],
                                                            target="far:there"))):
        run = rdcp(arena, scenario, option, "--progress=1", **how)
        assert run.code == 0, run.errors()
        for text in (bytes(run.out), bytes(run.err)):
            assert not set(text) & set(b"\x1b\x9b\r\x07\x08"), text
            text.decode()
