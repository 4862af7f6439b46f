"""When a pipeline runs, rests and gives up."""

from mainstem.pipelines.file.model import RetrySettings
from mainstem.pipelines.running.restart_policy import PipelineState, RestartPolicy


def running(course: RestartPolicy) -> RestartPolicy:
    course.starting()
    course.started()
    return course


def test_pauses_double_from_one_second_to_a_minute() -> None:
    course = RestartPolicy(RetrySettings())
    pauses = [course.pause_ms(failures) for failures in range(1, 10)]
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


def test_a_pipeline_waits_its_pause_before_it_starts_again() -> None:
    course = running(RestartPolicy(RetrySettings()))
    course.failed(100.0, "boom")
    assert course.state is PipelineState.WAITING
    assert not course.is_due(100.9)
    assert course.is_due(101.0)
    assert course.error == "boom"


def test_a_batch_that_arrives_ends_the_row_of_failures() -> None:
    course = RestartPolicy(RetrySettings(max_retries=2))
    for _ in range(20):
        running(course).progressed()
        assert course.error == ""
        course.failed(0.0, "again")
        assert course.state is PipelineState.WAITING
    assert course.restarts == 19


def test_too_many_failures_in_a_row_are_the_end() -> None:
    course = RestartPolicy(RetrySettings(max_retries=2))
    for _ in range(2):
        running(course).failed(0.0, "boom")
        assert course.state is PipelineState.WAITING
    running(course).failed(0.0, "boom")
    assert course.state is PipelineState.FAILED
    assert course.has_ended


def test_what_no_waiting_can_mend_is_the_end_at_once() -> None:
    course = RestartPolicy(RetrySettings())
    course.starting()
    course.failed(0.0, "wrong password", retriable=False)
    assert course.state is PipelineState.FAILED


def test_a_disabled_pipeline_never_starts() -> None:
    course = RestartPolicy(RetrySettings(), enabled=False)
    assert not course.is_due(1e9)
    course.stopped()
    assert course.state is PipelineState.DISABLED
