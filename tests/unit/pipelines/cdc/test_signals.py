"""What counts as a signal, and what does not."""

import pytest

from mainstem.pipelines.cdc.signals import Signal, from_message, from_row


def test_a_signal_names_its_tables() -> None:
    message = b'{"id": "1", "type": "execute-snapshot", "data": {"data-collections": ["a.b"]}}'
    assert from_message(message) == Signal("1", "execute-snapshot", ("a.b",))
    row = ["1", "execute-snapshot", '{"data-collections": ["a.b"], "type": "incremental"}']
    assert from_row([*row]) == Signal("1", "execute-snapshot", ("a.b",))
    assert from_row(["2", "pause-snapshot", None]) == Signal("2", "pause-snapshot")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"type": "drop-everything"}'])
def test_a_message_that_is_no_signal_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a signal|type of signal"):
        from_message(content)


@pytest.mark.parametrize(
    "row", [[], ["1", None, None], ["1", "stop-snapshot", "{"], ["1", "other", "{}"]]
)
def test_a_row_that_is_no_signal_is_refused(row: list[str | None]) -> None:
    with pytest.raises(ValueError, match=r"not a signal|type of signal"):
        from_row(row)
