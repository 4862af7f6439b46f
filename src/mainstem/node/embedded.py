"""A complete node inside a program: for tests, and for programs that embed a broker.

    with Embedded().queue("orders").topic("events", partitions=3).start() as node:
        print(node.native, node.kafka)

The node runs in a thread of its own with its own event loop, so that programs with and without
asyncio can use it. It is a node like any other: clients reach it over its ports, which are free
ones unless configured. Without a folder its data are deleted when it stops. After a fatal error,
such as a disk that fails, it stops serving and ``check`` raises the reason.
"""

import asyncio
import logging
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from msgspec import Struct
from msgspec.structs import replace

from mainstem.broker.api.queues import DEFAULT_NAMESPACE, NATIVE, QueueSettings
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.node.config.loader import load
from mainstem.node.config.settings import Config
from mainstem.node.wiring import NodeServices, build

log = logging.getLogger(__name__)

START_TIMEOUT_S: Final = 60.0
GRACE_S: Final = 5.0
_FREE_PORTS: Final[dict[str, object]] = {
    "kafka.port": 0,
    "http.port": 0,
    "amqp.port": 0,
    "mqtt.port": 0,
    "native.port": 0,
}


class _Topic(Struct, frozen=True):
    name: str
    partitions: int
    configs: dict[str, str | None]


class Embedded(Struct, frozen=True):
    """Describes a node; each method returns a changed copy, ``start`` starts the node."""

    settings: dict[str, object] = {}
    queues: tuple[tuple[str, QueueSettings], ...] = ()
    topics: tuple[_Topic, ...] = ()
    preset: str = "local"

    def data_dir(self, folder: Path | str) -> "Embedded":
        """Keeps its data in this folder, also after it stops."""
        return self.setting("node.data_dir", str(folder))

    def setting(self, path: str, value: object) -> "Embedded":
        """Any setting of a node, such as ``topics.auto_create``."""
        return replace(self, settings={**self.settings, path: value})

    def port(self, protocol: str, number: int) -> "Embedded":
        """A fixed port for ``kafka``, ``http``, ``amqp``, ``mqtt`` or ``native``."""
        return self.setting(f"{protocol}.port", number)

    def without(self, protocol: str) -> "Embedded":
        """Does not serve ``http``, ``amqp``, ``mqtt`` or ``native``."""
        return self.setting(f"{protocol}.enabled", value=False)

    def queue(self, name: str, settings: QueueSettings = NATIVE) -> "Embedded":
        """Declares a queue at the start; messages that fail too often go to ``<name>.dead``."""
        return replace(self, queues=(*self.queues, (name, settings)))

    def topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> "Embedded":
        """Creates a topic at the start."""
        return replace(self, topics=(*self.topics, _Topic(name, partitions, dict(configs or {}))))

    def start(self) -> "EmbeddedNode":
        """The running node.

        Raises:
            MainstemError: a setting is wrong, or the node cannot start.
        """
        scratch: Path | None = None
        settings = {**_FREE_PORTS, "logs.level": "warning", **self.settings}
        if "node.data_dir" not in settings:
            scratch = Path(tempfile.mkdtemp(prefix="mainstem-embedded-"))
            settings["node.data_dir"] = str(scratch)
        try:
            config = load(file=None, environment={}, flags=settings, preset=self.preset).config
            return EmbeddedNode(self, config, scratch)
        except BaseException:
            _remove(scratch)
            raise


class EmbeddedNode:
    """A node that runs in this process; returned by ``Embedded.start``. A context manager."""

    def __init__(self, options: Embedded, config: Config, scratch: Path | None) -> None:
        self.config = config
        self.addresses: dict[str, object] = {}
        self._options = options
        self._scratch = scratch
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="mainstem-node", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise Unavailable(ErrorCode.TIMED_OUT, "the node did not start in time")
        if not self.addresses:
            self._thread.join()
            self.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def kafka(self) -> str:
        """Where Kafka clients connect."""
        return str(self.addresses["kafka"])

    @property
    def native(self) -> str:
        """Where clients of the native protocol connect."""
        return str(self.addresses["native"])

    @property
    def amqp(self) -> str:
        """Where AMQP clients connect."""
        return str(self.addresses["amqp"])

    @property
    def mqtt(self) -> str:
        """Where MQTT clients connect."""
        return str(self.addresses["mqtt"])

    @property
    def http(self) -> str:
        """Where HTTP clients connect."""
        return str(self.addresses["http"])

    def check(self) -> None:
        """Raise the error that ended the node, if there was one."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop the node in order; a temporary folder is deleted."""
        loop, leave = self._loop, self._leave
        if self._thread.is_alive() and loop is not None and leave is not None:
            loop.call_soon_threadsafe(leave.set)
            self._thread.join()
        _remove(self._scratch)

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve())
        # Passed on to the thread that started the node.
        except BaseException as error:  # noqa: BLE001
            self._failure = self._failure or error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = leave = asyncio.Event()
        self._loop.set_exception_handler(self._unexpected)
        services = await build(self.config, self._fatal)
        try:
            await self._declare(services)
            self.addresses = dict(services.addresses())
            self._ready.set()
            await leave.wait()
        finally:
            if self._failure is None:
                await services.stop(GRACE_S)

    async def _declare(self, services: NodeServices) -> None:
        broker = services.broker
        for topic in self._options.topics:
            if broker.topics.by_name(topic.name) is None:
                await broker.topics.create(
                    topic.name,
                    partitions=topic.partitions,
                    replication_factor=-1,
                    configs=topic.configs,
                )
        if self._options.queues:
            await broker.queues.ready()
        for name, settings in self._options.queues:
            await broker.queues.declare_queue(
                DEFAULT_NAMESPACE, name, settings, keeps_failures=True
            )

    def _fatal(self, error: BaseException) -> None:
        """What the disk holds is unknown now: nothing more is written or acknowledged."""
        log.critical("fatal: %s", error)
        self._failure = error
        if self._leave is not None:
            self._leave.set()

    def _unexpected(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        log.error("unexpected: %s", context.get("message"), exc_info=error)
        if isinstance(error, AssertionError):
            self._fatal(error)


def _remove(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
