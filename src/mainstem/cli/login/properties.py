"""Kafka's client settings (``--command-config``): a properties file as login settings.

Both dialects are read: the Java client's (``sasl.jaas.config``, key stores) and librdkafka's
(``sasl.username``, ``ssl.ca.location``). Settings about other things are ignored; an unknown one
about security is an error, since ignoring it might mean less security.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.settings import LoginSettings
from mainstem.model.errors import ErrorCode, InvalidRequest

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SECURITY = ("sasl.", "ssl.", "security.", "enable.ssl.")
# They choose among options of equal security, or do not apply to a single command.
_HARMLESS = re.compile(
    r"ssl\.(protocol|provider|.*manager\.algorithm|secure\.random.*|engine\.factory\.class)"
    r"|sasl\.login\..*|sasl\.kerberos\..*|security\.providers"
    r"|sasl\.client\.callback\.handler\.class"
)
_PAIR = re.compile(r"([\w.]+)\s*=\s*(\"(?:\\.|[^\"\\])*\"|'[^']*'|[^\s;]+)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_properties(path: str) -> LoginSettings:
    """The login settings of a file.

    Raises:
        UsageFailure: it cannot be read.
        InvalidRequest: a setting is unknown or not supported.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageFailure(f"the file cannot be read: {why}", subject=path) from error
    return settings_from_properties(parse_properties(text))


def parse_properties(text: str) -> dict[str, str]:
    """Names and values as Java reads them: comments, continued lines, escapes."""
    found = {}
    lines = iter(text.splitlines())
    for line in lines:
        whole = line.lstrip()
        if not whole or whole[0] in "#!":
            continue
        while _is_continued(whole):
            whole = whole[:-1] + next(lines, "").lstrip()
        name, value = _split(whole)
        found[_unescaped(name)] = _unescaped(value)
    return found


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    match = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
    assert match is not None, "the expression fits every line"
    return match[1], match[2]


def _unescaped(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replacement, text, flags=re.DOTALL)


def settings_from_properties(properties: dict[str, str]) -> LoginSettings:
    """The login settings that the properties give.

    Raises:
        InvalidRequest: a setting is unknown or not supported.
    """
    login_settings = LoginSettings()
    for name, value in properties.items():
        taker = _TAKERS.get(name)
        if taker is not None:
            login_settings = taker(login_settings, value)
        elif name.startswith(_SECURITY) and not _HARMLESS.fullmatch(name):
            raise _invalid(name, "this setting is not supported")
    return _with_stores(login_settings, properties)


def _protocol(login_settings: LoginSettings, value: str) -> LoginSettings:
    kind = value.strip().upper()
    if kind not in PROTOCOLS:
        raise _invalid("security.protocol", f"{value!r} is not one of {', '.join(PROTOCOLS)}")
    return login_settings._replace(tls=kind.endswith("SSL"))


def _jaas(login_settings: LoginSettings, value: str) -> LoginSettings:
    module, _, rest = value.strip().partition(" ")
    kind = module.rpartition(".")[2]
    fields = {name.lower(): _unquoted(text) for name, text in _PAIR.findall(rest)}
    if kind == "OAuthBearerLoginModule":
        return login_settings
    if kind not in ("PlainLoginModule", "ScramLoginModule"):
        raise _invalid("sasl.jaas.config", f"{kind or 'nothing'} is not supported")
    if "username" not in fields or "password" not in fields:
        raise _invalid("sasl.jaas.config", "username or password is missing")
    by_token = True if fields.get("tokenauth", "").lower() == "true" else None
    return login_settings._replace(
        user=fields["username"], password=fields["password"], by_token=by_token
    )


def _unquoted(text: str) -> str:
    if text[:1] in "\"'":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def _token_endpoint(login_settings: LoginSettings, value: str) -> LoginSettings:
    parts = urlsplit(value.strip())
    if parts.scheme != "file":
        raise _invalid(
            "sasl.oauthbearer.token.endpoint.url",
            "fetching tokens from an issuer is not supported",
            remedy="fetch the token and give its file: file:///path, or --token-file",
        )
    return login_settings._replace(token_file=unquote(parts.path))


def _name_check(login_settings: LoginSettings, value: str) -> LoginSettings:
    return login_settings._replace(check_name=value.strip().lower() not in ("", "none"))


def _verification(login_settings: LoginSettings, value: str) -> LoginSettings:
    return login_settings._replace(verify=value.strip().lower() != "false")


def _taking(name: str) -> Callable[[LoginSettings, str], LoginSettings]:
    def take(login_settings: LoginSettings, value: str) -> LoginSettings:
        fields: dict[str, Any] = {name: value.strip()}
        return login_settings._replace(**fields)

    return take


def _ignored(login_settings: LoginSettings, value: str) -> LoginSettings:
    """Read together with related settings, in ``_with_stores``."""
    del value
    return login_settings


_TAKERS: dict[str, Callable[[LoginSettings, str], LoginSettings]] = {
    "bootstrap.servers": _taking("bootstrap"),
    "metadata.broker.list": _taking("bootstrap"),
    "security.protocol": _protocol,
    "sasl.mechanism": _taking("mechanism"),
    "sasl.mechanisms": _taking("mechanism"),
    "sasl.jaas.config": _jaas,
    "sasl.username": _taking("user"),
    "sasl.password": lambda login_settings, value: login_settings._replace(password=value),
    "sasl.oauthbearer.token.endpoint.url": _token_endpoint,
    "ssl.ca.location": _taking("ca_file"),
    "ssl.ca.pem": _taking("ca_pem"),
    "ssl.certificate.location": _taking("cert_file"),
    "ssl.key.location": _taking("key_file"),
    "ssl.key.password": lambda login_settings, value: login_settings._replace(key_password=value),
    "ssl.endpoint.identification.algorithm": _name_check,
    "enable.ssl.certificate.verification": _verification,
    "ssl.enabled.protocols": _ignored,
    "ssl.truststore.type": _ignored,
    "ssl.truststore.location": _ignored,
    "ssl.truststore.password": _ignored,
    "ssl.truststore.certificates": _taking("ca_pem"),
    "ssl.keystore.type": _ignored,
    "ssl.keystore.location": _ignored,
    "ssl.keystore.password": _ignored,
    "ssl.keystore.certificate.chain": _ignored,
    "ssl.keystore.key": _ignored,
}


def _with_stores(login_settings: LoginSettings, properties: dict[str, str]) -> LoginSettings:
    trust = properties.get("ssl.truststore.location")
    if trust:
        password = properties.get("ssl.truststore.password")
        login_settings = login_settings._replace(
            ca_pem=_store("ssl.truststore.location", trust, password)
        )
    chain = properties.get("ssl.keystore.certificate.chain")
    if chain:
        key = properties.get("ssl.keystore.key")
        if not key:
            raise _invalid("ssl.keystore.key", "a certificate without its key")
        login_settings = login_settings._replace(chain_pem=f"{key}\n{chain}\n")
    shown = properties.get("ssl.keystore.location")
    if shown:
        password = properties.get("ssl.keystore.password")
        login_settings = login_settings._replace(
            chain_pem=_store("ssl.keystore.location", shown, password)
        )
    return login_settings


def _store(setting: str, path: str, password: str | None) -> str:
    """The contents of a key store or trust store as PEM."""
    try:
        data = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise UsageFailure(f"the file cannot be read: {error.strerror}", subject=path) from error
    if b"-----BEGIN" in data:
        return data.decode("ascii", errors="replace")
    if data[:1] == b"\x30":  # a sequence in DER: PKCS #12
        from mainstem.cli.development.certificates import pem_of_store

        return pem_of_store(path, data, password)
    raise _invalid(
        setting,
        "only stores of type PEM and PKCS12 are supported",
        remedy=f"keytool -importkeystore -srckeystore {path} -destkeystore store.p12 "
        "-deststoretype PKCS12",
    )


def _invalid(setting: str, cause: str, *, remedy: str = "") -> InvalidRequest:
    return InvalidRequest(ErrorCode.INVALID_CONFIG, cause, subject=setting, remedy=remedy)
