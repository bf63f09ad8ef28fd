"""``python -m envsolve``."""

from envsolve.cli.main import run

run()
