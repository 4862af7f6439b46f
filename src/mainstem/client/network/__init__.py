"""Links that reconnect to a node, logins, and a small MQTT client."""
