# SPDX-License-Identifier: Apache-2.0
"""Checks what an adapter counted during the end-to-end tests: no data went over TCP by mistake, and every receiver was
ready. SLUICE_BEFORE and SLUICE_AFTER are outputs of `counters'."""

import os

import pytest

ADAPTER = os.environ["SLUICE_TRANSPORT"]
# Far less than the tests move: each size of test_files_and_streams_of_every_size_are_copied alone is more.
LEAST_BYTES = 40 << 20
LEAST_PAIRS = 100


def counted(name):
    def read(path):
        with open(path) as f:
            return {k: int(v) for k, v in (line.split() for line in f)}
    before, after = read(os.environ["SLUICE_BEFORE"]), read(os.environ["SLUICE_AFTER"])
    assert name in after, sorted(after)
    return after[name] - before.get(name, 0)


def test_queue_pairs_were_created():
    assert counted("%s_qp_created" % ADAPTER) >= LEAST_PAIRS


@pytest.mark.needs("rxe", why="only rxe counts packets")
def test_packet_counters_grew_by_the_data_moved():
    assert counted("rxe_sent_pkts") >= LEAST_BYTES // 4096


@pytest.mark.needs("siw", why="rxe's packets are counted")
def test_data_went_through_queue_pairs():
    assert counted("siw_sq_bytes") >= LEAST_BYTES


# Blocks of 256 KiB: far fewer than the tests of each operation write. siw splits them.
@pytest.mark.parametrize("op, name", [
    ("write-send", ADAPTER + {"rxe": "_write_done", "siw": "_writes"}[ADAPTER]),
    pytest.param("write-imm", "rxe_write_imm_done",
                 marks=pytest.mark.needs("rxe", why="iWARP has no write with immediate")),
])
def test_blocks_were_written(op, name):
    least = LEAST_BYTES >> 19 if os.environ.get("SLUICE_RDMA_OP") in ("", None, op) else 20
    assert counted(name) >= least


@pytest.mark.needs("rxe", why="an iWARP receiver that is not ready ends the connection")
@pytest.mark.parametrize("name", ["rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err"])
def test_receiver_was_always_ready(name):
    assert counted("rxe_" + name) == 0
