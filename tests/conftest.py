"""What every test may lean on: tools outside PyPI are asked for by name.

``@pytest.mark.needs("java", "maven")`` skips a test, with the reason, where a tool is missing or
its registry cannot be reached. ``MAINSTEM_REQUIRE=java,npm`` (or ``all``) turns such a skip into a
failure, so that a machine which should be able to run a suite cannot quietly stop doing so.
What was skipped for want of a tool is listed at the end, suite by suite.
"""

import functools
import gc
import logging
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
import xml.etree.ElementTree as ET
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

# How long one example takes says nothing on a busy machine; whole tests have a time limit.
hypothesis.settings.register_profile(
    "mainstem", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("mainstem")

pytest_plugins = ["tests.kit.async_tests"]

SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
PROBE_TIMEOUT_S = 20


@pytest.fixture(autouse=True)
def _log_settings_end_with_the_test() -> Iterator[None]:
    """A command that is run in this process sets its own handlers, filters and level."""
    root = logging.getLogger("mainstem")
    before = (list(root.handlers), root.level, root.propagate)
    yield
    handlers, level, root.propagate = before
    root.handlers[:] = handlers
    root.setLevel(level)


def _missing(*commands: str) -> str | None:
    absent = [name for name in commands if shutil.which(name, path=SYSTEM_PATH) is None]
    return f"{', '.join(absent)} not installed" if absent else None


def _unreachable(url: str) -> str | None:
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=PROBE_TIMEOUT_S):
            return None
    except urllib.error.HTTPError as error:
        # Any answer below 500 means that the registry is there.
        return None if error.code < 500 else f"registry answers {error.code}"
    except (OSError, ValueError) as error:
        return f"registry not reachable ({error})"


def _maven_repository() -> str:
    """The mirror that the user's Maven settings name, or the repository that Maven brings along."""
    settings = Path.home() / ".m2" / "settings.xml"
    if settings.exists() and (url := _first_url(ET.parse(settings).getroot())):
        return url
    command = shutil.which("mvn")
    assert command is not None, "asked for before"
    home = Path(command).resolve().parent.parent
    for jar in home.glob("lib/maven-model-builder*.jar"):
        with zipfile.ZipFile(jar) as files:
            root = ET.fromstring(files.read("org/apache/maven/model/pom-4.0.0.xml"))
        return _first_url(root) or ""
    return ""


def _first_url(root: ET.Element) -> str | None:
    for element in root.iter():
        if element.tag.endswith("}url") or element.tag == "url":
            return (element.text or "").strip()
    return None


def _java() -> str | None:
    return _missing("java")


def _maven() -> str | None:
    return _missing("java", "mvn") or _unreachable(_maven_repository())


def _npm() -> str | None:
    if reason := _missing("node", "npm"):
        return reason
    command = ["npm", "config", "get", "registry"]
    asked = subprocess.run(
        command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
    )
    return _unreachable(asked.stdout.strip())


def _go() -> str | None:
    return _missing("go")


def _kcat() -> str | None:
    return _missing("kcat")


def _curl() -> str | None:
    return _missing("curl")


def _postgres() -> str | None:
    """Debian keeps the server's programs out of the path."""
    found = any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return None if found else _missing("initdb", "pg_ctl")


def _mariadb() -> str | None:
    """Debian keeps the server out of the path of others than root."""
    found = Path("/usr/sbin/mariadbd").exists()
    return _missing("mariadb-install-db") if found else _missing("mariadbd", "mariadb-install-db")


def _root() -> str | None:
    """Root that may really mount: containers often have the user id without the right."""
    if os.geteuid() != 0:
        return "not root"
    if reason := _missing("losetup", "mkfs.ext4", "mount", "umount"):
        return reason
    environment = os.environ | {"PATH": SYSTEM_PATH}
    with tempfile.TemporaryDirectory() as scratch:
        image = Path(scratch) / "image"
        with image.open("wb") as file:
            file.truncate(8 << 20)
        mounted = Path(scratch) / "mounted"
        mounted.mkdir()
        for command in (
            ["mkfs.ext4", "-q", "-F", str(image)],
            ["mount", "-o", "loop", str(image), str(mounted)],
        ):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                return f"{command[0]} refused: {done.stderr.strip()[:120]}"
        subprocess.run(["umount", str(mounted)], env=environment, check=True)
    return None


def _mosquitto() -> str | None:
    if shutil.which("mosquitto_pub") is None or shutil.which("mosquitto_sub") is None:
        return "mosquitto_pub and mosquitto_sub are not installed (Debian: mosquitto-clients)"
    return None


def _rabbitmq() -> str | None:
    """Debian keeps the server out of the path."""
    if Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists():
        return _missing("erl", "epmd")
    return "rabbitmq-server not installed"


def _network() -> str | None:
    """Root that may make network namespaces and cables between them."""
    if os.geteuid() != 0:
        return "not root"
    if reason := _missing("ip"):
        return reason
    name = f"probe{os.getpid()}"
    for command in (["ip", "netns", "add", name], ["ip", "netns", "del", name]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"ip netns refused: {done.stderr.strip()[:120]}"
    return None


def _previous_release() -> str | None:
    """The commit of the release before this one: a shallow clone lacks it."""
    from tests.upgrade.previous_release import why_missing  # noqa: PLC0415 - not for every test

    return why_missing()


PROBES: dict[str, Callable[[], str | None]] = {
    "java": _java,
    "maven": _maven,
    "npm": _npm,
    "go": _go,
    "kcat": _kcat,
    "curl": _curl,
    "mosquitto": _mosquitto,
    "postgres": _postgres,
    "mariadb": _mariadb,
    "root": _root,
    "network": _network,
    "rabbitmq": _rabbitmq,
    "previous_release": _previous_release,
}


@functools.cache
def missing(name: str) -> str | None:
    """Why the tool called ``name`` cannot be used here; None when it can. Probed once."""
    if name not in PROBES:
        raise pytest.UsageError(f"needs({name!r}): known names are {', '.join(sorted(PROBES))}")
    return PROBES[name]()


def required() -> set[str]:
    """The names that MAINSTEM_REQUIRE makes mandatory."""
    names = {name for name in re.split(r"[,\s]+", os.environ.get("MAINSTEM_REQUIRE", "")) if name}
    return set(PROBES) if "all" in names else names


def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over what lives until the end: every test, every module."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or fail where the tool is required, before any fixture is built."""
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            reason = missing(name)
            if reason is None:
                continue
            if name in required():
                pytest.fail(f"{name} is required here but {reason}", pytrace=False)
            pytest.skip(f"needs {name}: {reason}")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a misspelt requirement: it would silently require nothing."""
    if unknown := required() - set(PROBES):
        raise pytest.UsageError(
            f"MAINSTEM_REQUIRE names {', '.join(sorted(unknown))}; "
            f"known names are {', '.join(sorted(PROBES))}, all"
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the suites that did not run, by the tool that they wanted."""
    wanting: dict[str, Counter[str]] = {}
    for report in terminalreporter.getreports("skipped"):
        found = re.search(r"\bneeds (\w+: .*)", str(report.longrepr))
        if found is not None:
            suites = wanting.setdefault(found[1].rstrip("')"), Counter())
            suites[report.nodeid.partition("::")[0]] += 1
    if wanting:
        terminalreporter.section("not run for want of a tool")
    for reason, suites in sorted(wanting.items()):
        terminalreporter.write_line(reason)
        for suite, count in sorted(suites.items()):
            terminalreporter.write_line(f"    {suite} ({count})")
