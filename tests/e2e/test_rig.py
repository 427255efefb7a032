# SPDX-License-Identifier: Apache-2.0
"""What the tests stand on: files that stay theirs, and failures that say why."""

import os
import subprocess
import sys

import pytest

import run_files
from hosts import ROOT, as_nobody, open_up

pytestmark = pytest.mark.needs("tcp", why="it needs no adapter; one run is enough")


IT = "def test_it(tmp_path):\n    %s\n"


def run_pytest(directory, tests, *options, codes=(0, 1), **env):
    """Another run of pytest, of these tests. 5: none of them was to be run."""
    directory.mkdir(exist_ok=True)
    (directory / "test_it.py").write_text(tests)
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_") or k == "PYTEST_DEBUG_TEMPROOT"}
    own["SLUICE_SHARE"] = "1/1"
    r = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_it.py"],
                       cwd=directory, env=dict(own, **env), capture_output=True, text=True, check=False)
    assert r.returncode in codes, r.stdout + r.stderr
    return r.returncode


@pytest.mark.needs("root", why="only root can run programs as two users")
def test_other_users_keep_their_way_to_files_while_another_pytest_begins(bench, tmp_path):
    open_up(tmp_path)
    (tmp_path / "in").write_bytes(b"here")
    assert run_pytest(tmp_path / "another", IT % "pass") == 0
    r = bench.run([*as_nobody(), "cat", tmp_path / "in"])
    assert (r.code, r.out) == (0, b"here"), r.errors()


def test_files_of_runs_stay_while_they_last_and_of_the_latest_that_failed(tmp_path):
    top = tmp_path / "top"
    old = [top / (run_files.PREFIX + n) for n in "012345"]
    for age, directory in enumerate(old):
        (directory / "tests").mkdir(parents=True)
        os.utime(directory, (age, age))
    lasts = run_files.Directory(old[0])
    lasts.failed = True

    def run(code):
        run_pytest(tmp_path / "another", IT % code, "-p", "run_files", PYTHONPATH=str(ROOT / "tests" / "rig"),
                   TMPDIR=str(top))
        return sorted(set(top.iterdir()) - {old[0], *old[3:]})
    assert not run("pass")
    assert [(p / "tests/test_it0/it").read_text() for p in run("(tmp_path / 'it').write_text('seen'); assert 0")] == ["seen"]
    lasts.close()
    assert all(p.exists() for p in (old[0], *old[3:]))


def test_what_does_not_end_is_reported_with_what_the_others_said(bench):
    assert bench.run(["sh", "-c", "echo because >&2; exit 11"]).code == 11
    with pytest.raises(AssertionError, match=r"(?s)'sleep'.*does not end within.*\(exit 11\): because"):
        bench.start(["sleep", "1000"]).wait(.1)


SHARED = """
import pytest
@pytest.fixture(params=["push", "pull", "both", "local"])
def way(request):
    return request.param
pytestmark = pytest.mark.%s
@pytest.mark.parametrize("kind, size", [("file", 0), ("file", 1), ("tree", 0)])
@pytest.mark.parametrize(argnames="option", argvalues=[None, "-H"])
def test_it(way, kind, size, option):
    open("seen", "a").write("%%s %%s%%d %%s\\n" %% (way, kind, size, option))
"""


@pytest.mark.parametrize("mark, options, count, cases, own, all_of_it", [
    ("none", [], 1, "", 6, 6), ("each_value", [], 1, "", 3, 4), ("each_combination", [], 1, "", 6, 24),
    ("none", [], 10, "", 6, 24), ("none", [], 1, "all", 6, 24), ("none", ["-k", "push and tree or pull and file"], 1, "", 6, 6),
], ids=["short", "each_value", "each_combination", "long", "all", "named"])
def test_a_short_run_takes_each_case_one_way(tmp_path, mark, options, count, cases, own, all_of_it):
    def run():
        (tmp_path / "seen").unlink(missing_ok=True)
        run_pytest(tmp_path, SHARED % mark, "-p", "shares", *options, PYTHONPATH=str(ROOT / "tests" / "rig"),
                   SLUICE_COUNT=str(count), SLUICE_CASES=cases)
        return (tmp_path / "seen").read_text().splitlines()
    seen = run()
    ways, kinds, switches = (set(v) for v in zip(*(line.split() for line in seen)))
    assert len(ways) == (2 if options else 4) and len(kinds) == 3 and len(switches) == 2
    assert len({line.partition(" ")[2] for line in seen}) >= own
    assert len(seen) == len(set(seen)) and all_of_it <= len(seen) <= all_of_it + (mark == "each_value")
    assert run() == seen


@pytest.mark.parametrize("shares", [1, 2, 5])
@pytest.mark.parametrize("options", [[], ["-k", "push"]], ids=["all", "named"])
def test_each_case_is_in_one_share(tmp_path, shares, options):
    def run(share):
        (tmp_path / "seen").unlink(missing_ok=True)
        run_pytest(tmp_path, SHARED % "none", "-p", "shares", *options, PYTHONPATH=str(ROOT / "tests" / "rig"),
                   codes=(0, 5), SLUICE_SHARE=share)
        return (tmp_path / "seen").read_text().splitlines() if (tmp_path / "seen").exists() else []
    whole, parts = run("1/1"), [run("%d/%d" % (k, shares)) for k in range(1, 1 + shares)]
    if options:
        assert all(part == whole for part in parts) and whole
    else:
        assert sorted(line for part in parts for line in part) == sorted(whole)
        assert parts == [run("%d/%d" % (k, shares)) for k in range(1, 1 + shares)]
        assert shares == 1 or max(map(len, parts)) < len(whole)


@pytest.mark.parametrize("share", ["0/5", "6/5", "5", "1/0"])
def test_wrong_share_is_refused(tmp_path, share):
    r = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "shares", tmp_path],
                       env=dict(os.environ, PYTHONPATH=str(ROOT / "tests" / "rig"), SLUICE_SHARE=share),
                       capture_output=True, text=True, check=False)
    assert r.returncode not in (0, 5)
