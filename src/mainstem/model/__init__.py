"""The shared vocabulary: ids, batches, metadata, errors, limits. Pure; imports nothing of ours."""
