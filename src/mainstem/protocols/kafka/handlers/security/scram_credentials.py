"""SCRAM credentials: DescribeUserScramCredentials, AlterUserScramCredentials."""

from collections import Counter

from mainstem.broker.api.security import Credentials, ScramCredential
from mainstem.model import scram
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.security.authorisation.acl import Operation
from mainstem.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from mainstem.wire.kafka.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
NUMBERS = {name: number for number, name in MECHANISMS.items()}
CREDENTIAL_BYTES_MAX = 1_024  # of a salt, of a salted password


def describe_user_scram_credentials(
    call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """The mechanisms for which users have credentials, without the keys."""
    try:
        call.need_cluster(Operation.DESCRIBE)
    except MainstemError as error:
        return DescribeUserScramCredentialsResponse(
            error_code=kafka_code(error), error_message=kafka_message(error), results=[]
        )
    users = call.broker.security.users.all()
    if not request.users:
        return DescribeUserScramCredentialsResponse(
            results=[_described(name, kept) for name, kept in users.items() if kept.scram]
        )
    times = Counter(user.name for user in request.users)
    results = []
    for name, count in times.items():
        kept = users.get(name)
        if count > 1:
            results.append(_no_result(name, ErrorCode.DUPLICATE_RESOURCE, "named twice"))
        elif kept is None or not kept.scram:
            results.append(_no_result(name, ErrorCode.UNKNOWN_RESOURCE, "no such credential"))
        else:
            results.append(_described(name, kept))
    return DescribeUserScramCredentialsResponse(results=results)


def _described(name: str, kept: Credentials) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name,
        credential_infos=[
            CredentialInfo(NUMBERS[each.mechanism], each.iterations) for each in kept.scram
        ],
    )


def _no_result(name: str, code: ErrorCode, cause: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name, error_code=kafka_code(code), error_message=cause, credential_infos=[]
    )


async def alter_user_scram_credentials(
    call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials; the changes of one user are applied all or none."""
    names = dict.fromkeys(
        [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    )
    response = AlterUserScramCredentialsResponse(results=[])
    for name in names:
        result = AlterUserScramCredentialsResult(user=name)
        response.results.append(result)
        try:
            call.need_cluster(Operation.ALTER)
            await _alter(call, name, request)
        except MainstemError as error:
            result.error_code, result.error_message = kafka_code(error), kafka_message(error)
    return response


async def _alter(call: Call, name: str, request: AlterUserScramCredentialsRequest) -> None:
    deletions = [_mechanism(each.mechanism) for each in request.deletions if each.name == name]
    upserts = [_credential(each) for each in request.upsertions if each.name == name]
    touched = deletions + [each.mechanism for each in upserts]
    if len(set(touched)) != len(touched):
        raise InvalidRequest(
            ErrorCode.DUPLICATE_RESOURCE, "a credential is named twice", subject=name
        )
    await call.broker.security.users.alter_scram(call.caller, name, upserts, deletions)


def _credential(asked: ScramCredentialUpsertion) -> ScramCredential:
    mechanism = _mechanism(asked.mechanism)
    salt, salted = bytes(asked.salt), bytes(asked.salted_password)
    # Clients may use another hash function for the salted password: HMAC takes any key length.
    for name, given in (("salt", salt), ("salted password", salted)):
        if not 0 < len(given) <= CREDENTIAL_BYTES_MAX:
            raise InvalidRequest(
                ErrorCode.UNACCEPTABLE_CREDENTIAL,
                f"{name} has {len(given)} bytes",
                subject=asked.name,
                remedy=f"use 1 to {CREDENTIAL_BYTES_MAX} bytes",
            )
    return scram.credential_of(mechanism, salted, salt=salt, iterations=asked.iterations)


def _mechanism(number: int) -> str:
    if number not in MECHANISMS:
        raise InvalidRequest(ErrorCode.UNSUPPORTED_MECHANISM, f"unknown mechanism {number}")
    return MECHANISMS[number]


SERVED = {
    50: ApiHandler(describe_user_scram_credentials, 0, 0),
    51: ApiHandler(alter_user_scram_credentials, 0, 0),
}
