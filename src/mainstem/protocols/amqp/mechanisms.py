"""Login mechanisms that only AMQP has."""

from typing import Final

PLAIN: Final = "PLAIN"
AMQPLAIN: Final = "AMQPLAIN"
ANONYMOUS: Final = "ANONYMOUS"
# Offered without login: clients send a name and a password anyway.
WITHOUT_LOGIN: Final = (PLAIN, AMQPLAIN, ANONYMOUS)


def with_own(mechanisms: tuple[str, ...]) -> tuple[str, ...]:
    """The mechanisms that a listener offers, with AMQP's own form of PLAIN."""
    return (*mechanisms, AMQPLAIN) if PLAIN in mechanisms else mechanisms
