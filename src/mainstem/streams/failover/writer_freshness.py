"""Whether a writer may answer from its stream, or another node may be ahead of it by now."""

from collections.abc import Callable

from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.streams.writer.stream_driver import StreamWriter


def keep_fresh(stream: StreamWriter, holds_lease: Callable[[], bool]) -> None:
    """Make a stream refuse what needs its newest state while another node may write it.

    That is so without a lease, and from the request of a hand-over until its
    outcome is known here: a node whose disk stalls may learn of it much later than the new writer.
    """
    subject = f"{stream.topic}-{stream.id.partition}"
    lapse = Unavailable(
        ErrorCode.NOT_WRITER,
        "this node's lease has ended: another one may write it by now",
        subject=subject,
    )
    handed_over = Unavailable(
        ErrorCode.NOT_WRITER, "it is handed over to another node", subject=subject
    )

    def lapsed() -> MainstemError | None:
        replication = stream.replication
        if replication is None:
            return None
        if replication.is_handed_over:
            return handed_over
        return None if holds_lease() else lapse

    stream.lapsed = lapsed
