"""What the options of format("mainstem") mean."""

import ssl
from pathlib import Path

import pytest
import trustme

from mainstem.client.values import TopicPartition
from mainstem.model.errors import InvalidRequest
from mainstem.pipelines.spark.reading.options import EARLIEST, LATEST, parse_read_options
from mainstem.pipelines.spark.security import connection_settings
from mainstem.pipelines.spark.writing.options import parse_write_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_a_batch_begins_at_the_earliest_and_a_stream_at_the_latest_offset() -> None:
    given = SERVERS | {"subscribe": "a, b"}
    batch = parse_read_options(given, streaming=False)
    stream = parse_read_options(given, streaming=True)
    assert batch.topics == stream.topics == ("a", "b")
    assert (batch.start.everywhere, stream.start.everywhere) == (EARLIEST, LATEST)
    assert stream.read_committed
    assert stream.fail_on_data_loss


def test_names_of_options_may_be_written_in_any_case() -> None:
    given = SERVERS | {"SubScribe": "a", "maxOffsetsPerTrigger": "7", "INCLUDEHEADERS": "true"}
    options = parse_read_options(given, streaming=True)
    assert (options.rows_max, options.with_headers) == (7, True)


def test_a_time_wins_over_times_by_partition_and_those_over_offsets() -> None:
    offsets = {"startingOffsets": '{"a": {"0": 5}}'}
    times = {"startingOffsetsByTimestamp": '{"a": {"0": 1000}}'}
    time = {"startingTimestamp": "2000"}
    given = SERVERS | {"subscribe": "a"} | offsets
    first = parse_read_options(given, streaming=False).start
    assert first.by_partition == {TopicPartition("a", 0): 5}
    second = parse_read_options(given | times, streaming=False).start
    assert (second.is_time, second.by_partition) == (True, {TopicPartition("a", 0): 1000})
    third = parse_read_options(given | times | time, streaming=False).start
    assert (third.is_time, third.everywhere) == (True, 2000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one"),
        ({"subscribe": "a", "subscribePattern": "b"}, "exactly one"),
        ({"subscribe": "a", "endingOffsets": "latest"}, "a stream has no end"),
        ({"subscribe": "a", "minPartitions": "-3"}, "not a positive number"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, "use true or false"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "use 15m"),
        ({"subscribe": "a", "kafka.isolation.level": "x"}, "read_committed or"),
        ({"assign": "[]"}, "not a map of partitions"),
        ({"subscribe": "a", "startingTimestamp": "noon"}, "milliseconds since 1970"),
        ({"subscribe": "a", "subscriber": "b"}, "did you mean subscribe"),
    ],
)
def test_streams_with_strange_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_read_options(SERVERS | given, streaming=True)


def test_the_servers_are_needed() -> None:
    with pytest.raises(InvalidRequest, match=r"kafka\.bootstrap\.servers"):
        parse_read_options({"subscribe": "a"}, streaming=True)
    with pytest.raises(InvalidRequest, match=r"kafka\.bootstrap\.servers"):
        parse_write_options({"topic": "a"})


def test_writing_is_exactly_once_unless_told_otherwise() -> None:
    assert parse_write_options(SERVERS).is_exactly_once
    assert not parse_write_options(SERVERS | {"delivery": "at-least-once"}).is_exactly_once


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ledger.query": "q"}, "together with"),
        ({"ledger.query": "q", "ledger.batch": "x"}, "number of the batch"),
        ({"sinkName": "a/b"}, "slash"),
        ({"topics": "a"}, "did you mean topic"),
    ],
)
def test_writers_with_strange_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_write_options(SERVERS | given)


def test_a_jaas_line_is_understood_and_never_shown() -> None:
    line = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        r'username="eve" password="a \"b\" ; c";'
    )
    settings = connection_settings(
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": line,
        },
        client_id="x",
    )
    assert settings.sasl is not None
    assert (settings.sasl.mechanism, settings.sasl.username) == ("SCRAM-SHA-256", "eve")
    assert settings.sasl.password == 'a "b" ; c'
    assert "a \\" not in repr(settings)
    assert settings.tls is None


def test_certificates_are_files_or_stand_in_the_option(tmp_path: Path) -> None:
    authority = trustme.CA()
    identity = authority.issue_cert("client")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    identity.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "me.pem"))
    by_file = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(tmp_path / "ca.pem"),
        "kafka.ssl.keystore.location": str(tmp_path / "me.pem"),
    }
    inline = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
        "kafka.ssl.keystore.key": identity.private_key_pem.bytes().decode(),
        "kafka.ssl.keystore.certificate.chain": identity.cert_chain_pems[0].bytes().decode(),
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    for options, checks in ((by_file, True), (inline, False)):
        context = connection_settings(options, client_id="x").tls
        assert context is not None
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname is checks
        assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.ssl.truststore.location": "/no/such.jks"}, "only PEM"),
        ({"kafka.ssl.truststore.location": "/no/such.pem"}, "cannot be read"),
        ({"kafka.ssl.keystore.type": "PKCS12"}, "only PEM"),
    ],
)
def test_stores_that_cannot_be_read_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        connection_settings({"kafka.security.protocol": "SSL"} | given, client_id="x")
