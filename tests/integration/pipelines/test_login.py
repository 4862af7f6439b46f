"""Pipelines log in to a broker that asks who is there, over TLS."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.pipelines.stage import records, running
from tests.integration.security.kit import ADMIN_PASSWORD, SecureNode

from mainstem.pipelines.file.loader import read_text
from mainstem.pipelines.file.model import BrokerSection, BrokerTlsSection, SaslSection
from mainstem.pipelines.running.checks import check_broker
from mainstem.pipelines.running.restart_policy import PipelineState

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def secure_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    with SecureNode(tmp_path_factory.mktemp("secure")) as node:
        yield node


def file_for(node: SecureNode, password: str) -> str:
    return f"""
version: "1.0"
broker:
  bootstrap_servers: ["{node.address("SASL_SSL")}"]
  tls: {{ca_path: {node.certificates.ca}}}
  sasl: {{username: admin, password: "{password}"}}
sources:
  made:
    connector: datagen
    topic: login.made
    config: {{count: 10, rows_per_second: null}}
"""


def test_records_are_written_by_somebody_who_logged_in(
    spark: SparkSession, secure_node: SecureNode, tmp_path: Path
) -> None:
    with running(file_for(secure_node, ADMIN_PASSWORD), spark, tmp_path) as run:
        run.until(lambda: run.pipeline("sources.made").records == 10)
    assert len(records(secure_node.address("PLAINTEXT"), "login.made")) == 10


def test_a_wrong_password_is_the_end_at_once_and_is_not_shown(
    spark: SparkSession, secure_node: SecureNode, tmp_path: Path
) -> None:
    with running(file_for(secure_node, "wrong password"), spark, tmp_path) as run:
        run.until(lambda: run.pipeline("sources.made").state is PipelineState.FAILED)
        status = run.pipeline("sources.made")
    assert "AUTHENTICATION_FAILED" in status.error
    assert "wrong password" not in status.error
    assert status.restarts == 0


def test_a_check_tells_a_refused_login_from_nobody_there(secure_node: SecureNode) -> None:
    def checked(password: str, ca_path: str | None) -> str:
        broker = BrokerSection(
            bootstrap_servers=[secure_node.address("SASL_SSL")],
            tls=BrokerTlsSection(ca_path=ca_path),
            sasl=SaslSection(username="admin", password=password),
        )
        [found] = check_broker(broker)
        return f"{found.finding.severity}: {found.finding.message}"

    ca = str(secure_node.certificates.ca)
    assert checked(ADMIN_PASSWORD, ca).startswith("ok")
    assert "AUTHENTICATION_FAILED" in checked("wrong", ca)
    assert checked(ADMIN_PASSWORD, None).startswith("error")
    assert "certificates cannot be loaded" in checked(ADMIN_PASSWORD, "/nowhere/ca.pem")


def test_the_password_is_hidden_in_every_text(secure_node: SecureNode) -> None:
    file = read_text(file_for(secure_node, ADMIN_PASSWORD), {})
    assert ADMIN_PASSWORD not in file.secrets.redact(f"login with {ADMIN_PASSWORD} refused")
