"""One folder per wire protocol; they use the broker API only."""
