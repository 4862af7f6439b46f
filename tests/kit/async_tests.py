"""A pytest plugin: ``async def`` tests and fixtures run on an event loop of their own.

Each test has a new loop, closed at its end like that of ``asyncio.run``: tasks that are left are
cancelled. The marker ``loop`` names another factory of loops, for a test or for a whole module:

    pytestmark = pytest.mark.loop(factory=uvloop.new_event_loop)

Async fixtures have the scope of one test and run on its loop.
"""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import Any, Final

import pytest
import uvloop

RUNNER: Final = "loop_runner"
ENDED: Final = object()


@pytest.fixture
def loop_runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    """The loop of one test."""
    marker = request.node.get_closest_marker("loop")
    factory = None if marker is None else marker.kwargs["factory"]
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner


@pytest.fixture(
    params=[
        "asyncio",
        pytest.param("uvloop", marks=pytest.mark.loop(factory=uvloop.new_event_loop)),
    ]
)
def each_loop() -> None:
    """Run a test twice, on each of the loops that a node may run on."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Request a loop for an async test, after its other fixtures: the loop is closed first."""
    if not isinstance(item, pytest.Function) or not inspect.iscoroutinefunction(item.obj):
        return
    if RUNNER not in item.fixturenames:
        item.fixturenames.append(RUNNER)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    runner = pyfuncitem.funcargs[RUNNER]
    assert isinstance(runner, asyncio.Runner)
    runner.run(pyfuncitem.obj(**arguments))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Set an async fixture up, and tear it down, on the loop of its test."""
    made: Callable[..., Any] = fixturedef.func
    run: Callable[..., object]
    if inspect.isasyncgenfunction(made):
        run = _run_generator
    elif inspect.iscoroutinefunction(made):
        run = _run_coroutine
    else:
        return (yield)
    assert fixturedef.scope == "function", f"{fixturedef.argname}: a loop lives for one test"
    runner: asyncio.Runner = request.getfixturevalue(RUNNER)
    # pytest resolves the arguments of the function that it finds here.
    fixturedef.func = functools.partial(run, runner, made)  # type: ignore[misc]
    try:
        return (yield)
    finally:
        fixturedef.func = made  # type: ignore[misc]


def _run_coroutine(
    runner: asyncio.Runner, made: Callable[..., Coroutine[Any, Any, object]], **arguments: Any
) -> object:
    return runner.run(made(**arguments))


def _run_generator(
    runner: asyncio.Runner, made: Callable[..., AsyncIterator[object]], **arguments: Any
) -> Iterator[object]:
    values = made(**arguments)
    yield runner.run(_next(values))
    assert runner.run(_next(values)) is ENDED, f"{made.__name__} yields more than once"


async def _next(values: AsyncIterator[object]) -> object:
    return await anext(values, ENDED)
