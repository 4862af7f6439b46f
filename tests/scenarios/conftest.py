"""``pytest tests/scenarios --rewrite`` writes what happens now into the scenario files."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite the expected output")
