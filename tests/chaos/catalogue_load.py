"""A client that changes topics, configs and users, and repeats what it got no answer to."""

import threading
import time
from collections.abc import Callable
from functools import partial
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import confluent_kafka.admin
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.chaos.catalogue_history import ABSENT, CatalogueCommand, CatalogueHistory
from tests.chaos.history import Outcome

if TYPE_CHECKING:
    from concurrent.futures import Future

COMMAND_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 30.0
PAUSE_S = 0.2
KEPT = 0.2  # the share of topics and of users that are there at the end
CONFIG = "retention.ms"
HOUR_MS = 3_600_000
ITERATIONS = 4_096
OPTIONS = {"request_timeout": COMMAND_TIMEOUT_S}
# Answers that say that the state of the subject excludes the command.
REFUSALS = {
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.RESOURCE_NOT_FOUND,
}
words: Any = confluent_kafka.admin  # much of it has no types

Request = Callable[[], "Future[Any]"]


class CatalogueLoad:
    """A thread with one command at a time; every topic and every user lives through a whole life.

    Args:
        bootstrap: the addresses of all nodes.
        mark: what the names of its topics and users begin with.
        seed: for what is chosen by chance.
    """

    def __init__(self, bootstrap: str, mark: str, *, seed: int) -> None:
        self.histories: list[CatalogueHistory] = []
        self.answered = 0
        self._admin: Any = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
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
        """Note what every topic, config and user looks like at the end."""
        topics = self._admin.list_topics(timeout=READ_TIMEOUT_S).topics
        for history in self.histories:
            if history.kind == "topics":
                found = topics.get(history.subject)
                history.final = len(found.partitions) if found is not None else ABSENT
            elif history.kind == "users":
                history.final = self._iterations(history.subject)
            elif history.subject in topics:
                history.final = self._config(history.subject)

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._live_as_topic(f"{self._mark}-{number}")
            self._live_as_user(f"{self._mark}-user-{number}")
            number += 1

    def _live_as_topic(self, topic: str) -> None:
        history, configs = self._begin(topic, "topics"), self._begin(topic, "configs")
        timeouts = OPTIONS | {"operation_timeout": COMMAND_TIMEOUT_S}
        admin = self._admin

        def create() -> "Future[Any]":
            made: Future[Any] = admin.create_topics([NewTopic(topic, 3, 3)], **timeouts)[topic]
            return made

        def grow() -> "Future[Any]":
            wanted = [NewPartitions(topic, 6)]
            grown: Future[Any] = admin.create_partitions(wanted, **timeouts)[topic]
            return grown

        def delete() -> "Future[Any]":
            deleted: Future[Any] = admin.delete_topics([topic], **timeouts)[topic]
            return deleted

        self._send(history, "create", 3, create)
        for hours in (1, 2):
            self._send(configs, "set", hours, partial(self._set_config, topic, hours))
        self._send(history, "grow", 6, grow)
        if self._random.random() >= KEPT:
            self._send(history, "delete", ABSENT, delete)

    def _set_config(self, topic: str, hours: int) -> "Future[Any]":
        entry = words.ConfigEntry(
            CONFIG, str(hours * HOUR_MS), incremental_operation=words.AlterConfigOpType.SET
        )
        resource = words.ConfigResource(
            words.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry]
        )
        [changed] = self._admin.incremental_alter_configs([resource], **OPTIONS).values()
        future: Future[Any] = changed
        return future

    def _live_as_user(self, user: str) -> None:
        history = self._begin(user, "users")
        for times in (1, 2):
            iterations = times * ITERATIONS
            info = words.ScramCredentialInfo(words.ScramMechanism.SCRAM_SHA_256, iterations)
            change = words.UserScramCredentialUpsertion(user, info, b"secret")
            self._send(history, "put", iterations, partial(self._change_user, user, change))
        if self._random.random() >= KEPT:
            end = words.UserScramCredentialDeletion(user, words.ScramMechanism.SCRAM_SHA_256)
            self._send(history, "delete", ABSENT, partial(self._change_user, user, end))

    def _change_user(self, user: str, change: Any) -> "Future[Any]":
        changed: Future[Any] = self._admin.alter_user_scram_credentials([change], **OPTIONS)[user]
        return changed

    def _config(self, topic: str) -> int:
        resource = words.ConfigResource(words.ConfigResource.Type.TOPIC, topic)
        [read] = self._admin.describe_configs([resource]).values()
        entry = read.result(READ_TIMEOUT_S)[CONFIG]
        # Until it is set it is the default, which stands for a config that is absent.
        return ABSENT if entry.is_default else int(entry.value) // HOUR_MS

    def _iterations(self, user: str) -> int:
        read = self._admin.describe_user_scram_credentials([user])[user]
        try:
            [info] = read.result(READ_TIMEOUT_S).scram_credential_infos
        except KafkaException as failure:
            if failure.args[0].code() == KafkaError.RESOURCE_NOT_FOUND:
                return ABSENT
            raise
        return int(info.iterations)

    def _begin(self, subject: str, kind: str) -> CatalogueHistory:
        history = CatalogueHistory(subject, kind)
        self.histories.append(history)
        return history

    def _send(self, history: CatalogueHistory, name: str, state: int, request: Request) -> None:
        """Send a command until it is answered."""
        while not self._stopping.is_set():
            command = CatalogueCommand(name, state)
            history.commands.append(command)
            command.outcome, command.answer = _outcome(request)
            self._stopping.wait(PAUSE_S)
            if command.outcome is not Outcome.UNKNOWN:
                self.answered += 1
                return


def _outcome(request: Request) -> tuple[Outcome, str]:
    give_up = time.monotonic() + 2 * COMMAND_TIMEOUT_S
    try:
        request().result(give_up - time.monotonic())
    except KafkaException as failure:
        error = failure.args[0]
        if error.code() in REFUSALS:
            return Outcome.REFUSED, str(error)
        return Outcome.UNKNOWN, str(error)
    except TimeoutError as failure:
        return Outcome.UNKNOWN, repr(failure)
    return Outcome.OK, ""
