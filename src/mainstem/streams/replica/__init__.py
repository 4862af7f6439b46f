"""The replicas of ranges on this node: state machine, driver, registry, messages, copies."""
