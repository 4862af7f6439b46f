"""Kafka's properties files as logins."""

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.cli.development import certificates
from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.access import tls_context
from mainstem.cli.login.properties import (
    parse_properties,
    read_properties,
    settings_from_properties,
)
from mainstem.cli.login.settings import LoginSettings, access_from
from mainstem.model.errors import ErrorCode, InvalidRequest

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def test_lines_are_read_as_java_reads_them() -> None:
    text = r"""
# a comment
! another
plain=value
spaced = value with spaces
colon: value
blank value
empty=
escaped\ name=tab\there\u0041
long=one \
     two \
     three
odd=ends with a backslash\\
"""
    assert parse_properties(text) == {
        "plain": "value",
        "spaced": "value with spaces",
        "colon": "value",
        "blank": "value",
        "empty": "",
        "escaped name": "tab\there" + "A",
        "long": "one two three",
        "odd": "ends with a backslash\\",
    }


def escaped(text: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else f"\\u{ord(c):04x}" for c in text)


@settings(deadline=None)  # a busy machine is slow
@given(
    st.dictionaries(
        st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), min_size=1),
        st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])),
    )
)
def test_what_is_written_with_escapes_is_read_back(properties: dict[str, str]) -> None:
    text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in properties.items())
    assert parse_properties(text) == properties


def test_jaas_names_user_password_and_token() -> None:
    config = f'{SCRAM} username="al\\"ice" password="pass word; =" tokenauth="true";'
    wishes = settings_from_properties(
        {"sasl.jaas.config": config, "sasl.mechanism": "SCRAM-SHA-256"}
    )
    assert (wishes.user, wishes.password, wishes.by_token, wishes.mechanism) == (
        'al"ice', "pass word; =", True, "SCRAM-SHA-256",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "tls"),
    [("PLAINTEXT", False), ("ssl", True), ("SASL_PLAINTEXT", False), ("SASL_SSL", True)],
)
def test_the_protocol_says_whether_tls_is_spoken(kind: str, tls: bool) -> None:
    assert settings_from_properties({"security.protocol": kind}).tls is tls


def test_a_token_is_read_from_the_file_that_its_address_names() -> None:
    wishes = settings_from_properties(
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer"
            ".OAuthBearerLoginModule required;",
            "sasl.oauthbearer.token.endpoint.url": "file:///run/my%20token",
        }
    )
    assert wishes.token_file == "/run/my token"


def test_names_are_checked_unless_switched_off() -> None:
    setting = "ssl.endpoint.identification.algorithm"
    assert settings_from_properties({setting: "https"}).check_name is True
    assert settings_from_properties({setting: ""}).check_name is False
    assert (
        settings_from_properties({"enable.ssl.certificate.verification": "false"}).verify is False
    )


def test_settings_about_other_things_are_left_alone() -> None:
    assert (
        settings_from_properties({"acks": "all", "linger.ms": "5", "ssl.protocol": "TLSv1.3"})
        == LoginSettings()
    )


@pytest.mark.parametrize(
    "properties",
    [
        {"ssl.cipher.suites": "weak"},
        {"sasl.oauthbearer.token.endpoint.url": "https://issuer"},
        {"security.protocol": "TLS"},
        {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
        {"sasl.jaas.config": f'{SCRAM} username="alice";'},
        {"ssl.keystore.certificate.chain": "pem"},
    ],
    ids=str,
)
def test_security_that_is_not_served_is_not_passed_over(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        settings_from_properties(properties)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.subject


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    now = datetime.datetime.now(datetime.UTC)
    authority = certificates.Pair.named(folder, "ca")
    certificates.make_authority(authority, 1, now)
    order = certificates.Order("alice", [], 1)
    certificates.issue(authority, order, certificates.Pair.named(folder, "alice"), now)
    return folder


def stores(folder: Path, password: bytes) -> tuple[Path, Path]:
    key = serialization.load_pem_private_key((folder / "alice.key").read_bytes(), None)
    cert = x509.load_pem_x509_certificate((folder / "alice.pem").read_bytes())
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    secret = serialization.BestAvailableEncryption(password)
    shown, trusted = folder / "alice.p12", folder / "trust.p12"
    data = pkcs12.serialize_key_and_certificates(b"alice", key, cert, None, secret)  # type: ignore[arg-type]
    shown.write_bytes(data)
    entry = pkcs12.PKCS12Certificate(authority, b"ca")
    trusted.write_bytes(pkcs12.serialize_java_truststore([entry], secret))
    return shown, trusted


def test_stores_of_java_are_opened(made: Path) -> None:
    shown, trusted = stores(made, b"changeit")
    wishes = settings_from_properties(
        {
            "security.protocol": "SSL",
            "ssl.keystore.location": str(shown),
            "ssl.keystore.password": "changeit",
            "ssl.truststore.location": str(trusted),
            "ssl.truststore.password": "changeit",
        }
    )
    access = access_from(wishes, secret=None)  # type: ignore[arg-type]
    assert access.tls is not None
    context = tls_context(access.tls)
    assert context.cert_store_stats()["x509_ca"] == 1
    with pytest.raises(InvalidRequest, match="cannot be opened"):
        settings_from_properties(
            {"ssl.keystore.location": str(shown), "ssl.keystore.password": "wrong"}
        )


def test_certificates_within_the_settings_are_used(made: Path) -> None:
    wishes = settings_from_properties(
        {
            "security.protocol": "SSL",
            "ssl.truststore.certificates": (made / "ca.pem").read_text(),
            "ssl.keystore.certificate.chain": (made / "alice.pem").read_text(),
            "ssl.keystore.key": (made / "alice.key").read_text(),
        }
    )
    access = access_from(wishes, secret=None)  # type: ignore[arg-type]
    assert access.tls is not None
    assert tls_context(access.tls).cert_store_stats()["x509_ca"] == 1


def test_a_store_of_another_kind_says_how_to_convert_it(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(InvalidRequest) as refused:
        settings_from_properties({"ssl.truststore.location": str(store)})
    assert "keytool" in refused.value.remedy


def test_a_file_that_is_not_there_is_said() -> None:
    with pytest.raises(UsageFailure, match="cannot be read"):
        read_properties("/nowhere.properties")
