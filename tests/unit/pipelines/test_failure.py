"""One sentence out of pages of stack."""

import pytest

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.pipelines.running.failure import StartFailed, is_final, sentence

JAVA = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.Foo.bar(Foo.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
PYTHON = """[STREAM_FAILED] Query terminated with exception: An exception was raised by Python:
Traceback (most recent call last):
  File "x.py", line 1, in write
    raise ConnectionRefusedError(111, "refused")
ConnectionRefusedError: [Errno 111] refused
"""
NODE_CALLER = """py4j.Py4JException: Traceback (most recent call last):
  File "y.py", line 3, in read
mainstem.model.errors.Unavailable: WRITER_UNAVAILABLE [127.0.0.1:9]: nobody answers (start it)

\tat py4j.Gateway
"""
RAISED = """Job aborted: SparkRuntimeException: [USER_RAISED_EXCEPTION] sources.a: cast refused a
record: no number (set dead_letter_topic) SQLSTATE: P0001
\tat org.apache
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (JAVA, "No space left on device"),
        (PYTHON, "ConnectionRefusedError: [Errno 111] refused"),
        (NODE_CALLER, "WRITER_UNAVAILABLE [127.0.0.1:9]: nobody answers (start it)"),
        (RAISED, "sources.a: cast refused a record: no number (set dead_letter_topic)"),
        ("plain", "RuntimeError: plain"),
        ("x" * 5_000, "RuntimeError: " + "x" * 985 + "…"),
    ],
)
def test_the_reason_is_found_in_what_spark_throws(text: str, expected: str) -> None:
    assert sentence(RuntimeError(text)) == expected


def test_only_what_waiting_cannot_mend_is_final() -> None:
    assert is_final(StartFailed("wrong password", retriable=False))
    assert not is_final(StartFailed("refused", retriable=True))
    assert not is_final(Unavailable(ErrorCode.TIMED_OUT))
    assert not is_final(RuntimeError("boom"))
    assert not is_final(RuntimeError(NODE_CALLER))
    lost = NODE_CALLER.replace(
        "Unavailable: WRITER_UNAVAILABLE", "InvalidRequest: UNKNOWN_RESOURCE"
    )
    assert is_final(RuntimeError(lost))
    assert not is_final(RuntimeError(lost.replace("UNKNOWN_RESOURCE", "UNKNOWN_TOPIC")))
