"""How many replicas must hold an append, and what that means for fail-over.

    R replicas, A of them acknowledge       2 of 3: commit at the 2nd largest end
    a new writer needs R - A + 1 answers            fence 2, so at least one of them has it all

Pure. Guarantees, for any record that ``committed`` covers: whichever ``fence_answers_min`` replicas
answer, ``recovered_end`` of their ends covers it as well; and it survives the loss of ``A - 1``
replicas.
"""

from collections.abc import Iterable

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.ids import Offset


class AckPolicy(Struct, frozen=True):
    """A of R: ``acks`` of ``replicas``."""

    replicas: int
    acks: int

    def __post_init__(self) -> None:
        if not 1 <= self.acks <= self.replicas:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"{self.acks} of {self.replicas} replicas cannot acknowledge",
            )

    @property
    def fence_answers_min(self) -> int:
        """How many replicas a new writer has to fence before it knows where the range ends."""
        return self.replicas - self.acks + 1

    @property
    def losses_tolerated(self) -> int:
        """How many replicas may be lost for good without losing what is committed."""
        return self.acks - 1

    def committed(self, ends: Iterable[Offset]) -> Offset:
        """The A-th largest of what all replicas hold."""
        ordered = sorted(ends)
        assert len(ordered) == self.replicas, "every replica has an end"
        return ordered[-self.acks]

    def recovered_end(self, ends: Iterable[Offset]) -> Offset:
        """Where a range ends, found from the ends of those replicas that answered the fence.

        A committed record is on A replicas, of which at most R - k did not answer: it is on
        A - (R - k) of the k that did.
        """
        ordered = sorted(ends)
        rank = self.acks - (self.replicas - len(ordered))
        assert len(ordered) <= self.replicas, "a replica answers once"
        assert rank >= 1, "too few answers to know the end"
        return ordered[-rank]


def policy_for(replicas: int, *, min_insync: int, acks: int | None = None) -> AckPolicy:
    """The policy of a new range with so many replicas.

    Without a setting of the topic, a majority acknowledges, and ``min.insync.replicas`` if that is
    more: a smaller number could not fail over with one node down.

    Raises:
        Unavailable: fewer replicas than ``min_insync``.
    """
    if replicas < min_insync:
        raise Unavailable(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"there are {replicas} replicas, min.insync.replicas requires {min_insync}",
        )
    requested = replicas // 2 + 1 if acks is None else min(acks, replicas)
    return AckPolicy(replicas, max(requested, min_insync))
