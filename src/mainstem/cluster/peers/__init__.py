"""Connections between nodes: mutual authentication, requests and one-way notes."""
