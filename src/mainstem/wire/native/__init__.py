"""The native protocol on the wire: frames and words."""
