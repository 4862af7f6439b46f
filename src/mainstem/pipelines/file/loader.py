"""Loads the text of a file to pipelines that can run, or reports every problem at once.

This does not start Spark or open a connection: it finds the problems that are visible in the file,
the environment and the installed packages.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.pipelines.connector.registry import Registry
from mainstem.pipelines.connector.shapes import Sink, Source
from mainstem.pipelines.connector.spec import Spec
from mainstem.pipelines.file import rules
from mainstem.pipelines.file.document import Document, parse, typed
from mainstem.pipelines.file.model import Case, FileModel, SinkEntry, SourceEntry
from mainstem.pipelines.file.secrets import Secrets
from mainstem.pipelines.file.validation import Mismatch, fit, secrets_in
from mainstem.pipelines.problems import FileProblem, Problems
from mainstem.pipelines.transforms import Plan, compile_steps


class _Pipeline(Struct, frozen=True, kw_only=True):
    """The common part of sources and sinks; the steps are compiled once, with the file."""

    kind: ClassVar[str]
    name: str
    config: Struct
    plan: Plan

    @property
    def id(self) -> str:
        """The path in the file: ``sources.orders``."""
        return f"{self.kind}s.{self.name}"


class SourcePipeline(_Pipeline, frozen=True, kw_only=True):
    """One source of a file, ready to run."""

    kind = "source"
    entry: SourceEntry
    connector: Source[Any]


class SinkPipeline(_Pipeline, frozen=True, kw_only=True):
    """One sink of a file, ready to run."""

    kind = "sink"
    entry: SinkEntry
    connector: Sink[Any]


Pipeline = SourcePipeline | SinkPipeline


class PipelineFile(Struct, frozen=True, kw_only=True):
    """A file without problems."""

    model: FileModel
    pipelines: tuple[Pipeline, ...]
    warnings: tuple[FileProblem, ...]
    secrets: Secrets
    name: str = ""

    @property
    def cases(self) -> list[Case]:
        """The tests in the file."""
        return self.model.tests

    def pipeline(self, wanted: str) -> Pipeline:
        """The pipeline ``sources.NAME``, ``sinks.NAME``, or ``NAME`` if it is unique.

        Raises:
            InvalidRequest: it does not exist, or is ambiguous.
        """
        found = [each for each in self.pipelines if wanted in {each.id, each.name}]
        if len(found) == 1:
            return found[0]
        names = ", ".join(each.id for each in found or self.pipelines)
        cause = "names more than one pipeline" if found else "is not a pipeline of this file"
        raise InvalidRequest(
            ErrorCode.UNKNOWN_RESOURCE,
            f"{wanted!r} {cause}",
            subject=wanted,
            remedy=f"use one of {names}",
        )


def read_file(
    path: Path, environment: Mapping[str, str], registry: Registry | None = None
) -> PipelineFile:
    """The pipelines of a file.

    Raises:
        InvalidRequest: the file does not exist.
        Problems: all problems of the file, each with line and column.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidRequest(
            ErrorCode.UNKNOWN_RESOURCE, f"the file cannot be read: {cause}", subject=str(path)
        ) from None
    try:
        return read_text(text, environment, registry, name=str(path))
    except Problems as error:
        raise Problems(error.problems, subject=str(path)) from None


def read_text(
    text: str, environment: Mapping[str, str], registry: Registry | None = None, *, name: str = ""
) -> PipelineFile:
    """The pipelines of a file's text.

    Raises:
        Problems: all problems of the file, each with line and column.
    """
    secrets = Secrets()
    document = parse(text, environment, secrets)
    reader = _DocumentReader(document, registry or Registry(), secrets)
    return reader.read(name)


class _DocumentReader:
    """Collects problems while it reads one document."""

    def __init__(self, document: Document, registry: Registry, secrets: Secrets) -> None:
        self._document = document
        self._registry = registry
        self._secrets = secrets
        self._problems = list(document.problems)
        self._warnings: list[FileProblem] = []

    def read(self, name: str) -> PipelineFile:
        if not isinstance(self._document.value, dict):
            remedy = "start with version, sources and sinks"
            self._report(FileProblem("", "the file is empty or not a mapping", remedy))
            raise self._failure()
        model, mismatches = fit(self._document.value, FileModel, "")
        self._take(mismatches)
        # Entries are checked one by one even when the file as a whole is invalid.
        pipelines = [
            *self._entries("source", SourcePipeline, SourceEntry, self._registry.source),
            *self._entries("sink", SinkPipeline, SinkEntry, self._registry.sink),
        ]
        if model is not None:
            for problem in rules.problems_of(model):
                self._report(problem)
            for warning in rules.warnings_of(model):
                self._warnings.append(self._document.located(warning))
            for secret in secrets_in(model.broker):
                self._secrets.add(secret)
        if self._problems or model is None:
            raise self._failure()
        return PipelineFile(
            model=model,
            pipelines=tuple(pipelines),
            warnings=tuple(self._warnings),
            secrets=self._secrets,
            name=name,
        )

    def _entries(
        self,
        kind: str,
        make: Callable[..., Pipeline],
        type_: type[SourceEntry | SinkEntry],
        find: Callable[[str], Source[Any] | Sink[Any]],
    ) -> Iterator[Pipeline]:
        assert isinstance(self._document.value, dict)
        entries = self._document.value.get(f"{kind}s")
        if not isinstance(entries, dict):
            return
        for name, raw in entries.items():
            path = f"{kind}s.{name}"
            if not re.fullmatch(rules.NAME, name):
                remedy = "letters, digits, _ and -, at most 100"
                self._report(FileProblem(path, "not a valid pipeline name", remedy), at_key=True)
            if not isinstance(raw, dict) or not isinstance(raw.get("connector"), str):
                continue
            plan = self._plan(raw.get("transforms"), f"{path}.transforms")
            connector = self._connector(find, str(raw["connector"]), path)
            spec = None if connector is None else connector.spec()
            entry = self._entry(raw, type_, path)
            if entry is not None:
                for problem in rules.problems_of_entry(path, entry, spec):
                    self._report(problem)
            if connector is None or spec is None:
                continue
            config = self._config(spec, raw.get("config") or {}, f"{path}.config")
            if config is None or entry is None:
                continue
            yield make(name=name, entry=entry, connector=connector, config=config, plan=plan)

    def _entry(
        self, raw: dict[str, Any], type_: type[SourceEntry | SinkEntry], path: str
    ) -> SourceEntry | SinkEntry | None:
        """The entry without invalid parts, which were reported with the file as a whole."""
        entry, mismatches = fit(raw, type_, path)
        if entry is not None:
            return entry
        wrong = {m.problem.path.removeprefix(f"{path}.") for m in mismatches}
        wrong = {re.split(r"[.\[]", each)[0] for each in wrong}
        entry, _ = fit({name: raw[name] for name in raw if name not in wrong}, type_, path)
        return entry

    def _connector(
        self, find: Callable[[str], Source[Any] | Sink[Any]], name: str, path: str
    ) -> Source[Any] | Sink[Any] | None:
        try:
            found = find(name)
            found.spec().require()
        except MainstemError as error:
            self._report(FileProblem(f"{path}.connector", error.cause, error.remedy))
            return None
        return found

    def _config(self, spec: Spec, raw: object, path: str) -> Struct | None:
        config, mismatches = fit(raw, spec.config, path)
        self._take(mismatches)
        if config is not None:
            for secret in secrets_in(config):
                self._secrets.add(secret)
        return config

    def _plan(self, raw: object, path: str) -> Plan:
        """The compiled steps; empty if there are problems, which end the reading."""
        steps = typed(raw)
        if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
            return Plan()  # already reported by the check of the file's structure
        try:
            return compile_steps(steps, path)
        except Problems as error:
            for problem in error.problems:
                self._report(problem)
        return Plan()

    def _take(self, mismatches: Iterable[Mismatch]) -> None:
        # A variable that is not set is reported once, not again as a value of the wrong type.
        reported = {problem.path for problem in self._document.problems}
        for mismatch in mismatches:
            if mismatch.problem.path not in reported:
                self._report(mismatch.problem, at_key=mismatch.at_key)

    def _report(self, problem: FileProblem, *, at_key: bool = False) -> None:
        located = self._document.located(problem, at_key=at_key)
        self._problems.append(
            FileProblem(
                located.path,
                self._secrets.redact(located.message),
                located.remedy,
                located.line,
                located.column,
            )
        )

    def _failure(self) -> Problems:
        unique = dict.fromkeys(self._problems)
        return Problems(sorted(unique, key=lambda each: (each.line or 0, each.column or 0)))
