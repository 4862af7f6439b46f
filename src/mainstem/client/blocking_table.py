"""A topic as a table without asyncio; see ``mainstem.client.table``."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, ParamSpec, TypeVar

from mainstem.client import table
from mainstem.client.table import TableSettings

__all__ = ["TableSettings", "to_arrow", "to_pandas", "to_parquet", "to_polars"]

Asked = ParamSpec("Asked")
Result = TypeVar("Result")


def _run(work: Callable[Asked, Coroutine[Any, Any, Result]]) -> Callable[Asked, Result]:
    def run(*args: Asked.args, **words: Asked.kwargs) -> Result:
        return asyncio.run(work(*args, **words))

    return update_wrapper(run, work)


to_arrow = _run(table.to_arrow)
to_pandas = _run(table.to_pandas)
to_polars = _run(table.to_polars)
to_parquet = _run(table.to_parquet)
