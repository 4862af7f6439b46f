"""Authorisation: access rules, roles, decisions."""
