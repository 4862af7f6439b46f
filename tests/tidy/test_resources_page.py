"""The page of resources names bounds that exist, and every bound that exists.

A constant ``*_MAX`` of a node bounds memory, descriptors, disk, queues, caches or retries: it is on
the page, in a row that names its module, unless it is exempt below with the reason.
"""

import re
from collections import Counter
from collections.abc import Iterator

from tests.tidy.source_tree import ROOT, SRC, modules

from mainstem.node.config.setting_spec import leaves

PAGE = (ROOT / "docs" / "internals" / "resources.md").read_text()
TABLES = PAGE[PAGE.index("## Every bound") :]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLES.splitlines()
    if line.startswith("| ") and not line.startswith("| resource ")
]
METRICS = set(
    re.findall(r"^\| `(mainstem_\w+)` \|", (ROOT / "docs/reference/metrics.md").read_text(), re.M)
)


SOURCES = {name: module.text for name, module in modules().items()}
LIMITS = "model/limits.py"
BOUND = re.compile(r"^([A-Z][A-Z0-9_]*_MAX)(?:: [^=\n]+)? = ", re.M)

# Where no bound is one of a node.
EXEMPT_FOLDERS = {
    "cli/": "commands, which run for one user",
    "client/": "memory of a program that uses the client",
    "testing/": "not part of a node",
    "wire/": "what a format can express; frames are bounded before they are decoded",
}
EXEMPT_ENDINGS = {
    "_LENGTH_MAX": "one name or text of a request",
    "_CHARACTERS_MAX": "one text of a pipeline's file",
    "_SHOWN_MAX": "one text of an error",
    "_DIGITS_MAX": "one number",
    "_MS_MAX": "a time",
    "_S_MAX": "a time",
}
EXEMPT = {
    "the largest number that a format has": {
        "log/segments/index.py:RELATIVE_MAX",
        "coordination/transactions/state.py:EPOCH_MAX",
        "protocols/kafka/fetch_sessions.py:EPOCH_MAX",
        "protocols/mqtt/settings.py:WINDOW_MAX",
        "protocols/rest/schemas/topics_and_groups.py:TIMESTAMP_MAX",
        "model/config/key.py:INT_MAX",
        "model/config/key.py:LONG_MAX",
        "model/message.py:PRIORITY_MAX",
        "model/limits.py:QUEUE_PRIORITY_MAX",
        "queues/settings.py:NATIVE_PRIORITY_MAX",
        "queues/settings.py:COUNT_MAX",
        "placement/changes/decisions.py:PRODUCER_ID_MAX",
        "placement/changes/decisions.py:PRODUCER_IDS_PER_BLOCK_MAX",
        "telemetry/metrics.py:API_KEYS_MAX",
        "telemetry/metrics.py:STATUS_CODES_MAX",
        "pipelines/cdc/postgres/batch_planner.py:CHANGES_MAX",
        "log/segments/segment.py:VIEWS_PER_WRITE_MAX",
    },
    "the size of one text or value of a request": {
        "model/limits.py:QUEUE_NAME_BYTES_MAX",
        "protocols/amqp/convert.py:TEXT_MAX",
        "protocols/kafka/handlers/security/scram_credentials.py:CREDENTIAL_BYTES_MAX",
        "placement/planning/replica_placement.py:NAMED_MAX",
        "node/listeners/mqtt_topics.py:HEAD_BYTES_MAX",
    },
    "the name of a setting": {"model/config/group.py:SHARE_LOCKS_MAX"},
    "a rule of cryptography": {
        "cluster/peers/protection.py:FRAMES_PER_KEY_MAX",
        "cluster/secrets.py:SECRETS_MAX",
        "model/scram.py:ITERATIONS_MAX",
    },
    "a time in steps": {
        "protocols/amqp/heartbeat.py:SILENT_TICKS_MAX",
        "protocols/native/session.py:MISSED_MAX",
        "placement/planning/reconciler.py:READMIT_DOUBLINGS_MAX",
        "node/clustering/gossip.py:BUSY_MAX",
    },
    "where one way of doing it becomes cheaper than another": {
        "cluster/peers/protection.py:JOINED_BYTES_MAX",
        "log/store.py:SEALED_ONE_BY_ONE_MAX",
    },
    "who votes in the Raft group": {
        "cluster/raft/membership.py:VOTERS_MAX",
        "cluster/raft/membership.py:PROMOTION_LAG_ENTRIES_MAX",
        "node/clustering/voters.py:VOTERS_MAX",
        "node/clustering/voters.py:LAG_ENTRIES_MAX",
    },
    "the size of a pipeline's file and what one of its steps looks at": {
        "pipelines/cdc/mysql/binary_json.py:DEPTH_MAX",
        "pipelines/connectors/file.py:DISCOVERED_MAX",
        "pipelines/file/document.py:DOCUMENT_BYTES_MAX",
        "pipelines/file/document.py:VALUES_MAX",
        "pipelines/transforms/conditions.py:NESTING_MAX",
        "pipelines/transforms/plan.py:STEPS_MAX",
        "pipelines/transforms/routing.py:ROUTES_MAX",
        "pipelines/transforms/shaping.py:FLATTEN_DEPTH_MAX",
        "pipelines/transforms/step.py:FIELDS_NAMED_MAX",
    },
}


def constants(text: str) -> set[str]:
    """The names that a module gives values to."""
    return set(re.findall(r"^([A-Z][A-Z0-9_]+)(?:: [^=\n]+)? = ", text, re.M))


def test_there_are_rows() -> None:
    assert len(ROWS) > 30
    assert all(len(row) == 5 for row in ROWS)


def test_every_owner_exists() -> None:
    owners = {owner for row in ROWS for owner in re.findall(r"`([\w/]+\.py)`", row[1])}
    assert owners
    assert {owner for owner in owners if not (SRC / owner).is_file()} == set()


def test_every_constant_exists() -> None:
    named = set(
        re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", PAGE[: PAGE.index("## Disk")] + TABLES)
    )
    assert named
    assert named - set().union(*map(constants, SOURCES.values())) == set()


def test_every_setting_exists() -> None:
    named = {name for row in ROWS for name in re.findall(r"`([a-z_]+\.[a-z_]+)`", row[2])}
    assert named
    assert named - leaves().keys() == set()


def test_every_metric_is_documented() -> None:
    named = {name for row in ROWS for name in re.findall(r"`(mainstem_\w+)`", row[4])}
    assert named
    assert named - METRICS == set()


def test_every_row_says_how_the_bound_is_noticed() -> None:
    assert [row[0] for row in ROWS if not re.search(r"`mainstem_\w+`|\bnone: \w", row[4])] == []


def bounds() -> Iterator[tuple[str, str]]:
    """Every constant that bounds something, with its module."""
    for path, text in SOURCES.items():
        yield from ((path, name) for name in BOUND.findall(text))


def is_on_the_page(path: str, name: str) -> bool:
    return any(
        f"`{name}`" in row[2] + row[3] and (path == LIMITS or f"`{path}`" in row[1] + row[2])
        for row in ROWS
    )


def test_every_bound_of_a_node_is_on_the_page() -> None:
    exempt = set().union(*EXEMPT.values())
    missing = {
        f"{path}:{name}"
        for path, name in bounds()
        if not path.startswith(tuple(EXEMPT_FOLDERS))
        and not name.endswith(tuple(EXEMPT_ENDINGS))
        and f"{path}:{name}" not in exempt
        and not is_on_the_page(path, name)
    }
    assert missing == set()


def test_no_exemption_is_needless() -> None:
    exempt = set().union(*EXEMPT.values())
    assert exempt - {f"{path}:{name}" for path, name in bounds()} == set()
    assert {each for each in exempt if is_on_the_page(*each.split(":"))} == set()
    for folder in EXEMPT_FOLDERS:
        assert any(path.startswith(folder) for path, _ in bounds()), folder
    for ending in EXEMPT_ENDINGS:
        assert any(name.endswith(ending) for _, name in bounds()), ending


def is_used(path: str, name: str, words: dict[str, Counter[str]]) -> bool:
    """Whether a constant is used in its module, or is imported from there and used."""
    if words[path][name] > 1:
        return True
    module = f"mainstem.{path.removesuffix('.py').replace('/', '.')}"
    for other, found in modules().items():
        if not words[other][name]:
            continue
        for known, full in found.imported.items():
            # ``from module import NAME``: the import and a use; ``from package import module``.
            if full == f"{module}.{name}" and words[other][known] > 1:
                return True
            if full == module and f"{known}.{name}" in found.text:
                return True
    return False


def test_every_bound_is_used() -> None:
    words = {
        path: Counter(re.findall(r"\b\w+\b", module.text)) for path, module in modules().items()
    }
    unused = {
        f"{path}:{name}"
        for path, text in SOURCES.items()
        for name in (constants(text) if path == LIMITS else BOUND.findall(text))
        if not is_used(path, name, words)
    }
    assert unused == set()
