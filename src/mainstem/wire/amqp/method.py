"""What a method of AMQP is: fields in their order on the wire, each with its kind.

The codec is made from such classes (``method_codec``): the annotation of a field says how it is
written. Neighbouring flags share a byte. Fields called ``reserved`` have no meaning any more.
"""

from typing import Annotated, Any, ClassVar

from msgspec import Struct

Octet = Annotated[int, "octet"]
Short = Annotated[int, "short"]
Long = Annotated[int, "long"]
LongLong = Annotated[int, "longlong"]
ShortText = Annotated[str, "shortstr"]
LongBytes = Annotated[bytes, "longstr"]
Flag = Annotated[bool, "bit"]
Arguments = Annotated[dict[str, Any], "table"]


class Method(Struct):
    """One method; ``ID`` is its class and its number there."""

    ID: ClassVar[tuple[int, int]] = (0, 0)
    NAME: ClassVar[str] = ""
