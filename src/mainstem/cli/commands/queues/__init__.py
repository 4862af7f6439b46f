"""Commands about queues, exchanges, bindings and dead letters."""
