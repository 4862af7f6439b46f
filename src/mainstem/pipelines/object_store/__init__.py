"""Files in folders and buckets: what the file and S3 connectors share."""
