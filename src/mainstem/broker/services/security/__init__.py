"""Administration and enforcement of users, access rules, roles, tokens and quotas."""
