"""Authentication: SASL, SCRAM, passwords, tokens, certificates, lock-out."""
