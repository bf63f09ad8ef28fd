"""Runs inside the interpreter that is verified and says which Python it is, and what is installed in it.

Any Python understands it, 2.7 too.
"""

import json
import os
import re
import sys

try:
    from importlib import metadata

    distributions = list(metadata.distributions())
except ImportError:  # older than 3.8
    distributions = []

packages = {}
for distribution in distributions:
    try:
        name, version = distribution.metadata["Name"], distribution.version
    except Exception:  # damaged metadata is another command's matter
        continue
    if name and version:
        name = re.sub("[-_.]+", "-", name).lower()
        if name not in packages:  # Of equal names the first on the path is the one that is imported.
            packages[name] = version

with open(os.environ["ENVSOLVE_RESULT"], "w") as result:  # noqa: PTH123  Python 2 has no pathlib
    answer = {"token": os.environ["ENVSOLVE_TOKEN"], "version": list(sys.version_info[:3]), "packages": packages}
    json.dump(answer, result)
