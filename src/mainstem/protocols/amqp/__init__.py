"""AMQP 0.9.1: what RabbitMQ's clients speak, served by the queues of the log."""
