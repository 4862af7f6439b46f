"""Publisher confirms of one channel: ``basic.ack`` if stored, ``basic.nack`` if refused.

Confirms are sent in the order in which messages settle; consecutive ones are combined into one with
``multiple``. Delivery tags count from the message after ``confirm.select``.
"""

from collections.abc import Callable, Sequence

from mainstem.wire.amqp.basic_methods import BasicAck, BasicNack


class PublisherConfirms:
    """Confirms the messages of one channel by their tokens, which count up from 1."""

    def __init__(self, send: Callable[[BasicAck | BasicNack], None]) -> None:
        self._send_method = send
        self._first = 0  # the last token before ``confirm.select``
        self._settled_until = 0
        self._settled_beyond: set[int] = set()

    def select(self, token: int) -> None:
        """Confirm all messages after a token."""
        self._first = self._settled_until = token

    def settled(self, tokens: Sequence[int], *, is_refused: bool) -> None:
        """Confirm messages that are stored or refused."""
        first, last = tokens[0], tokens[-1]
        if first == self._settled_until + 1 and last - first + 1 == len(tokens):
            self._send(last, multiple=len(tokens) > 1, is_refused=is_refused)
            self._settled_until = last
        else:
            for token in tokens:
                self._send(token, multiple=False, is_refused=is_refused)
            self._settled_beyond.update(tokens)
        while self._settled_until + 1 in self._settled_beyond:
            self._settled_until += 1
            self._settled_beyond.discard(self._settled_until)

    def _send(self, token: int, *, multiple: bool, is_refused: bool) -> None:
        kind = BasicNack if is_refused else BasicAck
        tag = token - self._first
        if tag > 0:
            self._send_method(kind(delivery_tag=tag, multiple=multiple))
