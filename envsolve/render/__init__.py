"""Plan formats: one module each, found by name."""
