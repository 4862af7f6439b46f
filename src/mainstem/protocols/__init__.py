"""One folder per wire protocol; they know the counter and nothing behind it."""
