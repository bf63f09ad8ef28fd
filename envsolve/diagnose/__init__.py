"""From an error text or an environment to its root cause, with evidence and the smallest change that fixes it."""
