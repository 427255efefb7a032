# SPDX-License-Identifier: Apache-2.0
import pytest

from hosts import Bench


@pytest.fixture
def bench(tmp_path):
    b = Bench(tmp_path)
    yield b
    b.close()
