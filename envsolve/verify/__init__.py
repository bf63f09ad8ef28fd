"""An environment tried: what its own interpreter does with torch, in child processes, for a diagnosis to weigh."""


# An environment proved: checks run in its own interpreter.
