"""Nothing that is done before a login ends a node or starves another client."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, Producer
from tests.integration.security.kit import ADMIN_PASSWORD, Client, SecureNode
from tests.kit.attacks import descriptors, python_with_few_descriptors, resident_bytes
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.timeout(180)]

DESCRIPTORS = 1_000
ATTEMPTS = 700
LASTS_S = 6.0
SLOWEST_S = 5.0
WRONG_LOGINS = 120  # two thousand take over a minute, and show the same
ELSEWHERE = "127.0.0.2"
MIB = 1 << 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """A node that may have a thousand descriptors and asks who is there."""
    folder = tmp_path_factory.mktemp("before-login")
    made = SecureNode(folder, "--set", "amqp.enabled=true", "--set", "mqtt.enabled=true")
    made.python = python_with_few_descriptors(folder, DESCRIPTORS)
    with made:
        yield made
        assert "Traceback" not in made.log_text(), made.log_tail()
        assert made.stop() == 0


class Newcomer:
    """Somebody at another address who logs in again and again; how long that takes."""

    def __init__(self, node: SecureNode) -> None:
        self._node = node
        self._stop = threading.Event()
        self.took_s: list[float] = []
        self.failed: list[str] = []
        self.descriptors: list[int] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        host, _, port = self._node.address("SASL_PLAINTEXT").rpartition(":")
        while not self._stop.wait(0.3):
            began_s = time.monotonic()
            self.descriptors.append(descriptors(self._node))
            try:
                made = socket.create_connection((host, int(port)), 30, (ELSEWHERE, 0))
                with Client.over(made) as client:
                    client.log_in("admin", ADMIN_PASSWORD)
            except (OSError, AssertionError) as error:
                self.failed.append(repr(error))
            self.took_s.append(time.monotonic() - began_s)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


class Victim:
    """A client that logs in and then writes and reads, one record after the other."""

    def __init__(self, node: SecureNode) -> None:
        login = {
            "bootstrap.servers": node.address("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "admin",
            "sasl.password": ADMIN_PASSWORD,
        }
        self._producer = Producer({**login, "linger.ms": 0})
        self._consumer = Consumer({**login, "group.id": "victim", "auto.offset.reset": "earliest"})
        self._consumer.subscribe(["witness"])
        self._stop = threading.Event()
        self.took_s: list[float] = []
        self.failed: list[str] = []
        self._turn()
        self.took_s.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _turn(self) -> None:
        began_s = time.monotonic()
        word = f"{began_s}".encode()
        errors: list[object] = []
        self._producer.produce("witness", word, on_delivery=lambda error, _: errors.append(error))
        if self._producer.flush(30) or errors != [None]:
            self.failed.append(f"not stored: {errors}")
        while time.monotonic() < began_s + 30:
            found = self._consumer.poll(1)
            if found is not None and found.value() == word:
                self.took_s.append(time.monotonic() - began_s)
                return
        self.failed.append("not read")

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            self._turn()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


def held(address: str, first: bytes, drip: bytes) -> int:
    """Open many connections, begin to say something, go on byte by byte; how many were let in."""
    host, _, port = address.rpartition(":")
    opened: list[socket.socket] = []
    until_s = time.monotonic() + LASTS_S
    try:
        for _ in range(ATTEMPTS):
            with contextlib.suppress(OSError):
                made = socket.create_connection((host, int(port)), 5)
                opened.append(made)
                made.sendall(first)
        while time.monotonic() < until_s:
            time.sleep(1)
            for each in tuple(opened) if drip else ():
                try:
                    each.sendall(drip)
                except OSError:
                    opened.remove(each)
                    each.close()
        return len(opened)
    finally:
        for each in opened:
            each.close()


def half_open_tls(node: SecureNode) -> object:
    # The head of a handshake record that announces 512 bytes, and a piece of a ClientHello.
    return held(node.address("SSL"), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"")


def slow_http_headers(node: SecureNode) -> object:
    return held(node.http, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ", b"a")


def large_mqtt_connect(node: SecureNode) -> object:
    return held(node.mqtt, b"\x10\xff\xff\xff\x7f\x00\x04MQTT", b"a")


def silent_amqp(node: SecureNode) -> object:
    return held(node.amqp, b"AMQP\x00\x00\x09\x01", b"")


def large_kafka_frame(node: SecureNode) -> object:
    begun = struct.pack(">ihh", 100 * MIB, 17, 1)
    return held(node.address("SASL_PLAINTEXT"), begun, b"a")


def wrong_passwords(node: SecureNode) -> object:
    def one(number: int) -> str:
        try:
            with Client(node.address("SASL_PLAINTEXT"), timeout_s=10) as client:
                said = client.try_login("PLAIN", f"\0admin{number % 50}\0wrong".encode())
                return str(said.error_code)
        except OSError as error:
            return type(error).__name__

    with ThreadPoolExecutor(40) as pool:
        outcomes = list(pool.map(one, range(WRONG_LOGINS)))
    assert "0" not in outcomes
    return {outcome: outcomes.count(outcome) for outcome in set(outcomes)}


@pytest.mark.parametrize(
    "attack",
    [
        half_open_tls,
        slow_http_headers,
        large_mqtt_connect,
        silent_amqp,
        large_kafka_frame,
        wrong_passwords,
    ],
    ids=lambda attack: attack.__name__,
)
def test_nobody_is_starved_by_those_who_have_not_logged_in(
    node: SecureNode, attack: Callable[[SecureNode], object]
) -> None:
    before_mib = resident_bytes(node) // MIB
    with contextlib.closing(Victim(node)) as victim, contextlib.closing(Newcomer(node)) as newcomer:
        began_s = time.monotonic()
        outcome = attack(node)
        took_s = time.monotonic() - began_s
    times, most = sorted(victim.took_s), max(newcomer.descriptors)
    print(  # noqa: T201 - read with -s
        f"\n{attack.__name__}: {outcome} in {took_s:.1f} s; victim {len(times)} turns, "
        f"median {times[len(times) // 2] * 1000:.0f} ms, slowest {times[-1] * 1000:.0f} ms; "
        f"{len(newcomer.took_s)} logins, slowest {max(newcomer.took_s) * 1000:.0f} ms; "
        f"{most} descriptors, {before_mib} -> {resident_bytes(node) // MIB} MiB"
    )
    assert not victim.failed
    assert not newcomer.failed
    assert times[-1] < SLOWEST_S
    assert max(newcomer.took_s) < 2 * SLOWEST_S
    assert most < DESCRIPTORS
    assert resident_bytes(node) // MIB - before_mib < 100
    # The address that it came from gets in again as soon as it is over.
    wait_until(lambda: is_let_in(node))


def is_let_in(node: SecureNode) -> bool:
    try:
        node.login("admin", ADMIN_PASSWORD).socket.close()
    except (OSError, AssertionError):
        return False
    return True
