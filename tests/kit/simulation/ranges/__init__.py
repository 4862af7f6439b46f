"""The state machines of replicated ranges on a network that loses, repeats and delays messages."""
