# SPDX-License-Identifier: Apache-2.0
"""Classes of violations, defined by the options of a case and by what it broke, for `run --until'."""

import os
import re

import globs

UNKNOWN = re.compile(r"^rdcp: (unknown option |-\S+ is not supported)", re.M)


def hosts_of(case):
    return {h for h, _ in case.sources}


def deletes(case):
    return case.has("delete") or case.has("delete-excluded")


def delete_of_several_hosts(trial, kinds):
    """--delete with sources on several hosts deletes what this command copied"""
    return len(hosts_of(trial.case)) > 1 and deletes(trial.case) and kinds & {"missing", "lost", "deleted"}


def unread_link_removed(trial, kinds):
    """-H --remove-source-files removes a file that was never read"""
    return trial.case.has("hard-links", "remove-source-files") and "lost" in kinds and trial.fault.get("how") == "replace"


def removed_onto_stream(trial, kinds):
    """--remove-source-files onto a device or FIFO destroys the source"""
    return trial.fault.get("kind") == "stream" and trial.case.has("remove-source-files") and "source-gone" in kinds


def links_beside_update(trial, kinds):
    """-H with -u or --ignore-existing gives wrong content, or loses newer data"""
    case = trial.case
    linked = {os.path.basename(p) for p, n in case.world.items() if n.kind == "file" and n.ino is not None}
    wrong = {os.path.basename(text.split(": content is ")[0]) for kind, text in trial.found if kind == "content"}
    return case.has("hard-links") and (case.has("update") or case.has("ignore-existing")) and not case.has("inplace") and \
        trial.fault.get("kind") != "stream" and linked & wrong


def deleted_although_failed(trial, kinds):
    """--delete deletes although files failed"""
    return deletes(trial.case) and kinds & {"deleted", "deleted-early"} and len(hosts_of(trial.case)) == 1


def links_of_several_sources(trial, kinds):
    """-H does not link between several named sources"""
    case = trial.case
    return case.has("hard-links") and "links" in kinds and len(hosts_of(case)) == 1 and \
        (len(case.sources) > 1 or globs.is_glob(case.sources[0][1]))


CLASSES = {f.__name__.replace("_", "-"): f for f in (
    delete_of_several_hosts, unread_link_removed, removed_onto_stream, links_beside_update, deleted_although_failed,
    links_of_several_sources)}


def classes_of(trial):
    """Those of the violations of a run. None if rdcp did not know an option: an old build lacks some."""
    if UNKNOWN.search(trial.errors):
        return None
    kinds = {k for k, _ in trial.found}
    return {name for name, f in CLASSES.items() if f(trial, kinds)}
