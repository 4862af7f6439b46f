"""Identifiers are the field's words: names that only this code base would understand stay out."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "mainstem"

# Metaphors and private words, each with what is meant.
FORBIDDEN = {
    "anybody": "any member, any caller",
    "around": "context",
    "attendance": "consumer registry",
    "brake": "backpressure",
    "burial": "dead letter",
    "burials": "dead letters",
    "bury": "dead-letter",
    "calm": "stable",
    "council": "catalogue group",
    "desk": "admin, pending requests",
    "door": "partition, writer, reader, listener",
    "doors": "partitions, writers, readers, listeners",
    "duties": "tasks",
    "duty": "task",
    "ear": "listener",
    "ears": "listeners",
    "elsewhere": "remote, on another node",
    "errand": "task",
    "errands": "tasks",
    "everybody": "all nodes, all members, all users",
    "fate": "outcome, status",
    "fates": "outcomes",
    "forgive": "reset",
    "founders": "first voters",
    "gardener": "what the task does",
    "gate": "admission",
    "glance": "read",
    "guest": "client, identity",
    "hear": "receive",
    "heard": "received, seen",
    "hears": "is receiving",
    "heed": "handle",
    "heeded": "handled",
    "heir": "successor",
    "heirs": "successors",
    "house": "context, node",
    "hurry": "what is done sooner",
    "keeper": "reconciler, registry",
    "keepers": "registries",
    "knock": "join request",
    "leaver": "leaving member",
    "leavers": "leaving members",
    "lookout": "watcher",
    "luggage": "payload, claims",
    "mend": "repair",
    "newcomer": "new node",
    "news": "notification, changes",
    "offended": "violated",
    "purse": "balance",
    "purses": "balances",
    "rival": "other",
    "room": "space, capacity, component",
    "rooms": "services",
    "roster": "member table",
    "rumours": "broadcasts",
    "said": "given, text, logged",
    "say": "send, print, log",
    "says": "what it contains",
    "shunned": "excluded",
    "storm": "faults",
    "stories": "scenarios",
    "story": "scenario",
    "stranger": "unknown node",
    "strangers": "unknown nodes",
    "surroundings": "context",
    "teller": "decoder",
    "tells": "reports",
    "temper": "fault rates",
    "tend": "reconcile, maintain",
    "told": "notified, sent, reported",
    "town": "cluster",
    "trouble": "failure",
    "truths": "booleans",
    "twin": "wrapper",
    "verdict": "decision, outcome",
    "village": "cluster",
    "wish": "request, options, filter",
    "wished": "requested",
    "wishes": "settings, filters",
    "world": "cluster, simulator",
}

# Words that personify code or stand for a metaphor, in docstrings, comments and messages.
NOT_PROSE = re.compile(
    r"\b(?:[Aa]nybody|[Bb]efall|[Dd]oor|[Dd]ut(?:y|ies)|[Ee]verybody|[Gg]uest|[Hh]eard|[Hh]ears"
    r"|[Hh]ostile|[Hh]ouse|[Kk]nock|[Mm]end(?:ed)?|[Nn]ewcomer|[Nn]obody|[Ss]aid|[Ss]omebody"
    r"|[Ss]tor(?:y|ies)|[Ss]trangers?|[Tt]ells|[Tt]old|[Vv]illage|[Ww]hoever|[Ww]hom"
    r"|[Ww]ish(?:es)?|[Ww]orld)\b"
)
# Lines that may have one of them, with the reason.
ALLOWED_PROSE = {
    'NOBODY = "nobody"': "a value that clients may see",
    "amqp://guest:guest@": "the default login of AMQP clients",
    "`guest`": "the same",
    '"Knock"': "a tag on the wire",
    "alarm/door": "a topic of an example",
    "the guest about": "the guest system of a virtual machine",
}

# Names that stay, with the reason.
ALLOWED: dict[str, str] = {
    "test_a_check_of_broken_settings_says_what_is_wrong": "the name of a test is a sentence",
}

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def defined(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of everything that a module defines; names of libraries are theirs."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str() as name):
                yield node.lineno, name
            case _:
                pass


def words_of(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}


def found_in(name: str, source: str) -> list[str]:
    return [
        f"{name}:{line}: {identifier}"
        for line, identifier in defined(ast.parse(source))
        if identifier not in ALLOWED and words_of(identifier) & FORBIDDEN.keys()
    ]


def test_identifiers_are_the_fields_words() -> None:
    found = []
    for path in sorted(SRC.rglob("*.py")):
        name = path.relative_to(SRC).as_posix()
        found += found_in(name, path.read_text())
    assert not found, "see FORBIDDEN for what to write instead"


def test_prose_has_no_metaphors() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *SRC.rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in pages
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if NOT_PROSE.search(line) and not any(allowed in line for allowed in ALLOWED_PROSE)
    ]
    assert not found


def test_modules_and_packages_have_the_fields_words() -> None:
    names = {part for path in SRC.rglob("*.py") for part in path.relative_to(SRC).parts}
    assert not [name for name in names if words_of(name.removesuffix(".py")) & FORBIDDEN.keys()]


@pytest.mark.parametrize(
    "source",
    [
        "def open_door(): ...",
        "class TownHouse: ...",
        "def f(*, wish=None): ...",
        "told = 1",
        "self._room = 1",
        "import a as house",
        "for guest in (): ...",
    ],
)
def test_a_private_word_is_found_wherever_it_is_defined(source: str) -> None:
    assert found_in("module", source)


@pytest.mark.parametrize(
    "source", ["position = file.tell()", "import door", "mushroom = 1", "storage = 2"]
)
def test_names_of_libraries_and_parts_of_words_are_not_found(source: str) -> None:
    assert not found_in("module", source)


def test_every_allowed_name_is_still_there() -> None:
    names = {name for path in SRC.rglob("*.py") for _, name in defined(ast.parse(path.read_text()))}
    assert ALLOWED.keys() <= names
