"""envsolve: plan, install and prove CUDA environments that run on the machine at hand.

The stages are the functions of :mod:`envsolve.api`; the command line adds nothing to them.
"""

from time import time_ns as _now

#: When this process began to read the program, in nanoseconds since the epoch.
STARTED = _now()

__version__ = "0.1.0"
