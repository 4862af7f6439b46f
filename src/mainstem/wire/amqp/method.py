"""Definition of AMQP methods: fields in their order on the wire, each with its type.

The codec is made from such classes (``method_codec``): the annotation of a field defines how it is
written. Adjacent flags share a byte. Fields called ``reserved`` no longer have a meaning.
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
