"""The webhook source on a disk that takes no more: refused at once, nothing accepted is lost."""

import asyncio
import contextlib
import errno
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.limits import WEBHOOK_WAITING_BYTES_MAX
from mainstem.pipelines.webhook import spool as _webhook_spool
from mainstem.pipelines.webhook.listener import (
    ListenerSettings,
    RequestGroupCommit,
    WebhookListener,
)
from mainstem.pipelines.webhook.spool import Request, RequestSpool

pytestmark = pytest.mark.timeout(120)

MIB = 1024 * 1024
ANSWER_S = 20


@contextlib.contextmanager
def full_disk(file_bytes: int) -> Iterator[None]:
    """Writing beyond so many bytes of a file fails, after what still fits was written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def request(number: int) -> Request:
    return Request(b"%d " % number + b"x" * 1000, [], number)


def bodies(spool: RequestSpool) -> list[bytes]:
    return [each.body for each in spool.read(spool.start, spool.until)]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RequestSpool]:
    made = RequestSpool(tmp_path / "spool", bytes_max=MIB)
    yield made
    made.close()


def test_a_webhook_is_refused_at_once_while_the_disk_is_full_and_accepted_when_it_is_not(
    spool: RequestSpool, tmp_path: Path
) -> None:
    settings = ListenerSettings(host="127.0.0.1", port=0, path="/hook")
    listener = WebhookListener(settings, spool)
    listener.start()
    url = f"http://127.0.0.1:{listener.port}/hook"

    def post(number: int) -> httpx.Response:
        body = b"%d " % number + b"x" * 1000
        return httpx.post(url, content=body, timeout=ANSWER_S)

    try:
        assert post(0).status_code == 202
        begun = time.monotonic()
        with full_disk(1_500):
            refused = [post(number) for number in (1, 2, 3)]
        assert [answer.status_code for answer in refused] == [503] * 3
        assert all(int(answer.headers["Retry-After"]) > 0 for answer in refused)
        assert time.monotonic() - begun < ANSWER_S
        assert [post(number).status_code for number in (4, 5)] == [202, 202]
    finally:
        listener.close()
    found = [body.split()[0] for body in bodies(spool)]
    assert found == [b"0", b"4", b"5"]
    spool.close()
    again = RequestSpool(tmp_path / "spool", bytes_max=MIB)
    assert [body.split()[0] for body in bodies(again)] == found
    again.close()


def test_a_segment_that_cannot_be_begun_is_begun_later(
    spool: RequestSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_webhook_spool, "SEGMENT_BYTES", 1)
    real = _webhook_spool._begun

    def full(folder: Path, first: int) -> _webhook_spool.SpoolSegment:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / str(first)))

    spool.add([request(0)])
    monkeypatch.setattr(_webhook_spool, "_begun", full)
    for _ in range(2):
        with pytest.raises(Unavailable) as refused:
            spool.add([request(1)])
        assert refused.value.code is ErrorCode.DISK_FULL
    spool.drop(1)
    monkeypatch.setattr(_webhook_spool, "_begun", real)
    spool.add([request(2)])

    assert [body.split()[0] for body in bodies(spool)][-1] == b"2"
    assert spool.until == 2


def test_a_tail_that_could_not_be_cut_off_is_cut_off_before_the_next_request(
    spool: RequestSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.add([request(0)])

    def stuck(path: object, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.MonkeyPatch.context() as patch, full_disk(1_500):
        patch.setattr(os, "truncate", stuck)
        with pytest.raises(Unavailable):
            spool.add([request(1)])
        with pytest.raises(Unavailable):
            spool.add([request(2)])
    spool.add([request(3)])

    assert [body.split()[0] for body in bodies(spool)] == [b"0", b"3"]


async def test_requests_that_wait_for_the_disk_take_a_bounded_amount_of_memory(
    spool: RequestSpool,
) -> None:
    intake = RequestGroupCommit(spool)
    large = Request(b"x" * (WEBHOOK_WAITING_BYTES_MAX // 4), [], 0)
    outcomes = await asyncio.gather(*(intake.keep(large) for _ in range(8)), return_exceptions=True)
    codes = [each.code for each in outcomes if isinstance(each, Unavailable)]
    assert len(codes) == 8, "more than the spool may hold, or than may wait"
    assert all(code is ErrorCode.OVERLOADED for code in codes)
    assert intake.waiting_bytes == 0


async def test_nobody_waits_for_ever_when_the_spool_fails_in_another_way(
    spool: RequestSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake = RequestGroupCommit(spool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "add", lambda _: 1 / 0)
        with pytest.raises(Unavailable):
            async with asyncio.timeout(ANSWER_S):
                await intake.keep(request(0))
    await intake.keep(request(1))
    assert [body.split()[0] for body in bodies(spool)] == [b"1"]
