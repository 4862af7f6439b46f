"""Kafka's security options: ``kafka.security.protocol``, ``kafka.ssl.*``, ``kafka.sasl.*``.

The names are those of Kafka's Java client, so that options can be reused unchanged, and
librdkafka's where Java has none. Certificates are PEM, as files or inline; Java key stores are not
supported and refused with the command to convert them. Secrets are never part of an error.
"""

import re
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mainstem.client.sasl import MECHANISMS, SaslSettings
from mainstem.model.errors import ErrorCode, InvalidRequest

if TYPE_CHECKING:
    from mainstem.client.connection import ConnectionSettings

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

OPTIONS: Final = frozenset(
    {
        "kafka.request.timeout.ms",
        "kafka.security.protocol",
        "kafka.sasl.mechanism",
        "kafka.sasl.jaas.config",
        "kafka.sasl.username",
        "kafka.sasl.password",
        "kafka.sasl.oauthbearer.token",
        "kafka.ssl.truststore.type",
        "kafka.ssl.truststore.location",
        "kafka.ssl.truststore.certificates",
        "kafka.ssl.ca.location",
        "kafka.ssl.keystore.type",
        "kafka.ssl.keystore.location",
        "kafka.ssl.keystore.key",
        "kafka.ssl.keystore.certificate.chain",
        "kafka.ssl.certificate.location",
        "kafka.ssl.key.location",
        "kafka.ssl.key.password",
        "kafka.ssl.endpoint.identification.algorithm",
    }
)


def connection_settings(options: Mapping[str, str], *, client_id: str) -> "ConnectionSettings":
    """The connection settings of options whose names are in lower case.

    Raises:
        InvalidRequest: the options contradict each other or name an unreadable file.
    """
    protocol = options.get("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise _refusal(
            "kafka.security.protocol", f"{protocol!r}", f"use one of {', '.join(PROTOCOLS)}"
        )
    timeout = options.get("kafka.request.timeout.ms", "30000")
    if not timeout.isdigit() or not int(timeout):
        raise _refusal("kafka.request.timeout.ms", f"{timeout!r}", "use milliseconds")
    # Spark's planners have these options but never connect.
    from mainstem.client.connection import ConnectionSettings

    return ConnectionSettings(
        client_id=client_id,
        request_timeout_ms=int(timeout),
        tls=_tls(options) if protocol.endswith("SSL") else None,
        sasl=_sasl(options) if protocol.startswith("SASL") else None,
    )


def _sasl(options: Mapping[str, str]) -> SaslSettings:
    mechanism = options.get("kafka.sasl.mechanism", "PLAIN").upper()
    if mechanism not in MECHANISMS:
        raise _refusal(
            "kafka.sasl.mechanism", f"{mechanism!r}", f"use one of {', '.join(MECHANISMS)}"
        )
    jaas = _jaas(options.get("kafka.sasl.jaas.config", ""))
    return SaslSettings(
        mechanism=mechanism,
        username=options.get("kafka.sasl.username", jaas.get("username", "")),
        password=options.get("kafka.sasl.password", jaas.get("password", "")),
        token=options.get("kafka.sasl.oauthbearer.token", jaas.get("token", "")),
        by_token=jaas.get("tokenauth", "").lower() == "true",
    )


def _jaas(text: str) -> dict[str, str]:
    """The settings of a JAAS line: ``… required username="x" password="y";``."""
    pairs = re.findall(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))', text)
    return {
        name.lower(): re.sub(r"\\(.)", r"\1", quoted) if quoted else bare
        for name, quoted, bare in pairs
    }


def _tls(options: Mapping[str, str]) -> ssl.SSLContext:
    for kind in ("truststore", "keystore"):
        name = f"kafka.ssl.{kind}.type"
        is_java = options.get(f"kafka.ssl.{kind}.location", "").endswith((".jks", ".p12", ".pfx"))
        if options.get(name, "JKS" if is_java else "PEM").upper() != "PEM":
            raise _refusal(
                name,
                "only PEM is supported",
                "convert it: keytool -exportcert -rfc, openssl pkcs12",
            )
    authorities = options.get("kafka.ssl.truststore.location") or options.get(
        "kafka.ssl.ca.location"
    )
    inline = options.get("kafka.ssl.truststore.certificates")
    try:
        context = ssl.create_default_context(cafile=authorities, cadata=inline)
        _load_identity(context, options)
    except (OSError, ssl.SSLError) as error:
        raise _refusal(
            "kafka.ssl", f"cannot be read: {error}", "check the files, and that they are PEM"
        ) from None
    if options.get("kafka.ssl.endpoint.identification.algorithm", "https") == "":
        context.check_hostname = False
    return context


def _load_identity(context: ssl.SSLContext, options: Mapping[str, str]) -> None:
    password = options.get("kafka.ssl.key.password")
    store = options.get("kafka.ssl.keystore.location")
    certificate = options.get("kafka.ssl.certificate.location", store)
    key = options.get("kafka.ssl.key.location")
    if certificate is not None:
        context.load_cert_chain(certificate, key, password)
        return
    chain = options.get("kafka.ssl.keystore.certificate.chain")
    inline_key = options.get("kafka.ssl.keystore.key")
    if chain is None or inline_key is None:
        return
    # Python reads keys from files only; this one is private and deleted at once.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "identity.pem"
        file.touch(mode=0o600)
        file.write_text(f"{inline_key}\n{chain}\n")
        context.load_cert_chain(file, password=password)


def _refusal(option: str, cause: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.INVALID_CONFIG, cause, subject=option, remedy=remedy)
