"""The transactional clients of the house, which speak transaction version 2 (KIP-890).

librdkafka adds partitions before it writes and keeps its epoch; these add by writing and get a new
epoch with every transaction. Roles, journal and promises are those of ``transaction_client``.
"""

import argparse
import asyncio
from random import Random

from tests.chaos.history import Outcome
from tests.chaos.load import PARTITIONS
from tests.chaos.transaction_journal import FENCED, Journal
from tests.chaos.transaction_process import (
    ABORT_SHARE,
    TRANSACTION_TIMEOUT_MS,
    Ending,
    Gone,
)

from mainstem.client.consumer import Consumer, ConsumerSettings
from mainstem.client.producer import Delivery, ProducerSettings
from mainstem.client.transactions import TransactionalProducer
from mainstem.client.values import CommittedOffset, ConsumerRecord, TopicPartition
from mainstem.model.errors import Fenced, MainstemError, Unavailable

SETTINGS = ProducerSettings(linger_ms=0, retry_pause_ms=50)


class Modern:
    """A transactional producer that keeps a journal."""

    def __init__(
        self, options: argparse.Namespace, journal: Journal, producer: TransactionalProducer
    ) -> None:
        self.journal = journal
        self._name = f"{options.id}.{options.incarnation}"
        self._producer = producer
        self._number = -1
        self._count = 0
        self._waiting: list[tuple[int, Delivery]] = []
        journal.note("ready")

    def begin(self) -> int:
        """Begin the next transaction; its number."""
        self._number += 1
        self._count = 0
        self._waiting = []
        self.journal.note("begin", self._number)
        self._producer.begin()
        return self._number

    async def send(
        self, topic: str, partition: int, source: tuple[str, int, int] | None = None
    ) -> None:
        """Write a record that was never written before."""
        index = self._count
        value = f"{self._name}.{self._number}:{index}"
        self.journal.note("send", self._number, (topic, partition), value, source)
        self._count += 1
        delivery = await self._producer.send(topic, value.encode(), partition=partition)
        self._waiting.append((index, delivery))

    async def flush(self) -> None:
        """Let the records so far go out on their own, and note where they went."""
        await self._producer.flush()
        waiting, self._waiting = self._waiting, []
        for index, delivery in waiting:
            place = await delivery
            self.journal.note("sent", self._number, index, place.offset)

    async def send_positions(self, group: str, ends: dict[TopicPartition, int]) -> None:
        """Let the group go on behind what this transaction has read."""
        positions = [(*place, offset) for place, offset in ends.items()]
        self.journal.note("positions", self._number, group, positions)
        offsets = {place: CommittedOffset(offset) for place, offset in ends.items()}
        await self._producer.send_offsets(group, offsets)
        self.journal.note("positioned", self._number)

    async def commit(self) -> None:
        """Ask for the transaction to count, until there is an answer."""
        self.journal.note("wish", self._number, "commit")
        while True:
            try:
                await self._producer.commit()
            except Unavailable:
                continue  # the outcome is not known yet
            except Fenced as error:
                self._ended(FENCED, error)
                raise
            except MainstemError as error:
                self._ended(Outcome.REFUSED, error)
                raise
            self._ended(Outcome.OK)
            return

    async def abort(self, *, wished: bool) -> None:
        """Let the transaction count for nothing; noted as a wish where it is one."""
        if wished:
            self.journal.note("wish", self._number, "abort")
        while True:
            try:
                await self._producer.abort()
            except Unavailable:
                continue
            break
        if wished:
            self._ended(Outcome.OK)

    async def recover(self, error: MainstemError) -> None:
        """Abort what went wrong; whoever was replaced is gone."""
        try:
            await self.abort(wished=False)
        except Fenced as fenced:
            raise Gone(fenced) from error

    def _ended(self, answer: str, error: Exception | None = None) -> None:
        self.journal.note("ended", self._number, answer, str(error or ""))


async def _open(options: argparse.Namespace) -> TransactionalProducer:
    producer = TransactionalProducer(
        options.bootstrap, options.id, SETTINGS, timeout_ms=TRANSACTION_TIMEOUT_MS
    )
    while True:
        try:
            return await producer.__aenter__()
        except Unavailable:
            continue


async def _produce(options: argparse.Namespace, journal: Journal, ending: Ending) -> None:
    random = Random(f"{options.id}.{options.incarnation}")
    producer = Modern(options, journal, await _open(options))
    while not ending.wanted:
        await asyncio.sleep(random.uniform(0, 2 * options.pause_s))
        producer.begin()
        try:
            for _ in range(random.randint(1, 6)):
                await producer.send(options.topic, random.randrange(PARTITIONS))
                if random.random() < 0.3:
                    await producer.flush()
            if random.random() < ABORT_SHARE:
                await producer.abort(wished=True)
            else:
                await producer.commit()
        except MainstemError as error:
            await producer.recover(error)


class ModernChain:
    """Reads one topic and writes another, each input once."""

    def __init__(
        self, options: argparse.Namespace, journal: Journal, producer: Modern, consumer: Consumer
    ) -> None:
        self._options = options
        self._journal = journal
        self._random = Random(f"{options.id}.{options.incarnation}")
        self._producer = producer
        self._consumer = consumer
        self._session = 0
        self._places = [TopicPartition(options.topic, number) for number in range(PARTITIONS)]

    async def rewind(self) -> None:
        """Go on where the group stands."""
        self._session += 1
        started = asyncio.get_running_loop().time()
        while True:
            try:
                known = await self._consumer.committed(self._places)
            except Unavailable:
                continue
            break
        offsets = {place: known[place].offset if place in known else -1 for place in self._places}
        positions = [(*place, offset) for place, offset in offsets.items()]
        self._journal.note("observed", self._options.group, started, positions)
        self._consumer.assign(self._places)
        for place, offset in offsets.items():
            self._consumer.seek(place, max(offset, 0))

    async def turn(self) -> None:
        """Process what there is, in one transaction."""
        try:
            records = await self._consumer.poll(200, self._random.randint(1, 30))
        except Unavailable:
            return
        if not records:
            return
        inputs = [(r.topic, r.partition, r.offset, (r.value or b"").decode()) for r in records]
        self._journal.note("reads", self._session, inputs)
        try:
            await self._process(records, inputs)
        except MainstemError as error:
            await self._producer.recover(error)
            await self.rewind()

    async def _process(
        self, records: list[ConsumerRecord], inputs: list[tuple[str, int, int, str]]
    ) -> None:
        number = self._producer.begin()
        self._journal.note("inputs", number, inputs)
        ends: dict[TopicPartition, int] = {}
        for record in records:
            source = (record.topic, record.partition, record.offset)
            await self._producer.send(self._options.output, record.partition, source)
            ends[TopicPartition(record.topic, record.partition)] = record.offset + 1
        if self._random.random() < 0.5:
            await self._producer.flush()
        await self._producer.send_positions(self._options.group, ends)
        if self._random.random() < ABORT_SHARE:
            await self._producer.abort(wished=True)
            await self.rewind()
        else:
            await self._producer.commit()
        await asyncio.sleep(self._random.uniform(0, 2 * self._options.pause_s))


async def _process(options: argparse.Namespace, journal: Journal, ending: Ending) -> None:
    settings = ConsumerSettings(
        reset="earliest", isolation="read_committed", auto_commit=False, fetch_wait_ms=100
    )
    producer = Modern(options, journal, await _open(options))
    async with Consumer(options.bootstrap, options.group, settings) as consumer:
        chain = ModernChain(options, journal, producer, consumer)
        await chain.rewind()
        while not ending.wanted:
            await chain.turn()


def produce_modern(options: argparse.Namespace, journal: Journal, ending: Ending) -> None:
    """Write transactions of a few records over all partitions."""
    asyncio.run(_produce(options, journal, ending))


def process_modern(options: argparse.Namespace, journal: Journal, ending: Ending) -> None:
    """Run a chain."""
    asyncio.run(_process(options, journal, ending))
