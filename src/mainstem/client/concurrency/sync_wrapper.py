"""Blocking wrappers of asyncio clients: the same names, the same arguments.

    class BlockingAdmin(SyncWrapper[Admin]):
        create_topic = waits(Admin.create_topic)

A wrapper opens its asyncio client in the loop of ``LoopThread`` and calls it there; types follow
from those of the asyncio client.
"""

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from mainstem.client.concurrency.loop_thread import LoopThread
from mainstem.model.errors import ErrorCode, InvalidRequest

Inner = TypeVar("Inner", bound=AbstractAsyncContextManager[Any])
Part = TypeVar("Part")
Asked = ParamSpec("Asked")
Result = TypeVar("Result")


class SyncMethods(Generic[Part]):
    """Runs the calls of an object in the loop."""

    def __init__(self, thread: LoopThread, inner: Part) -> None:
        self._thread = thread
        self._inner = inner

    @property
    def parts(self) -> tuple[LoopThread, Part]:
        """The thread that runs the calls, and the object they are made on."""
        return self._thread, self._inner


class SyncWrapper(Generic[Inner]):
    """A context manager over an async context manager.

    Args:
        make: makes the asyncio client; called in the loop.
    """

    def __init__(self, make: Callable[[], Inner]) -> None:
        self._make = make
        self._parts: tuple[LoopThread, Inner] | None = None

    def __enter__(self) -> Self:
        if self._parts is not None:
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, "the client is open already")
        thread = LoopThread.lent()
        try:
            self._parts = thread, thread.call(_opened(self._make))
        except BaseException:
            thread.give_back()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._parts is None:
            return
        thread, inner = self._parts
        try:
            thread.call(_left(inner, kind, error, trace))
        finally:
            self._parts = None
            thread.give_back()

    def close(self) -> None:
        """Closes the client, like leaving its block."""
        self.__exit__(None, None, None)

    @property
    def parts(self) -> tuple[LoopThread, Inner]:
        """The thread that runs the calls, and the object they are made on.

        Raises:
            InvalidRequest: the client is not open.
        """
        if self._parts is None:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, "the client is not open", remedy="use it in a with block"
            )
        return self._parts


def waits(
    method: Callable[Concatenate[Part, Asked], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Any, Asked], Result]:
    """The blocking form of a coroutine method: it waits for the result."""

    def wait(self: Any, /, *args: Asked.args, **words: Asked.kwargs) -> Result:
        thread, inner = _parts_of(self)
        return thread.call(method(inner, *args, **words))

    update_wrapper(wait, method)
    return wait


def at_once(
    method: Callable[Concatenate[Part, Asked], Result],
) -> Callable[Concatenate[Any, Asked], Result]:
    """The blocking form of a method that does not wait: it runs in the loop."""

    def do(self: Any, /, *args: Asked.args, **words: Asked.kwargs) -> Result:
        thread, inner = _parts_of(self)
        return thread.run(lambda: method(inner, *args, **words))

    update_wrapper(do, method)
    return do


def _parts_of(wrapper: Any) -> tuple[LoopThread, Any]:
    parts: tuple[LoopThread, Any] = wrapper.parts
    return parts


async def _opened(make: Callable[[], Inner]) -> Inner:
    inner = make()
    await inner.__aenter__()
    return inner


async def _left(
    inner: AbstractAsyncContextManager[Any],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    await inner.__aexit__(kind, error, trace)
