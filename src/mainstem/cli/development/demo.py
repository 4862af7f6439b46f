"""The demonstration of ``mainstem dev --demo``, in a process of its own beside the node.

    python -m mainstem.cli.development.demo 127.0.0.1:9092 data/demo mainstem

It installs Spark if it is missing, runs the pipelines of ``demonstration.yaml`` and shows
what they count. Guarantees: SIGTERM, Ctrl-C or the end of the parent process (standard input
closes) stop the pipelines between two batches; a failure is reported in one sentence and ends
this process only.
"""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from mainstem.cli.development.demo_requirements import install, missing_modules
from mainstem.cli.output.live_line import LiveLine
from mainstem.client.admin import Admin, NewTopic
from mainstem.client.consumer import Consumer
from mainstem.client.settings import ConsumerSettings
from mainstem.client.values import ConsumerRecord, TopicPartition
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable

TEMPLATE: Final = Path(__file__).parents[2] / "pipelines" / "demonstration.yaml"
AGGREGATE: Final = "orders-per-minute"
TOPICS: Final = {"orders": 2, "orders-large": 1, AGGREGATE: 1}
USUAL_ADDRESS, USUAL_FOLDER = "127.0.0.1:9092", "data/demo"
POLL_MS: Final = 500
COUNTRIES_SHOWN: Final = 8
MINUTES_KEPT: Final = 2
LAST_LINES: Final = 3
RUN: Final = "from mainstem.cli.main import main; import sys; main(sys.argv[1:])"


class DemoEnvironment(Struct, frozen=True):
    """Where the demonstration runs: a node, a folder, and how the command line is called."""

    kafka: str
    folder: Path
    command: str

    @property
    def file(self) -> Path:
        """The pipeline file that is run."""
        return self.folder / "orders.yaml"

    @property
    def log(self) -> Path:
        """The log file of the pipelines."""
        return self.folder / "pipelines.log"

    def write_file(self) -> None:
        """The pipeline file of the package, with this node's address and this folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = TEMPLATE.read_text().replace(USUAL_ADDRESS, self.kafka)
        # The file has paths in single quotes.
        self.file.write_text(text.replace(USUAL_FOLDER, str(self.folder).replace("'", "''")))

    def hints(self) -> str:
        """Commands to paste that show the demonstration."""
        bootstrap = "" if self.kafka == USUAL_ADDRESS else f" -b {self.kafka}"
        file, files = (shlex.quote(str(path)) for path in (self.file, self.folder / "orders"))
        return "\n".join(
            [
                "",
                "The demonstration runs: generated orders flow through topics and pipelines.",
                "Run in another shell:",
                "",
                f"  {self.command} consume orders --follow --max 5{bootstrap}",
                f"  {self.command} consume {AGGREGATE} --follow{bootstrap}",
                f"  {self.command} group lag pipeline-archive{bootstrap}",
                f"  {self.command} pipeline status {file}",
                f"  ls {files}    # Parquet files",
                f"  less {file}    # what runs",
                "",
                "Ctrl-C stops the pipelines, then the node. Orders of this minute:",
                "",
            ]
        )


class Counts:
    """The latest figures of every country, by minute."""

    def __init__(self) -> None:
        self._minutes: dict[str, dict[str, tuple[int, float]]] = {}

    def take(self, record: ConsumerRecord) -> None:
        """One changed figure."""
        figures = json.loads(record.value or b"{}")
        countries = self._minutes.setdefault(figures["minute"], {})
        countries[figures["country"]] = (figures["orders"], figures["total"])
        for minute in sorted(self._minutes)[:-MINUTES_KEPT]:
            del self._minutes[minute]

    def line(self) -> str:
        """The newest minute in one line."""
        minute = max(self._minutes)
        countries = self._minutes[minute]
        orders = sum(count for count, _ in countries.values())
        total = sum(amount for _, amount in countries.values())
        each = "  ".join(
            f"{name} {count}" for name, (count, _) in sorted(countries.items())[:COUNTRIES_SHOWN]
        )
        return f"  {minute[11:16]}  {orders:>5} orders  {total:>12,.2f}   {each}"


async def run_demo(environment: DemoEnvironment, line: LiveLine) -> None:
    """Install, start, show, until cancelled.

    Raises:
        MainstemError: a requirement is missing, or the pipelines have ended.
    """
    if missing_modules():
        await install(line)
    line.print_line("Starting Spark for the demonstration ...")
    environment.write_file()
    await _create_topics(environment.kafka)
    with environment.log.open("ab") as log:
        pipelines = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", RUN, "pipeline", "run", str(environment.file), "--quiet"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    ended = asyncio.ensure_future(pipelines.wait())
    shown = asyncio.ensure_future(_follow(environment, line))
    try:
        await asyncio.wait([ended, shown], return_when=asyncio.FIRST_COMPLETED)
        if shown.done():
            shown.result()  # only an error ends it
        raise Unavailable(
            ErrorCode.SHUTTING_DOWN,
            f"The pipelines ended with code {ended.result()}:\n{_last_lines(environment.log)}",
            subject=str(environment.log),
            remedy=f"see {environment.log}",
        )
    finally:
        shown.cancel()
        if not ended.done():
            line.print_line("Stopping the pipelines ...")
            with contextlib.suppress(ProcessLookupError):
                pipelines.terminate()
            await ended


async def _create_topics(kafka: str) -> None:
    # Generated orders have generated timestamps; retention goes by the clock of the node.
    configs = {"message.timestamp.type": "LogAppendTime"}
    async with Admin(kafka) as admin:
        existing = await admin.list_topics()
        missing = [
            NewTopic(name=name, partitions=count, configs=configs)
            for name, count in TOPICS.items()
            if name not in existing
        ]
        if missing:
            await admin.create_topics(missing)


async def _follow(environment: DemoEnvironment, line: LiveLine) -> None:
    """Show the newest figures; the first ones also show that the pipelines run."""
    place = TopicPartition(AGGREGATE, 0)
    counts = Counts()
    is_greeted = False
    began = time.monotonic()
    async with Consumer(
        environment.kafka, settings=ConsumerSettings(reset="latest", isolation="read_committed")
    ) as consumer:
        consumer.assign([place])
        consumer.seek(place, (await consumer.offsets({place: -1}))[place].offset)
        while True:
            records = await consumer.poll(POLL_MS)
            for record in records:
                counts.take(record)
            if records:
                if not is_greeted:
                    line.print_line(environment.hints())
                line.show(counts.line(), at_once=not is_greeted)
                is_greeted = True
            elif not is_greeted:
                line.show(f"  {time.monotonic() - began:.0f} s")


def _last_lines(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    return "\n".join(f"    {line}" for line in lines)


async def _run_until_stopped(environment: DemoEnvironment, line: LiveLine) -> int:
    """Run until a signal arrives or standard input closes."""
    loop = asyncio.get_running_loop()
    playing = asyncio.ensure_future(run_demo(environment, line))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, playing.cancel)
    if stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
        loop.add_reader(sys.stdin, playing.cancel)
    try:
        await playing
    except asyncio.CancelledError:
        return 0
    except MainstemError as error:
        line.print_line(f"\nThe demonstration has ended; the node still runs.\n  {error.cause}")
        if error.remedy:
            line.print_line(f"  {error.remedy}")
        return 1
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the demonstration and return its exit code."""
    kafka, folder, command = arguments
    return asyncio.run(
        _run_until_stopped(DemoEnvironment(kafka, Path(folder), command), LiveLine())
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
