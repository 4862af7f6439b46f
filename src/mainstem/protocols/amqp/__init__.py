"""AMQP 0.9.1, the protocol of RabbitMQ's clients, served from queues on the log."""
