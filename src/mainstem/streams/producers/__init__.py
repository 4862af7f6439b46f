"""What a stream knows of its producers: sequence numbers, transactions, markers, checkpoints."""
