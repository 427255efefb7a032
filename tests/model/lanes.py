# SPDX-License-Identifier: Apache-2.0
"""A small model of lanes that carry one ordered stream, searched exhaustively.

A state has everything that the protocol's rules depend on: which thread holds which position, what
is on each wire, what was credited, how often wires may still break, and how often a lane may still
be promoted (its wire is given up for a better one). explore() visits every reachable state. It
reports those in which no thread can proceed although not everything is stored (deadlock), and those
in which a position was stored twice.

The rules are those of docs/design.md, "Lanes". The other variants are plausible and wrong; the
search must find the defect of each.
"""

from collections import namedtuple

# hand: None, "block" (lent and empty) or a position; sent: the positions without credit, oldest first; wire: the
# positions in flight, or None if the wire is broken; hold: the position that the sink's thread holds; stored: how
# many blocks of this lane are stored; credited: how many credits have arrived; stale: the position that an unfenced
# sink is still writing; gone: the lane was given up; most: the depth of the wire; waits: how many of `sent', at its
# end, the wire had no room for yet.
Lane = namedtuple("Lane", "hand sent wire hold stored credited stale gone most waits")
State = namedtuple("State", "lanes next turn breaks orphans moves")

SAME_LANE = "same lane, fenced"              # the rule of the protocol
OTHER_LANE = "over another lane"             # the blocks of a broken lane go over the remaining lanes
UNFENCED = "without waiting for the sink"    # retransmit while the sink may still be writing
CREDIT_EARLY = "credit on arrival"           # as a transport's acknowledgement
UNBOUNDED = "beyond the wire's depth"        # resend all at once, although the wire's depth is smaller than the lane's


class Wrong(Exception):
    pass


def free_blocks(lane, depth):
    return depth - len(lane.sent) - (lane.hand is not None)


def with_lane(state, i, lane, **changes):
    lanes = state.lanes[:i] + (lane,) + state.lanes[i + 1:]
    return state._replace(lanes=lanes, **changes)


def source_steps(state, i, lane, depth, total):
    """The possible steps of the source's thread of lane i."""
    if lane.gone:
        return
    work = state.next < total or state.orphans
    if lane.hand is None and work and free_blocks(lane, depth) > 0:
        yield "get", with_lane(state, i, lane._replace(hand="block"))
    if lane.hand == "block":
        if state.orphans:
            yield "adopt", with_lane(state, i, lane._replace(hand=state.orphans[0]),
                                     orphans=state.orphans[1:])
        elif state.next < total:
            yield "read", with_lane(state, i, lane._replace(hand=state.next),
                                    next=state.next + 1)
        else:
            yield "return", with_lane(state, i, lane._replace(hand=None))
    room = len(lane.sent) - lane.waits < lane.most
    if lane.wire is not None and lane.waits and room:
        yield "resend", with_lane(state, i, lane._replace(
            wire=lane.wire + (lane.sent[-lane.waits],), waits=lane.waits - 1))
    if isinstance(lane.hand, int) and lane.wire is not None and not lane.waits and room:
        yield "send", with_lane(state, i, lane._replace(
            hand=None, sent=lane.sent + (lane.hand,), wire=lane.wire + (lane.hand,)))
    if lane.wire is not None and lane.credited < lane.stored:
        n = lane.stored - lane.credited
        yield "credit", with_lane(state, i, lane._replace(
            sent=lane.sent[n:], credited=lane.stored))


def sink_steps(state, i, lane, variant):
    if lane.wire and lane.hold is None:
        early = 1 if variant == CREDIT_EARLY else 0
        yield "receive", with_lane(state, i, lane._replace(
            hold=lane.wire[0], wire=lane.wire[1:], stored=lane.stored + early))
    if lane.hold is not None and lane.hold <= state.turn:
        if lane.hold < state.turn:
            raise Wrong("position %d stored twice" % lane.hold)
        late = 0 if variant == CREDIT_EARLY else 1
        yield "store", with_lane(state, i, lane._replace(hold=None, stored=lane.stored + late),
                                 turn=state.turn + 1)
    if lane.stale is not None and lane.stale <= state.turn:
        if lane.stale < state.turn:
            raise Wrong("position %d stored twice" % lane.stale)
        yield "stale store", with_lane(state, i, lane._replace(stale=None), turn=state.turn + 1)


def fault_steps(state, i, lane, window, variant):
    """Breaks a wire, with the recovery of the variant."""
    if lane.wire is not None and state.breaks > 0:
        # a sink that granted credit before storing loses what it held when its wire breaks
        hold = None if variant == CREDIT_EARLY else lane.hold
        yield "break", with_lane(state, i, lane._replace(wire=None, hold=hold),
                                 breaks=state.breaks - 1)
    if lane.wire is not None or lane.gone:
        return
    unstored = lane.sent[lane.stored - lane.credited:]
    if variant == UNFENCED:
        yield "mend", with_lane(state, i, lane._replace(
            sent=unstored, wire=unstored, credited=lane.stored, hold=None,
            stale=lane.hold if lane.hold is not None else lane.stale))
    elif lane.hold is None and variant == OTHER_LANE:
        alive = [k for k, l in enumerate(state.lanes) if k != i and not l.gone]
        if alive:
            hand = (lane.hand,) if isinstance(lane.hand, int) else ()
            yield "hand over", with_lane(
                state, i, lane._replace(sent=(), hand=None, credited=lane.stored, gone=True),
                orphans=state.orphans + unstored + hand)
    elif lane.hold is None:
        first = unstored if variant == UNBOUNDED else unstored[:window]
        yield "mend", with_lane(state, i, lane._replace(
            sent=unstored, wire=first, credited=lane.stored, most=window,
            waits=len(unstored) - len(first)))


def promote_steps(state, i, lane, variant):
    """The source gives up a wire that works; the lane is mended like one that broke."""
    if lane.wire is None or lane.gone or state.moves == 0:
        return
    given_up = lane._replace(wire=None)
    if variant == UNFENCED:  # the new wire was there before, and carries blocks at once
        unstored = lane.sent[lane.stored - lane.credited:]
        given_up = lane._replace(sent=unstored, wire=unstored, credited=lane.stored, hold=None,
                                 stale=lane.hold if lane.hold is not None else lane.stale)
    yield "promote", with_lane(state, i, given_up, moves=state.moves - 1)


def steps(state, depth, window, total, variant):
    for i, lane in enumerate(state.lanes):
        if lane.wire is not None and len(lane.sent) - lane.waits > lane.most:
            raise Wrong("%d blocks in flight" % (len(lane.sent) - lane.waits))
        yield from source_steps(state, i, lane, depth, total)
        yield from sink_steps(state, i, lane, variant)
        yield from fault_steps(state, i, lane, window, variant)
        yield from promote_steps(state, i, lane, variant)


def finished(state, total):
    return state.turn == total and all(not l.sent or l.stored > l.credited for l in state.lanes)


def explore(lanes, depth, total, breaks, variant=SAME_LANE, moves=0, window=None, most=3_000_000):
    """Visits every reachable state; returns (states, list of violations). window: the depth of each wire but
    the first ones, which have that of the lane."""
    window = window or depth
    start = State((Lane(None, (), (), None, 0, 0, None, False, depth, 0),) * lanes, 0, 0, breaks, (), moves)
    seen, todo, wrong = {start}, [start], []
    while todo:
        state = todo.pop()
        try:
            moves = [s for name, s in steps(state, depth, window, total, variant)]
            useful = [name for name, s in steps(state, depth, window, total, variant) if name not in ("break", "promote")]
        except Wrong as e:
            wrong.append(str(e))
            continue
        if not useful and not finished(state, total):
            wrong.append("deadlock at %r" % (state,))
        for s in moves:
            if s not in seen:
                if len(seen) >= most:
                    raise MemoryError("model too large: %d states" % most)
                seen.add(s)
                todo.append(s)
    return len(seen), wrong
