"""MQTT client sessions, shared subscriptions and wills, and their persistence over restarts."""
