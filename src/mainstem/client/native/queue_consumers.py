"""All consumers of one client: numbered, and subscribed again on each connection."""

import asyncio

from mainstem.client.concurrency.background_tasks import TaskSet
from mainstem.client.native.connection import NativeConnection
from mainstem.client.native.link import NativeLink
from mainstem.client.native.queue_consumer import QueueConsumer
from mainstem.model.errors import MainstemError
from mainstem.wire.native.answers import Deliver, Ended
from mainstem.wire.native.requests import Subscribe


class QueueConsumers:
    """Numbers the consumers of one client and subscribes them again after a reconnect."""

    def __init__(self, link: NativeLink, tasks: TaskSet) -> None:
        self._link = link
        self._tasks = tasks
        self._open: dict[int, QueueConsumer] = {}
        self._last_number = 0

    def new(self, word: Subscribe) -> QueueConsumer:
        """A new consumer, with a number of its own."""
        self._last_number += 1
        word.subscription = self._last_number
        word.name = self._link.settings.client_id
        return QueueConsumer(self, word)

    async def begin(self, consumption: QueueConsumer) -> None:
        """Subscribe now and after every reconnect."""
        number = consumption.word.subscription
        connection = await self._link.connection(self._link.settings.request_timeout_ms)
        self._open[number] = consumption
        try:
            await consumption.subscribe(connection)
        except MainstemError as error:
            # If the connection ended meanwhile, the next one subscribes.
            if connection.is_open or not error.retriable:
                self._open.pop(number, None)
                raise
        except BaseException:
            self._open.pop(number, None)
            raise

    async def end(self, consumption: QueueConsumer) -> None:
        """Unsubscribe."""
        known = self._open.pop(consumption.word.subscription, None)
        if known is None or not self._link.is_connected:
            return
        connection = await self._link.connection(0)
        try:
            await consumption.unsubscribe(connection)
        except MainstemError:
            return  # the connection or the queue is gone, and the subscription with it

    def retry(self, consumption: QueueConsumer, delay_s: float) -> None:
        """Subscribe again after a while."""
        self._tasks.spawn(self._retry(consumption, delay_s))

    async def restore(self, connection: NativeConnection) -> None:
        """Subscribe to everything on a new connection.

        Raises:
            MainstemError: a retriable failure; any other error fails its consumer only.
        """
        for consumption in list(self._open.values()):
            try:
                await consumption.subscribe(connection)
            except MainstemError as error:
                if error.retriable:
                    raise
                consumption.fail(error)

    def on_notification(self, word: Deliver | Ended) -> None:
        """Dispatch messages, or the end of a subscription, to its consumer."""
        consumption = self._open.get(word.subscription)
        if consumption is None:
            return
        if isinstance(word, Deliver):
            consumption.arrived(word)
        else:
            consumption.ended(word)

    async def close(self) -> None:
        """Close all consumers."""
        for consumption in list(self._open.values()):
            await consumption.close()

    async def _retry(self, consumption: QueueConsumer, delay_s: float) -> None:
        while consumption.word.subscription in self._open:
            await asyncio.sleep(delay_s)
            try:
                connection = await self._link.connection(self._link.settings.request_timeout_ms)
                await consumption.subscribe(connection)
            except MainstemError as error:
                if not error.retriable:
                    consumption.fail(error)
                    return
            else:
                return
