"""What an environment is, read from its files alone: nothing of it is imported or run."""
