"""MQTT through other people's clients: aiomqtt, mosquitto_pub and mosquitto_sub."""

import asyncio
import subprocess

import aiomqtt
import pytest

from mainstem.testing.local_node import LocalNode

WAIT_S = 15


def address(node: LocalNode) -> tuple[str, int]:
    host, _, port = str(node.announced["mqtt"]).rpartition(":")
    return host, int(port)


async def test_aiomqtt_publishes_and_iterates(mqtt_node: LocalNode, topic: str) -> None:
    host, port = address(mqtt_node)
    found: list[bytes] = []
    async with aiomqtt.Client(host, port, protocol=aiomqtt.ProtocolVersion.V5) as client:
        await client.subscribe(f"{topic}/#", qos=2)
        for number in range(50):
            await client.publish(f"{topic}/{number % 3}", b"%d" % number, qos=number % 3)
        async with asyncio.timeout(WAIT_S):
            async for message in client.messages:
                assert isinstance(message.payload, bytes)
                found.append(message.payload)
                if len(found) == 50:
                    break
    assert sorted(found, key=int) == [b"%d" % number for number in range(50)]


@pytest.mark.needs("mosquitto")
@pytest.mark.parametrize("version", ["311", "5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_mosquitto_sends_itself_messages(
    mqtt_node: LocalNode, topic: str, version: str, qos: str
) -> None:
    host, port = address(mqtt_node)
    common = ["-h", host, "-p", str(port), "-t", topic, "-V", version, "-q", qos]
    with subprocess.Popen(
        ["stdbuf", "-oL", "mosquitto_sub", *common, "-C", "3", "-W", str(WAIT_S), "-d"],
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdout is not None
        for line in reader.stdout:
            if "Subscribed" in line:
                break
        sent = "one\ntwo\nthree\n"
        subprocess.run(["mosquitto_pub", *common, "-l"], input=sent, text=True, check=True)
        heard = [line.strip() for line in reader.stdout]
    assert [line for line in heard if line in ("one", "two", "three")] == ["one", "two", "three"]


@pytest.mark.needs("mosquitto")
def test_mosquitto_gets_a_retained_message(mqtt_node: LocalNode, topic: str) -> None:
    host, port = address(mqtt_node)
    common = ["-h", host, "-p", str(port), "-t", topic, "-q", "1"]
    subprocess.run(["mosquitto_pub", *common, "-r", "-m", "kept"], check=True)

    found = subprocess.run(
        ["mosquitto_sub", *common, "-C", "1", "-W", str(WAIT_S), "-F", "%r %p"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert found.stdout == "1 kept\n"
