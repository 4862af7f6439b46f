"""How a command connects and authenticates: flags, profiles, properties files and variables."""
