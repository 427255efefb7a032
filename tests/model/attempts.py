# SPDX-License-Identifier: Apache-2.0
"""A small model of two ends that make a wire for one lane, searched exhaustively.

The connecting end sends its hello, and the accepting end answers with its own. Then the connecting
end has a wire. Either end may fail at any moment, before its hello or after it, and a wire may break.
Then both ends send LANE_DOWN for the epoch, and wait for that of the other end (fence) before the
next attempt. The connecting end may also give up a wire that works, to promote the lane. Before that
it knocks with an epoch that was used. The accepting end refuses that in every state, and nothing
changes.

explore() visits every reachable state. It reports each state in which no end can proceed although a
wire of one epoch does not join the two. bridge.py has two accepting ends.
"""

from collections import namedtuple

# at: "connect" (the connecting end dials, the accepting one waits), "called" (the connecting end waits for a
# hello), "wire" or "fence"; epoch: the epoch of that state; down, said: the last LANE_DOWN received and sent, or -1
# Of an accepting end, call: the epoch of a caller that it has not answered, or None; answer: (epoch, whether it is a
# hello)
End = namedtuple("End", "at epoch down said call answer")
IDLE = End("connect", 0, -1, -1, None, None)
OTHER = {"dialler": "taker", "taker": "dialler", "source": "sink", "sink": "source"}


class State(namedtuple("State", "dialler taker dead to_dialler to_taker next faults moves")):
    """dead: the connections that are closed."""

    @staticmethod
    def connection(who, epoch):
        """The one that an end has of this epoch: here both ends have the same."""
        return epoch


REPORTS = "reports a failed attempt"     # by LANE_DOWN
ANSWERS = "answers LANE_DOWN"            # for an epoch that this end does not know
BOTH = REPORTS + " and " + ANSWERS       # as src/session/mend.c does
SILENT = "lets the caller try again"     # neither


def change(state, who, **fields):
    return state._replace(**{who: getattr(state, who)._replace(**fields)})


def say(state, who, epoch):
    to = "to_" + OTHER[who]
    said = max(getattr(state, who).said, epoch)
    return change(state, who, said=said)._replace(**{to: getattr(state, to) + (epoch,)})


def move(state, who, at, epoch):
    return change(state, who, at=at, epoch=epoch)


def close(state, who, epoch):
    return state._replace(dead=state.dead | {state.connection(who, epoch)})


def is_dead(state, who, epoch):
    return state.connection(who, epoch) in state.dead


def spend(state):
    return state._replace(faults=state.faults - 1)


def dialler_steps(state):
    d, answer = state.dialler, state.taker.answer
    if d.at == "connect":
        epoch = max(state.next, d.down + 1)
        yield "dial", change(move(state, "dialler", "called", epoch), "taker", call=epoch, answer=None)._replace(next=epoch + 1)
    if d.at == "called" and answer and answer[0] == d.epoch:
        joined = change(state, "taker", answer=None)
        if answer[1]:
            yield "joined", move(joined, "dialler", "wire", d.epoch)
            if state.faults > 0:
                yield "fault", spend(say(close(move(joined, "dialler", "connect", 0), "dialler", d.epoch), "dialler", d.epoch))
        else:
            yield "refused", say(move(joined, "dialler", "connect", 0), "dialler", d.epoch)


def take(state, who, variant):
    """The possible steps in which an accepting end takes or refuses a caller."""
    end = getattr(state, who)
    epoch = end.call
    refused = close(change(state, who, call=None, answer=(epoch, False)), who, epoch)
    if epoch <= max(end.down, end.said):
        yield "too late", refused
        return
    hello = change(state, who, call=None, answer=(epoch, True))
    yield "take", move(hello, who, "wire", epoch)
    if state.faults == 0:
        return
    for failed in (refused, close(hello, who, epoch)):
        yield "fault", spend(say(failed, who, epoch) if REPORTS in variant else failed)


def taker_steps(state, who, variant):
    end = getattr(state, who)
    if end.at != "connect":
        return
    if ANSWERS in variant and end.down > end.said:
        yield "answer", say(state, who, end.down)
    elif end.call is not None:
        yield from take(state, who, variant)


def give_up(state, who, epoch):
    """An end has no wire any more."""
    return say(close(move(state, who, "fence", epoch), who, epoch), who, epoch)


def wire_steps(state, who):
    end = getattr(state, who)
    if end.at == "wire":
        if is_dead(state, who, end.epoch) or end.down >= end.epoch:
            yield "notice", give_up(state, who, end.epoch)
        elif state.faults > 0:
            yield "fault", spend(close(state, who, end.epoch))
        if who == "dialler" and state.moves > 0:
            yield "promote", give_up(state, who, end.epoch)._replace(moves=state.moves - 1)
    if end.at == "fence" and end.down >= end.epoch:
        yield "fenced", move(state, who, "connect", 0)


def hear_steps(state, who):
    queue = getattr(state, "to_" + who)
    if queue:
        down = max(getattr(state, who).down, queue[0])
        yield "hear", change(state, who, down=down)._replace(**{"to_" + who: queue[1:]})


def steps(state, variant):
    yield from dialler_steps(state)
    yield from taker_steps(state, "taker", variant)
    for who in ("dialler", "taker"):
        yield from wire_steps(state, who)
        yield from hear_steps(state, who)


def are_joined(state, *ends):
    """Whether the ends have wires of one epoch whose connections are open."""
    epochs = {end.epoch for end in map(state._asdict().get, ends) if end.at == "wire"}
    return len(epochs) == 1 and all(getattr(state, who).at == "wire" and not is_dead(state, who, min(epochs)) for who in ends)


def search(start, next_steps, is_done, most=1_000_000):
    """Visits every reachable state; returns (states, list of violations)."""
    seen, todo, wrong = {start}, [start], []
    while todo:
        state = todo.pop()
        found = list(next_steps(state))
        if not [s for name, s in found if name not in ("fault", "promote")] and not is_done(state):
            wrong.append("deadlock at %r" % (state,))
        for _, s in found:
            if s not in seen:
                if len(seen) >= most:
                    raise MemoryError("model too large: %d states" % most)
                seen.add(s)
                todo.append(s)
    return len(seen), wrong


def explore(faults, variant, moves=0):
    start = State(IDLE, IDLE, frozenset(), (), (), 0, faults, moves)
    return search(start, lambda state: steps(state, variant), lambda state: are_joined(state, "dialler", "taker"))
