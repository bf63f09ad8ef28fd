"""A plan or a lock made into an environment on disk: ``environment.install`` does all of it and reports each step.

Nothing is imported here, so that a process which takes one module, as ``conda_fill`` does, does not load the rest.
"""
