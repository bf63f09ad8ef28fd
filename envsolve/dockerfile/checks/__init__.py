"""One module a check: ``check(stage, asked)`` yields what it finds in a stage. Found by their files."""
