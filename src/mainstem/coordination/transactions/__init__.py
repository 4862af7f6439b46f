"""The transaction coordinator: transactional ids, their states, markers and completion."""
