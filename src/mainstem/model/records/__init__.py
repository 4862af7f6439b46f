"""Record batches: headers, single records, columns, compression, partitioning."""
