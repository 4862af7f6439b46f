"""The modules of the product, read and parsed once for all rules."""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "mainstem"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
GENERATED = ("wire/kafka/table.py", "wire/kafka/messages/")


class ClassShape(NamedTuple):
    """A class as the rule about inherited methods sees it."""

    name: str
    bases: tuple[str, ...]
    """As written, without type arguments: ``Name`` or ``module.Name``."""
    methods: frozenset[str]


class Module(NamedTuple):
    """What the rules ask about one module; found in one walk through its syntax tree."""

    text: str
    docstring: str | None
    imports: frozenset[str]
    """Top-level packages that are imported anywhere in it."""
    is_async: bool
    methods: tuple[tuple[str, int], ...]
    """Every class, and how many methods it has."""
    classes: tuple[ClassShape, ...]
    imported: Mapping[str, str]
    """Names that are imported anywhere in it, and what they stand for in full."""


@cache
def modules() -> Mapping[str, Module]:
    """Every module that is written by hand, by its path below ``src/mainstem``."""
    names = {path.relative_to(SRC).as_posix(): path for path in sorted(SRC.rglob("*.py"))}
    return {
        name: parsed(path.read_text())
        for name, path in names.items()
        if not name.startswith(GENERATED)
    }


def parsed(text: str) -> Module:
    """What the rules ask about a module with this text."""
    tree = ast.parse(text)
    imports: set[str] = set()
    is_async = False
    methods: list[tuple[str, int]] = []
    classes: list[ClassShape] = []
    imported: dict[str, str] = {}
    # Only statements are followed, and no expressions, which most nodes of a tree are. A
    # comprehension or an ``await`` that makes a function asynchronous stands in an ``async def``.
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, block, ())
            if isinstance(inner, list):
                waiting += inner
        if isinstance(node, ast.Import):
            imports |= {alias.name.split(".")[0] for alias in node.names}
            imported |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom):
            imports.add((node.module or "").split(".")[0])
            imported |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.AsyncFunctionDef):
            is_async = True
        elif isinstance(node, ast.ClassDef):
            own = [part.name for part in node.body if isinstance(part, FUNCTIONS)]
            methods.append((node.name, len(own)))
            bases = tuple(ast.unparse(base).partition("[")[0] for base in node.bases)
            classes.append(ClassShape(node.name, bases, frozenset(own)))
    return Module(
        text,
        ast.get_docstring(tree),
        frozenset(imports),
        is_async,
        tuple(methods),
        tuple(classes),
        imported,
    )


def methods_with_inherited(tree: Mapping[str, Module]) -> Mapping[str, frozenset[str]]:
    """The methods of every class, by ``path:Class``, with those of bases that are in the tree."""
    known = {
        f"{_dotted(name)}.{shape.name}": (f"{name}:{shape.name}", module, shape)
        for name, module in tree.items()
        for shape in module.classes
    }

    def found(full: str) -> frozenset[str]:
        if full not in known:
            return frozenset()
        _, module, shape = known[full]
        here = full.rpartition(".")[0]
        inherited = (found(_full_name(base, here, module)) for base in shape.bases)
        return shape.methods.union(*inherited)

    return {place: found(full) for full, (place, _, _) in known.items()}


def _full_name(base: str, here: str, module: Module) -> str:
    first, dot, rest = base.partition(".")
    return module.imported.get(first, f"{here}.{first}") + dot + rest


def _dotted(name: str) -> str:
    return "mainstem." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
