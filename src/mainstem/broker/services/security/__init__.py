"""Administration of users, access rules, roles, tokens and quotas, and what they put in force."""
