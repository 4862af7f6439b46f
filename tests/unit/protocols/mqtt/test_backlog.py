"""What waits for a reader, and how far it has come."""

from mainstem.protocols.mqtt.sessions.backlog import Backlog, StreamPosition


def test_places_of_one_stream_are_taken_in_order() -> None:
    backlog = Backlog(10)
    for offset in (3, 5, 9):
        backlog.put(StreamPosition(0, offset))

    assert [backlog.take() for _ in range(4)] == [
        StreamPosition(0, 3),
        StreamPosition(0, 5),
        StreamPosition(0, 9),
        None,
    ]


def test_a_place_that_is_given_back_is_the_next_again() -> None:
    backlog = Backlog(10)
    for offset in (3, 5, 9):
        backlog.put(StreamPosition(0, offset))
    first, second = backlog.take(), backlog.take()
    assert first is not None
    assert second is not None

    backlog.give_back(second)
    backlog.give_back(first)

    assert [backlog.take() for _ in range(3)] == [
        StreamPosition(0, 3),
        StreamPosition(0, 5),
        StreamPosition(0, 9),
    ]


def test_what_does_not_fit_is_read_again_later() -> None:
    backlog = Backlog(2)
    for offset in range(5):
        backlog.put(StreamPosition(0, offset))

    assert len(backlog) == 2
    assert backlog.behind == {0: 2}


def test_a_position_is_the_first_offset_that_was_not_handed_out() -> None:
    backlog = Backlog(2)
    assert backlog.positions({0: 7, 1: 4}) == {0: 7, 1: 4}

    for offset in range(5):
        backlog.put(StreamPosition(0, offset))
    assert backlog.positions({0: 7, 1: 4}) == {0: 0, 1: 4}

    backlog.take()
    backlog.take()
    assert backlog.positions({0: 7, 1: 4}) == {0: 2, 1: 4}


def test_what_was_offered_before_a_restart_is_known() -> None:
    backlog = Backlog(2)
    backlog.floors = {0: 5}

    assert backlog.knows(StreamPosition(0, 4))
    assert not backlog.knows(StreamPosition(0, 5))
    assert not backlog.knows(StreamPosition(1, 0))


def test_a_stream_that_is_gone_takes_its_places_with_it() -> None:
    backlog = Backlog(5)
    backlog.put(StreamPosition(0, 1))
    backlog.put(StreamPosition(1, 1))

    backlog.forget(0)

    assert len(backlog) == 1
    assert backlog.take() == StreamPosition(1, 1)
