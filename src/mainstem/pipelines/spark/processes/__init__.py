"""The Python processes that Spark starts: daemons, preloading and deferred imports."""
