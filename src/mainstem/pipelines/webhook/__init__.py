"""HTTP webhooks: the listener, the request spool, the Spark source and the sender."""
