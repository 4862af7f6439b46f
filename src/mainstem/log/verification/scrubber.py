"""Reads old bytes again, a little at a time, to find damage early.

The caller runs a step from time to time; a step checks a bounded number of bytes. Only finished
segments are scrubbed: the one being written is checked when it is read. A round that has seen every
segment starts over.
"""

import logging
from collections.abc import Callable, Iterable, Iterator

from mainstem.log.range_log import RangeLog
from mainstem.log.segments import scan
from mainstem.log.segments.segment import Segment
from mainstem.log.verification.damage import Damage, damage_of
from mainstem.log.verification.range_files import verify_index, verify_small_files
from mainstem.model.errors import Corrupt, Unavailable
from mainstem.model.file_errors import FileErrorKind, classify
from mainstem.model.limits import MIB

logger = logging.getLogger(__name__)

STEP_BYTES = 1 * MIB


class Scrubber:
    """Iterates over all logs; findings are passed to ``on_damage`` once per round."""

    def __init__(
        self, logs: Callable[[], Iterable[RangeLog]], on_damage: Callable[[Damage], None]
    ) -> None:
        self._logs = logs
        self._on_damage = on_damage
        self._round: Iterator[int] = iter(())
        self.rounds = 0
        self.checked_bytes = 0

    def step(self) -> int:
        """Check about ``STEP_BYTES``; how many bytes were checked, 0 at the end of a round.

        A file that cannot be read is damage, and the round continues behind it. A round that finds
        no free descriptor ends there: the next one checks what it left out.
        """
        done = 0
        while done < STEP_BYTES:
            try:
                size = next(self._round, None)
            except OSError as error:
                if classify(error) is not FileErrorKind.TRANSIENT:
                    raise
                logger.warning("a round of checks ends early: %s", error)
                size = None
            except Unavailable as error:
                logger.warning("a round of checks ends early: %s", error)
                size = None
            if size is None:
                self._round = self._walk()
                self.rounds += 1
                break
            done += size
        self.checked_bytes += done
        return done

    def _walk(self) -> Iterator[int]:
        for log in list(self._logs()):
            if log.segments and log.directory_synced and not log.closed:
                for damage in verify_small_files(log.directory):
                    self._on_damage(damage)
                yield 1
            for segment in list(log.segments):
                if segment.finished and not log.closed and segment in log.segments:
                    yield from self._walk_segment(log, segment)

    def _walk_segment(self, log: RangeLog, segment: Segment) -> Iterator[int]:
        found = verify_index(segment)
        for damage in found:
            self._on_damage(damage)
        if found and segment.dense:
            return
        try:
            # The range may be set aside, or deleted, as soon as damage is reported.
            until = self._check_size(segment)
            file = segment.file  # held, or the descriptor might be closed between two steps
            for header, _ in scan.check_file(
                file.fd, 0, until, segment.base_offset, segment.rules()
            ):
                yield header.size
                if log.closed or segment not in log.segments:
                    return  # trimmed or dropped between two steps
        except scan.BadBatch as bad:
            self._on_damage(Damage(segment.path, bad.position, bad.cause, bad.offset))
        except Corrupt as error:
            self._on_damage(Damage(segment.path, 0, error.cause))
        except FileNotFoundError:
            if not log.closed:
                self._on_damage(Damage(segment.path, 0, "the file is missing"))
        except OSError as error:
            self._on_damage(damage_of(error, segment.path))

    def _check_size(self, segment: Segment) -> int:
        """How many bytes of the segment there are to be checked."""
        size = segment.path.stat().st_size
        if size != segment.size:
            cause = f"{size} bytes where {segment.size} were written"
            self._on_damage(Damage(segment.path, min(size, segment.size), cause))
        return min(size, segment.size)
