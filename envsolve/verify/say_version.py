"""Runs in the interpreter to verify and prints its version and installed packages.

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
        # To parse METADATA with the description in it, as ``distribution.metadata`` does, takes twenty times as long.
        texts = (distribution.read_text(file) for file in ("METADATA", "PKG-INFO", ""))
        head = re.split("\r?\n\r?\n", next(filter(None, texts), ""), maxsplit=1)[0]
        name, version = re.search(r"(?im)^name:[ \t]*(\S+)", head), re.search(r"(?im)^version:[ \t]*(\S+)", head)
    except Exception:  # damaged metadata is another command's matter
        continue
    if name and version:
        normal = re.sub("[-_.]+", "-", name.group(1)).lower()
        if normal not in packages:  # Of equal names the first on the path is the one that is imported.
            packages[normal] = version.group(1)

try:
    from importlib.util import find_spec

    torch = find_spec("torch")  # does not import it
    compiled = torch is None or torch.cached is None or os.path.exists(torch.cached)  # noqa: PTH110
except Exception:  # an old Python, or a torch that is damaged: the checks say so
    compiled = True

with open(os.environ["ENVSOLVE_RESULT"], "w") as result:  # noqa: PTH123  Python 2 has no pathlib
    python = {"token": os.environ["ENVSOLVE_TOKEN"], "version": list(sys.version_info[:3])}
    json.dump(dict(python, packages=packages, compiled=compiled), result)
