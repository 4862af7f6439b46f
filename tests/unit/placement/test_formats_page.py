"""The page of formats names every fact and every field of it."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from mainstem.placement.changes.commands import AnyFact, CatalogueState, RangeEnd

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "formats.md").read_text()


@pytest.mark.parametrize("fact", get_args(AnyFact), ids=lambda fact: str(fact.__name__))
def test_a_fact_is_described_with_all_its_fields(fact: type[msgspec.Struct]) -> None:
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `{fact.__name__}` |")]
    assert not [name for name in fact.__struct_fields__ if f"`{name}`" not in row]


@pytest.mark.parametrize("value", [RangeEnd, CatalogueState])
def test_what_facts_and_snapshots_are_made_of_is_described(value: type[msgspec.Struct]) -> None:
    assert not [name for name in value.__struct_fields__ if f"`{name}`" not in PAGE]
