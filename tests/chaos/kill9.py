"""Rounds of kill -9 under acks=all load, judged by the history checker."""

import contextlib
import time
import uuid
from random import Random
from typing import Protocol

from tests.chaos.history import Anomaly, History, Outcome
from tests.chaos.load import GroupReader, Loader, Reader, create_topics, read_all

ROUND_S = (0.6, 2.0)
PROGRESS_TIMEOUT_S = 60.0
SEGMENT_BYTES = 20_000


class Server(Protocol):
    """What is killed: a node or Apache Kafka."""

    kafka: str

    def start(self) -> None: ...
    def kill9(self) -> None: ...


def kill_rounds(
    server: Server, rounds: int, *, seed: int = 0, segment_bytes: int = SEGMENT_BYTES
) -> tuple[History, set[str]]:
    """Kill and restart the server under load; the history and its idempotent producers."""
    random = Random(seed)
    mark = uuid.uuid4().hex[:6]
    # Small segments: kills meet files and ranges that are just being closed and opened.
    rolling = {"internal.segment.bytes": str(segment_bytes)}
    topics = {
        f"once-{mark}": rolling,
        f"plain-{mark}": {},
        f"compacted-{mark}": rolling | {"cleanup.policy": "compact"},
    }
    once, plain, compacted = topics
    create_topics(server.kafka, topics)
    history = History()
    with contextlib.ExitStack() as stack:
        loaders = [
            stack.enter_context(Loader(server.kafka, topic, history, idempotent=idempotent))
            for topic, idempotent in ((once, True), (plain, False), (compacted, True))
        ]
        stack.enter_context(Reader(server.kafka, list(topics), history))
        group = GroupReader(server.kafka, once, history)
        for _ in range(rounds):
            _await_progress(loaders, group)
            group.turn(random.uniform(*ROUND_S))
            server.kill9()
            server.start()
            _await_progress(loaders, group)
            group.replace_member()
        _await_progress(loaders, group)
        group.turn(1.0)
        for loader in loaders:
            loader.finish()
        group.close()
    history.final = read_all(server.kafka, list(topics))
    return history, {loaders[0].name, loaders[2].name}


def _await_progress(loaders: list[Loader], group: GroupReader) -> None:
    """Until every producer got acknowledgements again and the group reads again."""
    before = [loader.acknowledged for loader in loaders]
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    resumed = group.received
    while group.received == resumed or not all(
        loader.acknowledged > count for loader, count in zip(loaders, before, strict=True)
    ):
        assert time.monotonic() < deadline, "no progress after the restart"
        group.turn(0.1)


def summary(history: History, anomalies: list[Anomaly]) -> str:
    """One line of figures, then the first anomalies."""
    acknowledged = sum(sent.outcome is Outcome.OK for sent in history.sent)
    stored = sum(len(records) for records in history.final.values())
    line = (
        f"{len(history.sent)} sent, {acknowledged} acknowledged, {stored} stored, "
        f"{len(history.reads)} reads, {len(history.resumed)} resumptions, "
        f"{len(anomalies)} anomalies"
    )
    return "\n".join([line, *(str(anomaly) for anomaly in anomalies[:20])])
