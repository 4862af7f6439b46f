"""Which columns of a frame are the fields of a record. Pure."""

from typing import NamedTuple

from mainstem.model.errors import ErrorCode, InvalidRequest


class FrameColumns(NamedTuple):
    """The indexes of a record's fields among the columns of a frame."""

    value: int
    key: int | None = None
    topic: int | None = None
    headers: int | None = None
    partition: int | None = None
    timestamp: int | None = None


def find_record_columns(names: list[str], *, has_topic: bool) -> FrameColumns:
    """Find the columns by their names; others are not written.

    Raises:
        InvalidRequest: there is no value, or no topic is given.
    """
    places = {name.lower(): place for place, name in enumerate(names)}
    if "value" not in places:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            f"no column value among {', '.join(names)}",
            remedy="select one: to_json(struct(*)) AS value",
        )
    if not has_topic and "topic" not in places:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            "no topic to write to is given",
            remedy="set the option topic, or select a column topic",
        )
    wanted = [name for name in FrameColumns._fields if name in places]
    return FrameColumns(**{name: places[name] for name in wanted})
