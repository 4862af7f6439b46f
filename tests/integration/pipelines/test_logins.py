"""format("mainstem") logs in, over TLS, and keeps secrets to itself."""

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.integration.security.kit import ADMIN_PASSWORD, SecureNode

# Starting Spark takes a while on a busy machine.
pytestmark = pytest.mark.timeout(300)

JAAS = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}";'
)


@pytest.fixture(scope="module")
def secure_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    with SecureNode(tmp_path_factory.mktemp("secure")) as node:
        yield node


def options(node: SecureNode, password: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": node.address("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": JAAS.format("admin", password),
        "kafka.ssl.truststore.location": str(node.certificates.ca),
    }


def test_rows_go_out_and_in_through_a_login_over_tls(
    spark: SparkSession, secure_node: SecureNode
) -> None:
    given = options(secure_node, ADMIN_PASSWORD)
    frame = spark.range(50).selectExpr("cast(id AS string) AS value")
    frame.write.format("mainstem").options(**given, topic="guarded").mode("append").save()
    read = spark.read.format("mainstem").options(**given, subscribe="guarded").load()
    assert read.count() == 50


def test_a_wrong_password_is_told_without_telling_it(
    spark: SparkSession, secure_node: SecureNode
) -> None:
    given = options(secure_node, "swordfish")
    read = spark.read.format("mainstem").options(**given, subscribe="guarded")
    with pytest.raises(PySparkException, match="AUTHENTICATION_FAILED") as refused:
        read.load().count()
    assert "swordfish" not in str(refused.value)
