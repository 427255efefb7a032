# SPDX-License-Identifier: Apache-2.0
"""What can't be deleted: a directory in the way of a file stays whole, and what is mounted in a tree stays."""

import os
import shutil
import subprocess

import pytest

from file_systems import mounted
from hosts import as_nobody, open_up
from marks import two_users
from trees import make, read, ways

pytestmark = pytest.mark.moves_blocks

way = ways("push", "pull", "local")
NOBODY = 65534


def copy(bench, tmp_path, way, *options, **how):
    return bench.copy("-a", *options, "%s%s/tree/" % (way[0], tmp_path), "%s%s/to" % (way[1], tmp_path), **how)


def give(top, owner, *but):
    """Everything below top to owner, except for the paths `but', which go to root."""
    for dir, dirs, files in os.walk(top):
        for path in [dir] + [os.path.join(dir, n) for n in dirs + files]:
            os.chown(path, owner, owner)
    for path in but:
        os.chown(path, 0, 0)


WHOLE = {"in": b"in", "k": {"x": b"x"}}
# What of a directory another user owns, and the mode of its subdirectory.
FOREIGN = {"a directory": (["k"], 0o755), "a file in a sticky directory": (["k", "k/x"], 0o1777),
           "a directory in a sticky one": (["", "k"], 0o755)}


@two_users
@pytest.mark.parametrize("options", [["--delete"], ["--delete", "-n"], ["--delete", "--backup", "--backup-dir=old"]], ids=" ".join)
@pytest.mark.parametrize("what", FOREIGN)
def test_directory_in_the_way_is_replaced_as_a_whole_or_not_at_all(bench, tmp_path, way, what, options):
    make(tmp_path, {"tree": {"a": b"new"}, "to": {"a": WHOLE}})
    foreign, mode = FOREIGN[what]
    os.chmod(tmp_path / "to" / "a" / "k", mode)
    if "" in foreign:
        os.chmod(tmp_path / "to" / "a", 0o1777)
    for top in "tree", "to":
        give(tmp_path / top, NOBODY, *(tmp_path / top / "a" / n for n in foreign if top == "to"))
    open_up(tmp_path)
    r = copy(bench, tmp_path, way, *options, become=as_nobody())
    assert r.code == (0 if "-n" in options else 23), (r.code, r.errors())
    assert "-n" in options or "permitted" in r.errors() or "denied" in r.errors(), r.errors()
    assert read(tmp_path / "to").pop("a") == WHOLE


@two_users
def test_temporary_of_another_user_keeps_the_directory(bench, tmp_path, way):
    make(tmp_path, {"tree": {"a": b"new"}, "to": {"a": {"in": b"in", ".sluice.0123456789abcdef": b"t"}}})
    for top in "tree", "to":
        give(tmp_path / top, NOBODY, *(tmp_path / top / "a" / n for n in [".sluice.0123456789abcdef"] if top == "to"))
    open_up(tmp_path)
    r = copy(bench, tmp_path, way, "--delete", become=as_nobody())
    assert r.code == 23 and "in" in read(tmp_path / "to")["a"], (r.code, r.errors())


@two_users
def test_capability_of_a_user_counts(bench, tmp_path):
    make(tmp_path, {"tree": {"a": b"new"}, "to": {"a": WHOLE}})
    open_up(tmp_path)
    (tmp_path / "to").chmod(0o777)
    give(tmp_path / "to" / "a", 12345)
    (tmp_path / "to" / "a").chmod(0o1777)
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+fowner,+dac_override",
              "--ambient-caps=+fowner,+dac_override"]
    r = bench.copy("-r", "--delete", "%s/tree/" % tmp_path, tmp_path / "to", become=become)
    assert r.code == 0 and read(tmp_path / "to") == {"a": b"new"}, (r.code, r.errors())


@two_users
def test_empty_directory_of_another_user_is_no_obstacle(bench, tmp_path, way):
    make(tmp_path, {"tree": {"a": b"new"}, "to": {"a": {"in": b"in", "k": {}}}})
    for top in "tree", "to":
        give(tmp_path / top, NOBODY, *(tmp_path / top / n for n in ["a/k"] if top == "to"))
    open_up(tmp_path)
    r = copy(bench, tmp_path, way, "--delete", become=as_nobody())
    assert r.code == 0 and read(tmp_path / "to") == {"a": b"new"}, (r.code, r.errors())


@two_users
def test_directory_without_rights_of_its_owner_is_no_obstacle(bench, tmp_path, way):
    make(tmp_path, {"tree": {"a": b"new"}, "to": {"a": WHOLE}})
    for top in "tree", "to":
        give(tmp_path / top, NOBODY)
    for d in "a/k", "a":
        os.chmod(tmp_path / "to" / d, 0o500)
    open_up(tmp_path)
    r = copy(bench, tmp_path, way, "--delete", become=as_nobody())
    assert r.code == 0 and read(tmp_path / "to") == {"a": b"new"}, (r.code, r.errors())


@two_users
def test_older_backup_is_replaced_as_a_whole_or_not_at_all(bench, tmp_path, way):
    make(tmp_path, {"to": {"a": b"old", "a~": WHOLE}})
    make(tmp_path, {"tree": {"a": b"new"}})
    for top in "tree", "to":
        give(tmp_path / top, NOBODY, *(tmp_path / top / n for n in ["a~/k"] if top == "to"))
    open_up(tmp_path)
    r = copy(bench, tmp_path, way, "--backup", become=as_nobody())
    assert r.code == 23 and "denied" in r.errors(), (r.code, r.errors())
    assert read(tmp_path / "to") == {"a": b"old", "a~": WHOLE}


@pytest.mark.needs("root", why="only root can make a file immutable")
@pytest.mark.may_skip("any", "a file system may have no such files")
@pytest.mark.parametrize("name", ["k/x", "k"])
def test_immutable_file_keeps_the_directory(bench, tmp_path, way, name):
    make(tmp_path, {"tree": {"a": b"new"}, "to": {"a": WHOLE}})
    path = tmp_path / "to" / "a" / name
    if not shutil.which("chattr") or subprocess.run(["chattr", "+i", path], check=False).returncode:
        pytest.skip("no immutable files")
    try:
        r = copy(bench, tmp_path, way, "--delete")
        assert r.code == 23 and "not permitted" in r.errors(), (r.code, r.errors())
        assert read(tmp_path / "to") == {"a": WHOLE}
    finally:
        subprocess.run(["chattr", "-i", path], check=True)
    r = copy(bench, tmp_path, way, "--delete")
    assert r.code == 0 and read(tmp_path / "to") == {"a": b"new"}, (r.code, r.errors())


# ---- mounts, of the same file system and of others ---------------------------------------------


@pytest.mark.needs("root", why="only root mounts")
@pytest.mark.may_skip("any", "a container may not be allowed to mount")
@pytest.mark.parametrize("options", [[], ["-x"]], ids=str)
@pytest.mark.parametrize("kind", ["bind", "tmpfs"])
@pytest.mark.parametrize("where", ["extra", "in the way", "backup"])
def test_what_is_mounted_stays(bench, tmp_path, way, where, kind, options):
    name = {"extra": "extra", "in the way": "a", "backup": "a~"}[where]
    make(tmp_path, {"tree": {"a": b"new"}, "to": {name: {"m": {}}}, "outside": {"f": b"f"}})
    if where == "backup":
        (tmp_path / "to" / "a").write_bytes(b"old")
    words = ["--bind", tmp_path / "outside"] if kind == "bind" else ["-t", "tmpfs", "tmpfs"]
    with mounted(tmp_path / "to" / name / "m", *words) as at:
        (at / "f").write_bytes(b"f")
        r = copy(bench, tmp_path, way, *options, "--backup" if where == "backup" else "--delete")
        assert (at / "f").read_bytes() == b"f"
        spared = where == "extra" and "-x" in options
        assert r.code == (0 if spared else 23), (r.code, r.errors())
        assert ("protected" if options else "something is mounted on it") in r.errors(), r.errors()
    assert (tmp_path / "outside" / "f").read_bytes() == b"f"
    r = copy(bench, tmp_path, way, *options, "--backup" if where == "backup" else "--delete")
    assert r.code == 0 and read(tmp_path / "to")["a"] == b"new", (r.code, r.errors())


@pytest.mark.needs("root", why="only root mounts")
@pytest.mark.may_skip("any", "a container may not be allowed to mount")
def test_backup_of_a_directory_takes_its_mounts_along(bench, tmp_path, way):
    make(tmp_path, {"tree": {"a": b"new"}, "to": {"a": {"m": {}}}, "outside": {"f": b"f"}})
    with mounted(tmp_path / "to" / "a" / "m", "--bind", tmp_path / "outside"):
        r = copy(bench, tmp_path, way, "--delete", "--backup")
        assert r.code == 0 and read(tmp_path / "to") == {"a": b"new", "a~": {"m": {"f": b"f"}}}, (r.code, r.errors())
        (tmp_path / "to" / "a").unlink()
        os.rename(tmp_path / "to" / "a~", tmp_path / "to" / "a")


@pytest.mark.needs("root", why="only root mounts")
@pytest.mark.may_skip("any", "a container may not be allowed to mount")
def test_source_that_is_mounted_below_the_target_stays(bench, tmp_path, way):
    make(tmp_path, {"tree": {"k": {"f": b"f"}}, "to": {"extra": {"m": {}, "g": b"g"}}})
    with mounted(tmp_path / "to" / "extra" / "m", "--bind", tmp_path / "tree" / "k"):
        r = copy(bench, tmp_path, way, "--delete")
        assert r.code == 23 and "mounted" in r.errors(), (r.code, r.errors())
        assert read(tmp_path / "tree") == {"k": {"f": b"f"}}
    assert read(tmp_path / "to") == {"k": {"f": b"f"}, "extra": {"m": {}}}
