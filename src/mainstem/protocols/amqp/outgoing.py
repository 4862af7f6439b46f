"""Outgoing frames of one AMQP connection."""

from mainstem.protocols.send_batch import SendBatch
from mainstem.wire.amqp.frames import method_frame
from mainstem.wire.amqp.method import Method


class AmqpOutgoing:
    """Writes methods and frames into the batch that is sent at the end of the turn."""

    def __init__(self, batch: SendBatch) -> None:
        self.batch = batch
        self.write = batch.write
        self.flush = batch.flush
        self.unsent_bytes = batch.unsent_bytes

    def method(self, channel: int, method: Method) -> None:
        """Send a method."""
        self.write(method_frame(channel, method))
