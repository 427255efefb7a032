# SPDX-License-Identifier: Apache-2.0
import fnmatch
import os
import signal
import subprocess

import pytest

from hosts import LAB, OP, TRANSPORT, USER, Bench
from trees import WAYS, fell

# What a shell starts in the background ignores SIGINT, and so would every program that a test
# interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# In the guest every program starts on an emulated CPU, so a run there takes the cases that verbs
# can make a difference to. What is left out here is not skipped: it runs over TCP, where it says as
# much. With SLUICE_LAB_ALL one adapter has all tests, which is most of an hour, and each adapter with
# each operation those of MOVING.
SHORT_IN_THE_LAB = """
test_stream.py::test_every_mix_and_size[[]*-6291461]
test_stream.py::test_hello
test_copy.py::test_a_file_of_every_size[[]pull-0]
test_faults.py::test_a_damaged*
test_faults.py::test_a_block_damaged*
test_faults.py::test_a_broken*
test_death.py::test_a_killed_end*
test_death.py::test_a_killed_idle*
test_death.py::test_a_silent*
test_tree.py::test_a_tree_of_every_kind*
test_rdma_op.py::test_a_tree*
test_rdma_op.py::test_goes_on*file*
test_rdma_op.py::test_what_both*[[]auto*
test_rdma_op.py::test_write_imm*push*
test_bound.py::test_the_window_and_the_wire*rdma]
test_rails.py::*
test_verbs.py::*
test_verbs_lanes.py::*
""".split()
# What is the same whatever the adapter: once, on one of them.
SHORT_ON = {"rxe": """
test_nfs.py::*
test_copy.py::test_a_file_of_every_size[[]push-7864327]
test_death.py::test_nothing_is_torn*
test_death.py::test_a_short_stop*source]
test_death.py::test_a_signal*15*
test_faults.py::test_read_error*
test_faults.py::test_memory*
test_rdcheck.py::test_a_missing_module
test_seeds.py::test_sd2_*
test_seeds.py::test_sd3_*
test_stream.py::test_every_mix_and_size[[]file-file-*
test_stream.py::test_producer_that_fails*
""".split(), "siw": """
test_copy.py::test_a_file_of_every_size[[]pull-7864327]
test_copy.py::test_a_file_of_every_size[[]local-7864327]
test_copy.py::test_a_file_of_every_size[[]push-262145]
test_death.py::test_a_signal*sink-2]
test_death.py::test_a_killed_ssh*
test_death.py::test_interrupted*2]
test_death.py::test_a_stopped*
test_death.py::test_an_idle*
test_death.py::test_a_short_stop*sink]
test_faults.py::test_a_source_that_changes[[]rewrite*
test_faults.py::test_full_disk*
test_faults.py::test_unreadable*
test_rdbench.py::test_rdma_beside_tcp
test_rdcheck.py::test_little_locked_memory
test_seeds.py::test_sd9_*
test_seeds.py::test_sd10_*
test_seeds.py::test_sd19_*
test_stream.py::test_every_mix_and_size[[]pipe-pipe-*
test_stream.py::test_consumer*
test_stream.py::test_commands_at_both_ends
test_copy.py::test_stdin_and_stdout
test_copy.py::test_the_transport_is_told
test_copy.py::test_transport_over_ssh[[]push*
test_copy.py::test_through_this_host
test_stream.py::test_many_streams*
test_stream.py::test_verbose*
test_stream.py::test_wrong_key*
test_stream.py::test_relay*
test_ssh.py::test_push_and_pull
test_ssh.py::test_where_no_port*
test_update.py::test_checksum_sends*[[]push*
test_update.py::test_delete_only_in*[[]push*
test_resume.py::test_a_huge_file_goes_on*9]
test_rdcheck.py::test_a_path_that_is_fit
test_rdcheck.py::test_a_blocked_port
test_rdcheck.py::test_an_address_without_an_adapter
""".split()}
# What another adapter shows, or a unit test as well.
SHORT_WITHOUT = {"rxe": [], "siw": ["test_verbs.py::test_a_sink_that_rests*", "test_rails.py::test_one_rail*"]}
# About how blocks move, and not which files are chosen and where they go.
MOVING = """
test_bound.py test_copy.py test_death.py test_direct.py test_faults.py test_partition.py test_races.py
test_rails.py test_rdbench.py test_rdma_op.py test_relay.py test_resume.py test_seeds.py test_stream.py
test_tree.py test_tree_metadata.py test_verbs.py test_verbs_lanes.py test_verify.py
""".split()
LONGEST = ["test_rails.py", "test_tree.py", "test_verbs_lanes.py"]


def pytest_collection_modifyitems(config, items):
    if not LAB:
        return
    if os.environ.get("SLUICE_LAB_ALL"):
        if TRANSPORT != "rxe" or OP:
            config.hook.pytest_deselected(items=[i for i in items if i.path.name not in MOVING])
            items[:] = [i for i in items if i.path.name in MOVING]
        return
    wanted = SHORT_IN_THE_LAB + SHORT_ON.get(TRANSPORT, [])
    named = {"%s::%s" % (i.path.name, i.name): i for i in items}
    found = {p: fnmatch.filter(named, p) for p in wanted}
    left_out = {p: fnmatch.filter(named, p) for p in SHORT_WITHOUT.get(TRANSPORT, [])}
    stale = [p for p, names in {**found, **left_out}.items() if not names]
    if stale and all(os.path.isdir(a) for a in config.args):
        raise pytest.UsageError("the short list of the lab names what is not there: " + ", ".join(stale))
    chosen = {n for names in found.values() for n in names} - {n for names in left_out.values() for n in names}
    # The longest first: at the end one of them would keep everybody waiting.
    short = sorted((i for n, i in named.items() if n in chosen), key=lambda i: i.path.name not in LONGEST)
    left = [i for i in items if i not in short]
    config.hook.pytest_deselected(items=left)
    items[:] = short


@pytest.fixture(autouse=True)
def leave_no_files(tmp_path):
    """pytest keeps what tests wrote; the guest's /tmp is memory, and a long run filled it."""
    yield
    if LAB:
        subprocess.run(["rm", "-rf", "--one-file-system", tmp_path], stderr=subprocess.DEVNULL, check=False)


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def way(request):
    """What stands before the names of source and target."""
    return request.param


@pytest.fixture
def bench(tmp_path):
    b = Bench(tmp_path)
    yield b
    b.close()


@pytest.fixture
def arena(bench, tmp_path):
    # The programs are looked at as soon as it is imported, which only some tests need.
    from arena import Arena
    a = Arena(bench, tmp_path)
    yield a
    a.settle()


@pytest.fixture
def ground(tmp_path):
    """A directory on a file system that takes attributes, cleared away however deep it gets."""
    top = tmp_path / "ground"
    top.mkdir()
    mounted = False
    try:
        os.setxattr(top, "user.try", b"")
        os.removexattr(top, "user.try")
    except OSError:
        # In the guest /tmp is a tmpfs of a kernel that has none there.
        mounted = not USER
    if mounted:
        image = tmp_path / "ext4"
        with open(image, "wb") as f:
            f.truncate(1 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, top], check=True)
        (top / "lost+found").rmdir()
    yield top
    if mounted:
        subprocess.run(["umount", "-l", top], check=True)
        image.unlink()
    fell(top)


def pytest_runtest_logreport(report):
    """A failure is told at once: the guest may be gone before the summary."""
    if LAB and report.failed:
        print("\n%s: %s\n%s" % (report.nodeid, report.when, report.longreprtext[-1500:]), flush=True)
