# SPDX-License-Identifier: Apache-2.0
"""Environments in which programs are delayed, and calls fail or lie (tests/faults/failing_call.c, lying_store.c)."""

import errno
import os

from hosts import BIN, SLOW

FAILING = BIN.parent / "tests" / "failing_call.so"
LIAR = BIN.parent / "tests" / "lying_store.so"


def failing(tmp_path, call, code=errno.EIO, **what):
    """A call fails; afterwards a file `failed' exists."""
    return {"LD_PRELOAD": str(FAILING), "FAIL_CALL": call, "FAIL_ERRNO": str(int(code)),
            "FAIL_TOLD": str(tmp_path / "failed"), **{"FAIL_" + k.upper(): str(v) for k, v in what.items()}}


def lying(under, nth, at=0):
    """The nth write below that directory stores a wrong byte; afterwards a file `told' exists beside it."""
    return {"LD_PRELOAD": str(LIAR), "LIE_UNDER": os.path.realpath(under), "LIE_NTH": str(nth), "LIE_AT": str(at),
            "LIE_TOLD": str(under.parent / "told")}


def refusing(under, call, nth):
    """The nth such call on a file below that directory fails; afterwards a file `told' exists beside it."""
    return {"LD_PRELOAD": str(LIAR), "LIE_UNDER": os.path.realpath(under), "LIE_FAIL": call, "LIE_NTH": str(nth),
            "LIE_TOLD": str(under.parent / "told")}


def slow(blocks=3, ms=600 * SLOW):
    """SLUICE_FAULT: leaves time to change a file after it was opened and before all of it was read."""
    return ";".join("stall:lane=%d,block=%d,ms=%d" % (lane, b, ms)
                    for lane in (0, 1) for b in range(1, blocks + 1))
