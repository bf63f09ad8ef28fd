"""An environment proved: checks run in its own interpreter."""
