"""Requests about authentication, ACLs, SCRAM credentials, delegation tokens and quotas."""
