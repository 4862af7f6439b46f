"""Rules of this code base that no linter knows."""

import io
import re
import subprocess
import tokenize
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from tests.tidy.source_tree import ROOT, SRC, methods_with_inherited, modules

LINES_MAX = 500
METHODS_MAX = 20
FILES_MAX = 20

# Classes that have more methods than that with those of their bases, and why they stay so.
_TABLES = "the catalogue is its tables and the replay of facts into them"
_STREAM = "a stream that is written is read as any other, on the produce and fetch path"
_SHARDS = "a kind of shard fills in what the shared registry of shards leaves open"
_SIMULATED = "a script or a node of a simulation extends the one that it varies"
MANY_INHERITED = {
    "coordination/groups/shards_driver.py:GroupShards": _SHARDS,
    "placement/state/catalogue.py:Catalogue": _TABLES,
    "testing/simulation/cluster/levels.py:OldCatalogue": _TABLES,
    "streams/writer/stream_driver.py:StreamWriter": _STREAM,
    "testing/local_cluster.py:MemberNode": _SIMULATED,
    "testing/simulation/cluster/catalogue_group.py:SimCatalogueGroup": _SIMULATED,
}

# A module may touch the outside world if it lives in one of these places or carries one of
# these words last in its name. Everything else is pure and is tested without mocks.
IO_PLACES = (
    "log/", "node/", "cli/", "client/", "pipelines/", "testing/", "protocols/rest/",
    # The broker API has async methods, and so do the handlers that call it.
    "broker/api/", "broker/services/node_broker.py", "protocols/kafka/handlers/",
    # The sockets of all TCP protocols.
    "protocols/connection.py",
)  # fmt: skip
IO_WORDS = {"driver", "service", "transport", "listener", "storage", "client"}
IO_MODULES = {"asyncio", "socket", "threading", "time", "random", "os", "ssl", "select", "mmap"}

VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "base", "misc"}


@cache
def tracked_text_files() -> dict[str, str]:
    """Every text file that a clone would contain, by its path in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    texts = {}
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if not path.is_file():
            continue
        try:
            texts[name] = path.read_text()
        except UnicodeDecodeError:
            continue
    return texts


def test_files_stay_readable() -> None:
    lengths = {name: len(module.text.splitlines()) for name, module in modules().items()}
    assert not {name: lines for name, lines in lengths.items() if lines > LINES_MAX}


def test_every_module_says_what_it_is_for() -> None:
    assert not [name for name, module in modules().items() if not module.docstring]


def test_classes_stay_small() -> None:
    assert not [
        (name, kind, methods)
        for name, module in modules().items()
        for kind, methods in module.methods
        if methods > METHODS_MAX
    ]


def test_classes_stay_small_with_what_they_inherit() -> None:
    """A base class that only divides a large class by file makes it no smaller."""
    counts = {place: len(found) for place, found in methods_with_inherited(modules()).items()}
    large = {place: count for place, count in counts.items() if count > METHODS_MAX}
    assert not {place: count for place, count in large.items() if place not in MANY_INHERITED}
    assert not MANY_INHERITED.keys() - large.keys(), "no longer needed in the list"


def test_only_drivers_touch_the_outside_world() -> None:
    guilty = []
    for name, module in modules().items():
        if name.startswith(IO_PLACES) or Path(name).stem.split("_")[-1] in IO_WORDS:
            continue
        found = module.imports & IO_MODULES
        if found or module.is_async:
            guilty.append((name, sorted(found)))
    assert not guilty


def test_module_names_say_something() -> None:
    assert not [name for name in modules() if set(Path(name).stem.split("_")) & VAGUE_NAMES]


def test_the_package_table_lists_every_package() -> None:
    table = (SRC / "README.md").read_text()
    packages = {path.parent.relative_to(SRC).as_posix() for path in SRC.glob("*/**/__init__.py")}
    listed = set(re.findall(r"^\| `([\w/]+)` \|", table, flags=re.MULTILINE))
    assert listed == packages


def test_folders_stay_small() -> None:
    """A newcomer takes in a folder at a glance."""
    files = Counter(
        str(Path(name).parent) for name in modules() if Path(name).name != "__init__.py"
    )
    assert not {folder: count for folder, count in files.items() if count > FILES_MAX}


def test_no_package_that_exists_is_optional_in_the_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = " ".join(contracts["contracts"][0]["layers"])
    optional = set(re.findall(r"\((\w+)\)", layers))
    packages = {path.parent.name for path in SRC.glob("*/__init__.py")}
    assert not optional & packages


def test_nothing_is_left_unfinished() -> None:
    unfinished = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError|NotImplemented)\b")
    found = []
    for name, module in modules().items():
        for number, line in enumerate(module.text.splitlines(), start=1):
            if unfinished.search(line) and "return NotImplemented" not in line:
                found.append(f"{name}:{number}: {line.strip()}")
    assert not found


def test_asserts_are_never_switched_off() -> None:
    """Invariants are asserts: nothing that starts a node may pass -O."""
    flags = re.compile(r"PYTHONOPTIMIZE|python3?\S* -O")
    here = Path(__file__).relative_to(ROOT).as_posix()
    guilty = [n for n, text in tracked_text_files().items() if n != here and flags.search(text)]
    assert not guilty


def test_no_file_names_the_machine_it_was_written_on() -> None:
    """Home folders, this checkout's own place, registries and mirrors belong to a developer."""
    places = [str(ROOT.parent) + "/", *(f"/{home}/" for home in ("root", "Users"))]
    hosts = re.compile(
        r"https?://[\w.-]*(artifactory|nexus|devpi|mirror|proxy|pypi|npmjs|repo\d*\.maven|crates\.io)[\w.-]*",
        re.I,
    )
    here = Path(__file__).relative_to(ROOT).as_posix()
    guilty = []
    for name, text in tracked_text_files().items():
        if name == here:
            continue
        guilty += [f"{name}: {place}" for place in places if place in text]
        guilty += [f"{name}: {match.group()}" for match in hosts.finditer(text)]
    assert not guilty


def test_no_lock_outside_the_group_commit() -> None:
    """One event loop owns all state; only the storage threads' meeting place needs a lock."""
    locks = re.compile(r"\bthreading\.(R?Lock|Condition|Semaphore)\b")
    guilty = [
        name
        for name, module in modules().items()
        if name != "log/disk/group_commit.py"
        and not name.startswith(("client/", "cli/", "testing/"))
        and locks.search(module.text)
    ]
    assert not guilty


def test_no_suppression_without_a_rule() -> None:
    """A bare ``noqa`` hides more than was meant."""
    suspect = re.compile(r"noqa(?!: [A-Z])")
    bare = []
    for name, module in modules().items():
        if not suspect.search(module.text):
            continue  # to read the tokens of every file takes as long as all other rules
        bare += [
            f"{name}:{token.start[0]}"
            for token in tokenize.generate_tokens(io.StringIO(module.text).readline)
            if token.type == tokenize.COMMENT and suspect.search(token.string)
        ]
    assert not bare


def test_decoders_are_caught_with_everything_that_they_raise() -> None:
    """Bytes from outside raise more than msgspec's own error: see ``model/decode_errors.py``."""
    guilty = [
        name
        for name, module in modules().items()
        if name != "model/decode_errors.py"
        and "msgspec" in module.text
        and re.search(r"except.*\b(DecodeError|MsgspecError)\b", module.text)
    ]
    assert not guilty
