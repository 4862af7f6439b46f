"""A catalogue that three nodes keep."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kit.catalogue import CatalogueGroup, new_catalogue_group


@pytest.fixture
async def catalogue_group(tmp_path: Path) -> AsyncIterator[CatalogueGroup]:
    async with new_catalogue_group(tmp_path) as catalogue_group:
        yield catalogue_group
