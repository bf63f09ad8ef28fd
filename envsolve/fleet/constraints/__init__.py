"""A plan's requirements on nodes, as requirements of jobs: each module here is one scheduler, found by its name.

``requirements(assumes, nodes, inventory, catalogue)`` returns words of a command line, lines of a submit file, or a
part of a manifest; empty if the scheduler needs no requirement, or is not used.
"""
