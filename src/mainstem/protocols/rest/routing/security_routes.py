"""The routes for users, roles, tokens, rules and quotas."""

from mainstem.protocols.rest.access import Right
from mainstem.protocols.rest.handlers import quotas, rules, security
from mainstem.protocols.rest.routing.operation import Address, RestOperation
from mainstem.protocols.rest.schemas.security import (
    AclBody,
    AclsDeleted,
    AclsRequest,
    BindingAnswer,
    Deleted,
    MeAnswer,
    NewTokenRequest,
    PasswordRequest,
    QuotaBody,
    RoleAnswer,
    RoleRequest,
    TokenAnswer,
    TokenCreated,
    UserAnswer,
)
from mainstem.security.authorisation.acl import Operation

SEE_CLUSTER = Right(Operation.DESCRIBE)
_ALTER_CLUSTER = Right(Operation.ALTER)

SECURITY_ADDRESSES: tuple[Address, ...] = (
    Address(
        "/v1/me",
        {
            "GET": RestOperation(
                handler=security.get_me,
                summary="The authenticated user, its groups and roles.",
                answer=MeAnswer,
            )
        },
    ),
    Address(
        "/v1/me/password",
        {
            "PUT": RestOperation(
                handler=security.put_my_password,
                summary="Change your own password; requires a login with the current one.",
                answer=UserAnswer,
                body=(PasswordRequest,),
                refusals=(408, 413, 415),
            )
        },
    ),
    Address(
        "/v1/users",
        {
            "GET": RestOperation(
                handler=security.list_users,
                right=SEE_CLUSTER,
                summary="List users that have a password or roles.",
                answer=list[UserAnswer],
            )
        },
    ),
    Address(
        "/v1/users/{name:path}",
        {
            "GET": RestOperation(
                handler=security.get_user,
                right=SEE_CLUSTER,
                summary="Describe a user.",
                answer=UserAnswer,
                refusals=(403, 404),
            ),
            "PUT": RestOperation(
                handler=security.put_user,
                right=_ALTER_CLUSTER,
                summary="Create a user (201), or set a new password (200).",
                answer=UserAnswer,
                body=(PasswordRequest,),
                refusals=(403, 408, 413, 415),
            ),
            "DELETE": RestOperation(
                handler=security.delete_user,
                right=_ALTER_CLUSTER,
                summary="Delete a user's password, roles and tokens.",
                answer=Deleted,
                refusals=(403, 404),
            ),
        },
    ),
    Address(
        "/v1/roles",
        {
            "GET": RestOperation(
                handler=security.list_roles,
                right=SEE_CLUSTER,
                summary="List roles and their members.",
                answer=list[RoleAnswer],
            )
        },
    ),
    Address(
        "/v1/roles/{name}",
        {
            "GET": RestOperation(
                handler=security.get_role,
                right=SEE_CLUSTER,
                summary="Describe a role and its members.",
                answer=RoleAnswer,
                refusals=(403, 404),
            ),
            "PUT": RestOperation(
                handler=security.put_role,
                right=_ALTER_CLUSTER,
                summary="Create a role (201), or replace its rules (200).",
                answer=RoleAnswer,
                body=(RoleRequest,),
                refusals=(403, 408, 413, 415),
            ),
            "DELETE": RestOperation(
                handler=security.delete_role,
                right=_ALTER_CLUSTER,
                summary="Delete a role.",
                answer=Deleted,
                refusals=(403, 404),
            ),
        },
    ),
    Address(
        "/v1/roles/{name}/members/{principal:path}",
        {
            "PUT": RestOperation(
                handler=security.bind_role,
                right=_ALTER_CLUSTER,
                summary="Grant a role to a user or a group.",
                answer=BindingAnswer,
                refusals=(403, 404),
            ),
            "DELETE": RestOperation(
                handler=security.unbind_role,
                right=_ALTER_CLUSTER,
                summary="Revoke a role.",
                answer=BindingAnswer,
                refusals=(403, 404),
            ),
        },
    ),
    Address(
        "/v1/tokens",
        {
            "GET": RestOperation(
                handler=security.list_tokens,
                summary="List your API tokens; all tokens with DESCRIBE on the cluster.",
                answer=list[TokenAnswer],
            ),
            "POST": RestOperation(
                handler=security.create_token,
                summary="Create an API token; its secret is returned only once.",
                answer=TokenCreated,
                status=201,
                body=(NewTokenRequest,),
                refusals=(403, 404, 408, 413, 415),
            ),
        },
    ),
    Address(
        "/v1/tokens/{id}",
        {
            "GET": RestOperation(
                handler=security.get_token,
                summary="Describe an API token, without its secret.",
                answer=TokenAnswer,
                refusals=(404,),
            ),
            "DELETE": RestOperation(
                handler=security.delete_token,
                summary="Revoke an API token.",
                answer=Deleted,
                refusals=(403, 404),
            ),
        },
    ),
    Address(
        "/v1/acls",
        {
            "GET": RestOperation(
                handler=rules.list_acls,
                right=SEE_CLUSTER,
                summary="List access rules.",
                answer=list[AclBody],
                parameters=rules.FILTER,
            ),
            "POST": RestOperation(
                handler=rules.create_acls,
                right=_ALTER_CLUSTER,
                summary="Add access rules: all of them, or none.",
                answer=list[AclBody],
                status=201,
                body=(AclsRequest,),
                refusals=(403, 408, 413, 415),
            ),
            "DELETE": RestOperation(
                handler=rules.delete_acls,
                right=_ALTER_CLUSTER,
                summary="Delete the access rules that match the query.",
                answer=AclsDeleted,
                parameters=(*rules.FILTER, rules.EVERY),
                refusals=(403,),
            ),
        },
    ),
    Address(
        "/v1/quotas",
        {
            "GET": RestOperation(
                handler=quotas.list_quotas,
                right=Right(Operation.DESCRIBE_CONFIGS),
                summary="List quotas of users, client ids and addresses.",
                answer=list[QuotaBody],
                parameters=quotas.ENTITY,
            ),
            "PUT": RestOperation(
                handler=quotas.put_quota,
                right=Right(Operation.ALTER_CONFIGS),
                summary="Set quotas of one user, client id or address; null removes a limit.",
                answer=QuotaBody,
                body=(QuotaBody,),
                refusals=(403, 408, 413, 415),
            ),
            "DELETE": RestOperation(
                handler=quotas.delete_quota,
                right=Right(Operation.ALTER_CONFIGS),
                summary="Delete all quotas of one user, client id or address.",
                answer=QuotaBody,
                parameters=quotas.ENTITY,
                refusals=(403, 404),
            ),
        },
    ),
)
