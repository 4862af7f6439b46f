"""How MQTT reads and writes the streams of the log, on this node and on others."""
