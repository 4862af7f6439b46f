"""A client that used up its quota is not read until its time is over, whatever else happens."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from mainstem.protocols.mqtt.connection.session import MqttPeer, MqttSession
from mainstem.protocols.mqtt.settings import MqttSettings
from mainstem.security.quotas import PRODUCE_BYTES


class FakeNode:
    """The connection, the timers and the quota of one session."""

    unsent_bytes = 0

    def __init__(self) -> None:
        self.is_read = True
        self.timers: deque[Callable[[], None]] = deque()
        service: Any = SimpleNamespace(
            hub=SimpleNamespace(settings=MqttSettings()),
            runner=self,
            authenticator=None,
            metrics=None,
        )
        meter: Any = SimpleNamespace(charge=lambda _kind, _amount: 1_000)
        self.session = MqttSession(self, MqttPeer("127.0.0.1"), service)
        self.session._meter = meter

    def pause(self) -> None:
        self.is_read = False

    def resume(self) -> None:
        self.is_read = True

    def send(self, _chunks: object) -> None: ...

    def close(self) -> None: ...

    def soon(self, _call: Callable[[], None]) -> None: ...

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        assert delay_ms == 1_000
        self.timers.append(call)


def test_a_message_that_is_stored_does_not_end_the_wait_for_a_quota() -> None:
    node = FakeNode()
    node.session.charge(PRODUCE_BYTES, 100)
    node.session.resume()  # what a stored message does
    assert not node.is_read
    node.timers.popleft()()
    assert node.is_read


def test_waits_for_a_quota_and_for_storage_end_with_the_later_one() -> None:
    node = FakeNode()
    node.session.charge(PRODUCE_BYTES, 100)
    node.session.charge(PRODUCE_BYTES, 100)
    node.session.pause()
    node.timers.popleft()()
    assert not node.is_read
    node.timers.popleft()()
    assert not node.is_read
    node.session.resume()
    assert node.is_read
