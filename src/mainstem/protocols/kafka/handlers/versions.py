"""ApiVersions: advertises the served APIs and the levels of features."""

from collections.abc import Mapping

from mainstem.model.errors import ErrorCode
from mainstem.model.features import FEATURES
from mainstem.protocols.kafka.call import ApiHandler, Call, Handler
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


def api_versions(served: Mapping[int, ApiHandler]) -> Handler:
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
        cluster = call.broker.cluster
        return ApiVersionsResponse(
            api_keys=keys,
            supported_features=[
                SupportedFeatureKey(
                    name=name, min_version=feature.lowest, max_version=feature.highest
                )
                for name, feature in FEATURES.items()
                # Older clients reject a feature whose minimum level is 0 (KIP-1022).
                if feature.lowest or call.version >= _FIRST_WITH_ZERO
            ],
            finalized_features_epoch=cluster.features_epoch(),
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name in FEATURES
                # A feature at level 0 is disabled and not listed.
                if (level := cluster.level(name))
            ],
        )

    return handle
