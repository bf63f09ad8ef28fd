"""What keeps torch, or a package that stands on it, from running.

A module here holds ``check(environment, scene) -> Iterator[Finding]``, pure; adding a check is adding a file.
"""
