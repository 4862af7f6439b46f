"""MQTT 3.1.1 and 5 on the wire: packets, their properties, and the rules of topics."""
