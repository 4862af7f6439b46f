"""Legal topic names are Kafka's."""

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.topic_name import check_topic_name, collision_key


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "._", "x" * 249, "__consumer_offsets"])
def test_a_legal_name_is_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "x" * 250, "a b", "a/b", "../etc", "a\n", "ä", "a\x00", "a:b", "a~b", "tópico"],
)
def test_an_illegal_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_NAME


def test_names_collide_that_differ_only_in_period_and_underscore() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a.b") != collision_key("a-b")
