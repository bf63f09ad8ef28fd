"""Against the live index and real installers: what only they can prove."""
