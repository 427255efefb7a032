# SPDX-License-Identifier: Apache-2.0
"""Environments in which calls of a program fail, lie or are delayed (tests/faults/failing_call.c, lying_store.c)."""

import errno
import os

from hosts import BIN, SLOW

FAILING = BIN.parent / "tests" / "failing_call.so"
LIAR = BIN.parent / "tests" / "lying_store.so"


def failing(tmp_path, call, code=errno.EIO, **what):
    """The call fails. what: name, size, times or kill, as failing_call.c explains. Then tmp_path/failed exists."""
    return {"LD_PRELOAD": str(FAILING), "FAIL_CALL": call, "FAIL_ERRNO": str(int(code)),
            "FAIL_MARK": str(tmp_path / "failed"), **{"FAIL_" + k.upper(): str(v) for k, v in what.items()}}


def slow_fork(ms):
    """To start a process takes so many ms more."""
    return {"LD_PRELOAD": str(FAILING), "SLOW_FORK": str(ms)}


def slow_removal(name, ms):
    """To remove name takes so many ms more."""
    return {"LD_PRELOAD": str(FAILING), "FAIL_NAME": name, "SLOW_UNLINK": str(ms)}


def lying(under, nth, at=0):
    """The nth write below the directory under stores a wrong bit. Then a file `lied' exists beside the directory."""
    return {"LD_PRELOAD": str(LIAR), "LIE_UNDER": os.path.realpath(under), "LIE_NTH": str(nth), "LIE_AT": str(at),
            "LIE_MARK": str(under.parent / "lied")}


def refusing(under, call, nth):
    """The nth such call on a file below the directory under fails. Then a file `lied' exists beside the directory."""
    return {"LD_PRELOAD": str(LIAR), "LIE_UNDER": os.path.realpath(under), "LIE_FAIL": call, "LIE_NTH": str(nth),
            "LIE_MARK": str(under.parent / "lied")}


def slow(blocks=3, ms=600 * SLOW):
    """A SLUICE_FAULT that leaves time to change a file after it was opened and before it was read."""
    return ";".join("stall:lane=%d,block=%d,ms=%d" % (lane, b, ms)
                    for lane in (0, 1) for b in range(1, blocks + 1))
