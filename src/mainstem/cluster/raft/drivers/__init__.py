"""Drivers of a Raft node: timers, messages, pending requests, applying, snapshot transfer."""
