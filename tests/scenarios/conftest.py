"""``pytest tests/scenarios --rewrite`` writes what happens now into the scenario files.

It rewrites all of them: ``-k seal/`` or ``-k raft_`` restricts it. Read the difference afterwards.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite the expected output")
