"""Which bytes of a file have been checked since it was opened.

    checked           not looked at       checked after a jump         written by this process
    0 ───── prefix ─────────────── island_start ──── island_until ───── own_start ──────── size

A reader that continues where it was extends the prefix or the island; one that jumps starts a
new island, so that a read in the middle of a large file need not check all before it.
"""


class VerifiedBytes:
    """Marks over one file; forgetting an island only means checking it again."""

    __slots__ = ("_island_start", "_island_until", "own_start", "prefix")

    def __init__(self) -> None:
        self.prefix = 0
        self.own_start = 0
        self._island_start = 0
        self._island_until = 0

    def adopt(self, size: int, *, checked: bool) -> None:
        """The file was on disk before; ``checked``: a scan has verified all of it."""
        self.own_start = size
        self.prefix = size if checked else 0

    def covers(self, start: int, until: int) -> bool:
        """Whether nothing in the interval needs a check."""
        return (
            start >= self.own_start
            or until <= self.prefix
            or (self._island_start <= start and until <= self._island_until)
        )

    def add(self, start: int, until: int) -> None:
        """The interval was checked."""
        if start <= self.prefix:
            self.prefix = max(self.prefix, until)
        elif self._island_start <= start <= self._island_until:
            self._island_until = max(self._island_until, until)
        else:
            self._island_start, self._island_until = start, until

    def cut(self, size: int) -> None:
        """The file ends here now."""
        self.own_start = min(self.own_start, size)
        self.prefix = min(self.prefix, size)
        self._island_start = self._island_until = 0
