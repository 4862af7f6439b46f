"""Settings of groups: names, bounds, and where a share group begins."""

import pytest

from mainstem.model.config.group import (
    GROUP_KEYS,
    NODE_NAMES,
    OF_GROUPS_ONLY,
    GroupBounds,
    check_group_configs,
    reset_of,
)
from mainstem.model.errors import ErrorCode, InvalidRequest

_DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", "earliest"),
        ("LATEST", "latest"),
        ("by_duration:P1D", _DAY_MS),
        ("by_duration:PT1H30M", 5_400_000),
        ("by_duration:P2DT3H4M5.678S", 2 * _DAY_MS + 11_045_678),
        ("by_duration:pt0.5s", 500),
    ],
)
def test_a_share_group_begins_where_it_is_told(text: str, meant: str | int) -> None:
    check_group_configs({"share.auto.offset.reset": text})
    assert reset_of(text) == meant


@pytest.mark.parametrize(
    "text", ["", "none", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:-PT1S",
             "by_duration:P1DT", "by_duration:1h", "by_duration:P1Y"]
)  # fmt: skip
def test_no_other_place_to_begin_is_taken(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_group_configs({"share.auto.offset.reset": text})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert "by_duration" in refused.value.remedy


def test_a_share_group_chooses_within_the_bounds_of_the_node() -> None:
    bounds = GroupBounds.of({"group.share.max.record.lock.duration.ms": "90000"})
    check_group_configs({"share.record.lock.duration.ms": "90000"}, bounds)
    for name, text in (
        ("share.record.lock.duration.ms", "90001"),
        ("share.record.lock.duration.ms", "14999"),
        ("share.delivery.count.limit", "11"),
        ("share.partition.max.record.locks", "4001"),
        ("share.session.timeout.ms", "1"),
        ("share.heartbeat.interval.ms", "15001"),
        ("share.isolation.level", "sometimes"),
        ("share.renew.acknowledge.enable", "maybe"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            check_group_configs({name: text}, bounds)
        assert refused.value.code is ErrorCode.INVALID_CONFIG, name


def test_what_nodes_have_no_setting_for_is_a_matter_of_groups_only() -> None:
    assert NODE_NAMES.keys() | OF_GROUPS_ONLY == GROUP_KEYS.keys()
    assert NODE_NAMES["share.delivery.count.limit"] == "group.share.delivery.count.limit"
