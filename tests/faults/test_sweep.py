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


class Brief(sweep.Sweep):
    """A sweep of 30 points, of which the first ones are run in time."""

    def __init__(self, in_time):
        sweep.Tally.__init__(self)
        self.args = argparse.Namespace(scenario=None, site=None, all=False, points=30, seconds=80, log=None)
        self.in_time, self.missing, self.references, self.book = in_time, 0, {}, types.SimpleNamespace(all=dict)

    def scenarios(self):
        return ["file-push", "file-pull"]

    def known(self):
        return []

    def run_references(self, names):
        self.references = {"file-push": types.SimpleNamespace(sites={})}

    def others(self):
        return [sweep.Point("file-push", "rdcp.1", SITE, n, "EIO") for n in range(1, 31)]

    def share(self, work, items):
        for n, point in enumerate(items):
            yield {**row("file-push", SITE), "point": str(point)} if n < self.in_time else None


@pytest.mark.parametrize("in_time, fails, says", [
    (30, False, None), (3, False, "stopped after 80 s: 3 of 30 points were run, and 1 of 2 scenarios"),
    (2, True, "stopped after 80 s: 2 of 30 points were run, and 1 of 2 scenarios: too few")])
def test_share_that_ends_early_says_so(capsys, in_time, fails, says):
    assert bool(Brief(in_time).run()) is fails
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("stopped")] == ([says] if says else [])
