"""The metadata of a connector: name, category, type of its settings, dependencies."""

import enum
import importlib.util
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from mainstem.model.errors import ErrorCode, InvalidRequest

Secret = Annotated[str, Meta(extra_json_schema={"writeOnly": True, "format": "password"})]
"""The type of a setting that is never shown: passwords, tokens, keys."""


class Category(enum.StrEnum):
    """The kind of system that a connector connects to."""

    TESTING = "testing"
    HTTP = "http"
    FILES = "files"
    STORAGE = "storage"
    LAKEHOUSE = "lakehouse"
    DATABASE = "database"
    CDC = "cdc"
    QUEUE = "queue"
    WAREHOUSE = "warehouse"


class DeliveryGuarantee(enum.StrEnum):
    """How often a record is delivered if processes are killed."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


class Spec(Struct, frozen=True, kw_only=True):
    """The metadata of one source or sink.

    ``extra`` is the extra of this distribution that installs ``modules``, the libraries that the
    connector requires. ``limits_rows`` is whether a source respects the context's
    ``rows_per_batch_max``; one that does not cannot have a rate limit.
    """

    name: str
    kind: Literal["source", "sink"]
    title: str
    category: Category
    config: type[Struct]
    delivery: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    extra: str = ""
    modules: tuple[str, ...] = ()
    limits_rows: bool = True
    notes: str = ""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the connector's settings."""
        return msgspec.json.schema(self.config)

    @property
    def missing(self) -> tuple[str, ...]:
        """The required libraries that are not installed."""
        return tuple(name for name in self.modules if not _is_installed(name))

    def require(self) -> None:
        """Check that the required libraries are installed.

        Raises:
            InvalidRequest: a library is not installed; the remedy names the extra that installs it.
        """
        if missing := self.missing:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"the {self.name} {self.kind} needs {', '.join(missing)}, which is not installed",
                subject=self.name,
                remedy=f"pip install 'mainstem[{self.extra}]'" if self.extra else "",
            )


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
