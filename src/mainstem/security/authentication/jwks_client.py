"""Public keys of a token issuer, from a file or from its address.

Allowed addresses: ``https://`` except link-local and multicast addresses (where cloud metadata
services serve secrets), ``http://`` on loopback only. No redirects, no proxies, no other schemes,
one megabyte, ten seconds. The name is resolved once and the connection uses the checked address,
which prevents DNS rebinding.
"""

import asyncio
import http.client
import json
import logging
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import MIB

TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 1 * MIB
KEYS_MAX: Final = 100
FRESH_S: Final = 600.0
AGAIN_S: Final = 30.0  # a token with an unknown key id triggers a new fetch, at most this often

log = logging.getLogger(__name__)


class JwksKeySource:
    """The keys, fetched again when they are old or one is missing."""

    def __init__(self, place: str, clock: Clock) -> None:
        self._place = place
        self._now = clock.monotonic
        self._keys: KeySet | None = None
        self._fetched = -FRESH_S
        self._tried = -AGAIN_S
        self._fetching: asyncio.Task[None] | None = None
        if "://" in place:
            check_address(place)

    async def keys(self, *, fresh: bool = False) -> KeySet | None:
        """The known keys; ``fresh`` fetches them again unless that was just done."""
        age = self._now() - self._fetched
        if (fresh or age >= FRESH_S) and self._now() - self._tried >= AGAIN_S:
            if self._fetching is None:
                self._tried = self._now()
                self._fetching = asyncio.get_running_loop().create_task(self._fetch())
            await asyncio.shield(self._fetching)
        elif self._fetching is not None:
            await asyncio.shield(self._fetching)
        return self._keys

    async def _fetch(self) -> None:
        try:
            data = await asyncio.to_thread(read, self._place)
            self._keys = parse_keys(data)
            self._fetched = self._now()
        except (OSError, ValueError, http.client.HTTPException, InvalidRequest) as error:
            # Known keys stay valid; without any, every login is refused.
            log.warning("the keys of the token issuer cannot be read: %s", error)
        finally:
            self._fetching = None


def parse_keys(data: bytes) -> KeySet:
    """A set of public keys.

    Raises:
        ValueError: the data is not a key set, or holds symmetric keys.
    """
    found = json.loads(data)
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list) or not 0 < len(keys) <= KEYS_MAX:
        raise ValueError("not a JSON web key set")
    usable = [
        key
        for key in keys
        if isinstance(key, dict)
        and key.get("kty") in ("RSA", "EC", "OKP")
        and key.get("use", "sig") == "sig"
    ]
    try:
        return KeySet.import_key_set({"keys": usable})
    except (JoseError, KeyError, TypeError) as error:
        raise ValueError(f"not a JSON web key set: {error}") from error


def check_address(address: str) -> SplitResult:
    """The parts of an allowed address.

    Raises:
        InvalidRequest: it is not allowed.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("https", "http") or not parts.hostname or "@" in parts.netloc:
        raise _forbidden(address, "only https:// and, on loopback, http:// without a password")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise _forbidden(address, "http:// is for loopback only")
    return parts


def read(place: str) -> bytes:
    """The bytes at a path or an address. Blocking."""
    if "://" not in place:
        with Path(place).open("rb") as file:
            return _bounded(file.read(ANSWER_BYTES_MAX + 1))
    parts = check_address(place)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection: http.client.HTTPConnection
    connection = _Pinned(host, port, _resolved(place, host, port), tls=parts.scheme == "https")
    try:
        path = parts.path or "/"
        connection.request("GET", f"{path}?{parts.query}" if parts.query else path)
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f"{place} answers {answer.status}")
        return _bounded(answer.read(ANSWER_BYTES_MAX + 1))
    finally:
        connection.close()


class _Pinned(http.client.HTTPConnection):
    """A connection to a checked address, under the original host name."""

    def __init__(self, host: str, port: int, address: str, *, tls: bool) -> None:
        super().__init__(host, port, timeout=TIMEOUT_S)
        self._address = address
        self._context = ssl.create_default_context() if tls else None

    def connect(self) -> None:
        """Connect to the checked address."""
        self.sock = socket.create_connection((self._address, self.port), TIMEOUT_S)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host)


def _resolved(place: str, host: str, port: int) -> str:
    for *_, name in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        address = ip_address(str(name[0]).partition("%")[0])
        if address.is_link_local or address.is_multicast or address.is_unspecified:
            raise _forbidden(place, f"{host} is {address}")
    return str(name[0])


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _bounded(data: bytes) -> bytes:
    if len(data) > ANSWER_BYTES_MAX:
        raise ValueError(f"more than {ANSWER_BYTES_MAX} bytes of keys")
    return data


def _forbidden(address: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.INVALID_CONFIG, f"keys may not be fetched from there: {why}", subject=address
    )
