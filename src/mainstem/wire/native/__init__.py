"""The native protocol on the wire: frames, requests and responses."""
