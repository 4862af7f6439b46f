"""Messages of QoS 2 whose numbers cannot be kept for a while, as when the disk is full."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.protocols.mqtt.connection.inbound_messages import InboundMessages
from mainstem.wire.mqtt.kinds import Kind
from mainstem.wire.mqtt.packets import Ack, Publish

NUMBER = 7


class Hub:
    """Keeps who waits for a message or for the state of a session to be committed."""

    def __init__(self, *, is_alone: bool) -> None:
        self.is_alone = is_alone
        self.settings = SimpleNamespace(receive_max=20)
        self.published: list[Callable[[MainstemError | None], None]] = []
        self.saves: list[Callable[[], None]] = []

    def publish(self, _packet: Publish, _client_id: str, settled: Any) -> None:
        self.published.append(settled)

    def save(self, _session: Any, then: Callable[[], None]) -> None:
        self.saves.append(then)


class Client:
    """A session and its connections, one after the other."""

    def __init__(self, *, is_alone: bool) -> None:
        self.hub: Any = Hub(is_alone=is_alone)
        self.session: Any = SimpleNamespace(
            client_id="c", received=set(), pending_publishes={}, unstored=set(), is_durable=True
        )
        self.sent: list[Ack] = []
        self.connection: Any = SimpleNamespace(pause=list, resume=list, shut=self._shut)
        self.is_shut = False
        self.inbound = self._connect()

    def come_again(self) -> None:
        self.inbound.close()
        self.is_shut = False
        self.inbound = self._connect()

    def publish(self) -> None:
        self.inbound.publish(Publish(topic="t", payload=b"m", qos=2, packet_id=NUMBER))

    def _connect(self) -> InboundMessages:
        out: Any = SimpleNamespace(version=4, put=self.sent.append)
        may: Any = SimpleNamespace(may_write=lambda _: True)
        return InboundMessages(self.hub, self.session, may, out, self.connection)

    def _shut(self) -> None:
        self.is_shut = True


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_message_is_acknowledged_when_it_and_its_number_are_committed(is_alone: bool) -> None:
    client = Client(is_alone=is_alone)
    client.publish()
    [stored] = client.hub.published
    stored(None)
    assert not client.sent
    [kept] = client.hub.saves
    kept()
    assert client.sent == [Ack(Kind.PUBREC, NUMBER)]
    assert not client.session.pending_publishes


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_number_that_could_not_be_kept_is_kept_when_the_message_comes_again(
    is_alone: bool,
) -> None:
    client = Client(is_alone=is_alone)
    client.publish()
    client.hub.published[0](None)
    client.hub.saves.clear()  # refused: the registry ends the connection and forgets who waits
    client.come_again()
    client.publish()
    assert len(client.hub.published) == 1, "the message is stored already"
    assert not client.sent
    [kept] = client.hub.saves
    kept()
    assert client.sent == [Ack(Kind.PUBREC, NUMBER)]
    assert not client.session.pending_publishes


def test_a_message_that_comes_again_waits_for_the_first_one_to_be_stored() -> None:
    client = Client(is_alone=True)
    client.publish()
    client.hub.saves.pop()()
    client.come_again()
    client.publish()
    for kept in client.hub.saves:
        kept()
    assert not client.sent
    client.hub.published[0](None)
    assert client.sent == [Ack(Kind.PUBREC, NUMBER)]


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_message_that_was_not_stored_is_stored_when_it_comes_again(is_alone: bool) -> None:
    client = Client(is_alone=is_alone)
    client.publish()
    client.hub.published.pop()(Unavailable(ErrorCode.DISK_FULL))
    assert client.is_shut
    client.come_again()
    client.publish()
    assert len(client.hub.published) == 1
    assert not client.sent
