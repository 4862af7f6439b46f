"""The table of HTTP routes, their parameters, and the OpenAPI document made from it."""
