"""Redaction of names of people and computers, and of secrets, in texts that users publish."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

# Names that say nothing of a person or a computer, and words of reports which must stay readable.
_COMMON = frozenset({"root", "user", "users", "ubuntu", "admin", "runner", "nobody", "localhost", "linux", "python"})
_OWN_HOSTS = frozenset({"", "localhost", "127.0.0.1"})
_SECRET_NAME = re.compile(
    r"(?i)(?:tokens?|secrets?|passw(?:or)?d|passphrase|(?:api|private|access)_?key|credentials?|connection_string)(?:$|_)"
    # Of these a part of a longer word means something else: COMPASS, AUTHOR, PWD.
    r"|(?:^|_)(?:auth|pass)(?:$|_)|_(?:pwd|key|username)$|^sshpass$"
)
_URL = re.compile(
    r"([a-z][a-z0-9+.-]{0,30}://)"
    # A password may hold what ends a host, if nobody quoted it; digits after a colon are a port.
    r"([^\s/@:\"'<>]{0,200}:(?!\d{1,5}(?:[/?#]|$))[^\s\"'<>]{0,300}@)?"
    r"([^/\s\"'<>?#,)\]]+)",
    re.IGNORECASE,
)
_BARE_LOGIN = re.compile(r"(?<![\w.%+@-])[\w.%+-]{1,100}:[^\s/@:\"'<>]{1,100}@(?!sha\d)(?=[\w(])")
_HOME = re.compile(
    r"(?P<root>(?:/home|/Users|/export/home|[A-Za-z]:\\+Users)[/\\]+)"
    # On Windows a name may have blanks, which end it if no backslash follows.
    r"(?P<name>(?<=\\)[^/\\\s:\"'<>][^/\\:\"'<>\r\n]{0,60}(?=\\)|[^/\\\s:\"'<>]+)"
)
_SECRETS = (
    # What services issue, by the prefix that they document.
    re.compile(
        r"\b(?:gh[oprsu]_|github_pat_|glpat-|hf_|pypi-|sk-|xox[abprs]-|nvapi-|npm_|dckr_pat_|AIza|ya29\.|AKIA|ASIA|AKCp|cmVmdGtu)"
        r"[\w-]{10,}"
    ),
    re.compile(r"\bAAAA[BCE][23]N[\w+/=]{20,}"),  # keys of ssh
    re.compile(r"(/services/)T\w{6,}/B\w{6,}/\w+"),  # web hooks of Slack
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"),  # JSON Web Tokens
    re.compile(r"(?i)(?<=authorization: )\w+ \S+|(?<=bearer )\S{8,}|(?<=basic )[\w+/]{6,}={0,2}"),
    re.compile(r"(?i)(?<=cookie: )[^\r\n]+"),
    # .netrc, whose words may be on several lines
    re.compile(r"(?i)(\blogin\s{1,20})\S{1,253}\s{1,20}(?:account\s{1,20}\S{1,253}\s{1,20})?password\s{1,20}\S+"),
    re.compile(r"(?i)((?:\bmachine\s{1,20}\S{1,253}|\bdefault)\s{1,20}password\s{1,20})\S+"),
    re.compile(r"((?<![\w-])(?:-u|-U|--user|--proxy-user)[ =]?)(?!\d+:\d+\b)[^\s:/]{1,253}:[^\s:/]\S*"),  # curl
    re.compile(r"(\bsshpass\s{1,20}-p\s{0,20})\S+"),
    re.compile(r"((?:(?<![A-Za-z])[Pp]ass|(?<![A-Za-z])PASS|\b[Pp]wd|(?<![A-Za-z])_auth)\s?=\s?)(?!\()[^\s\"',;]+"),
    re.compile(r"(?i)((?<![\w-])--?(?:password|passwd|token|secret|api-?key)\s+)(?![-(])\S+"),
    re.compile(r"(?i)(\blogin\s+(?:--relogin\s+)?)[0-9a-f]{32,}"),
    re.compile(r"(?i)(?<=[?&])((?:[\w-]*(?:token|signature|secret|password|key)|sig|auth)=)[^&\s\"']+"),
    re.compile(
        r"(?i)((?:password|passwd|secret|token|(?:api|access|account|private)[_-]?key)[\"']?\s*[=:]\s*)"
        r"(?!\()(?:\"[^\"\r\n]{0,500}\"|'[^'\r\n]{0,500}'|[\"']?[^\s\"',;]+)"
    ),
    re.compile(r"(/t/)[\w-]{8,}(?=/)"),  # conda channels
    re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
)
_PROMPT = re.compile(r"(?<![\w./-])[\w.-]+@[\w.-]{1,253}(?=:[~/]| )")
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_DEVICE = re.compile(r"(?i)(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])|\bfe80:[0-9a-f:]{4,40}")  # of a network
_SHARE = re.compile(r"(?<![\\\w:])(\\\\)[\w.-]{2,253}(?=\\\w)")
_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


class Redaction:
    """Replaces secrets, home directories, and the names of users and hosts.

    Hosts of URLs get numbers, so that two of them stay distinguishable.

    Args:
        environ: The variables of the process: they name the user, and hold secrets that must appear nowhere.
        public_hosts: Hosts that everybody uses, and that stay.
        texts: Texts whose home directories name users; these names are replaced wherever they stand.
    """

    def __init__(self, environ: Mapping[str, str], public_hosts: Iterable[str], texts: Iterable[str] = ()) -> None:
        self._public = {host.lower() for host in public_hosts} | _OWN_HOSTS
        self._hosts: dict[str, str] = {}
        self._home = environ.get("HOME") or environ.get("USERPROFILE") or ""
        values = {value for name, value in environ.items() if _SECRET_NAME.search(name)}
        # Of a proxy or an index with a login: a program may print the password alone.
        values |= {word for text in environ.values() for word in _passwords(text)}
        self._values = sorted((value for value in values if len(value) >= 6), key=len, reverse=True)
        users = {environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")}
        users |= {PurePath(self._home).name} | {found["name"] for text in texts for found in _HOME.finditer(text)}
        here = {environ.get(name, "") for name in ("HOSTNAME", "COMPUTERNAME", "SLURMD_NODENAME")} | {
            socket.gethostname()
        }
        here |= {name.partition(".")[0] for name in here}
        self._users, self._here = _words(users), _words(here)

    def text(self, text: str) -> str:
        """Return a text without secrets, home directories and names."""
        for value in self._values:
            text = text.replace(value, "(secret)")
        # A login before the names of hosts and users, which it may contain.
        text = _BARE_LOGIN.sub("(login)@", _URL.sub(self._url, text))
        for pattern in _SECRETS:
            text = pattern.sub(lambda found: f"{found[1] if found.re.groups else ''}(secret)", text)
        if len(self._home) > 1:
            text = re.sub(rf"{re.escape(self._home)}(?![\w-])", "~", text)
        text = _HOME.sub(r"\g<root>(user)", text)
        text = _SHARE.sub(r"\1(host)", _DEVICE.sub("(device)", text))
        text = _MAIL.sub("(email)", _PROMPT.sub("(user)@(host)", _UUID.sub(r"\1-(uuid)", text)))
        text = self._here.sub("(host)", text) if self._here else text
        return self._users.sub("(user)", text) if self._users else text

    def value(self, value: Any) -> Any:
        """Return a value of JSON whose texts are redacted."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(one) for key, one in value.items()}
        return [self.value(one) for one in value] if isinstance(value, (list, tuple)) else value

    def _url(self, found: re.Match[str]) -> str:
        login, _, place = f"{found[2] or ''}{found[3]}".rpartition("@")
        host, colon, port = place.partition(":")
        if found[1].lower() != "file://" and host.lower() not in self._public:
            host = self._hosts.setdefault(host.lower(), f"(host-{len(self._hosts) + 1})")
        return f"{found[1]}{'(login)@' if login else ''}{host}{colon}{port}"


def _passwords(text: str) -> Iterator[str]:
    for found in _URL.finditer(text) if "@" in text else ():
        yield f"{found[2] or ''}{found[3]}".rpartition("@")[0].partition(":")[2]


def is_secret(name: str) -> bool:
    """Whether a variable of that name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def host_of(url: str) -> str:
    """The host of a URL; empty if it has none."""
    return urlsplit(url).hostname or ""


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    # Names of one or two letters are also words of every report.
    longest = sorted((name for name in names if len(name) > 2 and name.lower() not in _COMMON), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])") if longest else None
