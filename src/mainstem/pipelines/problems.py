"""Problems of a pipeline file, all reported at once, each with its position and its remedy."""

import difflib
from collections.abc import Iterable

from msgspec import Struct

from mainstem.model.errors import ErrorCode, MainstemError

PROBLEMS_SHOWN_MAX = 100


class FileProblem(Struct, frozen=True):
    """One problem of a pipeline file.

    ``path`` is the path in the file (``sources.orders.transforms[2].field``); ``line`` and
    ``column`` count from one and are absent if no file was read.
    """

    path: str
    message: str
    remedy: str = ""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = "" if self.line is None else f"{self.line}:{self.column}: "
        text = f"{where}{self.path}: {self.message}" if self.path else f"{where}{self.message}"
        return f"{text} ({self.remedy})" if self.remedy else text


class Problems(MainstemError):
    """A file, or a part of it, that is invalid."""

    def __init__(self, problems: Iterable[FileProblem], *, subject: str = "") -> None:
        self.problems = tuple(problems)
        assert self.problems, "no problems"
        shown = [str(problem) for problem in self.problems[:PROBLEMS_SHOWN_MAX]]
        if (more := len(self.problems) - len(shown)) > 0:
            shown.append(f"and {more} more")
        super().__init__(ErrorCode.INVALID_CONFIG, "\n".join(shown), subject=subject)


def nearest(word: str, known: Iterable[str]) -> str:
    """A question with the known word that was probably meant; empty when none is similar."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {found[0]}?" if found else ""
