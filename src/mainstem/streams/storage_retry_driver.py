"""Repeats a step that this node's storage refuses for now: a full disk, no free descriptor."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from mainstem.log.disk.file_access import storage_error
from mainstem.model.errors import STORAGE_RECOVERS, Unavailable

RETRY_S: Final = 0.5

ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)


def refusal_of(error: BaseException) -> Unavailable | None:
    """The transient refusal, if the error is one; raw file errors included."""
    if isinstance(error, OSError):
        error = storage_error(error, Path(str(error.filename or "the data folder")))
    if isinstance(error, Unavailable) and error.code in STORAGE_RECOVERS:
        return error
    return None


async def retried(
    step: Callable[[], ResultT], what: str, is_over: Callable[[], bool]
) -> ResultT | None:
    """Call ``step`` until storage allows it; None if ``is_over`` returns true first.

    Raises:
        BaseException: ``step`` failed in any other way.
    """
    is_logged = False
    while not is_over():
        try:
            return step()
        except (Unavailable, OSError) as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            if not is_logged:
                _log.warning("%s waits for this node's storage: %s", what, refusal)
                is_logged = True
        await asyncio.sleep(RETRY_S)
    return None
