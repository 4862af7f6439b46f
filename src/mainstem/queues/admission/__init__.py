"""Admission control: credit that queues lend to routers, and memory watermarks."""
