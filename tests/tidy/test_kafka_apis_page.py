"""The scorecard of Kafka APIs is complete and true, and every test that it names exists."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from mainstem.protocols.kafka.api_coverage import PROOFS, REASONS, scorecard
from mainstem.protocols.kafka.api_table import served_apis
from mainstem.wire.kafka.client_facing import client_facing

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

ROOT = Path(__file__).parents[2]


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, FUNCTIONS))


def test_the_page_is_what_the_scorecard_says() -> None:
    """After a change: ``.venv/bin/python scripts/kafka-apis-page``."""
    written = subprocess.run(
        [sys.executable, ROOT / "scripts" / "kafka-apis-page", "--print"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ROOT / "docs" / "reference" / "kafka-apis.md").read_text() == written.stdout


def test_every_api_for_clients_is_either_served_and_proven_or_not_for_a_reason() -> None:
    served = served_apis().keys() & client_facing().keys()
    assert PROOFS.keys() == served
    assert REASONS.keys() == client_facing().keys() - served
    assert [api.key for api in scorecard()] == list(client_facing())


@pytest.mark.parametrize("proof", sorted(set(PROOFS.values())))
def test_a_test_that_proves_something_exists(proof: str) -> None:
    file, _, name = proof.partition("::")
    assert name in names_in(file)
