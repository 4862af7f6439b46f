import pytest

from mainstem.model.errors import Corrupt
from mainstem.model.limits import DEATHS_REMEMBERED_MAX
from mainstem.model.message import EXPIRES_AT, Message
from mainstem.queues.dead_letter_history import (
    X_DEATH,
    Death,
    amqp_table,
    closes_cycle,
    dead_letter,
    death_history_of,
    with_death,
)
from mainstem.queues.facts import RemovalReason

BODY = Message(b"k", b"v", (("h", b"1"), (EXPIRES_AT, b"5")))


def death(
    queue: str = "q", reason: RemovalReason = RemovalReason.REJECTED, time_ms: int = 9_000
) -> Death:
    return Death(
        queue=queue,
        reason=reason.amqp,
        why=reason.value,
        exchange="x",
        routing_keys=("k",),
        time_ms=time_ms,
    )


def test_a_dead_letter_tells_where_and_why_it_died() -> None:
    letter = dead_letter(BODY.with_header(EXPIRES_AT, None), death(), "7/0/3")

    assert (letter.key, letter.value, letter.header("h")) == (b"k", b"v", b"1")
    assert death_history_of(letter) == (death(),)
    assert letter.header("x-first-death-queue") == b"q"
    assert letter.header("x-last-death-reason") == b"rejected"
    assert letter.header("x-dead-letter-id") == b"7/0/3"


def test_the_same_death_again_is_counted_and_comes_first() -> None:
    letter = dead_letter(BODY, death("q"), "1")
    letter = dead_letter(letter, death("r", RemovalReason.EXPIRED), "2")
    letter = dead_letter(letter, death("q", time_ms=11_000), "3")

    found = [(each.queue, each.reason, each.count) for each in death_history_of(letter)]
    assert found == [("q", "rejected", 2), ("r", "expired", 1)]
    assert letter.header("x-first-death-queue") == b"q"
    assert letter.header("x-last-death-queue") == b"q"
    assert death_history_of(letter)[0].time_ms == 11_000


@pytest.mark.parametrize("reason", list(RemovalReason))
def test_a_dead_letter_tells_its_expiration_and_has_none_any_more(reason: RemovalReason) -> None:
    message = BODY._replace(timestamp_ms=2)

    letter = dead_letter(message, death(reason=reason), "1")

    assert letter.expires_ms is None
    assert death_history_of(letter)[0].original_expiration == "3"


@pytest.mark.parametrize(
    ("past", "target", "is_closed"),
    [
        ([("q", RemovalReason.EXPIRED)], "r", False),
        ([("q", RemovalReason.EXPIRED)], "q", True),
        ([("q", RemovalReason.OVERFLOW), ("r", RemovalReason.EXPIRED)], "r", True),
        ([("q", RemovalReason.OVERFLOW), ("r", RemovalReason.EXPIRED)], "s", False),
        ([("q", RemovalReason.REJECTED), ("r", RemovalReason.EXPIRED)], "r", False),
        ([("q", RemovalReason.EXPIRED), ("r", RemovalReason.REJECTED)], "r", False),
        ([("q", RemovalReason.EXPIRED), ("r", RemovalReason.REJECTED)], "q", True),
        (
            [
                ("q", RemovalReason.EXPIRED),
                ("s", RemovalReason.REJECTED),
                ("r", RemovalReason.EXPIRED),
            ],
            "r",
            False,
        ),
        ([("q", RemovalReason.ATTEMPTS)], "q", False),
    ],
)
def test_only_a_way_back_without_a_client_closes_a_cycle(
    past: list[tuple[str, RemovalReason]], target: str, is_closed: bool
) -> None:
    deaths = [death(queue, why) for queue, why in past]

    assert closes_cycle(deaths, target) is is_closed


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (RemovalReason.REJECTED, "rejected"),
        (RemovalReason.HANDLER_ERROR, "rejected"),
        (RemovalReason.BAD_PAYLOAD, "rejected"),
        (RemovalReason.EXPIRED, "expired"),
        (RemovalReason.OVERFLOW, "maxlen"),
        (RemovalReason.ATTEMPTS, "delivery_limit"),
    ],
)
def test_reasons_have_the_words_of_amqp(reason: RemovalReason, word: str) -> None:
    assert reason.amqp == word


def test_the_table_of_amqp_has_its_fields() -> None:
    [fields] = amqp_table([death()])

    assert fields == {
        "count": 1,
        "reason": "rejected",
        "queue": "q",
        "time": 9,
        "exchange": "x",
        "routing-keys": ["k"],
    }


def test_the_past_that_is_remembered_is_bounded() -> None:
    deaths: tuple[Death, ...] = ()
    for number in range(DEATHS_REMEMBERED_MAX + 10):
        deaths = with_death(deaths, death(f"q{number}"))

    assert len(deaths) == DEATHS_REMEMBERED_MAX
    assert deaths[0].queue == f"q{DEATHS_REMEMBERED_MAX + 9}"


@pytest.mark.parametrize("header", [b"no json", b'{"queue": 1}', b"[1]", b"\xff"])
def test_a_past_that_is_none_is_corrupt(header: bytes) -> None:
    with pytest.raises(Corrupt):
        death_history_of(BODY.with_header(X_DEATH, header))
