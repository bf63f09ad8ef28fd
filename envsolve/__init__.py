"""envsolve: plan, install and prove CUDA environments that run on the machine at hand.

The stages are the functions of :mod:`envsolve.api`; the command line adds nothing to them.
"""

__version__ = "0.1.0"
