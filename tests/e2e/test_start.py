# SPDX-License-Identifier: Apache-2.0
"""Starting the far end: failures are reported with the right code."""


import pytest

from hosts import NEAR, RSH, program


def rsh(tmp_path, text):
    path = tmp_path / "rsh"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_missing_far_end_is_reported(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    r = bench.run([program("rdcp"), "--rsh", RSH, "--rdcp-path",
                   "/nowhere/rdcp", "in", "far:out"], host=NEAR, cwd=tmp_path, home=tmp_path)
    assert r.code == 5
    assert "/nowhere/rdcp is not on far: install rdcp there or correct --rdcp-path" in r.errors()


def test_program_that_cannot_be_run_is_named(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    r = bench.copy("in", "far:out", rsh="no-such-shell")
    assert r.code == 5
    assert "run no-such-shell to far: No such file or directory" in r.errors()


def test_text_printed_by_the_remote_shell_is_reported(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    r = bench.copy("in", "far:out", rsh=rsh(
        tmp_path, "printf 'Welcome \\033[31mto far\\n'; exec %s \"$@\"" % RSH))
    assert r.code in (5, 12)
    assert "Welcome" in r.errors() and "\x1b" not in r.errors()
    # Escaped once.
    assert "to far\\n" in r.errors() and "\\\\" not in r.errors(), r.errors()


def test_message_of_a_failed_ssh_is_kept(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    r = bench.copy("in", "nowhere:out")
    assert r.code == 5
    assert "rsh: unknown host nowhere" in r.errors()


def test_remote_command_is_fixed(bench, tmp_path):
    """SD11, SD6: the remote command contains no name, no key, and nothing else from the user."""
    (tmp_path / "in $(touch oops)").write_bytes(b"x")
    r = bench.copy("in $(touch oops)", "far:out `touch oops`; touch oops", rsh=rsh(
        tmp_path, "echo \"$@\" >>%s/said; exec %s \"$@\"" % (tmp_path, RSH)))
    assert r.code == 0, r.errors()
    said = (tmp_path / "said").read_text()
    assert "oops" not in said and "--end" in said
    assert not (tmp_path / "oops").exists()


def test_host_that_looks_like_an_option_is_refused(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    r = bench.copy("--", "in", "-oProxyCommand=touch oops:out")
    assert r.code == 1, r.errors()
    assert not (tmp_path / "oops").exists()


def test_peer_of_another_version_is_refused(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    greeting = r"\017\000\000\000\100\000\000\000\223SLUICE\n\143\000\003\0009.9"
    r = bench.copy("in", "far:out", rsh=rsh(tmp_path, "printf '%s'; sleep 5" % greeting))
    assert r.code == 2, r.errors()
    assert "99" in r.errors() and "protocol" in r.errors()


@pytest.mark.parametrize("argv", [
    [], ["a"], ["--no-such"], ["-R", "a", "b"], ["-avR", "a", "b"], ["--delete", "a", "b"],
    ["--compress=lz4", "a", "b"], ["--compress-level=a", "a", "b"], ["--lanes=0", "a", "b"], ["--block-size=3", "a", "b"],
    ["--transport=pigeon", "a", "b"]])
def test_wrong_usage_prints_one_sentence_and_the_synopsis(bench, tmp_path, argv):
    r = bench.run([program("rdcp"), *argv], cwd=tmp_path)
    assert r.code == 1
    lines = r.errors().splitlines()
    assert len(lines) >= 2 and lines[0].startswith("rdcp: ") and not r.out


def test_scp_options_are_passed_to_ssh(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    r = bench.copy("-P", "2222", "-o", "Compression=no", "in", "far:%s/out" % tmp_path, rsh=rsh(
        tmp_path, "echo \"$@\" >>%s/said; exec %s \"$@\"" % (tmp_path, RSH)))
    assert r.code == 0, r.errors()
    said = (tmp_path / "said").read_text()
    assert "-p 2222" in said and "Compression=no" in said
