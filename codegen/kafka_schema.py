"""Writes the Kafka schema table and the message classes from kio's per-version schema classes.

kio holds one dataclass per (message, version); this generator merges them into one table row per
message whose fields carry version ranges, and into one version-independent class per message.

Run ``python codegen/kafka_schema.py`` to rewrite the checked-in files, ``--check`` to compare.
kio is needed here only; nothing under ``src`` imports it.

Naming rule: fields keep kio's snake_case names, which are Kafka's own, except that kio drops the
``Ms`` ending of fields it maps to durations and points in time. Those stay integers here, so they
get their unit back: ``max_wait`` is ``max_wait_ms`` again. Error codes are integers, a uuid is 16
raw bytes, and records are one opaque chunk. A field without a default of its own gets Kafka's
implicit one (zero, empty), but null where it may be null in all its versions: that is what brokers
and clients send when they have nothing to say.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import importlib
import sys
import types
import typing
from pathlib import Path

from kio.schema.index import LoadableEntityType, api_key_map, schema_name_map
from kio.static.constants import EntityType

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "mainstem" / "wire" / "kafka"
GENERATOR = "codegen/kafka_schema.py"

# Calls between brokers and controllers; no client may make them (Kafka 4.2). One such call is kept:
# administrators end hanging transactions by WriteTxnMarkers (27).
BETWEEN_BROKERS = frozenset(
    [4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, *range(82, 88)]
)
DATA_MESSAGES = ("consumer_protocol_subscription", "consumer_protocol_assignment")
DATA_MODULE = "consumer_protocol"

ENDLESS = 32767  # a range that is still open in the newest version
NEVER = -1

# kio's type names to the wire types of the table; kio's fancy types are plain integers on the wire.
WIRE_TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
TIMES = frozenset(["timedelta_i32", "timedelta_i64", "datetime_i64"])
PYTHON_TYPES = {
    "bool": "bool",
    "bytes": "bytes",
    "float64": "float",
    "records": "Any",
    "string": "str",
    "uuid": "bytes",
}
EMPTY: dict[str, object] = {
    "bool": False,
    "bytes": b"",
    "float64": 0.0,
    "records": None,
    "string": "",
    "uuid": bytes(16),
}


class Unmergeable(Exception):
    """kio's classes of one message contradict each other between versions."""


@dataclasses.dataclass
class Field:
    """One field over all versions of its message."""

    name: str
    wire_type: str  # "int32", "[]string", "[]FetchTopic", "ReplicaState"
    default: object
    versions: list[int] = dataclasses.field(default_factory=list)
    nullable: list[int] = dataclasses.field(default_factory=list)
    tagged: list[int] = dataclasses.field(default_factory=list)
    tag: int = NEVER

    has_own_default: bool = True

    @property
    def element(self) -> str:
        """The type without the array mark."""
        return self.wire_type.removeprefix("[]")

    @property
    def is_array(self) -> bool:
        """Whether the field is a list."""
        return self.wire_type.startswith("[]")

    @property
    def is_struct(self) -> bool:
        """Whether the (element) type is a nested struct."""
        return self.element[0].isupper()


@dataclasses.dataclass
class Message:
    """One message (request, response or data) over all its versions."""

    name: str
    versions: list[int]
    flexible_since: int
    structs: dict[str, list[Field]]  # nested ones first, the message itself last


@dataclasses.dataclass
class Api:
    """One API: both directions."""

    key: int
    module: str
    request: Message
    response: Message

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        return self.request.name.removesuffix("Request")


def load_message(schema: str, kind: LoadableEntityType) -> Message:
    """Merges all versions of one message."""
    versions = sorted(v for v, kinds in schema_name_map[schema].items() if kind in kinds)
    roots = {}
    for version in versions:
        module_name, _, class_name = schema_name_map[schema][version][kind].partition(":")
        roots[version] = getattr(importlib.import_module(module_name), class_name)
    name = roots[versions[-1]].__name__
    structs: dict[str, list[Field]] = {}
    for version in versions:
        merge_class(structs, roots[version], version)
    newest_first: dict[str, list[Field]] = {}
    place(name, structs, newest_first)
    for fields in structs.values():
        check_ranges(fields, name)
        prefer_null(fields)
    flexible = [v for v in versions if roots[v].__flexible__]
    return Message(
        name=name,
        versions=versions,
        flexible_since=flexible[0] if flexible else ENDLESS,
        structs=newest_first,
    )


def place(name: str, structs: dict[str, list[Field]], placed: dict[str, list[Field]]) -> None:
    """Orders structs so that each stands after the ones it uses."""
    if name in placed:
        return
    for field in structs[name]:
        if field.is_struct:
            place(field.element, structs, placed)
    placed[name] = structs[name]


def merge_class(structs: dict[str, list[Field]], cls: type, version: int) -> None:
    """Adds one version of one class, and of the classes it uses, to the merged structs."""
    merged = structs.setdefault(cls.__name__, [])
    if any(version in field.versions for field in merged):
        return  # a struct used twice in one message
    position = 0
    for raw in dataclasses.fields(cls):
        field, is_nullable, nested = read_field(raw)
        if nested is not None:
            merge_class(structs, nested, version)
        known = next((f for f in merged if f.name == field.name), None)
        if known is None:
            merged.insert(position, field)
            known = field
        elif known.wire_type != field.wire_type or known.default != field.default:
            raise Unmergeable(f"{cls.__name__}.{field.name} changes in version {version}")
        position = merged.index(known) + 1
        known.versions.append(version)
        if is_nullable:
            known.nullable.append(version)
        if field.tag != NEVER:
            known.tag = field.tag
            known.tagged.append(version)


def read_field(raw: dataclasses.Field[typing.Any]) -> tuple[Field, bool, type | None]:
    """Reads one dataclass field: the field, whether it may be null, its nested class."""
    kafka_type = raw.metadata.get("kafka_type")
    outer, is_nullable = without_none(raw.type)
    is_array = typing.get_origin(outer) is tuple
    inner = without_none(typing.get_args(outer)[0])[0] if is_array else outer
    nested = inner if kafka_type is None else None
    element = WIRE_TYPES.get(kafka_type, kafka_type) if kafka_type else inner.__name__
    if kafka_type in {"uuid", "datetime_i64"} and not is_array:
        is_nullable = False  # kio's None is the zero uuid, respectively -1
    name = raw.name + "_ms" if kafka_type in TIMES else raw.name
    field = Field(
        name=name,
        wire_type="[]" + element if is_array else element,
        default=None,
        tag=raw.metadata.get("tag", NEVER),
        # kio gives every list of plain values the default (), whether Kafka names one or not.
        has_own_default=raw.default is not dataclasses.MISSING and raw.default != (),
    )
    field.default = read_default(raw, field, is_time=kafka_type in TIMES)
    return field, is_nullable, nested


def without_none(annotation: typing.Any) -> tuple[typing.Any, bool]:
    """``X | None`` to ``X, True``."""
    if isinstance(annotation, types.UnionType):
        [inner] = [a for a in typing.get_args(annotation) if a is not types.NoneType]
        return inner, True
    return annotation, False


def read_default(raw: dataclasses.Field[typing.Any], field: Field, *, is_time: bool) -> object:
    """The default in wire terms; a missing one is Kafka's implicit default (zero, empty)."""
    default = raw.default
    if default is None:
        return bytes(16) if field.wire_type == "uuid" else (-1 if is_time else None)
    if field.is_array or field.is_struct:
        return ()  # the empty list, respectively the struct with all its defaults
    if default is dataclasses.MISSING:
        return EMPTY.get(field.element, 0)
    if isinstance(default, datetime.timedelta):
        return round(default.total_seconds() * 1000)
    if isinstance(default, bool | str | bytes | float):
        return default
    return int(getattr(default, "value", default))


def check_ranges(fields: list[Field], message: str) -> None:
    """The table stores ranges, so versions must be without gaps and end together."""
    for field in fields:
        for versions in (field.versions, field.nullable, field.tagged):
            if versions and versions != list(range(versions[0], versions[-1] + 1)):
                raise Unmergeable(f"{message}.{field.name} has a gap in {versions}")
        for versions in (field.nullable, field.tagged):
            if versions and versions[-1] != field.versions[-1]:
                raise Unmergeable(f"{message}.{field.name} loses an attribute: {versions}")


def prefer_null(fields: list[Field]) -> None:
    """Null is the default of what may always be null and has no default of its own."""
    for field in fields:
        if field.nullable == field.versions and field.tag == NEVER and not field.has_own_default:
            field.default = None


def load_apis() -> list[Api]:
    """All client-facing APIs that kio knows, by key."""
    apis = []
    for key, schema in sorted(api_key_map.items()):
        if key in BETWEEN_BROKERS:
            continue
        request = load_message(schema, EntityType.request)
        response = load_message(schema, EntityType.response)
        if request.versions != response.versions:
            raise Unmergeable(f"{schema}: request and response versions differ")
        if request.flexible_since != response.flexible_since:
            raise Unmergeable(f"{schema}: request and response flexibility differ")
        part_names({"Request": request, "Response": response})
        apis.append(Api(key, schema, request, response))
    return apis


def part_names(messages: dict[str, Message]) -> None:
    """A nested name that two messages of a module use gets the message's prefix in front."""
    uses = collections.Counter(name for message in messages.values() for name in message.structs)
    for prefix, message in messages.items():
        new_names = {name: prefix + name for name in message.structs if uses[name] > 1}
        message.structs = {
            new_names.get(name, name): fields for name, fields in message.structs.items()
        }
        for fields in message.structs.values():
            for field in fields:
                array = "[]" if field.is_array else ""
                field.wire_type = array + new_names.get(field.element, field.element)


def table_source(apis: list[Api], data: list[Message]) -> str:
    """The table module: data literals only, one line per message."""
    lines = [
        f'"""Kafka message schemas as data. Generated by {GENERATOR}; do not edit.',
        "",
        "An API row is (name, module, first version, last version, first flexible version, request",
        "structs, response structs); a struct is (class name, fields), nested ones first, the",
        "message itself last; a field is (name, type, first version, last version, first nullable",
        "version, tag, first tagged version, default) where -1 means never. The default () stands",
        "for an empty list, respectively for a struct with all its defaults.",
        '"""',
        "",
        "from typing import Any, Final",
        "",
        "APIS: Final[dict[int, tuple[Any, ...]]] = {",
    ]
    for api in apis:
        first, last = api.request.versions[0], api.request.versions[-1]
        head = f"{api.name!r}, {api.module!r}, {first}, {last}, {api.request.flexible_since}"
        lines.append(f"    {api.key}: ({head},")
        lines.append(f"        {structs_row(api.request)!r},")
        lines.append(f"        {structs_row(api.response)!r}),")
    lines += ["}", "", "DATA: Final[dict[str, tuple[Any, ...]]] = {"]
    for message in data:
        first, last = message.versions[0], message.versions[-1]
        head = f"{message.name!r}, {DATA_MODULE!r}, {first}, {last}, {message.flexible_since}"
        lines.append(f"    {message.name!r}: ({head},")
        lines.append(f"        {structs_row(message)!r}),")
    return "\n".join([*lines, "}", ""])


def structs_row(message: Message) -> tuple[object, ...]:
    """The structs of one message as plain data."""
    newest = message.versions[-1]
    return tuple(
        (name, tuple(field_row(field, newest) for field in fields))
        for name, fields in message.structs.items()
    )


def field_row(field: Field, newest: int) -> tuple[object, ...]:
    """One field as plain data."""
    last = field.versions[-1]
    return (
        field.name,
        field.wire_type,
        field.versions[0],
        ENDLESS if last == newest else last,
        field.nullable[0] if field.nullable else NEVER,
        field.tag,
        field.tagged[0] if field.tagged else NEVER,
        field.default,
    )


def module_source(title: str, messages: list[Message]) -> str:
    """One module of message classes."""
    body: list[str] = []
    for message in messages:
        for name, fields in message.structs.items():
            body += ["", "", *class_lines(name, fields, message)]
    head = [f'"""{title}. Generated by {GENERATOR}; do not edit."""', ""]
    if any(": Any" in line for line in body):
        head += ["from typing import Any", ""]
    return "\n".join([*head, "import msgspec", *body, ""])


def class_lines(name: str, fields: list[Field], message: Message) -> list[str]:
    """The source of one message class."""
    first, last = message.versions[0], message.versions[-1]
    if name == message.name:
        what = f"{name}, versions {first} to {last}."
    else:
        what = f"Part of {message.name}."
    lines = [f"class {name}(msgspec.Struct, gc=False):", f'    """{what}"""']
    if fields:
        lines.append("")
    for field in fields:
        code = f"    {field.name}: {annotation(field)} = {default_source(field)}"
        note = version_note(field, first, last)
        fits = note and len(code) + 4 + len(note) <= 100
        lines.append(f"{code}  # {note}" if fits else code)
    return lines


def annotation(field: Field) -> str:
    """The Python type of a field."""
    inner = field.element if field.is_struct else PYTHON_TYPES.get(field.element, "int")
    outer = f"list[{inner}]" if field.is_array else inner
    may_be_none = field.nullable or field.default is None
    return f"{outer} | None" if may_be_none and outer != "Any" else outer


def default_source(field: Field) -> str:
    """The Python source of a default."""
    if field.default == ():
        return "[]" if field.is_array else f"msgspec.field(default_factory={field.element})"
    if field.wire_type == "uuid":
        return "bytes(16)"
    return f'"{field.default}"' if isinstance(field.default, str) else repr(field.default)


def version_note(field: Field, first: int, last: int) -> str:
    """Says since when, and until when, a field exists."""
    since, until = field.versions[0], field.versions[-1]
    words = []
    if until != last:
        words.append(f"versions {since} to {until}")
    elif since != first:
        words.append(f"since version {since}")
    if field.tag != NEVER:
        words.append(f"tag {field.tag}")
    return ", ".join(words)


def generate() -> dict[Path, str]:
    """All generated files and their text."""
    apis = load_apis()
    data = [load_message(schema, EntityType.data) for schema in DATA_MESSAGES]
    part_names({message.name.removeprefix("ConsumerProtocol"): message for message in data})
    files = {PACKAGE / "table.py": table_source(apis, data)}
    for api in apis:
        title = f"Kafka API {api.key}, {api.name}: message classes"
        path = PACKAGE / "messages" / f"{api.module}.py"
        files[path] = module_source(title, [api.request, api.response])
    path = PACKAGE / "messages" / f"{DATA_MODULE}.py"
    title = "Inside JoinGroup and SyncGroup: message classes"
    files[path] = module_source(title, data)
    return files


def main() -> int:
    """Writes the files, or with ``--check`` says which differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    arguments = parser.parse_args()
    stale = [
        (path, text)
        for path, text in generate().items()
        if not path.exists() or path.read_text() != text
    ]
    for path, text in stale:
        print(f"{'stale' if arguments.check else 'written'}: {path.relative_to(ROOT)}")
        if not arguments.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
