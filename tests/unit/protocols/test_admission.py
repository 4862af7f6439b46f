"""Descriptors are divided among protocols, and what has not logged in gets a small part."""

import pytest

from mainstem.protocols.connection_admission import (
    PROTOCOLS,
    ConnectionAdmission,
    ConnectionSlot,
    PendingLogins,
)


class Session:
    """A session that is told whether its client has logged in."""

    def __init__(self) -> None:
        self.is_logged_in = False


def place(address: str = "10.0.0.1") -> ConnectionSlot:
    made = ConnectionSlot(address, lambda _: None)
    made.session = Session()
    return made


def taken(admission: ConnectionAdmission, protocol: str) -> int:
    """How many descriptors a protocol can get."""
    count = 0
    while admission.take(protocol):
        count += 1
    return count


@pytest.mark.parametrize("greedy", PROTOCOLS)
def test_a_greedy_protocol_leaves_every_other_its_share(greedy: str) -> None:
    admission = ConnectionAdmission(600)
    assert taken(admission, greedy) == 350
    for other in PROTOCOLS:
        if other != greedy:
            assert taken(admission, other) == 50
    assert admission.held == 600


def test_what_is_given_back_can_be_taken_by_another() -> None:
    admission = ConnectionAdmission(600)
    taken(admission, "kafka")
    near = [admission.is_near_limit]
    admission.give_back("kafka", 100)
    near.append(admission.is_near_limit)
    assert near == [True, False]
    assert taken(admission, "amqp") == 150


def test_two_descriptors_are_taken_together_or_not_at_all() -> None:
    admission = ConnectionAdmission(12)
    assert [admission.take("kafka", 2) for _ in range(5)] == [True, True, True, False, False]
    assert admission.held == 6


def test_an_address_that_does_not_log_in_is_refused_others_are_not() -> None:
    arrivals = PendingLogins(3)
    for _ in range(3):
        assert not arrivals.is_crowded("10.0.0.1")
        arrivals.add(place())
    assert arrivals.is_crowded("10.0.0.1")
    assert not arrivals.is_crowded("10.0.0.2")


def test_who_has_logged_in_or_left_does_not_count() -> None:
    arrivals = PendingLogins(2)
    first, second = place(), place()
    arrivals.add(first)
    arrivals.add(second)
    assert arrivals.is_crowded("10.0.0.1")
    assert isinstance(first.session, Session)
    first.session.is_logged_in = True
    assert not arrivals.is_crowded("10.0.0.1")
    arrivals.add(place())
    assert arrivals.is_crowded("10.0.0.1")
    arrivals.discard(second)
    assert not arrivals.is_crowded("10.0.0.1")
    arrivals.discard(first)


def test_a_place_is_left_once() -> None:
    left: list[ConnectionSlot] = []
    made = ConnectionSlot("10.0.0.1", left.append)
    made.leave()
    made.leave()
    assert left == [made]
