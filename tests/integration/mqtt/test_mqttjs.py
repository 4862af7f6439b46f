"""MQTT.js, unmodified, on a real node, over TCP and over WebSocket."""

import subprocess
from pathlib import Path

import pytest

from mainstem.testing.local_node import LocalNode

FOLDER = Path(__file__).parent / "mqttjs"


@pytest.mark.needs("npm")
@pytest.mark.parametrize("way", ["tcp", "websocket"])
def test_mqttjs_publishes_subscribes_and_keeps_sessions(mqtt_node: LocalNode, way: str) -> None:
    installed = FOLDER / "node_modules" / ".package-lock.json"
    if not installed.exists():
        command = ["npm", "ci", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2_000:]
    url = f"mqtt://{mqtt_node.mqtt}" if way == "tcp" else f"ws://{mqtt_node.http}/mqtt"
    command = ["node", str(FOLDER / "story.js"), url, f"js-{way}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all is well\n"
