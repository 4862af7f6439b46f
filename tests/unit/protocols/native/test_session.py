"""Native sessions without sockets: the first words, silence, holds, the end."""

from collections.abc import Sequence
from typing import Any, cast

from tests.unit.protocols.amqp.dialogue import Hand
from tests.unit.protocols.amqp.queues_in_memory import QueuesInMemory

from mainstem.broker.api.queues import Published, PublishStatus
from mainstem.protocols.listener_policy import ListenerPolicy
from mainstem.protocols.native.link import NativeLimits, NativeService
from mainstem.protocols.native.session import NativeSession
from mainstem.security.authorisation.authoriser import AllRights
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.native import answers, requests
from mainstem.wire.native.answers import read_answer
from mainstem.wire.native.frames import HEAD, HEAD_BYTES, frame
from mainstem.wire.native.words import Error, Ok, WireMessage, WireQueueSettings, Word, encode


class _Meter:
    def __init__(self) -> None:
        self.wait_ms = 0

    def charge(self, kind: str, amount: float) -> int:
        return self.wait_ms


class _Quotas:
    limited = True

    def __init__(self) -> None:
        self.one = _Meter()

    def meter(self, *_: object) -> _Meter:
        return self.one


class _Security:
    """Nobody has to log in, everybody may do everything."""

    def __init__(self) -> None:
        self.quotas = _Quotas()

    def rights(self, *_: object, **__: object) -> AllRights:
        return AllRights()


class _Node:
    id = 3


class _Broker:
    node = _Node()

    def __init__(self, queues: QueuesInMemory) -> None:
        self.queues = queues


class Talk:
    """A session, and somebody who talks to it in words instead of bytes."""

    def __init__(self, queues: QueuesInMemory | None = None, hand: Hand | None = None) -> None:
        self.hand = hand or Hand()
        self.queues = queues or QueuesInMemory(self.hand.soon)
        self.security = _Security()
        self.sent = bytearray()
        self.state = "open"
        self.unsent = 0
        self.number = 0
        policy = ListenerPolicy(security=cast("Any", self.security))
        names = iter(range(1_000))
        service = NativeService(
            broker=cast("Any", _Broker(self.queues)),
            clock=self.hand,
            metrics=Metrics(),
            limits=NativeLimits(
                frame_bytes_max=100_000, requests_open_max=3, published_open_max=10
            ),
            new_name=lambda: f"name-{id(self)}-{next(names)}",
            cluster_name="test",
            version="1",
        )
        incoming = policy.incoming("127.0.0.1", 1, None)
        self.session = NativeSession(self, incoming, policy, service, self.hand)

    # The connection's side

    @property
    def unsent_bytes(self) -> int:
        return self.unsent

    def send(self, chunks: Sequence[Any]) -> None:
        for chunk in chunks:
            self.sent += chunk

    def pause(self) -> None:
        self.state = "paused"

    def resume(self) -> None:
        self.state = "open"

    def close(self) -> None:
        self.state = "closed"

    # The client's side

    def feed(self, data: bytes) -> tuple[int, int]:
        buf = bytearray(data)
        return self.session.receive(buf, memoryview(buf), 0, len(buf))

    def ask(self, word: Word) -> Any:
        self.number += 1
        self.feed(frame(self.number, encode(word)))
        self.hand.turn()
        [answer] = [each for number, each in self.heard() if number == self.number]
        return answer

    def heard(self) -> list[tuple[int, Any]]:
        self.hand.turn()
        found = []
        at = 0
        while at < len(self.sent):
            length, _, number = HEAD.unpack_from(self.sent, at)
            found.append((number, read_answer(bytes(self.sent[at + HEAD_BYTES : at + 4 + length]))))
            at += 4 + length
        self.sent.clear()
        return found

    def open(self) -> "Talk":
        assert isinstance(self.ask(requests.Connect()), answers.Connected)
        return self


def test_a_client_comes_in_and_learns_what_holds() -> None:
    talk = Talk()
    answer = talk.ask(requests.Connect(compression=["zstd", "brotli"], heartbeat_ms=5_000))
    assert (answer.version, answer.node, answer.cluster) == (1, 3, "test")
    assert (answer.compression, answer.heartbeat_ms) == ("brotli", 5_000)
    assert answer.frame_bytes_max == 100_000


def test_an_older_version_is_refused() -> None:
    talk = Talk()
    talk.feed(frame(1, encode(requests.Connect(version=0))))
    [(_, word)] = talk.heard()
    assert word.error.code == "UNSUPPORTED_VERSION"
    assert talk.state == "closed"


def test_the_first_word_is_connect() -> None:
    talk = Talk()
    talk.feed(frame(1, encode(requests.ListQueues())))
    [(_, word)] = talk.heard()
    assert isinstance(word, answers.Goodbye)
    assert talk.state == "closed"


def test_before_login_frames_are_small() -> None:
    talk = Talk()
    talk.feed(frame(1, encode(requests.Connect(client="x" * 5_000))))
    assert talk.state == "closed"


def test_a_frame_that_is_not_whole_waits_for_the_rest() -> None:
    talk = Talk()
    data = frame(1, encode(requests.Connect()))
    assert talk.feed(data[:5]) == (0, HEAD_BYTES)
    assert talk.feed(data[:-1]) == (0, len(data))
    assert talk.feed(data) == (len(data), HEAD_BYTES)
    assert [number for number, _ in talk.heard()] == [1]


def test_a_body_that_is_not_understood_does_not_end_the_talk() -> None:
    talk = Talk().open()
    talk.feed(frame(5, b"\x81\xa4type\xa4sing") + frame(6, encode(requests.Ping())))
    [(five, error), (six, pong)] = talk.heard()
    assert (five, error.code, six) == (5, "INVALID_REQUEST", 6)
    assert isinstance(pong, answers.Pong)
    assert talk.state == "open"


def test_a_frame_that_is_none_ends_the_talk_with_a_word() -> None:
    talk = Talk().open()
    talk.feed(b"\xff" * HEAD_BYTES)
    [(_, word)] = talk.heard()
    assert isinstance(word, answers.Goodbye)
    assert talk.state == "closed"


def test_a_silent_client_is_taken_for_gone_after_two_heartbeats() -> None:
    talk = Talk()
    talk.ask(requests.Connect(heartbeat_ms=1_000))
    talk.hand.pass_time(1_500)
    talk.feed(frame(0, encode(requests.Ping())))
    talk.hand.pass_time(2_000)
    assert talk.state == "open"
    talk.hand.pass_time(1_000)
    assert talk.state == "closed"


def test_a_quota_holds_the_connection_for_a_while() -> None:
    talk = Talk().open()
    talk.ask(requests.DeclareQueue(name="q"))
    talk.security.quotas.one.wait_ms = 700
    talk.ask(requests.Publish(key="q", messages=[WireMessage(value=b"x")]))
    assert talk.state == "paused"
    talk.hand.pass_time(600)
    assert talk.state == "paused"
    talk.hand.pass_time(100)
    assert talk.state == "open"


def test_with_too_many_open_requests_nothing_more_is_read() -> None:
    talk = Talk().open()
    word = encode(requests.DeclareQueue(name="q"))
    talk.feed(frame(1, word) + frame(2, word))
    assert talk.state == "open"
    talk.feed(frame(3, word))
    assert talk.state == "paused"
    assert len(talk.heard()) == 3
    assert talk.state == "open"


def test_with_too_many_unsettled_publishes_nothing_more_is_read() -> None:
    hand = Hand()
    late = LateQueues(hand.soon)
    other = Talk(late, hand).open()
    word = requests.Publish(key="q", messages=[WireMessage(value=b"x")] * 6)
    other.feed(frame(1, encode(word)))
    assert other.state == "open"
    other.feed(frame(2, encode(word)))
    assert other.state == "paused"
    late.settle(6)
    assert other.state == "paused"
    late.settle(3)
    assert other.state == "open"
    assert [number for number, _ in other.heard()] == [1]


class LateQueues(QueuesInMemory):
    """Queues whose one publisher has its messages settled by hand."""

    is_blocked = False

    def publisher(self, _: str, settled: Any, __: Any = None) -> Any:
        self._settled = settled
        self._tokens: list[int] = []
        return self

    def publish(self, _: str, __: Any, ___: Any, token: int = -1) -> None:
        self._tokens.append(token)

    def settle(self, count: int) -> None:
        done, self._tokens = self._tokens[:count], self._tokens[count:]
        self._settled(done, Published(PublishStatus.STORED, is_routed=True))


def test_a_batch_is_answered_once_with_the_fate_of_each() -> None:
    talk = Talk().open()
    talk.ask(requests.DeclareQueue(name="q"))
    messages = [WireMessage(value=b"1", key=b"q"), WireMessage(value=b"2", key=b"nobody")]
    answer = talk.ask(requests.Publish(messages=messages))
    assert (answer.stored, answer.unrouted, answer.refused) == (1, [1], [])


def test_a_number_of_zero_is_answered_only_with_a_refusal() -> None:
    talk = Talk().open()
    talk.ask(requests.DeclareQueue(name="q"))
    talk.feed(frame(0, encode(requests.Publish(key="q", messages=[WireMessage()]))))
    talk.feed(frame(0, encode(requests.Ack(subscription=1, numbers=[5]))))
    assert talk.heard() == []
    talk.feed(frame(0, encode(requests.Publish(exchange="no", messages=[WireMessage()]))))
    [(number, error)] = talk.heard()
    assert (number, type(error)) == (0, Error)


def test_credit_is_what_the_client_grants() -> None:
    talk = Talk().open()
    talk.ask(requests.DeclareQueue(name="q"))
    talk.ask(requests.Publish(key="q", messages=[WireMessage(value=b"x")] * 10))
    talk.feed(frame(0, encode(requests.Subscribe(subscription=1, queue="q", credit=3))))
    assert _delivered(talk) == 3
    talk.feed(frame(0, encode(requests.Credit(subscription=1, messages=4))))
    assert _delivered(talk) == 4
    talk.feed(frame(0, encode(requests.Credit(subscription=1, messages=100))))
    assert _delivered(talk) == 3


def test_a_client_that_does_not_take_its_deliveries_is_sent_no_more() -> None:
    talk = Talk().open()
    talk.ask(requests.DeclareQueue(name="q"))
    talk.unsent = 100 << 20
    talk.feed(frame(0, encode(requests.Subscribe(subscription=1, queue="q", no_ack=True))))
    for _ in range(3):
        messages = [WireMessage(value=b"x")] * 100
        talk.feed(frame(0, encode(requests.Publish(key="q", messages=messages))))
    assert _delivered(talk) == 100
    talk.unsent = 0
    talk.hand.pass_time(100)
    assert _delivered(talk) == 200


def test_the_number_of_a_subscription_is_used_once() -> None:
    talk = Talk().open()
    talk.ask(requests.DeclareQueue(name="q"))
    assert isinstance(talk.ask(requests.Subscribe(subscription=1, queue="q")), Ok)
    for number in (0, 1):
        answer = talk.ask(requests.Subscribe(subscription=number, queue="q"))
        assert answer.code == "DUPLICATE_RESOURCE"
    assert isinstance(talk.ask(requests.Unsubscribe(subscription=1)), Ok)
    assert isinstance(talk.ask(requests.Subscribe(subscription=1, queue="q")), Ok)


def test_a_lost_connection_gives_everything_back() -> None:
    hand = Hand()
    queues = QueuesInMemory(hand.soon)
    first, second = Talk(queues, hand).open(), Talk(queues, hand).open()
    first.ask(requests.DeclareQueue(name="q"))
    settings = WireQueueSettings(exclusive=True)
    first.ask(requests.DeclareQueue(name="mine", settings=settings))
    first.ask(requests.Publish(key="q", messages=[WireMessage(value=b"x")] * 3))
    got = first.ask(requests.Get(queue="q"))
    assert got.delivery.message.value == b"x"
    first.session.closed()
    assert second.ask(requests.DeclareQueue(name="q", passive=True)).messages == 3
    assert second.ask(requests.DeclareQueue(name="mine", passive=True)).code == "UNKNOWN_QUEUE"


def test_a_stopping_node_says_goodbye_and_goes_on_for_a_while() -> None:
    talk = Talk().open()
    talk.session.send_goodbye(5_000)
    [(_, word)] = talk.heard()
    assert (word.error.code, word.error.retriable, word.grace_ms) == ("SHUTTING_DOWN", True, 5_000)
    assert isinstance(talk.ask(requests.Ping()), answers.Pong)


def test_settlements_reach_the_queue() -> None:
    talk = Talk().open()
    talk.ask(requests.DeclareQueue(name="q"))
    talk.ask(requests.Publish(key="q", messages=[WireMessage(value=b"%d" % n) for n in range(4)]))
    talk.feed(frame(0, encode(requests.Subscribe(subscription=1, queue="q"))))
    assert _delivered(talk) == 4
    talk.ask(requests.Ack(subscription=1, numbers=[1]))
    talk.ask(requests.Reject(subscription=1, numbers=[2]))
    talk.ask(requests.Unsubscribe(subscription=1))
    assert talk.ask(requests.DeclareQueue(name="q", passive=True)).messages == 2


def _delivered(talk: Talk) -> int:
    found = [word for _, word in talk.heard() if isinstance(word, answers.Deliver)]
    return sum(len(word.deliveries) for word in found)
