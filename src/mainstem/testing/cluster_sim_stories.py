"""Story after story of ``cluster_sim``, kept in a file, so that a long run can be taken up again.

    python -m mainstem.testing.cluster_sim_stories --seed 1 --hours 20 --keep stories.jsonl

Promises: a story that the file holds is not told again, and counts, as long as the program is the
same to the last letter; a broken promise is written down with its seed, told at the end, and makes
the command fail; the others go on meanwhile.
"""

import argparse
import gc
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

import mainstem
from mainstem.testing.cluster_sim import STORY_S, tell

POLICIES: Final = ("written", "fsync")


class Story(msgspec.Struct, frozen=True):
    """How one story went."""

    source: str
    seed: int
    seconds: float
    trace: str
    cpu_s: float
    counts: dict[str, int]
    violation: str = ""


def source() -> str:
    """The text of the program in a few digits."""
    digest = blake2b(digest_size=8)
    for path in sorted(Path(mainstem.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


SOURCE: Final = source()
_stories = msgspec.json.Decoder(Story)


def live_through(seed: int, seconds: float) -> Story:
    """Tell one story; what it broke is in the outcome."""
    began_s = time.process_time()
    try:
        sim = tell(seed, seconds, policy=POLICIES[seed % 2])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
        sys.stderr.write("".join(traceback.format_exception(error)))
        took_s = time.process_time() - began_s
        return Story(SOURCE, seed, seconds, "", took_s, {}, f"{type(error).__name__}: {error}")
    counts = {**sim.counts, "acknowledged": len(sim.clients.acked)}
    took_s = time.process_time() - began_s
    return Story(SOURCE, seed, seconds, sim.trace.digest, took_s, counts)


def stories(seeds: range, seconds: float, keep: Path | None) -> Iterator[Story]:
    """Every story of these seeds: from the file where it holds it, told otherwise."""
    kept: dict[int, Story] = {}
    if keep is not None and keep.exists():
        for line in keep.read_bytes().splitlines():
            story = _stories.decode(line)
            if (story.source, story.seconds, story.violation) == (SOURCE, seconds, ""):
                kept[story.seed] = story
    for seed in seeds:
        story = kept.get(seed) or live_through(seed, seconds)
        if keep is not None and seed not in kept:
            with keep.open("ab") as file:
                file.write(msgspec.json.encode(story) + b"\n")
        yield story


def summary(told: Iterable[Story]) -> str:
    """All stories in a few lines."""
    total: Counter[str] = Counter()
    whole = blake2b(digest_size=8)
    count, seconds, cpu_s = 0, 0.0, 0.0
    for story in told:
        total.update(story.counts)
        whole.update(story.trace.encode())
        count += 1
        seconds += story.seconds
        cpu_s += story.cpu_s
    hours = seconds / 3600
    seen = ", ".join(f"{number} {what}" for what, number in sorted(total.items()))
    return (
        f"{count} stories, {hours:.3g} h in {cpu_s:.0f} CPU s: {seen}\ntrace {whole.hexdigest()}\n"
    )


def main() -> int:
    """Tell story after story, for so many hours of their time; each can be told alone again."""
    parser = argparse.ArgumentParser(prog="mainstem sim", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first story")
    parser.add_argument("--hours", type=float, default=1.0, help="how long, all stories together")
    parser.add_argument("--seconds", type=float, default=STORY_S, help="how long a story is")
    parser.add_argument("--keep", type=Path, help="a file of stories, to be taken up again")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    gc.set_threshold(20_000, 20, 50)  # a story leaves little behind until it is over
    count = max(1, round(args.hours * 3600 / args.seconds))
    told: list[Story] = []
    for story in stories(range(args.seed, args.seed + count), args.seconds, args.keep):
        told.append(story)
        outcome = story.violation or f"{story.counts['acknowledged']} acknowledged"
        sys.stdout.write(f"seed {story.seed} trace {story.trace} {outcome}\n")
        sys.stdout.flush()
    broken = [story for story in told if story.violation]
    sys.stdout.write(summary(told))
    sys.stdout.write(f"{len(broken)} violations; go on with --seed {args.seed + count}\n")
    for story in broken:
        sys.stdout.write(f"  seed {story.seed}: {story.violation}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
