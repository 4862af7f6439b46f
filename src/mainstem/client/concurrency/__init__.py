"""Background tasks, the event loop thread and the wrapper behind the blocking clients."""
