"""A test that needs a tool outside PyPI says so when it is skipped, and fails where it must run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORY = """
import pytest

@pytest.mark.needs("kcat")
def test_with_kcat() -> None:
    pass
"""


def run(tmp_path: Path, *, require: str) -> subprocess.CompletedProcess[str]:
    """A test that needs kcat, on a machine that has none."""
    story = tmp_path / "test_story.py"
    story.write_text(STORY)
    command = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-ra", str(story)]
    # Other plug-ins take most of the start, and the configuration names settings of this one.
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_timeout"}
    return subprocess.run(
        [sys.executable, *command, "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | plugins | {"PATH": str(tmp_path), "MAINSTEM_REQUIRE": require},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(autouse=True)
def _no_kcat_in_system_folders() -> None:
    if any((Path(folder) / "kcat").exists() for folder in ("/usr/sbin", "/sbin")):
        pytest.skip("kcat stands in a folder that cannot be hidden")


def test_a_missing_tool_skips_with_its_name(tmp_path: Path) -> None:
    done = run(tmp_path, require="")
    assert done.returncode == 0, done.stdout
    assert "needs kcat: kcat not installed" in done.stdout
    assert "1 skipped" in done.stdout
    assert "kcat: kcat not installed\n    test_story.py (1)\n" in done.stdout


@pytest.mark.parametrize("require", ["kcat", "java, kcat", "all"])
def test_a_required_tool_that_is_missing_fails(tmp_path: Path, require: str) -> None:
    done = run(tmp_path, require=require)
    assert done.returncode == 1
    assert "kcat is required here" in done.stdout


def test_a_misspelt_requirement_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, require="kcatt")
    assert done.returncode != 0
    assert "known names" in done.stdout + done.stderr
