"""A bucket of an S3 server as a store of files, through obstore.

Guarantees: ``create`` is a conditional put, so it succeeds in one process only; an error of the
server is one sentence with its remedy and never contains keys.
"""

import contextlib
import functools
import re
import tempfile
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import IO, Any, Final

import obstore
from msgspec import Struct
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.pipelines.object_store.stores import StoredFile

LIST_PIECE: Final = 1_000
DELETE_PIECE: Final = 1_000
COPY_PIECE_BYTES: Final = 16 * 1024 * 1024


class BucketSettings(Struct, frozen=True, kw_only=True):
    """The connection to a bucket. Without keys, the credentials of the environment are used."""

    bucket: str
    prefix: str = ""
    region: str = "us-east-1"
    endpoint: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    retries: int = 5
    timeout_ms: int = 30_000


@functools.lru_cache(maxsize=16)
def _opened(settings: BucketSettings) -> S3Store:
    given: dict[str, Any] = {
        "region": settings.region,
        "endpoint": settings.endpoint,
        "access_key_id": settings.access_key_id,
        "secret_access_key": settings.secret_access_key,
        "session_token": settings.session_token,
    }
    config = {name: value for name, value in given.items() if value is not None}
    is_plain = (settings.endpoint or "").startswith("http://")
    return S3Store(
        settings.bucket,
        prefix=settings.prefix.strip("/") or None,
        client_options={
            "allow_http": is_plain,
            "timeout": timedelta(milliseconds=settings.timeout_ms),
            "connect_timeout": timedelta(milliseconds=min(settings.timeout_ms, 10_000)),
        },
        retry_config={
            "max_retries": settings.retries,
            "retry_timeout": timedelta(milliseconds=settings.timeout_ms),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
        },
        **config,
    )


class Bucket(Struct, frozen=True):
    """The files below a prefix of a bucket."""

    settings: BucketSettings

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        """A file that is put, in parts if it is large, when the block ends without an error."""
        with tempfile.TemporaryFile() as file:
            yield file
            file.flush()
            file.seek(0)
            with self.refusals(path):
                obstore.put(self._store, path, file)

    @contextlib.contextmanager
    def reader(self, path: str) -> Iterator[IO[bytes]]:
        """A copy of the file, seekable."""
        with tempfile.TemporaryFile() as file:
            with self.refusals(path):
                for piece in obstore.get(self._store, path).stream(COPY_PIECE_BYTES):
                    file.write(bytes(piece))
            file.seek(0)
            yield file

    def create(self, path: str, data: bytes) -> bool:
        """Writes a small file unless it exists; the server decides."""
        with self.refusals(path):
            try:
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def read(self, path: str) -> bytes | None:
        """A small file; None when it does not exist."""
        with self.refusals(path):
            try:
                return bytes(obstore.get(self._store, path).bytes())
            except (NotFoundError, FileNotFoundError) as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    def move(self, source: str, target: str) -> None:
        """Copies the file on the server, then deletes the source."""
        with self.refusals(target):
            try:
                obstore.copy(self._store, source, target)
            except (NotFoundError, FileNotFoundError):
                obstore.head(self._store, target)
            obstore.delete(self._store, [source])

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes files; missing ones are ignored."""
        names = list(paths)
        with self.refusals(""):
            for low in range(0, len(names), DELETE_PIECE):
                obstore.delete(self._store, names[low : low + DELETE_PIECE])

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """Every file below a folder, by name."""
        with self.refusals(prefix):
            for piece in obstore.list(self._store, prefix or None, chunk_size=LIST_PIECE):
                for found in piece:
                    yield StoredFile(
                        found["path"], found["size"], found["last_modified"].timestamp()
                    )

    @property
    def _store(self) -> S3Store:
        return _opened(self.settings)

    @contextlib.contextmanager
    def refusals(self, path: str) -> Iterator[None]:
        """Converts errors of the server to Mainstem errors."""
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            raise self.refusal(error, path) from None

    def refusal(self, error: BaseException, path: str) -> MainstemError:
        """The error in one sentence, with its remedy."""
        settings = self.settings
        subject = "/".join(
            part for part in ("s3:/", settings.bucket, settings.prefix, path) if part
        )
        text = str(error)
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _names(
            text, "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "403"
        ):
            return InvalidRequest(
                ErrorCode.NOT_AUTHORIZED,
                "the server refuses these keys",
                subject=subject,
                remedy="check access_key_id, secret_access_key and the policy of the bucket",
            )
        if "NoSuchBucket" in text:
            return InvalidRequest(
                ErrorCode.UNKNOWN_RESOURCE,
                f"bucket {settings.bucket} does not exist",
                subject=subject,
                remedy="create it, or correct bucket and region",
            )
        if isinstance(error, NotFoundError | FileNotFoundError):
            return InvalidRequest(
                ErrorCode.UNKNOWN_RESOURCE, "the object does not exist", subject=subject
            )
        short = self._without_keys(" ".join(text.split()))[:300]
        return Unavailable(
            ErrorCode.STORAGE_FAILED,
            f"the request failed: {short}",
            subject=subject,
            remedy=f"check that {settings.endpoint or 'S3'} can be reached",
        )

    def _without_keys(self, text: str) -> str:
        settings = self.settings
        for secret in (settings.secret_access_key, settings.session_token):
            if secret:
                text = text.replace(secret, "***")
        return text


def _names(text: str, *words: str) -> bool:
    """Whether one of these occurs as a whole word: a port may contain the digits of a status."""
    return re.search(rf"\b({'|'.join(words)})\b", text) is not None
