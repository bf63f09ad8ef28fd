"""What of a channel's address is nobody's business: user and password, and the token that Anaconda's servers take."""

from __future__ import annotations

import re

# `/t/TOKEN/` at the head of the path: conda's documentation, "Channels and repositories requiring authentication".
_SECRET = re.compile(r"(?<=://)[^/@\s]*@|/t/[^/\s]+(?=/)")


def without_secrets(text: str) -> str:
    """Text whose addresses hold none; clients have stores of their own for them."""
    return _SECRET.sub("", text)
