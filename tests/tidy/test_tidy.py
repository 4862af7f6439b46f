"""Rules of the house that no linter knows."""

import ast
import io
import re
import subprocess
import tokenize
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "mainstem"
GENERATED = ("wire/kafka/table.py", "wire/kafka/messages/")
MODULES = {
    path.relative_to(SRC).as_posix(): ast.parse(path.read_text())
    for path in sorted(SRC.rglob("*.py"))
    if not path.relative_to(SRC).as_posix().startswith(GENERATED)
}
LINES_MAX = 500
METHODS_MAX = 20

# A module may touch the outside world if it lives in one of these places or carries one of
# these words last in its name. Everything else is pure and is tested without mocks.
IO_PLACES = (
    "log/", "node/", "cli/", "client/", "pipelines/", "testing/", "protocols/rest/",
    # The counter answers with awaitables, and so do the handlers that call it.
    "broker/api.py", "broker/topics_api.py", "broker/groups_api.py",
    "broker/transactions_api.py", "broker/security_api.py", "broker/broker.py",
    "broker/cluster_api.py", "broker/queues_api.py", "broker/waiters.py", "broker/admin.py",
    "broker/share_api.py",
    "protocols/kafka/handlers/",
)  # fmt: skip
IO_WORDS = {"driver", "service", "transport", "runtime", "listener", "storage", "client"}
IO_MODULES = {"asyncio", "socket", "threading", "time", "random", "os", "ssl", "select", "mmap"}

VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "base", "misc"}


def imported_by(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def is_async(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(tree))


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
    lengths = {name: len((SRC / name).read_text().splitlines()) for name in MODULES}
    assert not {name: lines for name, lines in lengths.items() if lines > LINES_MAX}


def test_every_module_says_what_it_is_for() -> None:
    assert not [name for name, tree in MODULES.items() if not ast.get_docstring(tree)]


def test_classes_stay_small() -> None:
    big = []
    for name, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = sum(
                    isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef) for m in node.body
                )
                if methods > METHODS_MAX:
                    big.append((name, node.name, methods))
    assert not big


def test_only_drivers_touch_the_outside_world() -> None:
    guilty = []
    for name, tree in MODULES.items():
        if name.startswith(IO_PLACES) or Path(name).stem.split("_")[-1] in IO_WORDS:
            continue
        found = imported_by(tree) & IO_MODULES
        if found or is_async(tree):
            guilty.append((name, sorted(found)))
    assert not guilty


def test_module_names_say_something() -> None:
    assert not [name for name in MODULES if set(Path(name).stem.split("_")) & VAGUE_NAMES]


def test_the_room_table_lists_every_room() -> None:
    table = (SRC / "README.md").read_text()
    rooms = {path.parent.name for path in SRC.glob("*/__init__.py")}
    listed = set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE))
    assert listed == rooms


def test_no_room_that_stands_is_optional_in_the_floors() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    floors = " ".join(contracts["contracts"][0]["layers"])
    optional = set(re.findall(r"\((\w+)\)", floors))
    rooms = {path.parent.name for path in SRC.glob("*/__init__.py")}
    assert not optional & rooms


def test_nothing_is_left_unfinished() -> None:
    unfinished = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError|NotImplemented)\b")
    found = []
    for name in MODULES:
        text = (SRC / name).read_text()
        for number, line in enumerate(text.splitlines(), start=1):
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
        for name in MODULES
        if name != "log/group_commit.py"
        and not name.startswith(("client/", "cli/", "testing/"))
        and locks.search((SRC / name).read_text())
    ]
    assert not guilty


def test_no_suppression_without_a_rule() -> None:
    """A bare ``noqa`` hides more than was meant."""
    bare = []
    for name in MODULES:
        source = (SRC / name).read_text()
        bare += [
            f"{name}:{token.start[0]}"
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT and re.search(r"noqa(?!: [A-Z])", token.string)
        ]
    assert not bare
