"""Starts a node from its configuration, and stops it in order.

    start: folder ─ catalogue ─ streams ─ groups ─ listeners ─ READY
    stop:  listeners refuse ─ requests in flight finish ─ groups ─ streams ─ files ─ catalogue

A fatal error, such as a failed fsync, ends the process at once without another acknowledgement:
what the disk holds is then unknown until a restart reads it.
"""

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from mainstem.model.errors import MainstemError
from mainstem.node.config.command_line import configuration, is_rebuild_requested, shards_of
from mainstem.node.config.settings import Config
from mainstem.node.file_descriptors import raise_limit
from mainstem.node.wiring import Fatal, NodeServices, build
from mainstem.telemetry import logs

log = logging.getLogger(__name__)

Announce = Callable[[Mapping[str, object]], None]
BeforeStop = Callable[[], Awaitable[None]]

# New objects are mostly messages in flight, hardly ever garbage: collecting less often saves
# 5 to 15 % of the cost of a message and wastes no memory.
COLLECTED_AFTER = (10_000, 10, 10)

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_FATAL = 3


def main(arguments: Sequence[str] | None = None, *, preset: str | None = None) -> int:
    """Run a node in the foreground until it is asked to stop; the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        config = configuration(given, os.environ, preset=preset).config
        shards, rest = shards_of(given)
    except MainstemError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
    logs.configure(level=config.logs.level, style=config.logs.format, out=sys.stderr)
    if shards != 1:
        from mainstem.node.shards import run_shards  # noqa: PLC0415 - a lone node does without

        return run_shards(config, shards, rest)
    return run(config, rebuild=is_rebuild_requested(given))


def announce_ready(addresses: Mapping[str, object]) -> None:
    """One line that scripts wait for, with every address."""
    sys.stdout.write(f"READY {json.dumps(addresses)}\n")
    sys.stdout.flush()


async def _nothing() -> None:
    """Do nothing: the default of ``before_stop``."""


def run(
    config: Config,
    *,
    announce: Announce = announce_ready,
    before_stop: BeforeStop = _nothing,
    rebuild: bool = False,
) -> int:
    """Run a node in its own event loop.

    ``announce`` gets the addresses once it serves; ``before_stop`` is awaited when it was asked
    to stop, while it still serves.
    """
    os.umask(0o077)  # what a node writes is for its owner only
    try:
        raise_limit(config)
    except MainstemError as error:
        log.critical("the node does not start: %s", error)
        return EXIT_REFUSED
    try:
        import uvloop  # noqa: PLC0415 - the plain loop serves as well, only slower
    except ImportError:
        runner = asyncio.Runner()
    else:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    with runner:
        return runner.run(_serve(config, announce, before_stop, rebuild=rebuild))


async def _serve(
    config: Config, announce: Announce, before_stop: BeforeStop, *, rebuild: bool
) -> int:
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[str] = loop.create_future()
    failed: list[BaseException] = []

    def ask_to_stop(reason: str) -> None:
        if not stopping.done():
            stopping.set_result(reason)

    def on_fatal(error: BaseException) -> None:
        failed.append(error)
        log.critical("fatal: %s", error)
        ask_to_stop("a fatal error")

    def on_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        log.error("unexpected: %s", context.get("message"), exc_info=error)
        if isinstance(error, AssertionError):
            on_fatal(error)  # an invariant was broken: later results cannot be trusted

    loop.set_exception_handler(on_exception)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask_to_stop, signal.Signals(number).name)
    services = await _built(config, on_fatal, stopping, rebuild=rebuild)
    if services is None:
        if failed:
            os._exit(EXIT_FATAL)  # as ``NodeServices.abandon``: nothing more is written
        return EXIT_REFUSED
    # What was built lives as long as the node: exclude it from garbage collection.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    announce({**services.addresses(), "pid": os.getpid()})
    reason = await stopping
    log.info("stopping: %s", reason)
    if failed:
        # Later results cannot be trusted; the sockets close with the process.
        await services.abandon()
        return EXIT_FATAL
    await before_stop()
    with contextlib.suppress(TimeoutError):
        await services.stop(config.shutdown.grace_ms / 1000)
    return EXIT_FATAL if failed else EXIT_OK


async def _built(
    config: Config, on_fatal: Fatal, stopping: asyncio.Future[str], *, rebuild: bool
) -> NodeServices | None:
    """The node's services; None when it cannot start, or was asked to stop before it was ready."""
    building = asyncio.get_running_loop().create_task(build(config, on_fatal, rebuild=rebuild))
    # A node may wait for others for a long time; meanwhile it can be asked to stop.
    stopping.add_done_callback(lambda _: building.cancel())
    try:
        return await building
    except asyncio.CancelledError:
        log.info("stopping before it was ready: %s", stopping.result())
    except (MainstemError, OSError) as error:  # a folder that is not ours, a port in use
        log.critical("the node does not start: %s", error)
    return None
