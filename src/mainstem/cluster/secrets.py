"""The secrets that the nodes of a cluster share, the current one first.

Any of them opens and proves, so that secrets can be rotated node by node.
"""

from collections.abc import Sequence
from typing import Final

from mainstem.model.errors import ErrorCode, InvalidRequest

SECRET_BYTES_MIN: Final = 16
# The current one, the former one, the next one, and a spare for an unfinished rotation.
SECRETS_MAX: Final = 4


def checked_secrets(secrets: Sequence[bytes]) -> tuple[bytes, ...]:
    """The secrets, checked for number and length.

    Raises:
        InvalidRequest: there is none, one is too short, or there are too many.
    """
    if not secrets or any(len(secret) < SECRET_BYTES_MIN for secret in secrets):
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"a cluster secret has at least {SECRET_BYTES_MIN} bytes",
            remedy="make one with: openssl rand -base64 32",
        )
    if len(secrets) > SECRETS_MAX:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"a cluster has at most {SECRETS_MAX} secrets at a time",
            remedy="remove those that no node uses",
        )
    return tuple(secrets)
