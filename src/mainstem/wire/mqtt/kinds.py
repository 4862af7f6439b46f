"""The kinds of packet and the versions of the protocol."""

from enum import IntEnum
from typing import Final


class Kind(IntEnum):
    """The upper half of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


V3_1: Final = 3
V3_1_1: Final = 4
V5: Final = 5
