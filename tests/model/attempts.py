# SPDX-License-Identifier: Apache-2.0
"""A small model of two ends that make a wire for one lane, searched exhaustively.

The connecting end sends its hello, and the accepting end answers with its own. Then the connecting
end has a wire. Either end may fail at any moment, before its hello or after it, and a wire may break.
Then both ends send LANE_DOWN for the epoch, and wait for that of the other end (fence) before the
next attempt. The connecting end may also give up a wire that works, to promote the lane. Before that
it knocks with an epoch that was used. The accepting end refuses that in every state, and nothing
changes.

explore() visits every reachable state. It reports each state in which no end can proceed although a
wire of one epoch does not join the two.
"""

from collections import namedtuple

# at: "connect" (the connecting end dials, the accepting one waits), "called" (the connecting end waits for a
# hello), "wire" or "fence"; epoch: the epoch of that state; down, said: the last LANE_DOWN received and sent, or -1
End = namedtuple("End", "at epoch down said")
# call: the epoch of a caller that the accepting end has not answered, or None; answer: (epoch, whether it is a
# hello); dead: the epochs whose connection is closed
State = namedtuple("State", "dialler taker call answer dead to_dialler to_taker next faults moves")

REPORTS = "reports a failed attempt"     # by LANE_DOWN
ANSWERS = "answers LANE_DOWN"            # for an epoch that this end does not know
SILENT = "lets the caller try again"     # neither


def say(state, who, epoch):
    end = getattr(state, who)
    to = "to_taker" if who == "dialler" else "to_dialler"
    return state._replace(**{who: end._replace(said=max(end.said, epoch)),
                             to: getattr(state, to) + (epoch,)})


def move(state, who, at, epoch):
    return state._replace(**{who: getattr(state, who)._replace(at=at, epoch=epoch)})


def close(state, epoch):
    return state._replace(dead=state.dead | {epoch})


def dialler_steps(state):
    d = state.dialler
    if d.at == "connect":
        epoch = max(state.next, d.down + 1)
        yield "dial", move(state, "dialler", "called", epoch)._replace(
            call=epoch, answer=None, next=epoch + 1)
    if d.at == "called" and state.answer and state.answer[0] == d.epoch:
        joined = state._replace(answer=None)
        if state.answer[1]:
            yield "joined", move(joined, "dialler", "wire", d.epoch)
            if state.faults > 0:
                yield "fault", say(close(move(joined, "dialler", "connect", 0), d.epoch),
                                   "dialler", d.epoch)._replace(faults=state.faults - 1)
        else:
            yield "refused", say(move(joined, "dialler", "connect", 0), "dialler", d.epoch)


def take(state, variant):
    """The possible steps in which the accepting end takes or refuses a caller."""
    epoch = state.call
    taken = state._replace(call=None)
    refused = close(taken._replace(answer=(epoch, False)), epoch)
    if epoch <= max(state.taker.down, state.taker.said):
        yield "too late", refused
        return
    hello = taken._replace(answer=(epoch, True))
    yield "take", move(hello, "taker", "wire", epoch)
    if state.faults == 0:
        return
    for failed in (refused, close(hello, epoch)):
        failed = failed._replace(faults=state.faults - 1)
        yield "fault", say(failed, "taker", epoch) if variant == REPORTS else failed


def taker_steps(state, variant):
    t = state.taker
    if t.at != "connect":
        return
    if variant == ANSWERS and t.down > t.said:
        yield "answer", say(state, "taker", t.down)
    elif state.call is not None:
        yield from take(state, variant)


def wire_steps(state, who):
    end = getattr(state, who)
    if end.at == "wire":
        if end.epoch in state.dead or end.down >= end.epoch:
            yield "notice", say(close(move(state, who, "fence", end.epoch), end.epoch),
                                who, end.epoch)
        elif state.faults > 0:
            yield "fault", close(state, end.epoch)._replace(faults=state.faults - 1)
        if who == "dialler" and state.moves > 0:
            yield "promote", say(close(move(state, who, "fence", end.epoch), end.epoch),
                                 who, end.epoch)._replace(moves=state.moves - 1)
    if end.at == "fence" and end.down >= end.epoch:
        yield "fenced", move(state, who, "connect", 0)


def hear_steps(state, who):
    queue = getattr(state, "to_" + who)
    if queue:
        end = getattr(state, who)
        yield "hear", state._replace(**{who: end._replace(down=max(end.down, queue[0])),
                                        "to_" + who: queue[1:]})


def steps(state, variant):
    yield from dialler_steps(state)
    yield from taker_steps(state, variant)
    for who in ("dialler", "taker"):
        yield from wire_steps(state, who)
        yield from hear_steps(state, who)


def joined(state):
    d, t = state.dialler, state.taker
    return d.at == t.at == "wire" and d.epoch == t.epoch and d.epoch not in state.dead


def explore(faults, variant, moves=0, most=1_000_000):
    """Visits every reachable state; returns (states, list of violations)."""
    idle = End("connect", 0, -1, -1)
    start = State(idle, idle, None, None, frozenset(), (), (), 0, faults, moves)
    seen, todo, wrong = {start}, [start], []
    while todo:
        state = todo.pop()
        moves = list(steps(state, variant))
        if not [s for name, s in moves if name not in ("fault", "promote")] and not joined(state):
            wrong.append("deadlock at %r" % (state,))
        for _, s in moves:
            if s not in seen:
                if len(seen) >= most:
                    raise MemoryError("model too large: %d states" % most)
                seen.add(s)
                todo.append(s)
    return len(seen), wrong
