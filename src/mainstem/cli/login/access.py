"""How a command reaches a cluster: address, login and certificates.

A value: the result of options, files and variables (``options`` collects them). No connection is
opened and nothing heavy imported before a command needs it.
"""

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mainstem.cli.errors import UsageFailure

if TYPE_CHECKING:
    import ssl

    from mainstem.client.administration.rest_cluster import RestCluster
    from mainstem.client.cluster import Cluster
    from mainstem.client.connection import ConnectionSettings
    from mainstem.client.rest_admin import RestAdmin

DEFAULT_ADDRESS = "127.0.0.1:9092"
HTTP_PORT = 8080
CONNECT_TIMEOUT_S = 10.0


class SaslCredentials(NamedTuple):
    """The credentials. ``by_token``: user and password are those of a delegation token.

    ``token`` is for OAUTHBEARER; ``token_file``, where it came from, is read again at each login,
    since tokens that expire are replaced there.
    """

    mechanism: str
    user: str = ""
    password: str = ""
    token: str = ""
    by_token: bool = False
    token_file: str | None = None

    def __repr__(self) -> str:
        return f"SaslCredentials({self.mechanism}, {self.user!r})"

    async def fresh_token(self) -> str:
        """Reads the current token from the file."""
        return read_secret(self.token_file) if self.token_file else self.token


class Tls(NamedTuple):
    """Certificates: authorities to trust (by default the system's) and the client certificate.

    ``ca_pem`` and ``chain_pem`` hold the PEM text itself if it came with a properties file.
    """

    ca_file: str | None = None
    ca_pem: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    chain_pem: str | None = None
    key_password: str | None = None
    check_name: bool = True
    verify: bool = True

    def __repr__(self) -> str:
        return f"Tls(ca_file={self.ca_file!r}, cert_file={self.cert_file!r})"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Holds the address, login and TLS settings of a command.

    ``given``: the address was set explicitly, not by default.
    """

    bootstrap: str = DEFAULT_ADDRESS
    given: bool = False
    http: str | None = None
    login: SaslCredentials | None = None
    tls: Tls | None = None

    def __str__(self) -> str:
        return self.bootstrap

    @classmethod
    def parse(cls, text: "str | ConnectionOptions") -> "ConnectionOptions":
        """The value of ``--bootstrap``."""
        return text if isinstance(text, ConnectionOptions) else cls(text, given=True)

    def settings(self, timeout_s: float = CONNECT_TIMEOUT_S) -> "ConnectionSettings":
        """The settings of a connection."""
        from mainstem.client.connection import ConnectionSettings
        from mainstem.client.sasl import SaslSettings

        sasl = None
        if self.login is not None:
            sasl = SaslSettings(
                mechanism=self.login.mechanism,
                username=self.login.user,
                password=self.login.password,
                token=self.login.token,
                token_source=self.login.fresh_token if self.login.token_file else None,
                by_token=self.login.by_token,
            )
        connect_s = min(timeout_s, CONNECT_TIMEOUT_S)
        return ConnectionSettings(
            connect_timeout_ms=max(1, round(connect_s * 1000)), tls=self._context(), sasl=sasl
        )

    def cluster(self, timeout_s: float = CONNECT_TIMEOUT_S) -> "Cluster":
        """The cluster, not yet connected."""
        from mainstem.client.cluster import Cluster

        return Cluster(self.bootstrap, self.settings(timeout_s))

    def rest(self, url: str | None, timeout_s: float) -> "RestAdmin":
        """The HTTP API of a node: at ``--http``, or at the host of the first address."""
        from mainstem.client.cluster import parse_address
        from mainstem.client.rest_admin import RestAdmin, RestLogin

        host, _ = parse_address(self.bootstrap.split(",", maxsplit=1)[0])
        host = f"[{host}]" if ":" in host else host
        beside = f"{'https' if self.tls is not None else 'http'}://{host}:{HTTP_PORT}"
        login = self.login or SaslCredentials("")
        if login.by_token:
            raise UsageFailure(
                "delegation tokens work with the Kafka protocol only",
                subject="--delegation-token",
                remedy="log in with a password, or with an API token",
            )
        who = RestLogin(
            user=login.user, password=login.password, token=login.token, tls=self._context()
        )
        return RestAdmin(url or self.http or beside, who, timeout_s=timeout_s)

    def cluster_rest(self, url: str | None, timeout_s: float) -> "RestCluster":
        """The cluster as a whole, over the HTTP API."""
        from mainstem.client.administration.rest_cluster import RestCluster

        return RestCluster(self.rest(url, timeout_s))

    def _context(self) -> "ssl.SSLContext | None":
        return None if self.tls is None else tls_context(self.tls)


@functools.cache
def tls_context(tls: Tls) -> "ssl.SSLContext":
    """Reads the files.

    Raises:
        UsageFailure: one of them cannot be used.
    """
    import ssl

    try:
        context = ssl.create_default_context(cafile=tls.ca_file, cadata=tls.ca_pem)
    except OSError as error:
        raise _unusable(tls.ca_file or "certificates of authorities", error) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not (tls.check_name and tls.verify):
        context.check_hostname = False
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    subject = tls.cert_file or "client certificate"
    try:
        if tls.chain_pem is not None:
            # The ssl module reads certificates from files only.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write(tls.chain_pem)
                file.flush()
                context.load_cert_chain(file.name, None, tls.key_password or "")
        elif tls.cert_file is not None:
            # Without a password an encrypted key would make OpenSSL ask on the terminal.
            context.load_cert_chain(tls.cert_file, tls.key_file, tls.key_password or "")
    except OSError as error:
        raise _unusable(subject, error) from error
    return context


def read_secret(path: str) -> str:
    """The first line of a file.

    Raises:
        UsageFailure: it cannot be read or is empty.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(path, error) from error
    lines = text.splitlines()
    if not lines or not lines[0]:
        raise UsageFailure("the file is empty", subject=path)
    return lines[0]


def _unusable(subject: str, error: Exception) -> UsageFailure:
    why = getattr(error, "strerror", None) or str(error)
    return UsageFailure(f"the file cannot be used: {why}", subject=subject)
