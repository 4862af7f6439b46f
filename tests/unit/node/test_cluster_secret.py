"""The file with the cluster's secret is nobody else's, at no moment."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstem.model.errors import InvalidRequest
from mainstem.node.clustering.shared_secret import NAME, cluster_secrets


@pytest.fixture(autouse=True)
def _files_are_everybodys_unless_said_otherwise() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("left_over", [False, True])
def test_a_secret_is_for_its_owner_only_from_the_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_over: bool
) -> None:
    data = tmp_path / "data"
    if left_over:  # of a process that was killed
        data.mkdir(mode=0o700)
        (data / f"{NAME}.new").write_text("half")
    seen: list[tuple[str, int]] = []
    sync = os.fsync

    def watching(fd: int) -> None:
        seen.extend((path.name, stat.S_IMODE(path.stat().st_mode)) for path in data.iterdir())
        sync(fd)

    monkeypatch.setattr(os, "fsync", watching)
    [secret] = cluster_secrets(data, None, may_make=True)
    assert len(secret) >= 32
    assert f"{NAME}.new" in dict(seen)
    assert {mode for _, mode in seen} == {0o600}
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert [path.name for path in data.iterdir()] == [NAME]
    assert cluster_secrets(data, None, may_make=False) == (secret,)


def test_a_node_that_joins_makes_no_secret(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="needs the cluster's secret"):
        cluster_secrets(tmp_path, None, may_make=False)
    assert list(tmp_path.iterdir()) == []
