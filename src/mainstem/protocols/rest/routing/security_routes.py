"""The part of the table of routes that is about users, roles, tokens, rules and quotas."""

from mainstem.protocols.rest.access import Right
from mainstem.protocols.rest.handlers import quotas, rules, security
from mainstem.protocols.rest.routing.operation import Address, Operation
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
from mainstem.security.authorisation.acl import Operation as Allowed

SEE_CLUSTER = Right(Allowed.DESCRIBE)
_ALTER_CLUSTER = Right(Allowed.ALTER)

SECURITY_ADDRESSES: tuple[Address, ...] = (
    Address(
        "/v1/me",
        {
            "GET": Operation(
                handler=security.get_me,
                summary="Whom the node takes you for.",
                answer=MeAnswer,
            )
        },
    ),
    Address(
        "/v1/me/password",
        {
            "PUT": Operation(
                handler=security.put_my_password,
                summary="Change your own password, logged in by the present one.",
                answer=UserAnswer,
                body=(PasswordRequest,),
                refusals=(408, 413, 415),
            )
        },
    ),
    Address(
        "/v1/users",
        {
            "GET": Operation(
                handler=security.list_users,
                right=SEE_CLUSTER,
                summary="Everybody who can log in, or has roles.",
                answer=list[UserAnswer],
            )
        },
    ),
    Address(
        "/v1/users/{name:path}",
        {
            "GET": Operation(
                handler=security.get_user,
                right=SEE_CLUSTER,
                summary="One user.",
                answer=UserAnswer,
                refusals=(403, 404),
            ),
            "PUT": Operation(
                handler=security.put_user,
                right=_ALTER_CLUSTER,
                summary="Make a user (201), or give one a new password (200).",
                answer=UserAnswer,
                body=(PasswordRequest,),
                refusals=(403, 408, 413, 415),
            ),
            "DELETE": Operation(
                handler=security.delete_user,
                right=_ALTER_CLUSTER,
                summary="Forget a user's password, roles and tokens.",
                answer=Deleted,
                refusals=(403, 404),
            ),
        },
    ),
    Address(
        "/v1/roles",
        {
            "GET": Operation(
                handler=security.list_roles,
                right=SEE_CLUSTER,
                summary="All roles and who has them.",
                answer=list[RoleAnswer],
            )
        },
    ),
    Address(
        "/v1/roles/{name}",
        {
            "GET": Operation(
                handler=security.get_role,
                right=SEE_CLUSTER,
                summary="One role and who has it.",
                answer=RoleAnswer,
                refusals=(403, 404),
            ),
            "PUT": Operation(
                handler=security.put_role,
                right=_ALTER_CLUSTER,
                summary="Make a role (201), or replace its rules (200).",
                answer=RoleAnswer,
                body=(RoleRequest,),
                refusals=(403, 408, 413, 415),
            ),
            "DELETE": Operation(
                handler=security.delete_role,
                right=_ALTER_CLUSTER,
                summary="Forget a role.",
                answer=Deleted,
                refusals=(403, 404),
            ),
        },
    ),
    Address(
        "/v1/roles/{name}/members/{principal:path}",
        {
            "PUT": Operation(
                handler=security.bind_role,
                right=_ALTER_CLUSTER,
                summary="Give a role to a user or a group.",
                answer=BindingAnswer,
                refusals=(403, 404),
            ),
            "DELETE": Operation(
                handler=security.unbind_role,
                right=_ALTER_CLUSTER,
                summary="Take a role away.",
                answer=BindingAnswer,
                refusals=(403, 404),
            ),
        },
    ),
    Address(
        "/v1/tokens",
        {
            "GET": Operation(
                handler=security.list_tokens,
                summary="Your API tokens, or all of them for those who may see the cluster.",
                answer=list[TokenAnswer],
            ),
            "POST": Operation(
                handler=security.create_token,
                summary="Make an API token; its text is told this once.",
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
            "GET": Operation(
                handler=security.get_token,
                summary="One of the API tokens that you may see; never its text.",
                answer=TokenAnswer,
                refusals=(404,),
            ),
            "DELETE": Operation(
                handler=security.delete_token,
                summary="Let an API token be worth nothing.",
                answer=Deleted,
                refusals=(403, 404),
            ),
        },
    ),
    Address(
        "/v1/acls",
        {
            "GET": Operation(
                handler=rules.list_acls,
                right=SEE_CLUSTER,
                summary="Access rules.",
                answer=list[AclBody],
                parameters=rules.FILTER,
            ),
            "POST": Operation(
                handler=rules.create_acls,
                right=_ALTER_CLUSTER,
                summary="Add access rules: all of them, or none.",
                answer=list[AclBody],
                status=201,
                body=(AclsRequest,),
                refusals=(403, 408, 413, 415),
            ),
            "DELETE": Operation(
                handler=rules.delete_acls,
                right=_ALTER_CLUSTER,
                summary="Remove the access rules that the query finds.",
                answer=AclsDeleted,
                parameters=(*rules.FILTER, rules.EVERY),
                refusals=(403,),
            ),
        },
    ),
    Address(
        "/v1/quotas",
        {
            "GET": Operation(
                handler=quotas.list_quotas,
                right=Right(Allowed.DESCRIBE_CONFIGS),
                summary="Limits of users, client ids and addresses.",
                answer=list[QuotaBody],
                parameters=quotas.ENTITY,
            ),
            "PUT": Operation(
                handler=quotas.put_quota,
                right=Right(Allowed.ALTER_CONFIGS),
                summary="Set limits of one user, client id or address; null takes one away.",
                answer=QuotaBody,
                body=(QuotaBody,),
                refusals=(403, 408, 413, 415),
            ),
            "DELETE": Operation(
                handler=quotas.delete_quota,
                right=Right(Allowed.ALTER_CONFIGS),
                summary="Take all limits of one user, client id or address away.",
                answer=QuotaBody,
                parameters=quotas.ENTITY,
                refusals=(403, 404),
            ),
        },
    ),
)
