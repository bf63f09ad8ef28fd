"""What keeps kernels from being compiled in an environment whose torch runs; modules as in ``running``."""
