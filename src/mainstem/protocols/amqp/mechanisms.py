"""Ways to log in by AMQP, beyond those of all protocols."""

from typing import Final

PLAIN: Final = "PLAIN"
AMQPLAIN: Final = "AMQPLAIN"
ANONYMOUS: Final = "ANONYMOUS"
# What clients are offered where nobody logs in: they bring a name and a password anyway.
WITHOUT_LOGIN: Final = (PLAIN, AMQPLAIN, ANONYMOUS)


def with_own(mechanisms: tuple[str, ...]) -> tuple[str, ...]:
    """What a listener offers: AMQP has a form of PLAIN that is its own."""
    return (*mechanisms, AMQPLAIN) if PLAIN in mechanisms else mechanisms
