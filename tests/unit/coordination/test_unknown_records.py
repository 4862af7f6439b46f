"""A coordinator does not load a record of a later release as if it were not there."""

import msgspec
import pytest

from mainstem.coordination.offsets.pending import GROUP_CODEC
from mainstem.coordination.shards.fact_log import FactCodec, facts_in
from mainstem.coordination.transactions.facts import TransactionCodec
from mainstem.model.errors import UnknownVersion
from mainstem.model.records.record import Record, build_batch
from mainstem.model.release import RELEASE
from mainstem.protocols.mqtt.sessions.image import image_of
from mainstem.queues.storage.fact_codec import QUEUE_CODEC


@pytest.mark.parametrize(
    ("codec", "key", "value", "named"),
    [
        (GROUP_CODEC, b"\x00\x63\x00\x01g", b"\x00\x00", "version 99 with a value of version 0"),
        (GROUP_CODEC, b"\x00\x02\x00\x01g", b"\x00\x09", "version 2 with a value of version 9"),
        (TransactionCodec(), b"\x00\x07\x00\x01t", b"\x00\x00", "version 7 with"),
        (QUEUE_CODEC, b"\x02" + bytes(8), b"\x90", "version 2 with"),
    ],
)
def test_a_record_of_a_later_release_ends_the_loading(
    codec: FactCodec[object], key: bytes, value: bytes, named: str
) -> None:
    batch = bytes(build_batch([Record(0, 1, key, value)]))
    with pytest.raises(UnknownVersion, match=named) as refused:
        list(facts_in(batch, codec))
    assert f"mainstem {RELEASE} reads version {codec.versions}" in str(refused.value)


def test_an_mqtt_session_of_a_later_release_is_not_lost() -> None:
    image = msgspec.msgpack.encode({"kind": "session", "version": 2, "colour": "green"})
    with pytest.raises(UnknownVersion, match="an MQTT session of version 2"):
        image_of(image)
