"""Security: authentication, access rules, quotas, audit."""
