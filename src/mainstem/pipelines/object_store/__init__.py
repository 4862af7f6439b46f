"""Files in folders and buckets: the shared code of the file and S3 connectors."""
