"""Preview what an install would do to torch, pin torch, fix an environment, and restore its earlier state."""
