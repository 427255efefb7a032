# SPDX-License-Identifier: Apache-2.0
import contextlib
import fnmatch
import os
import signal
import subprocess

import pytest

from examples import Shells
from file_systems import mounted_image
from hosts import LAB, OP, TRANSPORT, USER, Bench
from marks import case_of
from networks import Networks
from trees import WAYS, fell, ways

# A shell starts background commands with SIGINT ignored, and every program that a test interrupts would inherit
# that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    for line in (
            "lab(adapter, ..., cases): a short run in the lab has it, on these adapters or on each, with such parameters",
            "lab_first: begun first there; at the end it would keep everybody waiting",
            "moves_blocks: about how blocks move, and not which files are chosen and where they go"):
        config.addinivalue_line("markers", line)


def labels(item):
    """The `lab' markers of a test; if it has none, those of its file."""
    return [m for m in item.own_markers if m.name == "lab"] or list(item.iter_markers("lab"))


def is_taken(item, adapters, cases="*"):
    return (not adapters or TRANSPORT in adapters) and fnmatch.fnmatchcase(case_of(item), cases)


def short_run(items):
    """Selects the tests of a short run, and skips those whose markers need something that is missing."""
    chosen, found = {}, {}
    for item in items:
        for mark in labels(item):
            taken = is_taken(item, mark.args, **mark.kwargs)
            if taken:
                chosen[item] = True
            if not mark.args or TRANSPORT in mark.args:
                what = "%s::%s%s" % (item.path.name, item.originalname, [*mark.args, *mark.kwargs.values()])
                found[what] = found.get(what, False) or taken
    return list(chosen), [what for what, taken in found.items() if not taken]


def pytest_collection_modifyitems(config, items):
    """In the guest every program starts on an emulated CPU, so a run there takes only the cases to which verbs can
    make a difference (`lab'). The others are not skipped: they run over TCP, where they show as much. With
    SLUICE_LAB_ALL each adapter runs all tests that move blocks, with the default operation."""
    if not LAB:
        return
    if os.environ.get("SLUICE_LAB_ALL") and not OP:
        chosen = [i for i in items if i.get_closest_marker("moves_blocks")]
    else:
        chosen, stale = short_run(items)
        if stale and all(os.path.isdir(a) for a in config.args):
            raise pytest.UsageError("no test has the parameters that its marker names: " + ", ".join(stale))
        chosen.sort(key=lambda i: i.get_closest_marker("lab_first") is None)
    left_out = set(items) - set(chosen)
    config.hook.pytest_deselected(items=[i for i in items if i in left_out])
    items[:] = chosen


@pytest.fixture(autouse=True)
def leave_no_files(tmp_path):
    """pytest keeps the files of tests; the guest's /tmp is in memory, and a long run would fill it."""
    yield
    if LAB:
        subprocess.run(["rm", "-rf", "--one-file-system", tmp_path], stderr=subprocess.DEVNULL, check=False)

way = ways(*WAYS)


@pytest.fixture
def networks():
    """Makes this many network namespaces (rig/networks.py); skips the test where that is not permitted."""
    made = []

    def make(count=2):
        made.append(Networks(count))
        if not made[-1].make():
            pytest.skip("may not make network namespaces")
        return made[-1]
    yield make
    for n in made:
        n.remove()


@pytest.fixture
def bench(tmp_path):
    b = Bench(tmp_path)
    yield b
    b.close()


@pytest.fixture
def shells(bench, tmp_path):
    return Shells(bench, tmp_path)


@pytest.fixture
def arena(bench, tmp_path):
    # Importing it looks up the programs at once, and only some tests need them.
    from arena import Arena
    a = Arena(bench, tmp_path)
    yield a
    a.settle()


@pytest.fixture
def ground(tmp_path):
    """A directory on a file system with extended attributes, removed at the end however deep it is."""
    top = tmp_path / "ground"
    top.mkdir()
    without_attributes = False
    try:
        os.setxattr(top, "user.try", b"")
        os.removexattr(top, "user.try")
    except OSError:
        # In the guest /tmp is a tmpfs, and its kernel supports no user.* attributes there.
        without_attributes = not USER
    image = tmp_path / "ext4"
    with mounted_image(image, 1 << 30, top) if without_attributes else contextlib.nullcontext():
        if without_attributes:
            (top / "lost+found").rmdir()
        yield top
    image.unlink(missing_ok=True)
    fell(top)


def pytest_runtest_logreport(report):
    """Report a failure at once: the guest may die before the summary."""
    if LAB and report.failed:
        print("\n%s: %s\n%s" % (report.nodeid, report.when, report.longreprtext[-1500:]), flush=True)
