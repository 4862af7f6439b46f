"""One request to seal a range, pursued until its outcome is known.

    submit ──▶ sealed ──▶ the next range is open
       ▲  └──▶ deposed ──▶ another writer was elected
       └──── no answer: the same request again

Pure. Guarantees: the request that is submitted is always the same one, under the same id, so that
the catalogue can answer a repetition as it answered first; no time-out, refusal or guess counts as
an outcome, because a request that seemed lost may still be applied. Both kinds of seal use
this: the live writer's (``RangeWriter.freeze``) and the new writer's (``FailOver``).
"""

from msgspec import Struct

from mainstem.model.ids import Epoch, NodeId
from mainstem.model.metadata import Stream
from mainstem.placement.changes.commands import RangeEnd

RETRY_MS = 200
RETRY_MS_MAX = 5_000


class SealRequest(Struct, frozen=True):
    """Seal the open range at ``end`` and open the next one without the ``exclude``d nodes.

    ``done`` are the replicas that have all of it on disk. ``new_writer`` hands the stream over
    under the next epoch in the same step. ``unclean``: records may be missing because the operator
    allowed an election without enough replicas.
    """

    request_id: str
    end: RangeEnd
    done: tuple[NodeId, ...]
    exclude: tuple[NodeId, ...] = ()
    new_writer: NodeId | None = None
    unclean: bool = False


class SealEffects(Struct, frozen=True):
    """Submit the request; or continue in the last range of ``opened``; or stand down."""

    submit: SealRequest | None = None
    opened: Stream | None = None
    deposed_by: Epoch | None = None


class Sealing:
    """Repeats one request to seal a range until its outcome is known."""

    __slots__ = ("_retry_ms", "_submit_at", "attempts", "is_settled", "request")

    def __init__(self, request: SealRequest) -> None:
        self.request = request
        self.is_settled = False
        self.attempts = 0
        self._retry_ms = RETRY_MS
        self._submit_at = 0

    def begin(self, now: int) -> SealEffects:
        """Submit for the first time."""
        return self._submit(now)

    def on_no_answer(self, now: int) -> None:
        """Timed out, refused for now or cut off: it may have been applied or not."""
        if not self.is_settled:
            self._submit_at = min(self._submit_at, now + self._retry_ms)

    def on_time(self, now: int) -> SealEffects:
        """Submit the same request again if it is due."""
        if self.is_settled or now < self._submit_at:
            return SealEffects()
        return self._submit(now)

    def on_answer(self, stream: Stream) -> SealEffects:
        """The catalogue applied the request, now or earlier."""
        if self.is_settled:
            return SealEffects()
        self.is_settled = True
        handed_over = self.request.new_writer is not None
        if stream.epoch > self.request.end.epoch and not handed_over:
            return SealEffects(deposed_by=stream.epoch)
        return SealEffects(opened=stream)

    def on_deposed(self, epoch: Epoch) -> SealEffects:
        """The catalogue refused: it has a newer writer, and will always refuse."""
        if self.is_settled:
            return SealEffects()
        self.is_settled = True
        return SealEffects(deposed_by=epoch)

    def on_stream_seen(self, stream: Stream) -> SealEffects:
        """The catalogue was read: an epoch has one writer, so its seals are ours."""
        end = self.request.end
        if stream.epoch > end.epoch:
            return self.on_deposed(stream.epoch)
        if stream.last.index > end.index:
            return self.on_answer(stream)
        return SealEffects()

    def _submit(self, now: int) -> SealEffects:
        self._submit_at = now + self._retry_ms
        if self.attempts:
            self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)
        self.attempts += 1
        return SealEffects(submit=self.request)
