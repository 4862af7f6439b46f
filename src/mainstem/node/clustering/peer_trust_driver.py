"""How nodes authenticate each other: the cluster's secrets, and certificates where they use TLS.

Changed files are reloaded while the node runs, so that secrets and certificates are replaced
without a restart. Guarantees: both sides of an encrypted connection present a certificate of the
nodes' authorities, and the listening side one for the host that was connected to; with files that
cannot be used, the previous ones stay in use.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.node.config.settings import Config
from mainstem.security.authentication.tls_transport import TlsContexts, TlsSettings

_log = logging.getLogger(__name__)


class PeerTls:
    """The contexts of connections between nodes.

    Args:
        settings: the node's certificate, and the authorities of all nodes.

    Raises:
        InvalidRequest: the files cannot be used.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        try:
            self._contexts = TlsContexts(settings)
            self.dialling = ssl.create_default_context(cafile=settings.client_ca_file)
            self._show_certificate()
        except OSError as error:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG, f"the TLS files cannot be read: {error}", subject="tls"
            ) from error
        self.listening = self._contexts.context

    def reload_if_changed(self) -> None:
        """Use new files for the next connections."""
        if self._contexts.reload_if_changed():
            self._show_certificate()

    def _show_certificate(self) -> None:
        settings, context = self._settings, self.dialling
        newest = settings.minimum == "1.3"
        context.minimum_version = ssl.TLSVersion.TLSv1_3 if newest else ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(settings.certificate_file, settings.key_file)
        context.load_verify_locations(settings.client_ca_file)


def peer_tls(config: Config) -> PeerTls | None:
    """How connections between nodes are encrypted; None: not at all.

    Raises:
        InvalidRequest: certificate, key or authorities are not named, or cannot be used.
    """
    if not config.cluster.tls:
        return None
    authorities = config.cluster.tls_ca_file or config.tls.client_ca_file
    if config.tls.certificate_file is None or config.tls.key_file is None or authorities is None:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            "TLS between nodes needs a certificate, its key and the authorities of all nodes",
            subject="cluster.tls",
            remedy="set tls.certificate_file, tls.key_file and cluster.tls_ca_file; "
            "mainstem cert creates a matching set",
        )
    return PeerTls(
        TlsSettings(
            certificate_file=config.tls.certificate_file,
            key_file=config.tls.key_file,
            client_ca_file=authorities,
            client_certificates="required",
            minimum=config.tls.minimum,
        )
    )


class PeerTrustDriver:
    """Checks the files for changes at intervals.

    Args:
        read: reads the cluster's secrets from their file.
        secrets: those in use now.
        tls: how connections are encrypted; None: not at all.
    """

    def __init__(
        self,
        read: Callable[[], tuple[bytes, ...]],
        secrets: tuple[bytes, ...],
        tls: PeerTls | None,
    ) -> None:
        self._read = read
        self._tls = tls
        self.secrets = secrets
        self.on_secrets: list[Callable[[tuple[bytes, ...]], None]] = []

    async def run(self, config: Config) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(config.tls.reload_interval_ms / 1000)
            self.reload_if_changed()

    def reload_if_changed(self) -> None:
        """Load what has changed."""
        if self._tls is not None:
            self._tls.reload_if_changed()
        try:
            found = self._read()
        except (OSError, InvalidRequest) as error:
            _log.warning("the cluster's secret is not reloaded: %s", error)
            return
        if found != self.secrets:
            self.secrets = found
            _log.info("the cluster has %d secrets from now on", len(found))
            for notify in self.on_secrets:
                notify(found)
