"""Publishers, and the streams of exchanges: batched appends, confirms and routing."""
