"""What of a channel's address is nobody's business: user and password, and the token that Anaconda's servers take."""

from __future__ import annotations

import re

from envsolve.index.address import without_logins

# `/t/TOKEN/` at the head of the path: conda's documentation, "Channels and repositories requiring authentication".
_TOKEN = re.compile(r"/t/[^/\s]+(?=/)")


def without_secrets(text: str) -> str:
    """Text whose addresses hold none; clients have stores of their own for them."""
    return _TOKEN.sub("", without_logins(text))
