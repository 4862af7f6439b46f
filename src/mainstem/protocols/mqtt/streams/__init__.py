"""Reading and writing of streams of the log for MQTT, on this node and on others."""
