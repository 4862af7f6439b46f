"""Which release this is."""

from typing import Final

RELEASE: Final = "0.2.0"
