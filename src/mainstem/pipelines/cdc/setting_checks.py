"""What is wrong with settings of change data capture, whatever the server. Pure."""

from collections.abc import Mapping

from mainstem.pipelines.cdc.selection import Routing, mask
from mainstem.pipelines.connector.shapes import Finding, failed


def setting_problems(mask_columns: Mapping[str, str], topic_routing: str) -> list[Finding]:
    """Masks that nobody knows, and names of topics that cannot be filled."""
    found = []
    for mode in mask_columns.values():
        try:
            mask(mode, "")
        except ValueError as error:
            found.append(failed(str(error), "see mask_columns"))
    try:
        Routing(topic_routing, database="d", name="n").topic("s", "t")
    except (KeyError, IndexError, ValueError) as error:
        found.append(
            failed(
                f"topic_routing {topic_routing!r} cannot be filled: {error!r}",
                "use {database}, {schema}, {table} and {name}",
            )
        )
    return found
