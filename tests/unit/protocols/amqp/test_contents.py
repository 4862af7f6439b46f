"""Unfinished messages: bounded for a connection, and for all connections of a node."""

import struct

import pytest

from mainstem.protocols.amqp.content_assembly import ContentAssembly, Publish, Unfinished
from mainstem.protocols.amqp.errors import ConnectionRefusal
from mainstem.protocols.frame_memory import FrameMemory

PUBLISH = Publish("", "work", mandatory=False, immediate=False)


def header(size: int) -> memoryview:
    return memoryview(struct.pack(">HHQH", 60, 0, size, 0))


def begun(unfinished: Unfinished, size: int) -> ContentAssembly:
    assembly = ContentAssembly(1_000_000, unfinished)
    assembly.begin(PUBLISH)
    assert assembly.header(header(size), 0, 14) is None
    return assembly


def put(assembly: ContentAssembly, size: int) -> bytes | None:
    content = assembly.body(memoryview(bytes(size)), 0, size)
    return None if content is None else content.body


def test_a_whole_message_gives_its_memory_back() -> None:
    memory = FrameMemory(1_000)
    assembly = begun(Unfinished(memory), 900)
    assert put(assembly, 400) is None
    assert put(assembly, 400) is None
    assert memory.used_bytes == 800
    assert put(assembly, 100) == bytes(900)
    assert memory.used_bytes == 0


def test_a_channel_that_ends_in_the_middle_gives_its_memory_back() -> None:
    memory = FrameMemory(1_000)
    assembly = begun(Unfinished(memory), 900)
    put(assembly, 400)
    assembly.forget()
    assert memory.used_bytes == 0


def test_all_connections_of_a_node_share_one_limit() -> None:
    memory = FrameMemory(1_000)
    first, second = begun(Unfinished(memory), 900), begun(Unfinished(memory), 900)
    put(first, 600)
    with pytest.raises(ConnectionRefusal):
        put(second, 600)
    assert memory.used_bytes == 600
