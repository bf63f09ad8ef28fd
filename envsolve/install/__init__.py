"""A plan or a lock made into an environment on disk."""
