# SPDX-License-Identifier: Apache-2.0
import contextlib
import fnmatch
import os
import signal
import subprocess

import pytest

from daemons import Daemon
from examples import Shells
from file_systems import mounted_image
from hosts import COUNT, LAB, TRANSPORT, USER, Bench
from marks import case_of
from networks import Networks
from trees import WAYS, fell, ways

# A shell starts background commands with SIGINT ignored, and every program that a test interrupts would inherit
# that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    for line in (
            "lab(adapter, ..., cases, long): a run in the lab has it, on these adapters or on each, with such parameters; "
            "if long, only where SLUICE_COUNT is more than one",
            "moves_blocks: about how blocks move, and not which files are chosen and where they go",
            "any_lane: of these, what shows as much on any transport; a short run has it over TCP only",
            "lanes: of these, what is about lanes themselves; a short run has it under sanitizers, too, and even if any_lane"):
        config.addinivalue_line("markers", line)


def labels(item):
    """The `lab' markers of a test; if it has none, those of its file."""
    return [m for m in item.own_markers if m.name == "lab"] or list(item.iter_markers("lab"))


def is_meant(item, adapters, cases="*", **_):
    return (not adapters or TRANSPORT in adapters) and fnmatch.fnmatchcase(case_of(item), cases)


def marked_run(items):
    """The tests with the marker `lab', and what markers name that is not there."""
    chosen, found = {}, {}
    for item in items:
        for mark in labels(item):
            meant = is_meant(item, mark.args, **mark.kwargs)
            if meant and (COUNT > 1 or not mark.kwargs.get("long")):
                chosen[item] = True
            if not mark.args or TRANSPORT in mark.args:
                what = "%s::%s%s" % (item.path.name, item.originalname, [*mark.args, *mark.kwargs.values()])
                found[what] = found.get(what, False) or meant
    return list(chosen), [what for what, meant in found.items() if not meant]


def pytest_collection_modifyitems(config, items):
    """In the guest every program starts on an emulated CPU, so a run there takes only the cases to which the kernel's
    verbs and networks can make a difference (`lab'); a long run those to which any verbs can. The others are not
    skipped: they run over TCP and on simulated adapters, where they show as much."""
    if not LAB:
        return
    chosen, stale = marked_run(items)
    if stale and all(os.path.isdir(a) for a in config.args):
        raise pytest.UsageError("no test has the parameters that its marker names: " + ", ".join(stale))
    left_out = set(items) - set(chosen)
    config.hook.pytest_deselected(items=[i for i in items if i in left_out])
    items[:] = chosen


@pytest.fixture(autouse=True)
def leave_no_files(tmp_path):
    """pytest keeps the files of tests. The guest's /tmp is in memory, and a long run would fill it; hundreds of tests on
    simulated adapters leave 100 MB each."""
    yield
    if LAB or TRANSPORT == "sim":
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
def daemon(bench, tmp_path):
    return Daemon(bench, tmp_path)


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
