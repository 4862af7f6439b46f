"""One Kafka connection: passes requests to their handlers and sends responses in order.

Pure: asynchronous work is passed to the runner. Produce and fetch have separate paths; every other
request is decoded, served by its handler, and its response encoded. While a handler runs, later
requests wait, as Kafka clients expect of one connection.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from struct import Struct as Layout
from typing import Any

from msgspec import Struct, field

from mainstem.broker.api.broker import Broker
from mainstem.model.errors import MainstemError
from mainstem.model.limits import (
    CLIENT_ID_LENGTH_MAX,
    CONNECTION_BUFFER_BYTES,
    CONNECTION_PENDING_REPLIES_MAX,
    CONNECTION_WRITE_BYTES_HIGH,
)
from mainstem.protocols.frame_memory import FrameMemory
from mainstem.protocols.kafka.call import ApiHandler, Call, Peer
from mainstem.protocols.kafka.handlers.records import legacy_produce
from mainstem.protocols.kafka.handlers.records.fetch import API_KEY as FETCH
from mainstem.protocols.kafka.handlers.records.fetch import Fetch
from mainstem.protocols.kafka.handlers.records.produce import ProducePath
from mainstem.protocols.kafka.handlers.records.produce_shape import API_KEY as PRODUCE
from mainstem.protocols.kafka.handlers.versions import API_KEY as API_VERSIONS
from mainstem.protocols.kafka.login_service import FRAME_BYTES_MAX as LOGIN_FRAME_BYTES_MAX
from mainstem.protocols.kafka.login_service import LOGIN_APIS
from mainstem.protocols.kafka.response_queue import Replies, Reply
from mainstem.protocols.runner import Runner, Stop
from mainstem.protocols.session import Chunk, Overloaded, ProtocolViolation, Sender
from mainstem.security.quotas import PRODUCE_BYTES, REQUESTS, THROTTLE_MS_MAX
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.kafka import codec

_length_at = Layout(">i").unpack_from
_key_at = Layout(">hh").unpack_from

LOGIN_FRAMES_MAX = 8  # received while a login is processed


class KafkaService(Struct, frozen=True):
    """What all Kafka sessions of a node share."""

    broker: Broker
    served: Mapping[int, ApiHandler]
    metrics: Metrics
    frame_bytes_max: int
    memory: FrameMemory = field(default_factory=FrameMemory)


class KafkaSession:
    """Serves the requests of one connection."""

    def __init__(
        self,
        sender: Sender,
        peer: Peer,
        service: KafkaService,
        runner: Runner,
        start_fetch: Callable[[Fetch], None],
    ) -> None:
        self._sender = sender
        self._peer = peer
        self._broker = service.broker
        self._served = service.served
        self._metrics = service.metrics
        self._frame_bytes_max = service.frame_bytes_max
        self._runner = runner
        self._start_fetch = start_fetch
        self._replies = Replies(sender.send, runner.soon)
        self._login = peer.login
        self._produce = ProducePath(service.broker, self._replies, sender, service.metrics, peer)
        self._produced_bytes = 0  # to be charged to quotas
        self._produced_requests = 0
        self._fetches: dict[Fetch, Reply] = {}
        self._memory = service.memory
        self._later: deque[bytearray] = deque()
        self._later_bytes = 0
        self._next_bytes = 4  # of the frame being received
        self._stop_work: Stop | None = None
        self._paused = False
        self._muted = 0
        self._has_asked = False

    @property
    def is_logged_in(self) -> bool:
        """Whether the client has logged in or, if no login is required, has sent a request."""
        return self._has_asked if self._login is None else self._login.is_logged_in

    def receive(self, buf: bytearray, view: memoryview, start: int, until: int) -> tuple[int, int]:
        """Serve whole frames of ``buf[start:until]``; (position, bytes the next frame needs)."""
        need = 4
        try:
            while until - start >= 4:
                (length,) = _length_at(buf, start)
                end = start + 4 + length
                if end > until or length < 8:
                    self._check_length(length)
                    need = 4 + length
                    break
                self._frame(buf, view, start + 4, end)
                start = end
        except codec.Malformed as error:
            raise ProtocolViolation(str(error)) from error
        finally:
            self._finish_produce()
        self._next_bytes = need
        self._watch_backlog()
        return start, need

    def closed(self) -> None:
        """Drop all pending work: the connection is closed."""
        for fetch in self._fetches:
            fetch.cancel()
        self._fetches.clear()
        self._replies.clear()
        self._later.clear()
        self._memory.give_back(self._later_bytes)
        self._later_bytes = 0
        if self._stop_work is not None:
            self._stop_work()
            self._stop_work = None
        if self._peer.shares_as is not None:
            self._broker.shares.disconnected(self._peer.shares_as)
            self._peer.shares_as = None

    def _check_length(self, length: int) -> None:
        most = self._frame_bytes_max
        if self._login is not None and not self._login.is_logged_in:
            most = min(most, LOGIN_FRAME_BYTES_MAX)
        if not 8 <= length <= most:
            raise ProtocolViolation(f"a frame of {length} bytes; 8 to {most} are allowed")

    def _frame(self, buf: Any, view: memoryview, start: int, until: int) -> None:
        if self._stop_work is not None:
            self._keep_for_later(view[start:until])
            return
        api_key, version = _key_at(buf, start)
        if self._login is not None:
            self._login.admit(api_key, until - start)
        if api_key == PRODUCE and version > legacy_produce.NEWEST:
            served = self._served[PRODUCE]
            if version > served.max_version:
                raise ProtocolViolation(f"Produce version {version} is not served")
            self._metrics.requests[PRODUCE] += 1
            self._produced_bytes += until - start
            self._produced_requests += 1
            work = self._produce.take(buf, view, start, until)
            if work is not None:
                self._finish_produce()
                self._stop_work = self._runner.run(work, self._produced)
            return
        self._finish_produce()
        self._serve(view, start, until)

    def _keep_for_later(self, frame: memoryview) -> None:
        """Queue a frame while a handler is running."""
        much = len(self._later) >= LOGIN_FRAMES_MAX or len(frame) > LOGIN_FRAME_BYTES_MAX
        if much and self._login is not None and not self._login.is_logged_in:
            raise ProtocolViolation("too many or too large requests during a login")
        size = len(frame)
        if not self._memory.take(size):
            raise Overloaded("the memory for waiting frames is used up")
        self._later_bytes += size
        self._later.append(bytearray(frame))

    def _finish_produce(self) -> None:
        """Write and answer the produce requests of a burst, and charge the quotas."""
        if self._produce.has_staged:
            self._has_asked = True
            size, self._produced_bytes = self._produced_bytes, 0
            count, self._produced_requests = self._produced_requests, 0
            throttle_ms = max(
                self._peer.charge(PRODUCE_BYTES, size), self._peer.charge(REQUESTS, count)
            )
            self._produce.finish(throttle_ms)
            if throttle_ms:
                self._mute()

    def _serve(self, view: memoryview, start: int, until: int) -> None:
        api_key, version, correlation, client_id, body = codec.decode_request_header(
            view, start, until
        )
        if client_id is not None and len(client_id) > CLIENT_ID_LENGTH_MAX:
            raise ProtocolViolation(f"a client id of {len(client_id)} characters")
        served = self._served.get(api_key)
        if served is None:
            raise ProtocolViolation(f"API {api_key} is not served")
        self._metrics.requests[api_key] += 1
        self._has_asked = True
        self._peer.set_client_id(client_id or "")
        if api_key == PRODUCE and version <= legacy_produce.NEWEST:
            self._replies.answer(legacy_produce.refuse(version, correlation, view[body:until]))
            return
        if not served.min_version <= version <= served.max_version:
            if api_key != API_VERSIONS:
                raise ProtocolViolation(f"{codec.NAMES[api_key]} version {version} is not served")
            # Any client must be able to read this response: version 0, with the supported versions.
            version, request = 0, None
        else:
            request = codec.decode_request(api_key, version, view, body, until)
        call = Call(api_key, version, client_id or "", self._peer, self._broker)
        if api_key not in LOGIN_APIS:
            self._peer.charge(REQUESTS, 1)
        if api_key == FETCH:
            self._fetch(call, correlation, request)
            return
        answer = served.handler(call, request)
        if isawaitable(answer):
            self._await(call, correlation, answer)
        else:
            self._set_throttle(answer)
            chunks = codec.encode_response_frame(api_key, version, correlation, answer)
            self._replies.answer(chunks, sum(map(len, chunks)))

    def _await(self, call: Call, correlation: int, work: Awaitable[Any]) -> None:
        reply = self._replies.reserve()

        def done(answer: Any, error: BaseException | None) -> None:
            self._stop_work = None
            if error is not None:
                # Handlers put errors into their responses; this one has no place in the response.
                self._metrics.request_errors[call.api_key] += 1
                self._sender.close()
                if not isinstance(error, MainstemError):
                    raise error
                return
            self._set_throttle(answer)
            chunks = codec.encode_response_frame(call.api_key, call.version, correlation, answer)
            self._replies.settle(reply, chunks, sum(map(len, chunks)))
            if self._login is not None and self._login.has_failed:
                # Close after the response, which is sent in the next callback.
                self._runner.soon(self._sender.close)
                return
            self._catch_up()

        self._stop_work = self._runner.run(work, done)

    def _produced(self, _answer: None, error: BaseException | None) -> None:
        """Continue after a produce request that had to ask the coordinator."""
        self._stop_work = None
        if error is not None:
            self._metrics.request_errors[PRODUCE] += 1
            self._sender.close()
            return
        self._catch_up()

    def _catch_up(self) -> None:
        """Serve frames that were received while a handler ran."""
        try:
            while self._later and self._stop_work is None:
                frame = self._later.popleft()
                self._later_bytes -= len(frame)
                self._memory.give_back(len(frame))
                self._frame(frame, memoryview(frame), 0, len(frame))
            self._finish_produce()
        except (codec.Malformed, ProtocolViolation):
            self._sender.close()
        self._watch_backlog()

    def _fetch(self, call: Call, correlation: int, request: Any) -> None:
        fetch = Fetch(
            self._broker.streams,
            call,
            correlation,
            request,
            self._fetched,
            self._metrics,
        )
        self._fetches[fetch] = self._replies.reserve()
        self._start_fetch(fetch)

    def _fetched(self, fetch: Fetch, chunks: Sequence[Chunk]) -> None:
        reply = self._fetches.pop(fetch)
        self._replies.settle(reply, chunks)
        if self._peer.owed_ms:
            self._mute()

    def _set_throttle(self, answer: Any) -> None:
        """Set the throttle time of a response and mute the connection for that time."""
        owed_ms = self._peer.owed_ms
        if owed_ms:
            if hasattr(answer, "throttle_time_ms"):
                answer.throttle_time_ms = owed_ms
            self._mute()

    def _mute(self) -> None:
        """Stop reading for the throttle time, whether the client respects it or not."""
        owed_ms, self._peer.owed_ms = self._peer.owed_ms, 0
        if owed_ms:
            self._muted += 1
            self._runner.later(owed_ms, partial(self._unmute, owed_ms))
            self._watch_backlog()

    def _unmute(self, waited_ms: int) -> None:
        self._muted -= 1
        if not self._muted and waited_ms >= THROTTLE_MS_MAX:
            # The quota may need more than the longest throttle time, or less if it was raised.
            self._peer.charge(self._peer.owed_for, 0)
            self._mute()
        self._watch_backlog()

    def _watch_backlog(self) -> None:
        """Pause reading while too much is unanswered."""
        replies = self._replies
        full = (
            len(replies) + len(self._later) > CONNECTION_PENDING_REPLIES_MAX
            or self._muted > 0
            or replies.held_bytes > CONNECTION_WRITE_BYTES_HIGH
            # While a handler runs, most further input stays in the socket.
            or (
                self._stop_work is not None
                and self._later_bytes + self._next_bytes > CONNECTION_BUFFER_BYTES
            )
        )
        if full != self._paused:
            self._paused = full
            # Responses are sent later than they are known, and only then is there space again.
            self._replies.on_fewer = self._watch_backlog if full else None
            if full:
                self._sender.pause()
            else:
                self._sender.resume()
