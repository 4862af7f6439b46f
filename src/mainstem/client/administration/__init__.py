"""The parts of the administration client, one module for each kind of resource."""
