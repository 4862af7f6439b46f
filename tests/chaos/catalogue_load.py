"""A client that creates, grows and deletes topics, and repeats what it got no answer to."""

import threading
import time
from random import Random
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.chaos.catalogue_history import TopicCommand, TopicHistory
from tests.chaos.history import Outcome

COMMAND_TIMEOUT_S = 15.0
PAUSE_S = 0.2
KEPT = 0.1  # the share of topics that are there at the end
# Answers that say that the state of the topic excludes the command.
REFUSALS = {
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.INVALID_PARTITIONS,
}


class CatalogueLoad:
    """A thread with one command at a time; every topic lives through a whole life.

    Args:
        bootstrap: the addresses of all nodes.
        mark: what the names of its topics begin with.
        seed: for what is chosen by chance.
    """

    def __init__(self, bootstrap: str, mark: str, *, seed: int) -> None:
        self.histories: list[TopicHistory] = []
        self.answered = 0
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._mark = mark
        self._random = Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="catalogue", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more commands."""
        self._stopping.set()
        self._thread.join(4 * COMMAND_TIMEOUT_S)

    def read_final(self) -> None:
        """Note what every topic looks like at the end."""
        topics = self._admin.list_topics(timeout=30).topics
        for history in self.histories:
            found = topics.get(history.topic)
            history.final = len(found.partitions) if found is not None else 0

    def _run(self) -> None:
        while not self._stopping.is_set():
            history = TopicHistory(f"{self._mark}-{len(self.histories)}")
            self.histories.append(history)
            self._send(history, "create", 3)
            self._send(history, "grow", 6)
            if self._random.random() >= KEPT:
                self._send(history, "delete", 0)

    def _send(self, history: TopicHistory, name: str, partitions: int) -> None:
        """Send a command until it is answered."""
        while not self._stopping.is_set():
            command = TopicCommand(name, partitions)
            history.commands.append(command)
            command.outcome, command.answer = self._outcome(history.topic, name, partitions)
            self._stopping.wait(PAUSE_S)
            if command.outcome is not Outcome.UNKNOWN:
                self.answered += 1
                return

    def _outcome(self, topic: str, name: str, partitions: int) -> tuple[Outcome, str]:
        options = {"operation_timeout": COMMAND_TIMEOUT_S, "request_timeout": COMMAND_TIMEOUT_S}
        if name == "create":
            futures = self._admin.create_topics([NewTopic(topic, partitions, 3)], **options)
        elif name == "grow":
            futures = self._admin.create_partitions([NewPartitions(topic, partitions)], **options)
        else:
            futures = self._admin.delete_topics([topic], **options)
        give_up = time.monotonic() + 2 * COMMAND_TIMEOUT_S
        try:
            futures[topic].result(give_up - time.monotonic())
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() in REFUSALS:
                return Outcome.REFUSED, str(error)
            return Outcome.UNKNOWN, str(error)
        except TimeoutError as failure:
            return Outcome.UNKNOWN, repr(failure)
        return Outcome.OK, ""
