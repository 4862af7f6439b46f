"""The client processes of a transactional load: who runs, who sleeps, who came back from the dead.

Promises: every process is gone when the block is left; a process that ends in a way it should not
is reported with what it printed; how many transactions have ended is known while they run.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.chaos.transaction_process import FENCED_STATUS

ENDED = b'["ended",'
WISH = b'"wish",'
READY = b'["ready",'
STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Part:
    """A client that must always run: its role, and the arguments of every incarnation."""

    name: str
    role: str
    arguments: tuple[str, ...]


@dataclass
class Actor:
    """One process of a client."""

    part: Part
    incarnation: int
    journal: Path
    process: subprocess.Popen[bytes]
    # When it was stopped and when it went on.
    pauses: list[tuple[float, float]] = field(default_factory=list)
    stopped_at: float | None = None
    is_replaced: bool = False
    is_done: bool = False
    ended: int = 0
    _read_until: int = 0

    def stop(self) -> None:
        """Let it sleep, whatever it is doing."""
        self.stopped_at = time.monotonic()
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on as if nothing had happened."""
        if self.stopped_at is not None:
            self.pauses.append((self.stopped_at, time.monotonic()))
            self.stopped_at = None
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def has_id(self) -> bool:
        """Whether it has taken its transactional id over; the first thing that it does."""
        if not self.journal.exists():
            return False
        with self.journal.open("rb") as file:
            return file.read(len(READY)) == READY

    def is_ending(self) -> bool:
        """Whether it has just asked for its transaction to end and got no answer yet."""
        if not self.journal.exists():
            return False  # its process has only just been started
        with self.journal.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 200))
            return WISH in file.read().rpartition(b"\n[")[2]

    def count(self) -> int:
        """How many of its transactions have ended so far."""
        if self.journal.exists():
            with self.journal.open("rb") as file:
                file.seek(self._read_until)
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._read_until += whole
            self.ended += data[:whole].count(ENDED)
        return self.ended


class Cast:
    """Every client process that was ever started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.actors: list[Actor] = []
        self._incarnations: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for actor in self.actors:
            if actor.process.poll() is None:
                actor.kill()

    def start(self, part: Part) -> Actor:
        """Start the next incarnation of a client."""
        incarnation = self._incarnations[part.name] = self._incarnations.get(part.name, -1) + 1
        journal = self._folder / f"{part.name}.{incarnation}.journal"
        command = [sys.executable, "-m", "tests.chaos.transaction_main", part.role]
        command += ["--id", part.name, "--incarnation", str(incarnation)]
        command += ["--journal", str(journal), *part.arguments]
        with journal.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        actor = Actor(part, incarnation, journal, process)
        self.actors.append(actor)
        return actor

    def replace(self, actor: Actor) -> Actor:
        """Start a successor; from now on the actor is nobody."""
        actor.is_replaced = True
        return self.start(actor.part)

    def acting(self, *roles: str) -> list[Actor]:
        """Those who have no successor and are awake, of some roles or all."""
        return [
            one
            for one in self.actors
            if not (one.is_replaced or one.is_done)
            and one.stopped_at is None
            and (not roles or one.part.role in roles)
        ]

    def zombies(self) -> list[Actor]:
        """Those who were replaced and do not know it yet."""
        return [one for one in self.actors if one.is_replaced and one.process.poll() is None]

    def count(self) -> int:
        """How many transactions have ended so far."""
        return sum(actor.count() for actor in self.actors)

    def renew(self) -> None:
        """Whoever was fenced without a successor, as after a time-out, gets one."""
        for actor in self.acting():
            status = actor.process.poll()
            if status is None:
                continue
            assert status == FENCED_STATUS, self.story(actor)
            self.replace(actor)

    def finish(self, *roles: str) -> None:
        """Let clients end after their last transaction."""
        for actor in self.acting(*roles):
            self._finish(actor)

    def _finish(self, actor: Actor) -> None:
        while True:
            self._await_start(actor)
            actor.process.terminate()
            try:
                status = actor.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"does not end: {self.story(actor)}") from None
            if status == 0:
                actor.is_done = True
                return
            # A successor ends what a fenced one has left open.
            assert status == FENCED_STATUS, self.story(actor)
            actor = self.replace(actor)

    def _await_start(self, actor: Actor) -> None:
        """Until the process listens: before, it cannot be asked to end."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while actor.process.poll() is None and not actor.journal.exists():
            assert time.monotonic() < deadline, f"does not start: {self.story(actor)}"
            time.sleep(0.02)

    def story(self, actor: Actor) -> str:
        """How a process ended and what it said."""
        name = f"{actor.part.name}.{actor.incarnation}"
        said = actor.journal.with_suffix(".log").read_text(errors="replace")[-2_000:]
        lines: list[str] = []
        if actor.journal.exists():
            lines = actor.journal.read_text(errors="replace").splitlines()[-5:]
        return "\n".join([f"{name}, status {actor.process.returncode}", *lines, said])
