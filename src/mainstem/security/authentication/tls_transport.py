"""TLS for listeners: contexts from files, client certificates, new files taken up while running.

A listener holds one context for life. Its name callback, which runs for every handshake whether or
not the client names a host, hands the connection the newest one; so a renewed certificate serves
the next connection and nobody is cut off. Files that do not fit together leave things as they were.
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


# What peers do that do not speak TLS at all: they understand no alert, and waiting for them to
# hang up would let them hold sockets.
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
    """Tells a client why its handshake failed.

    OpenSSL has the alert ready when it refuses a certificate, but event loops close the connection
    without sending it; clients then see a node that hangs up, and try again for ever. So a failure
    with something left to say looks like a wait, for which loops send what is there; whatever comes
    next is the end.
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
    """A listener's context, whose handshakes know what they have left to say."""

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
    """The context of listeners, and what is served from it today."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._stamps = self._read_stamps()
        self._newest = make_context(settings)
        self.context = make_context(settings)
        self.context.sni_callback = self._hand_over

    def look_again(self) -> bool:
        """Take new files up if there are any; whether that was done."""
        try:
            stamps = self._read_stamps()
            if stamps == self._stamps:
                return False
            self._newest = make_context(self._settings)
        except (OSError, InvalidRequest) as error:
            log.warning("the new TLS files are not taken up: %s", error)
            return False
        self._stamps = stamps
        log.info("new TLS files are in use", extra={"file": self._settings.certificate_file})
        return True

    async def watch(self, every_s: float = LOOK_AGAIN_S) -> None:
        """Look again for as long as the node runs."""
        while True:
            await asyncio.sleep(every_s)
            self.look_again()

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
        InvalidRequest: the files cannot be read or do not fit together.
    """
    context = _ReportingContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _ReportingHandshake
    newest = settings.minimum == "1.3"
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if newest else ssl.TLSVersion.TLSv1_2
    # A client that asks for renegotiation again and again would keep the node busy.
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
            remedy="mainstem cert makes a set that fits together",
        ) from error
    if settings.client_certificates != "none" and settings.client_ca_file is None:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            "client certificates are asked for, but no authority to check them against is named",
            subject="tls.client_ca_file",
        )
    context.verify_mode = _NEEDS[settings.client_certificates]
    return context


def certificate_identity(connection: Any, rules: NameRules) -> Identity | None:
    """Who the verified certificate of a client says that it is; None without one."""
    certificate = None if connection is None else connection.getpeercert()
    if not certificate:
        return None
    name = rules.name(certificate.get("subject", ()))
    return None if name is None else Identity(Principal(USER, name), method="TLS")


def _no_password() -> str:
    """Asked for an encrypted key: answering keeps OpenSSL from asking a terminal."""
    return ""
