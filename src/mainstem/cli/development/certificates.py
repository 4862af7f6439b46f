"""Certificates for development: an authority, and what it signs for nodes and clients.

Intended for TLS on development machines, not to run an authority: keys are stored beside
certificates, in files that only their owner can read, and nothing is ever revoked.
"""

import datetime
import ipaddress
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mainstem.cli.errors import UsageFailure
from mainstem.model.errors import ErrorCode, InvalidRequest

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

SECRET_MODE = 0o600
AUTHORITY = "ca"
# Clocks differ: a certificate is valid from a little before it was made.
_GRACE = datetime.timedelta(minutes=5)


class Pair(NamedTuple):
    """The files of one certificate."""

    certificate: Path
    key: Path

    @classmethod
    def named(cls, folder: Path, name: str) -> "Pair":
        """The paths of the files in a folder."""
        return cls(folder / f"{name}.pem", folder / f"{name}.key")


class Order(NamedTuple):
    """The contents of a certificate. A client certificate has no hosts."""

    name: str
    hosts: Sequence[str]
    days: int


@contextmanager
def _library() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise UsageFailure(
            "the package `cryptography` is missing", remedy="pip install 'mainstem[server]'"
        ) from None


def make_authority(pair: Pair, days: int, now: datetime.datetime) -> None:
    """Makes a new authority and writes its files."""
    with _library():
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject(f"Mainstem development {secrets.token_hex(4)}")
    builder = (
        _builder(name, name, key, days, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )
    _write(pair, builder, key, signer=key)


def issue(authority: Pair, order: Order, pair: Pair, now: datetime.datetime) -> None:
    """Makes a certificate signed by an authority and writes its files.

    Raises:
        InvalidRequest: the authority's files cannot be used.
    """
    with _library():
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID
    issuer, signer = _load(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if order.hosts:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    builder = (
        _builder(_subject(order.name), issuer.subject, key, order.days, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if order.hosts:
        names = x509.SubjectAlternativeName([_host(host) for host in order.hosts])
        builder = builder.add_extension(names, critical=False)
    _write(pair, builder, key, signer=signer)


def _subject(name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as error:
        raise UsageFailure(f"not a valid name for a certificate: {error}", subject=name) from error


def _host(text: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    try:
        return x509.DNSName(text.encode("idna").decode())
    except (UnicodeError, ValueError) as error:
        raise UsageFailure("neither a host name nor an address", subject=text) from error


def _usage(*, signs: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "EllipticCurvePrivateKey",
    days: int,
    now: datetime.datetime,
) -> "x509.CertificateBuilder":
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _GRACE)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _write(
    pair: Pair,
    builder: "x509.CertificateBuilder",
    key: "EllipticCurvePrivateKey",
    *,
    signer: "EllipticCurvePrivateKey",
) -> None:
    from cryptography.hazmat.primitives import hashes, serialization

    certificate = builder.sign(signer, hashes.SHA256())
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _replace(pair.key, text, SECRET_MODE)
    _replace(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Writes a temporary file and renames it: a node that reloads never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UsageFailure(f"cannot be written: {error.strerror}", subject=str(path)) from error


def write_secret(path: Path, text: str) -> None:
    """Writes a one-line file that only its owner can read."""
    _replace(path, f"{text}\n".encode(), SECRET_MODE)


def _load(authority: Pair) -> tuple["x509.Certificate", "EllipticCurvePrivateKey"]:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        certificate = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
        key = serialization.load_pem_private_key(authority.key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"the authority cannot be used: {why}",
            subject=str(authority.certificate),
            remedy="give a folder with ca.pem and ca.key, or an empty one",
        ) from error
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    if not isinstance(key, EllipticCurvePrivateKey):
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            "the authority was not made by this command",
            subject=str(authority.key),
        )
    return certificate, key


def describe(data: bytes, now: datetime.datetime) -> list[dict[str, object]]:
    """Describes the certificates of a PEM file, in order.

    Raises:
        UsageFailure: the file has no certificate.
    """
    with _library():
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise UsageFailure(f"not a certificate: {error}") from error
    return [
        {
            "subject": each.subject.rfc4514_string(),
            "issuer": each.issuer.rfc4514_string(),
            "authority": _is_authority(each),
            "hosts": _hosts(each),
            "purposes": _purposes(each),
            "not_before": each.not_valid_before_utc.isoformat(),
            "not_after": each.not_valid_after_utc.isoformat(),
            "days_left": (each.not_valid_after_utc - now).days,
            "principal": f"User:{each.subject.rfc4514_string()}",
            "sha256": each.fingerprint(hashes.SHA256()).hex(),
        }
        for each in found
    ]


def _is_authority(certificate: "x509.Certificate") -> bool:
    from cryptography import x509

    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False


def _hosts(certificate: "x509.Certificate") -> list[str]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def _purposes(certificate: "x509.Certificate") -> list[str]:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    words = {
        ExtendedKeyUsageOID.SERVER_AUTH: "server",
        ExtendedKeyUsageOID.CLIENT_AUTH: "client",
    }
    try:
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return []
    return [words.get(each, each.dotted_string) for each in found]


def pem_of_store(path: str, data: bytes, password: str | None) -> str:
    """The contents of a PKCS #12 store as PEM: the key, if any, then all certificates.

    Raises:
        InvalidRequest: it cannot be opened.
    """
    with _library():
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    secret = password.encode() if password else None
    try:
        store = pkcs12.load_pkcs12(data, secret)
    except ValueError as error:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG, f"the store cannot be opened: {error}", subject=path
        ) from error
    parts = []
    if store.key is not None:
        parts.append(
            store.key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
    held = [store.cert] if store.cert is not None else []
    parts += [
        each.certificate.public_bytes(serialization.Encoding.PEM)
        for each in [*held, *store.additional_certs]
    ]
    return b"".join(parts).decode()
