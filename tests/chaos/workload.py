"""Everything that runs against a cluster while it has faults: clients of every protocol.

Kafka producers (idempotent and plain, librdkafka and Java), readers and a group, an AMQP queue,
MQTT topics with QoS 1 and 2, and a client that changes topics, configs and users. Each keeps a
history; ``check`` judges them.
"""

import contextlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.chaos.amqp_load import AmqpLoad
from tests.chaos.catalogue_history import CatalogueHistory
from tests.chaos.catalogue_load import CatalogueLoad
from tests.chaos.checked import Checked, check_catalogue, check_log, check_messages
from tests.chaos.history import History, Outcome
from tests.chaos.java_load import JavaLoader
from tests.chaos.load import EndReader, GroupReader, Loader, Reader, create_topics, read_all
from tests.chaos.mqtt_load import MqttLoad
from tests.chaos.oversize import LIMITS
from tests.chaos.queue_history import Promise, QueueHistory

from mainstem.testing.local_cluster import LocalCluster

RATE_PER_S = 300
SEGMENT_BYTES = 200_000
# Queues and MQTT are not served unless a node is asked to.
SERVE_ALL = ("--set", "amqp.enabled=true", "--set", "mqtt.enabled=true", *LIMITS)


@dataclass(slots=True)
class Histories:
    """What all clients saw."""

    kafka: History = field(default_factory=History)
    queues: list[tuple[QueueHistory, Promise]] = field(default_factory=list)
    catalogue: list[CatalogueHistory] = field(default_factory=list)
    once: set[str] = field(default_factory=set)

    def check(self) -> list[Checked]:
        """Judge every history."""
        return [
            check_log(self.kafka, self.once),
            *(check_messages(queue, promise) for queue, promise in self.queues),
            *check_catalogue(self.catalogue),
        ]

    def figures(self) -> dict[str, int]:
        """How much was done, by kind."""
        counts = log_figures(self.kafka) | {"end offsets read": len(self.kafka.ends)}
        for queue, _ in self.queues:
            confirmed = sum(one.outcome is Outcome.OK for one in queue.published)
            counts[f"{queue.kind} messages confirmed"] = confirmed
            counts[f"{queue.kind} messages delivered"] = queue.delivered
            counts[f"{queue.kind} messages delivered again"] = queue.delivered_again
            counts[f"{queue.kind} messages that their publisher sent again"] = queue.sent_again
        commands = [command for subject in self.catalogue for command in subject.commands]
        counts["catalogue commands"] = len(commands)
        unknown = sum(command.outcome is Outcome.UNKNOWN for command in commands)
        counts["catalogue commands without an answer"] = unknown
        return counts


def log_figures(history: History) -> dict[str, int]:
    """How much Kafka clients did."""
    return {
        "records sent": len(history.sent),
        "records acknowledged": sum(one.outcome is Outcome.OK for one in history.sent),
        "records stored": sum(len(records) for records in history.final.values()),
        "records read": len(history.reads),
        "group resumptions": len(history.resumed),
    }


class Workload:
    """Clients of every protocol.

    Args:
        cluster: whom they talk to.
        seed: for what is chosen by chance.
        with_java: let the Java producer take part.
    """

    def __init__(self, cluster: LocalCluster, *, seed: int, with_java: bool) -> None:
        self.histories = Histories()
        self._cluster = cluster
        self._stack = contextlib.ExitStack()
        mark = uuid.uuid4().hex[:6]
        rolling = {"internal.segment.bytes": str(SEGMENT_BYTES)}
        self._topics = {f"once-{mark}": rolling, f"plain-{mark}": {}}
        once, plain = self._topics
        if with_java:
            self._topics[f"java-{mark}"] = rolling
        bootstrap, history = cluster.bootstrap, self.histories.kafka
        create_topics(bootstrap, self._topics, replicas=3)
        self._loaders: list[Loader | JavaLoader] = [
            Loader(bootstrap, once, history, idempotent=True, rate_per_s=RATE_PER_S),
            Loader(bootstrap, plain, history, idempotent=False, rate_per_s=RATE_PER_S),
        ]
        if with_java:
            java = JavaLoader(bootstrap, f"java-{mark}", history, rate_per_s=RATE_PER_S)
            self._loaders.append(java)
        self.histories.once = {one.name for one in self._loaders if one is not self._loaders[1]}
        amqp, mqtt = (self._addresses(name) for name in ("amqp", "mqtt"))
        self._queues: list[AmqpLoad | MqttLoad] = [
            AmqpLoad(amqp, f"queue-{mark}"),
            MqttLoad(mqtt, f"mqtt-{mark}/1", qos=1),
            MqttLoad(mqtt, f"mqtt-{mark}/2", qos=2),
        ]
        self._catalogue = CatalogueLoad(bootstrap, f"command-{mark}", seed=seed)
        self.group = GroupReader(bootstrap, once, history)
        self.histories.queues = [(load.history, load.promise) for load in self._queues]

    def __enter__(self) -> Self:
        enter = self._stack.enter_context
        bootstrap, history = self._cluster.bootstrap, self.histories.kafka
        self._stack.callback(self.group.close)
        for loader in self._loaders:
            enter(loader)
        enter(Reader(bootstrap, list(self._topics), history))
        enter(EndReader(bootstrap, list(self._topics), history))
        for load in self._queues:
            self._stack.callback(load.stop)
            load.start()
        enter(self._catalogue)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def progress(self) -> dict[str, int]:
        """Counts that all must grow while the cluster is sound."""
        counts = {
            f"{loader.name}/{number}": count
            for loader in self._loaders
            for number, count in enumerate(loader.reached)
        }
        for load in self._queues:
            confirmed, delivered = load.progress
            counts[f"{load.history.queue} confirmed"] = confirmed
            counts[f"{load.history.queue} delivered"] = delivered
        counts["catalogue commands answered"] = self._catalogue.answered
        counts["read by the group"] = self.group.received
        return counts

    def finish(self) -> None:
        """End all clients in good order and read everything once more."""
        self._catalogue.stop()
        for loader in self._loaders:
            loader.finish()
        for load in self._queues:
            load.finish()
        self._catalogue.read_final()
        self.histories.catalogue = self._catalogue.histories
        self.histories.kafka.final = read_all(self._cluster.bootstrap, list(self._topics))

    def _addresses(self, protocol: str) -> Callable[[], Sequence[str]]:
        return lambda: [getattr(node, protocol) for node in list(self._cluster.nodes.values())]
