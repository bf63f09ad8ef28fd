"""From an error text or an environment to its root cause, with evidence and the least change that mends it."""
