"""Commands about users, access rules, roles, tokens, quotas and certificates."""
