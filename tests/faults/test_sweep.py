# SPDX-License-Identifier: Apache-2.0
"""What the sweep counts and prints, and how it ends when no time is left."""

import argparse
import importlib.machinery
import importlib.util
import json
import os
import types

import pytest


def load():
    path = os.path.join(os.path.dirname(__file__), "sweep")
    loader = importlib.machinery.SourceFileLoader("sweep", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("sweep", loader))
    loader.exec_module(module)
    return module


sweep = load()
SITE = "base/io.c:pwrite_full:pwrite64#1"


def row(scenario, site, kind="EIO", came="injected", found=(), times=1):
    return {"point": "%s rdcp.1 %s 1 %s" % (scenario, site, kind), "came": came, "found": list(found), "times": times, "codes": [11]}


def test_points_sites_and_violations_are_one_table(tmp_path, capsys):
    log = tmp_path / "log"
    log.write_text("".join(json.dumps(r) + "\n" for r in [
        row("file-push", SITE), row("file-push", SITE, "ENOSPC", found=[("hang", "it")], times=2), row("file-push", SITE, "EDQUOT", "not reached"),
        row("file-pull", SITE), row("file-pull", "a.c:b:calloc#1>malloc", found=[("unnamed", "it")]),
        row("file-pull", "a.c:b:calloc#1")]))
    sweep.Tally(log).report()
    assert capsys.readouterr().out.splitlines() == [
        "| scenario | points | failed | missed | sites | known | violations |", "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| file-push | 3 | 2 | 1 | 1 | 0 | 1 |", "| file-pull | 3 | 3 | 0 | 2 | 0 | 0 |", "| all | 6 | 5 | 1 | 2 | 0 | 1 |"]


NAMED = "file-push rdcp.1 %s 40 EIO" % SITE


class Brief(sweep.Sweep):
    """A sweep of a point of tests/faults/points, and of 30 others of which the first ones are run in time."""

    def __init__(self, in_time, begun=2, came="injected", share="1/1"):
        sweep.Tally.__init__(self)
        self.args = argparse.Namespace(scenario=None, site=None, all=False, points=30, seconds=80, log=None,
                                       share=sweep.Part(share))
        self.named = {NAMED: sweep.Point.parse(NAMED)}
        self.in_time, self.begun, self.came = in_time, begun, came
        self.until, self.references, self.book, self.order = float("inf"), {}, types.SimpleNamespace(all=dict), []

    def scenarios(self):
        return ["file-push", "file-pull"]

    def run_references(self, names):
        # A scenario of tests/faults/points is begun at any time.
        names = names if self.until == float("inf") else names[:self.begun - 1]
        self.references.update((n, types.SimpleNamespace(sites={})) for n in names)

    def others(self):
        return [sweep.Point("file-push", "rdcp.1", SITE, n, "EIO") for n in range(1, 61)]

    def share(self, work, items):
        for n, point in enumerate(items):
            self.order.append(str(point))
            if self.until == float("inf"):
                yield {**row("file-push", SITE, came=self.came), "point": str(point)}
            else:
                yield {**row("file-push", SITE), "point": str(point)} if n < self.in_time else None


def last_lines(capsys):
    """Those below the table."""
    lines = capsys.readouterr().out.splitlines()
    return lines[lines.index("not reached by these scenarios: 0") + 1:]


@pytest.mark.parametrize("in_time, begun, fails, says", [
    (30, 2, False, []), (3, 2, False, ["27 of 30 others not run: time (scenarios not begun: 0)"]),
    (30, 1, False, []), (20, 1, False, ["10 of 30 others not run: time (scenarios not begun: 1)"]),
    (2, 2, True, ["28 of 30 others not run: time (scenarios not begun: 0): too few"])])
def test_share_that_ends_early_says_so(capsys, in_time, begun, fails, says):
    assert bool(Brief(in_time, begun).run()) is fails
    assert last_lines(capsys) == [*says, "%d passed, 0 failed" % (in_time + 1)]


def test_points_that_broke_a_promise_come_first_and_are_always_run(capsys):
    brief = Brief(0)
    assert brief.run()
    assert brief.order[0] == NAMED and brief.order.count(NAMED) == 1
    assert brief.rows["file-push"]["injected"] == 1
    assert last_lines(capsys) == ["30 of 30 others not run: time (scenarios not begun: 0): too few", "1 passed, 0 failed"]


def test_each_point_that_broke_a_promise_is_in_one_share():
    def in_share(share):
        brief = Brief(30, share=share)
        brief.named = sweep.named_points()
        brief.run()
        return {text for text in brief.order if text in brief.named}
    parts = [in_share("%d/3" % k) for k in (1, 2, 3)]
    assert sum(map(len, parts)) == len(set().union(*parts)) == len(in_share("1/1"))
    assert all(parts)


@pytest.mark.parametrize("came, fails, says", [("unknown", True, "unknown site"), ("not reached", False, "not reached")])
def test_point_that_shows_nothing_is_named(capsys, came, fails, says):
    assert bool(Brief(30, came=came).run()) is fails
    assert last_lines(capsys) == ["%s: %s" % (NAMED, says), "30 passed, %d failed" % fails]


def test_a_point_that_needs_a_disk_is_named(capsys, monkeypatch):
    brief, text = Brief(30), "clone-local rdcp.1 %s 1 EIO" % SITE
    brief.named = {text: sweep.Point.parse(text)}
    monkeypatch.setattr(sweep.Run, "disk", None)
    assert not brief.run()
    assert brief.order[0] != text
    assert last_lines(capsys)[0] == text + ": not run: no file system on which files can share blocks"


def test_points_that_broke_a_promise_count_in_any_case():
    """Also where sweep holds them to be impossible."""
    tally = sweep.Tally()
    text = next((t for t, p in tally.named.items() if not sweep.is_possible(p)), None)
    assert text, "there is no such point"
    tally.count({"point": text, "came": "injected", "found": [["hang", "it"]], "times": 2, "codes": [0]})
    assert tally.classes["hang"] == 1


@pytest.mark.parametrize("reached_at, tries", [(2, 2), (9, 3)])
def test_a_point_that_broke_a_promise_is_tried_until_it_is_reached(reached_at, tries):
    brief, tried = Brief(30), []
    brief.references["file-push"] = types.SimpleNamespace(sites={})

    def try_point(point):
        tried.append(point)
        return "injected" if len(tried) == reached_at else "not reached", [], None
    brief.try_point = try_point
    assert brief.judge(brief.named[NAMED])["came"] == ("injected" if reached_at == tries else "not reached")
    assert len(tried) == tries
