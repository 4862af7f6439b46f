"""``mainstem pipeline`` and ``mainstem-connect``: run and inspect pipeline files.

Spark is started only by ``run``, ``dry-run`` and ``test``; all other commands return at once.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.errors import ExitCode
from mainstem.cli.output.render import Output, show_confirmation, show_one, show_rows
from mainstem.cli.parameters.shared import OutputForm

if TYPE_CHECKING:
    from mainstem.pipelines.file.loader import PipelineFile
    from mainstem.pipelines.problems import Problems

app = typer.Typer(
    help="Data pipelines: connectors, transforms and topics, on Spark.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="A pipeline file, YAML.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="sources.NAME, sinks.NAME or NAME.")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help="Only this pipeline; may be repeated."),
]


@app.command("run")
def run(
    file: File,
    only: Only = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when all data that exists now is processed.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")] = False,
) -> None:
    """Run the pipelines of a file until Ctrl-C."""
    from mainstem.cli.pipeline_run import run_file

    raise typer.Exit(run_file(load(file, only), once=once, quiet=quiet))


@app.command("validate")
def validate(file: File, output: OutputForm = Output.TABLE) -> None:
    """Report every problem of a file, with line and column. Nothing is started."""
    loaded = load(file, output=output)
    count = len(loaded.pipelines)
    for warning in loaded.warnings:
        if output is Output.TABLE:
            print(f"{file}:{warning.line}:{warning.column}: warning: {warning.path}: "
                  f"{warning.message}")  # fmt: skip
    show_confirmation(
        f"{file}: {count} pipeline{'s' * (count != 1)}, no problems",
        {
            "file": str(file),
            "pipelines": [each.id for each in loaded.pipelines],
            "warnings": [str(warning) for warning in loaded.warnings],
        },
        output,
    )


@app.command("check")
def check(file: File, only: Only = None, output: OutputForm = Output.TABLE) -> None:
    """Check the connections to the broker and to the systems of all connectors."""
    from mainstem.pipelines.running.checks import check_broker, check_pipeline

    loaded = load(file, only)
    found = check_broker(loaded.model.broker)
    for pipeline in loaded.pipelines:
        found += check_pipeline(pipeline, loaded)
    rows = [
        {
            "what": each.what,
            "result": each.finding.severity.value,
            "message": each.finding.message,
            "remedy": each.finding.remedy or None,
        }
        for each in found
    ]
    show_rows(rows, output, columns=["what", "result", "message", "remedy"])
    if any(each.is_error for each in found):
        retriable = all(each.finding.retriable for each in found if each.is_error)
        raise typer.Exit(ExitCode.UNAVAILABLE if retriable else ExitCode.FAILED)


@app.command("discover")
def discover(file: File, name: Name, output: OutputForm = Output.TABLE) -> None:
    """List what a source could read, with columns and keys."""
    loaded = load(file)
    from mainstem.pipelines.file.loader import SourcePipeline

    pipeline = loaded.pipeline(name)
    if not isinstance(pipeline, SourcePipeline):
        from mainstem.cli.errors import UsageFailure

        raise UsageFailure("only sources support discovery", subject=pipeline.id)
    found = pipeline.connector.discover(pipeline.config)
    rows = [
        {
            "name": each.name,
            "key": list(each.key),
            "rows": each.rows_estimate,
            "columns": [f"{column.name} {column.type}" for column in each.columns],
            "config": each.config,
        }
        for each in found
    ]
    columns = ["name", "key", "rows", "columns"]
    show_rows(rows, output, columns=columns)


@app.command("dry-run")
def dry_run(
    file: File,
    name: Name,
    records: Annotated[int, typer.Option("--records", "-n", min=1, max=10_000)] = 5,
    patience: Annotated[
        float, typer.Option("--patience", min=0.1, metavar="SECONDS", help="Wait for records.")
    ] = 10.0,
) -> None:
    """Send a few real records through a pipeline and print them instead of writing them."""
    from mainstem.cli.pipeline_run import print_dry_run

    loaded = load(file)
    print_dry_run(loaded, loaded.pipeline(name), records=records, patience_s=patience)


@app.command("test")
def run_tests(file: File, output: OutputForm = Output.TABLE) -> None:
    """Run the tests of a file: records in, expected records out."""
    from mainstem.cli.pipeline_run import run_cases

    outcomes = run_cases(load(file))
    rows = [
        {
            "test": each.case,
            "result": "passed" if each.passed else "failed",
            "differences": list(each.differences),
        }
        for each in outcomes
    ]
    if output is Output.TABLE:
        for row in rows:
            print(f"{row['result']}: {row['test']}")
            for line in row["differences"]:
                print(f"    {line}")
    else:
        show_rows(rows, output)
    if not all(each.passed for each in outcomes):
        raise typer.Exit(ExitCode.FAILED)


@app.command("status")
def status(file: File, output: OutputForm = Output.TABLE) -> None:
    """Show the state of the pipelines of a running file."""
    from msgspec import to_builtins

    from mainstem.pipelines.running.state_folder import is_locked
    from mainstem.pipelines.running.status import read_status

    loaded = load(file)
    folder = Path(loaded.model.settings.state_dir)
    found = read_status(folder)
    if found is None:
        from mainstem.model.errors import ErrorCode, InvalidRequest

        raise InvalidRequest(
            ErrorCode.UNKNOWN_RESOURCE, "these pipelines have never run", subject=str(folder)
        )
    running = is_locked(folder)
    rows = [
        {
            "pipeline": each.id,
            "state": each.state.value if running or each.state.value != "running" else "stopped",
            "records": each.records,
            "dead": each.dead_letters,
            "batches": each.batches,
            "restarts": each.restarts,
            "per_second": each.records_per_second if running else 0.0,
            "error": each.error or None,
            "progress": None if each.progress is None else to_builtins(each.progress),
            "gauges": each.gauges,
        }
        for each in found.pipelines
    ]
    if output is Output.TABLE:
        columns = ["pipeline", "state", "records", "dead", "batches", "restarts", "per_second"]
        show_rows(rows, output, columns=[*columns, "error"])
    else:
        show_one({"running": running, "pid": found.pid, "pipelines": rows}, output)
    if not running:
        raise typer.Exit(ExitCode.UNAVAILABLE)


@app.command("sources")
def sources(file: File, output: OutputForm = Output.TABLE) -> None:
    """List the sources of a file."""
    rows = [
        {
            "name": each.name,
            "connector": each.entry.connector,
            "topic": getattr(each.entry, "topic", None),
            "steps": len(each.plan.steps),
            "enabled": each.entry.enabled,
        }
        for each in load(file).pipelines
        if each.kind == "source"
    ]
    show_rows(rows, output, columns=["name", "connector", "topic", "steps", "enabled"])


@app.command("sinks")
def sinks(file: File, output: OutputForm = Output.TABLE) -> None:
    """List the sinks of a file."""
    rows = [
        {
            "name": each.name,
            "connector": each.entry.connector,
            "topics": getattr(each.entry, "topics", None),
            "steps": len(each.plan.steps),
            "enabled": each.entry.enabled,
        }
        for each in load(file).pipelines
        if each.kind == "sink"
    ]
    show_rows(rows, output, columns=["name", "connector", "topics", "steps", "enabled"])


@app.command("connectors")
def connectors(output: OutputForm = Output.TABLE) -> None:
    """List every installed connector, and which extra installs what is missing."""
    _needs_spark()
    from mainstem.pipelines.connector.registry import Registry

    rows = [
        {
            "name": spec.name,
            "kind": spec.kind,
            "category": spec.category.value,
            "delivery": spec.delivery.value,
            "title": spec.title,
            "available": not spec.missing,
            "extra": f"mainstem[{spec.extra}]" if spec.extra else None,
        }
        for spec in Registry().inventory()
    ]
    show_rows(rows, output)


@app.command("schema")
def schema(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="TYPE", help="A connector, a transform, 'file', or 'NAME source' in full."
        ),
    ],
    which: Annotated[str | None, typer.Argument(metavar="[source|sink]")] = None,
) -> None:
    """Print the JSON Schema of a connector's or a transform's settings, or of the whole file."""
    import msgspec

    from mainstem.cli.pipeline_run import schema_of

    _needs_spark()
    print(msgspec.json.format(msgspec.json.encode(schema_of(kind, which)), indent=2).decode())


def load(
    file: Path, only: list[str] | None = None, output: Output = Output.TABLE
) -> "PipelineFile":
    """The pipelines of a file, or the selected ones; problems end the command."""
    _needs_spark()
    from msgspec.structs import replace

    from mainstem.pipelines.file.loader import read_file
    from mainstem.pipelines.problems import Problems

    try:
        loaded = read_file(file, os.environ)
    except Problems as error:
        _show_problems(error, file, output)
        raise typer.Exit(ExitCode.BAD_CONFIGURATION) from None
    if not only:
        return loaded
    wanted = {loaded.pipeline(name).id for name in only}
    kept = tuple(each for each in loaded.pipelines if each.id in wanted)
    return replace(loaded, pipelines=kept)


def _show_problems(error: "Problems", file: Path, output: Output) -> None:
    """One line each, as compilers write them, so that editors can jump to the place."""
    if output is not Output.TABLE:
        from msgspec import to_builtins

        show_one({"file": str(file), "problems": to_builtins(error.problems)}, output)
        return
    for problem in error.problems:
        print(f"{file}:{problem}", file=sys.stderr)
    count = len(error.problems)
    print(f"{count} problem{'s' * (count != 1)}; nothing was started", file=sys.stderr)


def _needs_spark() -> None:
    """Raises without PySpark: connectors subclass its classes even if Spark is not started."""
    import importlib.util

    if importlib.util.find_spec("pyspark") is None:
        from mainstem.model.errors import ErrorCode, InvalidRequest

        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            "pipelines need PySpark, which is not installed",
            remedy="pip install 'mainstem[connect]'",
        )


def connect() -> None:
    """Entry point of ``mainstem-connect``: the same commands without the word ``pipeline``."""
    from mainstem.cli.main import main

    arguments = sys.argv[1:]
    if arguments[:1] == ["--version"]:
        main(arguments)
    else:
        main(["pipeline", *arguments])
