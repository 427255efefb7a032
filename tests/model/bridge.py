# SPDX-License-Identifier: Apache-2.0
"""The model of attempts.py with a bridge between two ends that only accept, as between two rdcpd.

The bridge makes the hellos of both ends, with one epoch for each attempt, and joins the two connections.
When one closes, it closes the other one, and makes the next attempt. It hears and sends no LANE_DOWN.
In every attempt an end may fail, and each of the two connections may break.
"""

from collections import namedtuple

from attempts import IDLE, are_joined, change, close, hear_steps, is_dead, search, spend, taker_steps, wire_steps

SOURCE_FIRST = "gives the sink a hello when the source has answered"
AT_ONCE = "gives both a hello at once"
ENDS = ("source", "sink")


class State(namedtuple("State", "source sink dead to_source to_sink at epoch faults")):
    """at, epoch: of the bridge. It has no attempt ("idle"), waits for answers of the ends in at, or joins both ("joins")."""

    moves = 0

    @staticmethod
    def connection(who, epoch):
        return who, epoch


def call(state, *ends):
    for who in ends:
        # An older caller, whose connection is closed, makes room.
        state = change(state, who, call=state.epoch, answer=None)
    return state


def drop(state):
    """Closes both connections of the attempt."""
    for who in ENDS:
        state = close(state, who, state.epoch)
    return state._replace(at="idle", epoch=state.epoch + 1)


def await_answer(state, who, order):
    end = getattr(state, who)
    if is_dead(state, who, state.epoch) or end.answer == (state.epoch, False):
        yield "failed", drop(state)
    elif end.answer == (state.epoch, True):
        left = tuple(w for w in state.at if w != who)
        if order == SOURCE_FIRST and who == "source":
            yield "next", call(state._replace(at=("sink",)), "sink")
        else:
            yield "answered", state._replace(at=left or "joins")


def bridge_steps(state, order):
    if state.at == "idle":
        first = ENDS if order == AT_ONCE else ENDS[:1]
        yield "begin", call(state._replace(at=first), *first)
    elif state.at == "joins":
        if any(is_dead(state, who, state.epoch) for who in ENDS):
            yield "ended", drop(state)
    else:
        for who in state.at:
            yield from await_answer(state, who, order)
    if state.at != "idle" and state.faults > 0:
        for who in ENDS:
            if not is_dead(state, who, state.epoch):
                yield "fault", spend(close(state, who, state.epoch))


def steps(state, variant, order):
    yield from bridge_steps(state, order)
    for who in ENDS:
        yield from taker_steps(state, who, variant)
        yield from wire_steps(state, who)
        yield from hear_steps(state, who)


def explore(faults, variant, order=SOURCE_FIRST):
    start = State(IDLE, IDLE, frozenset(), (), (), "idle", 0, faults)
    return search(start, lambda state: steps(state, variant, order),
                  lambda state: state.at == "joins" and are_joined(state, *ENDS))
