"""Every error of the house has a status, and its body says what to do."""

from mainstem.model.errors import RETRIABLE, ErrorCode, InvalidRequest
from mainstem.protocols.rest.errors import STATUSES, Problem, problem_of, retry_headers


def test_every_error_of_the_house_has_a_status() -> None:
    assert set(STATUSES) == set(ErrorCode)


def test_what_a_retry_may_change_is_never_called_the_callers_fault() -> None:
    absent = {ErrorCode.UNKNOWN_TOPIC, ErrorCode.UNKNOWN_TOPIC_ID}
    assert {STATUSES[code] for code in RETRIABLE - absent} <= {429, 503, 504, 507}


def test_a_problem_carries_cause_subject_and_remedy() -> None:
    error = InvalidRequest(ErrorCode.UNKNOWN_TOPIC, "cause", subject="t", remedy="create it")
    assert problem_of(error) == (404, Problem("UNKNOWN_TOPIC", "cause", "t", "create it"))


def test_only_answers_worth_a_retry_say_when() -> None:
    assert retry_headers(503) == {"retry-after": "1"}
    assert retry_headers(400) == {}
