"""TLS for listeners: contexts from files, client certificates, reload while running.

A listener holds one context for life. Its SNI callback, which runs for every handshake whether or
not the client names a host, switches the connection to the newest context; so a renewed certificate
serves the next connection and open ones stay. If files do not match, the old ones stay in use.
"""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.security.authentication.certificate_names import NameRules
from mainstem.security.principals import USER, Identity, Principal

LOOK_AGAIN_S: Final = 5.0

log = logging.getLogger(__name__)

_NEEDS: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


# Errors of peers that do not use TLS at all: they understand no alert, and waiting for them to
# close would let them hold sockets.
_NOT_TLS: Final = frozenset(
    {"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG"}
)


class TlsSettings(Struct, frozen=True, kw_only=True):
    """Where the files are. ``client_certificates`` is ``none``, ``requested`` or ``required``."""

    certificate_file: str
    key_file: str
    client_ca_file: str | None = None
    client_certificates: str = "none"
    minimum: str = "1.2"


class _ReportingHandshake(ssl.SSLObject):
    """Sends a client the alert of a failed handshake.

    OpenSSL has the alert ready when it refuses a certificate, but event loops close the connection
    without sending it; clients then see a closed connection, and retry for ever. So a failure with
    pending output is reported as a wait, for which loops send that output; the next step raises the
    failure.
    """

    outgoing: ssl.MemoryBIO
    _failure: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        """One step of the handshake."""
        if self._failure is not None:
            raise self._failure
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLSyscallError):
            raise
        except ssl.SSLError as error:
            log.debug("a TLS handshake failed: %s", error.reason)
            self._failure = error
            if not self.outgoing.pending or error.reason in _NOT_TLS:
                raise
            raise ssl.SSLWantReadError from error


class _ReportingContext(ssl.SSLContext):
    """A listener's context, whose handshakes send their alerts."""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - as the standard library has it
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """One connection's handshake."""
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        if isinstance(made, _ReportingHandshake):
            made.outgoing = outgoing
        return made


class TlsContexts:
    """The context of listeners, and the current certificate behind it."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._stamps = self._read_stamps()
        self._newest = make_context(settings)
        self.context = make_context(settings)
        self.context.sni_callback = self._hand_over

    def reload_if_changed(self) -> bool:
        """Load changed files; returns whether there were any."""
        try:
            stamps = self._read_stamps()
            if stamps == self._stamps:
                return False
            self._newest = make_context(self._settings)
        except (OSError, InvalidRequest) as error:
            log.warning("the new TLS files are not loaded: %s", error)
            return False
        self._stamps = stamps
        log.info("new TLS files are in use", extra={"file": self._settings.certificate_file})
        return True

    async def watch(self, every_s: float = LOOK_AGAIN_S) -> None:
        """Check for changes as long as the node runs."""
        while True:
            await asyncio.sleep(every_s)
            self.reload_if_changed()

    def _hand_over(self, connection: Any, _name: str | None, _context: Any) -> None:
        connection.context = self._newest

    def _read_stamps(self) -> tuple[tuple[int, int, int], ...]:
        settings = self._settings
        files = (settings.certificate_file, settings.key_file, settings.client_ca_file)
        stats = [Path(file).stat() for file in files if file is not None]
        return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """A server's context.

    Raises:
        InvalidRequest: the files cannot be read or do not match.
    """
    context = _ReportingContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _ReportingHandshake
    newest = settings.minimum == "1.3"
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if newest else ssl.TLSVersion.TLSv1_2
    # A client that requests renegotiation repeatedly would keep the node busy.
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(settings.certificate_file, settings.key_file, password=_no_password)
        if settings.client_ca_file is not None:
            context.load_verify_locations(settings.client_ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"the TLS files cannot be used: {error}",
            subject=settings.certificate_file,
            remedy="mainstem cert creates a matching set",
        ) from error
    if settings.client_certificates != "none" and settings.client_ca_file is None:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            "client certificates are requested, but no authority to verify them is configured",
            subject="tls.client_ca_file",
        )
    context.verify_mode = _NEEDS[settings.client_certificates]
    return context


def certificate_identity(connection: Any, rules: NameRules) -> Identity | None:
    """The subject of a client's verified certificate; None without one."""
    certificate = None if connection is None else connection.getpeercert()
    if not certificate:
        return None
    name = rules.name(certificate.get("subject", ()))
    return None if name is None else Identity(Principal(USER, name), method="TLS")


def _no_password() -> str:
    """Password callback for an encrypted key: keeps OpenSSL from prompting on a terminal."""
    return ""
