"""ApiVersions: exactly what is served is advertised."""

from collections.abc import Mapping

from mainstem.model.errors import ErrorCode
from mainstem.protocols.kafka.call import Call, Handler, Served
from mainstem.protocols.kafka.errors import kafka_code
from mainstem.wire.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API_KEY = 18
MIN_VERSION = 0
MAX_VERSION = 4
_SOFTWARE_MAX = 128
_FIRST_WITH_ZERO = 4
_FEATURES_EPOCH = 0

# Name, versions that could be finalized, version that is. Clients choose how they behave by these.
FEATURES = (
    ("group.version", 0, 1, 1),  # groups that the coordinator assigns (KIP-848)
    ("transaction.version", 0, 2, 2),  # an epoch for every transaction (KIP-890)
)


def api_versions(served: Mapping[int, Served]) -> Handler:
    """The handler that advertises ``served``, which may be completed afterwards."""

    def handle(call: Call, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
        keys = [
            # Produce is advertised from 0: librdkafka stops compressing otherwise (KAFKA-18659).
            ApiVersion(
                api_key=key,
                min_version=0 if key == 0 else each.min_version,
                max_version=each.max_version,
            )
            for key, each in sorted(served.items())
        ]
        if request is None:
            code = kafka_code(ErrorCode.UNSUPPORTED_VERSION)
            return ApiVersionsResponse(error_code=code, api_keys=keys)
        name = request.client_software_name[:_SOFTWARE_MAX]
        call.peer.software = f"{name} {request.client_software_version[:_SOFTWARE_MAX]}".strip()
        return ApiVersionsResponse(
            api_keys=keys,
            supported_features=[
                SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
                for name, lowest, highest, _ in FEATURES
                # Older clients take a feature that may be off for a malformed one (KIP-1022).
                if lowest or call.version >= _FIRST_WITH_ZERO
            ],
            finalized_features_epoch=_FEATURES_EPOCH,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, _, _, level in FEATURES
            ],
        )

    return handle
