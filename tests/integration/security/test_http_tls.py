"""HTTPS: certificates of clients as logins; the node's own certificate renewed while it runs."""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from tests.integration.security import requests
from tests.integration.security.kit import SecureNode, rule
from tests.integration.security.web import (
    ADMIN,
    bearer,
    browsing,
    known,
    trusting,
    web_node,
)

from mainstem.security.authorisation.acl import Operation, ResourceType

WEB = (ResourceType.TOPIC, "web")
NAMED = '["RULE:^.*CN=svc-([^,]*).*$/$1/L"]'


def furnished(made: SecureNode) -> SecureNode:
    with made.client() as admin:
        admin.ask(*requests.create_topic("web"))
        for name in ("carla", "svc-carla", "dora"):
            admin.allow(rule(name, Operation.READ, WEB))
    return made


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """A certificate is one way to log in among others."""
    with web_node(tmp_path_factory.mktemp("tls")) as made:
        yield furnished(made)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """A certificate is the login; rules of names give some of them no name."""
    folder = tmp_path_factory.mktemp("strict")
    settings = {"tls.client_certificates": "required", "tls.name_rules": NAMED}
    with web_node(folder, http__login="false", **settings) as made:
        yield furnished(made)


def test_a_certificate_is_a_login(node: SecureNode) -> None:
    with browsing(node, node.certificates.issue("carla")) as web:
        assert [topic["name"] for topic in web.get("/v1/topics").json()] == ["web"]
        assert web.get("/v1/topics/web").status_code == 200
        assert web.delete("/v1/topics/web").status_code == 403
        assert web.get("/v1/users").status_code == 403


def test_a_certificate_gives_the_rights_of_its_name_only(node: SecureNode) -> None:
    with browsing(node, node.certificates.issue("stranger")) as web:
        assert web.get("/v1/topics").json() == []
        assert web.get("/v1/topics/web").status_code == 403


def test_without_a_certificate_the_other_logins_are_asked_for(node: SecureNode) -> None:
    with browsing(node) as web:
        assert web.get("/v1/topics").status_code == 401
        assert web.get("/v1/topics", auth=ADMIN).status_code == 200


def test_what_the_header_says_counts_before_the_certificate(node: SecureNode) -> None:
    node.make_user("plain")
    with browsing(node, node.certificates.issue("carla")) as web:
        assert web.get("/v1/topics/web").status_code == 200
        assert web.get("/v1/topics/web", auth=known("plain")).status_code == 403
        assert web.get("/v1/users", auth=ADMIN).status_code == 200
        # A wrong login is no login, whatever the certificate says.
        assert web.get("/v1/topics/web", auth=("carla", "wrong")).status_code == 401
        assert web.get("/v1/topics/web", headers=bearer("x.y.z")).status_code == 401
        assert web.get("/v1/topics/web").status_code == 200


def test_a_certificate_of_another_authority_is_refused(node: SecureNode, tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("localhost", common_name="carla")
    files = tmp_path / "c.pem", tmp_path / "c.key"
    issued.cert_chain_pems[0].write_to_path(str(files[0]))
    issued.private_key_pem.write_to_path(str(files[1]))
    with browsing(node, files) as web, pytest.raises(httpx.TransportError):
        web.get("/v1/topics")


def test_where_certificates_are_required_they_are_the_login(strict: SecureNode) -> None:
    with browsing(strict, strict.certificates.issue("svc-Carla")) as web:
        assert web.get("/v1/topics/web").status_code == 200
        assert web.delete("/v1/topics/web").status_code == 403
        assert web.get("/health").status_code == 200
    with browsing(strict) as web, pytest.raises(httpx.TransportError):
        web.get("/v1/topics")
    with browsing(strict) as web, pytest.raises(httpx.TransportError):
        web.get("/v1/topics", auth=ADMIN)


def test_a_certificate_that_no_rule_gives_a_name_is_nobody(strict: SecureNode) -> None:
    with browsing(strict, strict.certificates.issue("carla")) as web:
        assert web.get("/v1/topics").status_code == 401
        assert web.get("/v1/topics/web").status_code == 401
        assert web.get("/v1/users", auth=ADMIN).status_code == 200


def test_old_versions_of_tls_are_not_spoken(node: SecureNode) -> None:
    context = trusting(node)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        httpx.Client(base_url=f"https://{node.http}", verify=context) as web,
        pytest.raises(httpx.ConnectError),
    ):
        web.get("/health")


def test_a_renewed_certificate_is_served_to_new_connections_and_old_ones_live_on(
    node: SecureNode,
) -> None:
    def common_name(web: httpx.Client) -> str:
        with web.stream("GET", "/health") as answer:
            secure = answer.extensions["network_stream"].get_extra_info("ssl_object")
            subject = dict(pair for part in secure.getpeercert()["subject"] for pair in part)
            answer.read()
            return str(subject["commonName"])

    def newest() -> str:
        with browsing(node) as web:
            return common_name(web)

    files = node.certificates.certificate, node.certificates.key
    with browsing(node) as kept:
        assert common_name(kept) == "node"
        # Half of a renewal, or a file that is none, changes nothing and stops nobody.
        files[0].write_bytes(b"-----BEGIN CERTIFICATE-----\nrubbish\n")
        time.sleep(0.6)
        assert newest() == "node"
        issued = node.certificates.authority.issue_cert("127.0.0.1", common_name="renewed")
        files[1].write_bytes(issued.private_key_pem.bytes())
        files[0].write_bytes(issued.cert_chain_pems[0].bytes())
        deadline = time.monotonic() + 10
        while newest() != "renewed":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert common_name(kept) == "node"
        assert kept.get("/v1/topics", auth=ADMIN).status_code == 200
    assert "not loaded" in node.log_text()
    # Clients are still checked against the authority after the change.
    with browsing(node, node.certificates.issue("dora")) as web:
        assert web.get("/v1/topics/web").status_code == 200


def test_plain_http_gets_no_answer_from_a_listener_that_speaks_tls(node: SecureNode) -> None:
    with (
        httpx.Client(base_url=f"http://{node.http}", timeout=1) as web,
        pytest.raises(httpx.TransportError),
    ):
        web.get("/v1/topics", auth=ADMIN)
