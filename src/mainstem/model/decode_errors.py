"""What a msgspec decoder raises for bytes that it cannot read.

Text that is not UTF-8 and values that are nested too deeply, also in fields that are skipped, are
not covered by ``msgspec.DecodeError``.
"""

from typing import Final

import msgspec

DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
