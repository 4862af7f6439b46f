"""MQTT client sessions, shared subscriptions and wills, and how they survive restarts."""
