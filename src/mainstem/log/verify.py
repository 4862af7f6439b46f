"""Checking every byte of every file of a range."""

from pathlib import Path

from mainstem.log.checked_file import read_checked
from mainstem.log.damage import Damage
from mainstem.log.identity import SNAPSHOT_KIND, read_range_header, read_seal
from mainstem.log.index import read_index
from mainstem.log.naming import OPENING_SNAPSHOT, RANGE_HEADER, RANGE_SEAL
from mainstem.log.segment import Segment
from mainstem.log.segment_read import check_segment
from mainstem.model.errors import Corrupt


def verify_range(directory: Path, segments: list[Segment]) -> list[Damage]:
    """All findings in the files of one range."""
    if not segments:
        return []
    found = verify_small_files(directory)
    until = segments[0].base_offset
    for segment in segments:
        if segment.base_offset != until and not segment.dense:
            found.append(Damage(segment.path, 0, f"begins where {until} is expected", until))
        until = segment.until_offset
        damage = check_segment(segment)
        if damage is not None:
            found.append(damage)
        if segment.finished:
            found.extend(verify_index(segment))
    return found


def verify_small_files(directory: Path) -> list[Damage]:
    """Findings in header, snapshot and seal."""
    found = []
    try:
        read_range_header(directory)
    except (Corrupt, FileNotFoundError) as error:
        found.append(Damage(directory / RANGE_HEADER, 0, str(error)))
    try:
        read_checked(directory / OPENING_SNAPSHOT, SNAPSHOT_KIND)
    except FileNotFoundError:
        pass  # a range may open without one
    except Corrupt as error:
        found.append(Damage(directory / OPENING_SNAPSHOT, 0, str(error)))
    try:
        read_seal(directory)
    except Corrupt as error:
        found.append(Damage(directory / RANGE_SEAL, 0, str(error)))
    return found


def verify_index(segment: Segment) -> list[Damage]:
    """Findings in the two index files of a finished segment."""
    path = segment.path.with_suffix(".index")
    try:
        summary, _ = read_index(segment.path)
    except (Corrupt, FileNotFoundError) as error:
        return [Damage(path, 0, str(error))]
    if summary != segment.summary:
        return [Damage(path, 0, "the index tells of another state of the log")]
    return []
