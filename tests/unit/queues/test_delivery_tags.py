import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.queues.delivery_tags import DeliveryTags, Tagged


def tags_of(count: int) -> DeliveryTags:
    tags = DeliveryTags()
    for number in range(1, count + 1):
        assert tags.issue(Tagged(number % 2, "a", number)) == number
    return tags


def numbers(taken: list[Tagged]) -> list[int]:
    return [each.number for each in taken]


def test_a_tag_settles_one_delivery() -> None:
    assert numbers(tags_of(3).take(2, multiple=False)) == [2]


def test_multiple_settles_all_up_to_a_tag_over_all_queues() -> None:
    tags = tags_of(4)

    assert numbers(tags.take(3, multiple=True)) == [1, 2, 3]
    assert len(tags) == 1


def test_multiple_and_zero_settle_everything() -> None:
    tags = tags_of(3)

    assert numbers(tags.take(0, multiple=True)) == [1, 2, 3]
    assert tags.take(0, multiple=True) == []


@pytest.mark.parametrize(("tag", "multiple"), [(0, False), (9, False), (9, True), (1, False)])
def test_an_unknown_tag_is_refused(tag: int, multiple: bool) -> None:
    tags = tags_of(3)
    tags.take(1, multiple=False)

    with pytest.raises(InvalidRequest) as refused:
        tags.take(tag, multiple=multiple)

    assert refused.value.code is ErrorCode.UNKNOWN_DELIVERY


def test_deliveries_that_need_no_acknowledgement_still_count() -> None:
    tags = DeliveryTags()
    tags.issue(Tagged(0, "a", 1), is_settled=True)

    assert tags.issue(Tagged(0, "a", 2)) == 2
    assert len(tags) == 1


def test_a_lost_lease_takes_its_tag_with_it() -> None:
    tags = tags_of(2)

    tags.lost(1, "a", 1)

    with pytest.raises(InvalidRequest):
        tags.take(1, multiple=False)
    assert numbers(tags.forget()) == [2]
