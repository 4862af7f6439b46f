"""YAML with positions: every value has its line, and ``${VAR}`` is replaced from the environment.

    ${VAR}            the variable; a problem when it is not set
    ${VAR:-default}   the variable, or the default when it is unset or empty
    $${VAR}           the text ${VAR} itself

Only the text of a scalar is replaced, never structure: a variable cannot add keys. Duplicate keys
are a problem, since YAML would silently use the last.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import yaml
from msgspec import Struct

from mainstem.pipelines.file.secrets import Secrets
from mainstem.pipelines.problems import FileProblem, Problems

DOCUMENT_BYTES_MAX = 1 << 20
VALUES_MAX = 100_000  # aliases can make a small file large
REFERENCE = re.compile(
    r"\$(?P<escaped>\$)?\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
)
_RESOLVER = yaml.resolver.Resolver()
_CONSTRUCTOR = yaml.constructor.SafeConstructor()


class SourceLocation(NamedTuple):
    """A position in the file; both numbers count from one."""

    line: int
    column: int


class EnvironmentText(str):
    """A text that comes, at least in part, from the environment.

    It is converted to a number or a boolean where one is expected. ``is_plain`` is whether it was
    unquoted, so that YAML would have given it a type.
    """

    __slots__ = ("is_plain",)

    is_plain: bool


class Document(Struct, frozen=True):
    """The values of a file, their positions, and the problems so far."""

    value: object
    keys: dict[str, SourceLocation]
    values: dict[str, SourceLocation]
    problems: list[FileProblem]

    def located(self, problem: FileProblem, *, at_key: bool = False) -> FileProblem:
        """The problem with the position of its path, or of the nearest enclosing path."""
        path = problem.path
        while True:
            # If a value starts on a separate line, the position of its key is more useful.
            mark = self.keys.get(path) if at_key else self.values.get(path, self.keys.get(path))
            if mark is not None or not path:
                break
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        line, column = mark or SourceLocation(1, 1)
        return FileProblem(problem.path, problem.message, problem.remedy, line, column)


def parse(text: str, environment: Mapping[str, str], secrets: Secrets) -> Document:
    """Parse a file's text.

    Raises:
        Problems: it is not valid YAML.
    """
    if len(text.encode()) > DOCUMENT_BYTES_MAX:
        raise Problems([FileProblem("", f"the file is larger than {DOCUMENT_BYTES_MAX} bytes")])
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise Problems([_syntax_problem(error, text)]) from None
    except yaml.YAMLError as error:  # characters that YAML does not allow
        raise Problems([FileProblem("", f"not YAML: {error}".split("\n", maxsplit=1)[0])]) from None
    builder = _Builder(environment, secrets)
    value = builder.build(root, "") if root is not None else None
    return Document(value, builder.keys, builder.values, builder.problems)


def typed(value: object) -> object:
    """A tree in which text from the environment has the type that YAML gives it."""
    if isinstance(value, EnvironmentText):
        return _scalar(str(value)) if value.is_plain else str(value)
    if isinstance(value, dict):
        return {name: typed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    return value


class _Builder:
    """Converts nodes to values and records their positions."""

    def __init__(self, environment: Mapping[str, str], secrets: Secrets) -> None:
        self._environment = environment
        self._secrets = secrets
        self._count = 0
        self._open: set[int] = set()
        self.keys: dict[str, SourceLocation] = {}
        self.values: dict[str, SourceLocation] = {}
        self.problems: list[FileProblem] = []

    def build(self, node: yaml.Node, path: str) -> object:
        self._count += 1
        if self._count > VALUES_MAX or id(node) in self._open:
            reason = "contains itself" if id(node) in self._open else "has too many values"
            raise Problems([FileProblem(path, f"the file {reason}", "", *_mark(node))])
        if isinstance(node, yaml.ScalarNode):
            self.values[path] = _mark(node)
            return self._scalar(node, path)
        assert isinstance(node, yaml.CollectionNode)
        self._open.add(id(node))
        if node.flow_style or path not in self.keys:
            self.values[path] = _mark(node)
        built: object
        if isinstance(node, yaml.SequenceNode):
            built = [self.build(each, f"{path}[{n}]") for n, each in enumerate(node.value)]
        else:
            assert isinstance(node, yaml.MappingNode)
            built = self._mapping(node, path)
        self._open.discard(id(node))
        return built

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, object]:
        written = [key.value for key, _ in node.value]
        # Merged keys (<<) come first and may be overridden; written ones may not repeat.
        _CONSTRUCTOR.flatten_mapping(node)
        merged = len(node.value) - (len(written) - written.count("<<"))
        built: dict[str, object] = {}
        seen: set[str] = set()
        for index, (key, value) in enumerate(node.value):
            if not isinstance(key, yaml.ScalarNode):
                problem = FileProblem(path, "a key must be a word", "", *_mark(key))
                self.problems.append(problem)
                continue
            name = str(key.value)
            inner = f"{path}.{name}" if path else name
            if index >= merged and name in seen:
                first = self.keys[inner].line
                message = f"duplicate key, first in line {first}"
                self.problems.append(FileProblem(inner, message, "remove one of them", *_mark(key)))
                continue
            if index >= merged:
                seen.add(name)
            self.keys[inner] = _mark(key)
            built[name] = self.build(value, inner)
        return built

    def _scalar(self, node: yaml.ScalarNode, path: str) -> object:
        text = str(node.value)
        if "${" not in text:
            try:
                return _constructed(node)
            except (ValueError, yaml.YAMLError) as error:
                message = f"{text!r} cannot be read: {error}".split("\n", maxsplit=1)[0]
                self.problems.append(FileProblem(path, message, "put it in quotes", *_mark(node)))
                return text
        filled = EnvironmentText(self._filled(text, path, _mark(node)))
        filled.is_plain = node.style is None
        return filled

    def _filled(self, text: str, path: str, mark: SourceLocation) -> str:
        def value_of(found: re.Match[str]) -> str:
            if found["escaped"]:
                return found.group()[1:]
            name, default = found["name"], found["default"]
            value = self._environment.get(name, "")
            if value:
                self._secrets.add(value, f"${{{name}}}")
                return value
            if default is not None:
                return default
            if name not in self._environment:
                remedy = f"set it, or give a default: ${{{name}:-...}}"
                message = f"the environment variable {name} is not set"
                self.problems.append(FileProblem(path, message, remedy, *mark))
            return ""

        return REFERENCE.sub(value_of, text)


def _constructed(node: yaml.ScalarNode) -> object:
    value: object = _CONSTRUCTOR.construct_object(node)
    # A date has no time zone, so its instant is undefined; it stays text.
    return value if isinstance(value, str | int | float | bool) or value is None else node.value


def _scalar(text: str) -> object:
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return _constructed(yaml.ScalarNode(tag, text))


def _mark(node: yaml.Node) -> SourceLocation:
    return SourceLocation(node.start_mark.line + 1, node.start_mark.column + 1)


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> FileProblem:
    mark = error.problem_mark or error.context_mark
    message = "not YAML: " + ", ".join(part for part in (error.context, error.problem) if part)
    if mark is None:
        return FileProblem("", message)
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    remedy = "inside [ ] and { } put ${...} in quotes" if "${" in line else ""
    return FileProblem("", message, remedy, mark.line + 1, mark.column + 1)
