import time
from enum import StrEnum

from hypothesis import given
from hypothesis import strategies as st
from tests.chaos.history import Anomaly, EndRead, History, Kind, Outcome, Read, Resumed, Sent, check

STREAM = ("orders", 0)


def sound_history(count: int = 60, *, poll_records: int = 10) -> History:
    """Three producers, one after another, and a reader that saw everything."""
    history = History()
    for number in range(count):
        history.sent.append(
            Sent(
                producer=f"p{number % 3}",
                stream=STREAM,
                value=f"v{number}",
                started=float(number),
                outcome=Outcome.OK,
                offset=number,
                ended=number + 0.5,
            )
        )
    history.final[STREAM] = [(number, f"v{number}") for number in range(count)]
    history.reads = [
        Read("reader", number // (poll_records * 3), STREAM, number, f"v{number}")
        for number in range(count)
    ]
    history.resumed.append(Resumed("g", STREAM, 7, frozenset({7})))
    return history


def kinds(anomalies: list[Anomaly]) -> set[StrEnum]:
    return {anomaly.kind for anomaly in anomalies}


def found(history: History) -> set[StrEnum]:
    return kinds(check(history, once={"p0", "p1", "p2"}))


def test_a_sound_history_has_no_anomaly() -> None:
    assert found(sound_history()) == set()


@given(st.data())
def test_any_acknowledged_record_that_is_missing_is_reported(data: st.DataObject) -> None:
    history = sound_history()
    gone = data.draw(st.integers(0, 59))
    history.reads.clear()
    history.final[STREAM].pop(gone)
    assert found(history) == {Kind.LOST}


def test_a_record_that_was_read_and_is_gone_later_is_reported() -> None:
    history = sound_history()
    history.sent[59].outcome = Outcome.UNKNOWN
    history.final[STREAM].pop()
    assert found(history) == {Kind.VANISHED}


def test_a_record_stored_twice_is_reported_for_idempotent_producers_only() -> None:
    history = sound_history()
    history.final[STREAM].append((60, "v3"))
    assert kinds(check(history, once={"p0"})) == {Kind.DUPLICATE}
    assert kinds(check(history, once={"p1"})) == set()


def test_an_offset_that_held_two_values_is_reported() -> None:
    history = sound_history()
    history.sent.append(Sent("p0", STREAM, "other", 100.0))
    history.reads.append(Read("second", 0, STREAM, 30, "other"))
    assert Kind.DIVERGENT in found(history)


def test_an_offset_reused_after_a_crash_is_reported() -> None:
    history = sound_history()
    history.sent.append(Sent("p1", STREAM, "later", 100.0, Outcome.OK, 59, 101.0))
    assert {Kind.DIVERGENT, Kind.LOST} <= found(history)


def test_a_record_elsewhere_than_acknowledged_is_reported() -> None:
    history = sound_history()
    history.reads.clear()
    history.final[STREAM][59] = (77, "v59")
    assert Kind.MOVED in found(history)


def test_a_record_that_nobody_sent_is_reported() -> None:
    history = sound_history()
    history.final[STREAM].append((60, "from nowhere"))
    assert found(history) == {Kind.PHANTOM}


def test_a_refused_record_that_is_read_is_reported() -> None:
    history = sound_history()
    history.sent[20].outcome = Outcome.REFUSED
    assert found(history) == {Kind.REFUSED_READ}


def test_a_reader_that_goes_back_is_reported() -> None:
    history = sound_history()
    history.reads.append(Read("reader", 1, STREAM, 31, "v31"))
    assert found(history) == {Kind.BACKWARD}


def test_a_reader_that_skips_is_reported() -> None:
    history = sound_history()
    del history.reads[15]
    assert found(history) == {Kind.SKIPPED}


def test_a_reader_may_cross_a_gap_in_the_offsets() -> None:
    history = sound_history()
    del history.reads[15], history.final[STREAM][15], history.sent[15]
    assert found(history) == set()


def test_a_new_session_may_begin_anywhere() -> None:
    history = sound_history()
    history.reads.append(Read("reader", 9, STREAM, 5, "v5"))
    assert found(history) == set()


def test_a_last_reading_out_of_order_is_reported() -> None:
    history = sound_history()
    records = history.final[STREAM]
    records[10], records[11] = records[11], records[10]
    history.reads.clear()
    assert found(history) == {Kind.BACKWARD}


def test_a_producer_whose_order_changed_is_reported() -> None:
    history = sound_history()
    history.reads.clear()
    history.sent[3].offset, history.sent[6].offset = 6, 3
    history.final[STREAM][3], history.final[STREAM][6] = (3, "v6"), (6, "v3")
    assert Kind.REORDERED in found(history)
    assert Kind.REORDERED not in kinds(check(history))


def test_an_acknowledgement_that_contradicts_time_is_reported() -> None:
    history = sound_history()
    history.reads.clear()
    history.sent[3].offset, history.sent[4].offset = 4, 3
    history.final[STREAM][3], history.final[STREAM][4] = (3, "v4"), (4, "v3")
    assert found(history) == {Kind.INVERTED}


def test_sends_that_overlap_in_time_may_land_in_either_order() -> None:
    history = sound_history()
    history.reads.clear()
    history.sent[3].ended = 4.2
    history.sent[3].offset, history.sent[4].offset = 4, 3
    history.final[STREAM][3], history.final[STREAM][4] = (3, "v4"), (4, "v3")
    assert found(history) == set()


def test_a_group_that_resumes_elsewhere_is_reported() -> None:
    history = sound_history()
    history.resumed.append(Resumed("g", STREAM, 8, frozenset({7, 9})))
    assert found(history) == {Kind.RESUMED_ELSEWHERE}


def test_an_end_below_an_acknowledged_record_is_stale() -> None:
    history = sound_history()
    history.ends.append(EndRead(STREAM, 30.6, 30))
    assert found(history) == {Kind.STALE}


def test_an_end_that_was_asked_for_before_the_acknowledgement_may_be_lower() -> None:
    history = sound_history()
    history.ends += [EndRead(STREAM, 30.4, 30), EndRead(STREAM, 30.6, 31)]
    assert found(history) == set()


def test_a_hundred_thousand_records_are_judged_in_seconds() -> None:
    history = sound_history(100_000)
    started = time.process_time()
    assert found(history) == set()
    assert time.process_time() - started < 10
