"""aio-pika, kombu and a running Celery application, unmodified, on a real node."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from kombu import connection as kombu_connection
from kombu import entity as kombu_entity
from tests.integration.amqp.conftest import Server
from tests.kit.waiting import wait_until

from mainstem.testing.local_node import LocalNode

# Without types of their own.
Connection: Any = kombu_connection.Connection
Exchange: Any = kombu_entity.Exchange
Queue: Any = kombu_entity.Queue

APPLICATION = """
import os, time
from celery import Celery

app = Celery("shop", broker=os.environ["BROKER"], backend="rpc://")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    result_persistent=False,
)

@app.task
def add(a, b):
    return a + b

@app.task(bind=True, max_retries=3)
def unsteady(self, path):
    with open(path, "a") as file:
        file.write("x")
    if os.path.getsize(path) < 3:
        raise self.retry(countdown=0)
    return os.path.getsize(path)

@app.task
def slow(path):
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\\n")
    if len(open(path).readlines()) == 1:
        time.sleep(60)
    return "done"
"""


def url(node: Server) -> str:
    return f"amqp://guest:guest@{node.amqp}//"


async def test_aio_pika_publishes_consumes_and_asks(amqp_node: LocalNode) -> None:
    connection = await aio_pika.connect(f"amqp://guest:guest@{amqp_node.amqp}/")
    async with connection:
        channel = await connection.channel(on_return_raises=True)
        await channel.set_qos(prefetch_count=10)
        exchange = await channel.declare_exchange("aio", aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await channel.declare_queue("aio-queue", durable=True)
        await queue.bind(exchange, "a.#")
        sent = [
            aio_pika.Message(
                str(number).encode(),
                headers={"n": number},
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            for number in range(100)
        ]
        await asyncio.gather(*(exchange.publish(each, "a.b") for each in sent))
        found = []
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    found.append((message.body, message.headers["n"]))
                if len(found) == 100:
                    break
        assert sorted(found) == sorted((each.body, n) for n, each in enumerate(sent))
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await exchange.publish(aio_pika.Message(b"lost"), "nobody", mandatory=True)


async def test_aio_pika_comes_back_after_a_kill(own_amqp_node: LocalNode) -> None:
    node = own_amqp_node

    address = f"amqp://guest:guest@{node.amqp}/"
    async with await aio_pika.connect_robust(address, reconnect_interval=0.2) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("robust", durable=True)
        found: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            async with message.process():
                found.put_nowait(message.body)

        await queue.consume(take)
        await channel.default_exchange.publish(aio_pika.Message(b"before"), "robust")
        assert await asyncio.wait_for(found.get(), 20) == b"before"
        # Its acknowledgement goes out before the question, which is answered.
        await asyncio.sleep(0.1)
        await channel.declare_queue("robust", passive=True)
        await asyncio.to_thread(node.kill9)
        await asyncio.to_thread(node.start)
        async with asyncio.timeout(30):
            while True:
                # It reopens its channel by itself, a moment after the connection is back.
                with contextlib.suppress(aio_pika.exceptions.AMQPError, RuntimeError):
                    exchange = channel.default_exchange
                    await exchange.publish(aio_pika.Message(b"after"), "robust")
                    break
                await asyncio.sleep(0.1)
            assert await found.get() == b"after"


def test_kombu_publishes_and_consumes(amqp_node: LocalNode) -> None:
    exchange = Exchange("kombu", "direct", durable=True)
    queue = Queue("kombu-queue", exchange, routing_key="k")
    found: list[Any] = []

    def take(body: Any, message: Any) -> None:
        found.append(body)
        message.ack()

    with Connection(url(amqp_node), transport_options={"confirm_publish": True}) as link:
        producer = link.Producer(serializer="json")
        for number in range(10):
            producer.publish(
                {"n": number}, exchange=exchange, routing_key="k", declare=[queue], retry=True
            )
        with link.Consumer(queue, callbacks=[take]):
            while len(found) < 10:
                link.drain_events(timeout=10)
        simple = link.SimpleQueue("kombu-simple")
        simple.put("hello")
        message = simple.get(timeout=10)
        assert message.payload == "hello"
        message.ack()
        simple.close()
    assert found == [{"n": number} for number in range(10)]


class Workers:
    """Workers of the application, in processes of their own."""

    def __init__(self, folder: Path, broker: str) -> None:
        self._folder = folder
        self._environment = os.environ | {"BROKER": broker, "PYTHONPATH": str(folder)}
        self._running: list[subprocess.Popen[bytes]] = []
        (folder / "shop.py").write_text(APPLICATION)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        log = (self._folder / "worker.log").open("ab")
        command = [sys.executable, "-m", "celery", "-A", "shop", "worker"]
        command += options or ("--pool", "solo")
        command += ["--loglevel", "INFO", "--without-gossip", "--without-mingle"]
        worker = subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self._running.append(worker)
        return worker

    def log(self) -> str:
        return (self._folder / "worker.log").read_text()

    def stop(self) -> None:
        for worker in self._running:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


@pytest.fixture
def workers(own_amqp_node: LocalNode, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path, url(own_amqp_node))
    yield made
    made.stop()


@contextlib.contextmanager
def shop(node: Server) -> Iterator[Any]:
    """The application as its callers see it."""
    from celery import Celery  # noqa: PLC0415 - a second of import

    app = Celery("shop", broker=url(node), backend="rpc://")
    yield app
    app.backend.result_consumer.stop()
    app.close()


def test_celery_gives_results_and_retries(
    own_amqp_node: LocalNode, workers: Workers, tmp_path: Path
) -> None:
    workers.start()
    with shop(own_amqp_node) as app:
        results = [app.send_task("shop.add", (number, 1)) for number in range(10)]
        assert [result.get(timeout=60) for result in results] == [n + 1 for n in range(10)]
        tries = tmp_path / "tries"
        assert app.send_task("shop.unsteady", (str(tries),)).get(timeout=60) == 3


def test_tasks_that_are_due_later_do_not_hold_up_a_task_that_is_due_now(
    server: Server, tmp_path: Path
) -> None:
    # Celery takes each of them out of the prefetch of its running consumer while it waits.
    workers = Workers(tmp_path, url(server))
    try:
        workers.start("-c", "2", "--prefetch-multiplier", "4")
        with shop(server) as app:
            for number in range(10):
                app.send_task("shop.add", (number, 1), countdown=600)
            wait_until(lambda: workers.log().count("received") >= 10)
            assert app.send_task("shop.add", (1, 1)).get(timeout=30) == 2
    finally:
        workers.stop()


def test_a_task_of_a_killed_worker_is_done_by_another(
    own_amqp_node: LocalNode, workers: Workers, tmp_path: Path
) -> None:
    first = workers.start()
    journal = tmp_path / "journal"
    with shop(own_amqp_node) as app:
        result = app.send_task("shop.slow", (str(journal),))
        wait_until(journal.exists)
        os.killpg(first.pid, signal.SIGKILL)
        workers.start()
        assert result.get(timeout=60) == "done"
    assert len(journal.read_text().splitlines()) == 2
