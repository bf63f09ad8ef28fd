"""Package indexes over HTTP: pages, metadata, cache, credentials."""


# Source trees that are asked for by address: a commit of a git repository, or a folder.
#
# Nothing of a tree is run to plan with it. What it says of itself in static metadata is read; what its build alone
# knows
# is called unknown.
