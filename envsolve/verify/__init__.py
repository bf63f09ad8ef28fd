"""Verification: checks of an environment in child processes of its own interpreter."""


# An environment proved: checks run in its own interpreter.
