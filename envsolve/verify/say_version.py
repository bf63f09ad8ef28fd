"""Runs inside the interpreter that is verified and says which Python it is; any Python understands it, 2.7 too."""

import json
import os
import sys

with open(os.environ["ENVSOLVE_RESULT"], "w") as result:  # noqa: PTH123  Python 2 has no pathlib
    json.dump({"token": os.environ["ENVSOLVE_TOKEN"], "version": list(sys.version_info[:3])}, result)
