"""Plans of conda packages: solved by rattler for the target's virtual packages, judged by the rules of ``compat``."""


# The resolvelib provider that joins index, catalogue and compat; conflicts put into words.
