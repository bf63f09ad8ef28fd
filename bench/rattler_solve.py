"""A solve by py-rattler alone, of match specs for an H100 on Linux x86_64: what a plan of conda packages adds to.

python bench/rattler_solve.py CHANNEL SPEC...
"""

from __future__ import annotations

import asyncio
import sys

import rattler

VIRTUAL = {"__unix": "0", "__linux": "0", "__glibc": "2.36", "__cuda": "13.0", "__archspec": "1"}


async def solved(channel: str, specs: list[str]) -> list[rattler.RepoDataRecord]:
    """The records of an environment."""
    return await rattler.solve(
        sources=[rattler.Channel(channel)],
        specs=[rattler.MatchSpec(spec) for spec in specs],
        gateway=rattler.Gateway(client=rattler.Client.default_client()),
        platforms=["linux-64", "noarch"],
        virtual_packages=[
            rattler.GenericVirtualPackage(
                rattler.PackageName(name),
                rattler.Version(version),
                rattler.BuildString("x86_64" if name == "__archspec" else "0"),
            )
            for name, version in VIRTUAL.items()
        ],
    )


if __name__ == "__main__":
    for record in asyncio.run(solved(sys.argv[1], sys.argv[2:])):
        print(f"{record.name.normalized}=={record.version}")
