"""``mainstem mqtt``, as a shell would call it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.mqtt.conftest import Dial

from mainstem.testing.local_node import LocalNode

COMMAND = str(Path(sys.executable).with_name("mainstem"))


def mainstem(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [COMMAND, "mqtt", *words], capture_output=True, check=False, timeout=60, **options
    )


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_lines_of_the_input_are_messages_and_messages_are_lines(
    mqtt_node: LocalNode, dial: Dial, topic: str, qos: str
) -> None:
    watcher = dial(mqtt_node)
    watcher.subscribe(f"{topic}/#", 2)

    done = mainstem("pub", f"{topic}/a", "-q", qos, "-a", mqtt_node.mqtt, input=b"one\ntwo\n")

    assert done.returncode == 0, done.stderr
    assert [(each.payload, each.qos) for each in watcher.take(2)] == [
        (b"one", int(qos)),
        (b"two", int(qos)),
    ]


def test_retained_messages_are_written_with_their_topics(mqtt_node: LocalNode, topic: str) -> None:
    for name in ("a", "b"):
        sent = mainstem("pub", f"{topic}/{name}", name, "--retain", "-a", mqtt_node.mqtt)
        assert sent.returncode == 0, sent.stderr

    found = mainstem("sub", f"{topic}/+", "-v", "-q", "2", "--quiet", "1", "-a", mqtt_node.mqtt)

    assert found.returncode == 0, found.stderr
    assert sorted(found.stdout.decode().splitlines()) == [f"{topic}/a a", f"{topic}/b b"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("sub", "a/#/b"), 1),
        (("pub", "t", "x", "-a", "127.0.0.1:0"), 1),
        (("pub", "t", "x", "-a", "127.0.0.1:1"), 5),
    ],
)
def test_what_cannot_be_done_has_a_reason_and_a_code(
    mqtt_node: LocalNode, words: tuple[str, ...], code: int
) -> None:
    environment = os.environ | {"MAINSTEM_MQTT": mqtt_node.mqtt}

    done = mainstem(*words, env=environment)

    assert (done.returncode, done.stdout) == (code, b""), done.stderr
    assert done.stderr
