"""A cluster whose clients log in: whoever logs in at one node does so at all of them."""

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.testing.local_cluster import LocalCluster

PASSWORD = "correct horse"


def test_a_client_that_logs_in_reaches_every_node(tmp_path: Path) -> None:
    password = tmp_path / "admin-password"
    password.write_text(PASSWORD + "\n")
    settings = {
        "kafka.listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "security.admin_password_file": password,
    }
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with LocalCluster(arguments=flags) as cluster:
        listeners = cluster.nodes[2].announced["kafka_listeners"]
        assert isinstance(listeners, list)
        [address] = [each for each in listeners if each.startswith("SASL_PLAINTEXT://")]
        login: dict[str, str | int | float | bool] = {
            "bootstrap.servers": address.partition("://")[2],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "admin",
            "sasl.password": PASSWORD,
        }
        admin = AdminClient(login)
        admin.create_topics([NewTopic("guarded", 3, 3)])["guarded"].result(20)
        found = admin.list_topics("guarded", timeout=10)
        told = {broker.port for broker in found.brokers.values()}
        plain = {int(node.kafka.rpartition(":")[2]) for node in cluster.nodes.values()}
        assert len(told) == 3
        assert not told & plain
        producer = Producer(login)
        failures: list[object] = []
        for number in range(30):
            producer.produce(
                "guarded",
                str(number).encode(),
                partition=number % 3,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(30) == 0
        assert not failures
