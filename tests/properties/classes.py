# SPDX-License-Identifier: Apache-2.0
"""Classes of violations, defined by the options of a case and by what it broke, for `run --until'."""


def delete_of_several_hosts(case, kinds):
    """--delete with sources on several hosts deletes what this command copied"""
    return len({h for h, _ in case.sources}) > 1 and (case.has("delete") or case.has("delete-excluded")) and \
        kinds & {"missing", "lost", "deleted"}


def unread_link_removed(case, kinds):
    """-H --remove-source-files removes a file that was never read"""
    return case.has("hard-links", "remove-source-files") and "lost" in kinds and \
        (case.fault or {}).get("how") == "replace"


def removed_onto_stream(case, kinds):
    """--remove-source-files onto a device or FIFO destroys the source"""
    return (case.fault or {}).get("kind") == "stream" and case.has("remove-source-files") and "source-gone" in kinds


def links_beside_update(case, kinds):
    """-H with -u or --ignore-existing gives wrong content, or loses newer data"""
    return case.has("hard-links") and (case.has("update") or case.has("ignore-existing")) and \
        kinds & {"content"} and not case.has("inplace")


def deleted_although_failed(case, kinds):
    """--delete deletes although files failed"""
    return (case.has("delete") or case.has("delete-excluded")) and kinds & {"deleted", "deleted-early"} and \
        len({h for h, _ in case.sources}) == 1


def links_of_several_sources(case, kinds):
    """-H does not link between several named sources"""
    return case.has("hard-links") and "links" in kinds and \
        (len(case.sources) > 1 or "*" in case.sources[0][1]) and len({h for h, _ in case.sources}) == 1


CLASSES = {f.__name__.replace("_", "-"): f for f in (
    delete_of_several_hosts, unread_link_removed, removed_onto_stream, links_beside_update, deleted_although_failed,
    links_of_several_sources)}


def classes_of(case, trial):
    kinds = {k for k, _ in trial.found}
    return {name for name, f in CLASSES.items() if f(case, kinds)}
