"""Work of sessions on a real event loop: results, errors, what is logged, and cancelling."""

import asyncio
from typing import Any

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.protocols.loop_driver import LoopRunner

DENIED = InvalidRequest(ErrorCode.NOT_AUTHORIZED, "no")


async def answer(result: object) -> object:
    await asyncio.sleep(0)
    if isinstance(result, Exception):
        raise result
    return result


def results_of(*works: object, cancels: bool = False) -> list[tuple[Any, BaseException | None]]:
    results: list[tuple[Any, BaseException | None]] = []

    async def run() -> None:
        runner = LoopRunner("a request", (MainstemError,))
        for work in works:
            stop = runner.run(answer(work), lambda *result: results.append(result))
            if cancels:
                stop()
        await asyncio.sleep(0.01)

    asyncio.run(run())
    return results


def test_a_result_is_reported() -> None:
    assert results_of(7, None) == [(7, None), (None, None)]


def test_an_expected_error_is_reported_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert results_of(DENIED) == [(None, DENIED)]
    assert not caplog.records


def test_any_other_error_is_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    error = KeyError("k")
    assert results_of(error) == [(None, error)]
    assert [record.getMessage() for record in caplog.records] == ["a request failed"]


def test_cancelled_work_reports_nothing() -> None:
    assert results_of(7, cancels=True) == []


def test_soon_comes_after_the_present_work_and_later_after_the_delay() -> None:
    calls: list[str] = []

    async def run() -> None:
        runner = LoopRunner("a request")
        runner.later(1, lambda: calls.append("later"))
        runner.soon(lambda: calls.append("soon"))
        calls.append("now")
        await asyncio.sleep(0.05)

    asyncio.run(run())
    assert calls == ["now", "soon", "later"]
