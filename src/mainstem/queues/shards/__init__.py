"""Drivers of one shard of queues: its turns, deliveries, subscriptions and settlements."""
