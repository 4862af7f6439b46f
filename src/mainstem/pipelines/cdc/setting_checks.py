"""Checks of change data capture settings and servers, independent of the database."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from mainstem.model.errors import MainstemError
from mainstem.pipelines.cdc.avro.events import schema_topic
from mainstem.pipelines.cdc.settings import CdcConfig
from mainstem.pipelines.cdc.table_selection import TableRouting, mask
from mainstem.pipelines.connector.shapes import Finding, failed


class Closable(Protocol):
    """A server connection."""

    def close(self) -> None:
        """Close the connection."""


Server = TypeVar("Server", bound=Closable)
_UNFILLED = (KeyError, IndexError, ValueError)


def setting_problems(config: CdcConfig) -> list[Finding]:
    """Invalid masks, and topic templates with unknown placeholders."""
    found = []
    for mode in config.mask_columns.values():
        try:
            mask(mode, "")
        except ValueError as error:
            found.append(failed(str(error), "see mask_columns"))
    try:
        TableRouting(config.topic_routing, database="d", name="n").topic("s", "t")
    except _UNFILLED as error:
        found.append(
            failed(
                f"topic_routing {config.topic_routing!r} is invalid: {error!r}",
                "use {database}, {schema}, {table} and {name}",
            )
        )
    try:
        schema_topic(config)
    except _UNFILLED as error:
        found.append(
            failed(
                f"schema_topic {config.schema_topic!r} is invalid: {error!r}",
                "use {database} and {name}",
            )
        )
    return found


def checked(
    open_server: Callable[[], Server], look: Callable[[Server], list[Finding]]
) -> list[Finding]:
    """The findings about a server; an error of the server is a finding, too."""
    try:
        server = open_server()
        try:
            return look(server)
        finally:
            server.close()
    except MainstemError as error:
        text = f"{error.cause} [{error.subject}]"
        return [failed(text, error.remedy, retriable=error.retriable)]
