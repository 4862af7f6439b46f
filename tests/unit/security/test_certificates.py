"""Names from certificates, and TLS files that change while a listener runs."""

import os
import shutil
import ssl
from pathlib import Path

import pytest
import trustme

from mainstem.model.errors import InvalidRequest
from mainstem.security.authentication.certificate_names import (
    NameRules,
    Subject,
    distinguished_name,
)
from mainstem.security.authentication.tls_transport import (
    TlsContexts,
    TlsSettings,
    certificate_identity,
    make_context,
)

SUBJECT: Subject = (
    (("countryName", "DE"),),
    (("organizationName", "Example, Inc."),),
    (("organizationalUnitName", "ops"),),
    (("commonName", "Alice"),),
)


def test_the_distinguished_name_begins_with_the_most_specific_part() -> None:
    assert distinguished_name(SUBJECT) == r"CN=Alice,OU=ops,O=Example\, Inc.,C=DE"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ([], r"CN=Alice,OU=ops,O=Example\, Inc.,C=DE"),
        (["DEFAULT"], r"CN=Alice,OU=ops,O=Example\, Inc.,C=DE"),
        (["RULE:^CN=(.*?),.*$/$1/"], "Alice"),
        (["RULE:^CN=(.*?),.*$/$1/L"], "alice"),
        (["RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U"], "ALICE@OPS"),
        (["RULE:^CN=(.*?),OU=dev.*$/$1/", "DEFAULT"], r"CN=Alice,OU=ops,O=Example\, Inc.,C=DE"),
        (["RULE:^CN=nobody$/x/"], None),
        (["RULE:^.*$//"], None),
    ],
)
def test_rules_map_names_and_the_first_that_fits_decides(
    rules: list[str], name: str | None
) -> None:
    assert NameRules(rules).name(SUBJECT) == name


def test_what_stands_in_a_certificate_is_text_not_a_replacement() -> None:
    rules = NameRules(["RULE:^CN=(.*?),OU=(.*?)$/$1-$2/"])
    subject = ((("organizationalUnitName", "admin"),), (("commonName", "$2"),))
    assert rules.name(subject) == "$2-admin"


def test_a_comma_in_a_name_does_not_begin_another_part() -> None:
    rules = NameRules([r"RULE:^CN=([^,\\]*),OU=admin$/$1/"])
    subject = ((("commonName", "eve,OU=admin"),),)
    assert rules.name(subject) is None


@pytest.mark.parametrize("rule", ["", "RULE:", "RULE:x/y", "RULE:(/x/", "RULE:a/b/X", "default"])
def test_what_is_no_rule_is_refused(rule: str) -> None:
    with pytest.raises(InvalidRequest):
        NameRules([rule])


class Files:
    """Server files of an authority, and clients that trust it."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.folder = folder
        self.issue("localhost")
        self.authority.cert_pem.write_to_path(str(folder / "ca.pem"))

    def issue(self, name: str) -> None:
        issued = self.authority.issue_cert(name)
        fresh = self.folder / "fresh.pem"
        for target, blob in (
            ("cert.pem", issued.cert_chain_pems),
            ("key.pem", [issued.private_key_pem]),
        ):
            fresh.unlink(missing_ok=True)
            for pem in blob:
                pem.write_to_path(str(fresh), append=True)
            shutil.move(fresh, self.folder / target)

    def settings(self, **rest: str) -> TlsSettings:
        return TlsSettings(
            certificate_file=str(self.folder / "cert.pem"),
            key_file=str(self.folder / "key.pem"),
            **rest,
        )

    def client(self, *, common_name: str | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        self.authority.configure_trust(context)
        if common_name is not None:
            self.authority.issue_cert(common_name=common_name).configure_cert(context)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server)
    pending = [theirs, ours]
    for _ in range(20):
        for end in list(pending):
            try:
                end.do_handshake()
                pending.remove(end)
            except ssl.SSLWantReadError:
                continue
        if not pending:
            return ours, theirs
    raise AssertionError("the handshake does not end")


def names(end: ssl.SSLObject) -> list[str]:
    certificate = end.getpeercert() or {}
    return [str(pair[1]) for pair in certificate.get("subjectAltName", ())]


def test_a_renewed_certificate_serves_the_next_connection(files: Files) -> None:
    contexts = TlsContexts(files.settings())
    assert names(handshake(contexts.context, files.client())[1]) == ["localhost"]
    assert not contexts.reload_if_changed()
    files.issue("renewed.example")
    assert contexts.reload_if_changed()
    assert names(handshake(contexts.context, files.client())[1]) == ["renewed.example"]


def test_files_that_do_not_fit_together_leave_things_as_they_were(files: Files) -> None:
    contexts = TlsContexts(files.settings())
    Path(files.settings().key_file).write_text("nonsense")
    assert not contexts.reload_if_changed()
    assert names(handshake(contexts.context, files.client())[1]) == ["localhost"]


def test_a_client_certificate_says_who_it_is(files: Files) -> None:
    settings = files.settings(
        client_ca_file=str(files.folder / "ca.pem"), client_certificates="required"
    )
    ours, _ = handshake(TlsContexts(settings).context, files.client(common_name="alice"))
    identity = certificate_identity(ours, NameRules(["RULE:^.*CN=([^,]*).*$/$1/"]))
    assert identity is not None
    assert str(identity.principal) == "User:alice"


def test_without_a_certificate_the_handshake_fails_where_one_is_required(files: Files) -> None:
    settings = files.settings(
        client_ca_file=str(files.folder / "ca.pem"), client_certificates="required"
    )
    with pytest.raises(ssl.SSLError):
        handshake(TlsContexts(settings).context, files.client())


def test_a_certificate_of_another_authority_is_refused(files: Files, tmp_path: Path) -> None:
    settings = files.settings(
        client_ca_file=str(files.folder / "ca.pem"), client_certificates="requested"
    )
    stranger = files.client()
    trustme.CA().issue_cert(common_name="alice").configure_cert(stranger)
    with pytest.raises(ssl.SSLError):
        handshake(TlsContexts(settings).context, stranger)


def test_a_new_authority_for_clients_is_taken_up_and_the_old_one_forgotten(files: Files) -> None:
    path = files.folder / "ca.pem"
    settings = files.settings(client_ca_file=str(path), client_certificates="required")
    contexts = TlsContexts(settings)
    other = trustme.CA()
    path.unlink()
    other.cert_pem.write_to_path(str(path))
    os.utime(path, (1, 1))
    assert contexts.reload_if_changed()
    known = files.client()
    other.issue_cert(common_name="bob").configure_cert(known)
    handshake(contexts.context, known)
    with pytest.raises(ssl.SSLError):
        handshake(contexts.context, files.client(common_name="alice"))


def test_where_no_certificate_is_asked_for_nobody_is_known_by_one(files: Files) -> None:
    ours, _ = handshake(TlsContexts(files.settings()).context, files.client(common_name="alice"))
    assert certificate_identity(ours, NameRules()) is None
    assert certificate_identity(None, NameRules()) is None


def test_missing_files_and_a_missing_authority_are_plain_refusals(files: Files) -> None:
    with pytest.raises(InvalidRequest):
        make_context(TlsSettings(certificate_file="absent", key_file="absent"))
    with pytest.raises(InvalidRequest):
        make_context(files.settings(client_certificates="required"))


def test_old_protocols_are_not_spoken(files: Files) -> None:
    assert make_context(files.settings()).minimum_version is ssl.TLSVersion.TLSv1_2
    assert make_context(files.settings(minimum="1.3")).minimum_version is ssl.TLSVersion.TLSv1_3
