"""Change events in Avro: schemas, types and encoding."""
