"""The resolvelib provider that joins index, catalogue and compat; conflicts put into words."""
