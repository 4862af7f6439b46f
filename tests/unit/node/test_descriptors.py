"""Descriptors of a process: its own, other nodes', the log's and those of clients."""

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import DESCRIPTORS_MIN
from mainstem.node.config.settings import Config
from mainstem.node.file_descriptors import OWN, divided, wanted


@pytest.mark.parametrize("limit", [DESCRIPTORS_MIN, 1_000, 4_096, 65_536, 1_048_576])
def test_every_part_is_there_and_no_descriptor_is_given_twice(limit: int) -> None:
    parts = divided(limit, Config())
    assert OWN + parts.files + parts.clients == limit
    assert parts.files_open_max >= 32
    assert parts.clients >= 64


def test_a_limit_that_is_too_low_is_refused_with_a_remedy() -> None:
    with pytest.raises(InvalidRequest) as refused:
        divided(DESCRIPTORS_MIN - 1, Config())
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.remedy


def test_what_is_wanted_lets_every_listener_reach_its_own_limit() -> None:
    config = Config()
    clients = divided(wanted(config), config).clients
    assert clients // 12 + clients // 2 >= 2 * config.kafka.max_connections
