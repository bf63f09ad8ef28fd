"""Installs a bundle of envsolve into a new virtual environment, without a network and without envsolve.

    python3.12 install.py [DIRECTORY]

This file is copied into bundles as install.py. It uses only the standard library, of Python 3.8 and newer.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where two installs at once are not told apart
    fcntl = None

HERE = Path(__file__).resolve().parent


def stop(message):
    """End with a message."""
    sys.exit("install.py: " + message)


def shown(text):
    """Return a text without control characters."""
    return "".join(one if one.isprintable() else "?" for one in str(text))


def read_bundle():
    """Return the description of the bundle."""
    try:
        bundle = json.loads((HERE / "bundle.json").read_text(encoding="utf-8"))
        listed = {file["filename"] for file in bundle["files"]}
        known = {"python", "platforms", "compile", "environment", "missing"} <= bundle.keys()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        known = False
    if not known:
        stop("{} was damaged while it was copied: copy it again".format(HERE / "bundle.json"))
    # What is compiled is found by its name, and so would be a file that somebody put there.
    for path in (HERE / "wheels").iterdir():
        if path.name not in listed or path.is_symlink():
            stop("{} is not a file of the bundle: remove it".format(shown(path)))
    return bundle


def take(prefix):
    """Claim the directory for this install, and remove what an interrupted one left there."""
    mark = prefix / ".unfinished"
    try:
        prefix.mkdir(parents=True, exist_ok=True)
        # Of two that find nothing one makes the mark; of a finished environment it is gone.
        fresh = 0 if mark.exists() else os.O_CREAT | os.O_EXCL
        if fresh and any(prefix.iterdir()):
            stop("{} already exists: choose another directory, or remove it".format(prefix))
        held = os.open(str(mark), os.O_RDWR | fresh | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if fcntl:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, FileExistsError, FileNotFoundError):
        stop("another install is running in {}".format(prefix))
    except OSError as error:
        stop("cannot write {}: {}".format(prefix, error.strerror))
    if not os.fstat(held).st_nlink:
        stop("{} already exists: choose another directory, or remove it".format(prefix))
    for path in prefix.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(str(path))
        elif path != mark:
            path.unlink()
    return mark


def digest(path):
    """Return the SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()


def check(bundle):
    """Stop if the bundle is not for this machine, or if a file was damaged during the transfer."""
    here = "{}.{}".format(*sys.version_info[:2])
    if bundle["python"] not in (None, here):
        stop(
            "the bundle is for Python {0}, but this is Python {1}: run the script with python{0}".format(
                bundle["python"], here
            )
        )
    system, machine = platform.system().lower(), {"amd64": "x86_64", "arm64": "aarch64"}
    arch = machine.get(platform.machine().lower(), platform.machine().lower())
    if bundle["platforms"] and [system, arch] not in bundle["platforms"]:
        stop("the bundle is for {}, but this machine is {} {}".format(bundle["platforms"], system, arch))
    for file in bundle["files"]:
        path = HERE / "wheels" / file["filename"]
        if not path.is_file():
            stop("{} is missing".format(path))
        if path.stat().st_size != file["size"] or digest(path) != file["sha256"]:
            stop("{} was damaged while it was copied: copy it again".format(path))


def main(words):
    """Make the environment."""
    if words[:1] in (["-h"], ["--help"]) or len(words) > 1:
        stop("usage: python install.py [DIRECTORY] (default: .venv)")
    prefix = Path(words[0] if words else ".venv").absolute()
    bundle = read_bundle()
    print("checking {} files".format(len(bundle["files"])), flush=True)
    check(bundle)
    mark = take(prefix)
    print("making {}".format(prefix), flush=True)
    try:
        subprocess.check_call([sys.executable, "-m", "venv", str(prefix)])
    except subprocess.CalledProcessError:
        stop("this Python cannot create environments: on Debian and Ubuntu, install python3-venv")
    scripts = prefix / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / ("python.exe" if os.name == "nt" else "python")
    # Settings of the machine may name indexes, or places whose files would be preferred.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHONPATH"))}
    clean.update(
        PIP_CONFIG_FILE=os.devnull, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_FIND_LINKS=(HERE / "wheels").as_uri()
    )
    clean["PIP_NO_INDEX"] = "1"
    pip = [str(python), "-m", "pip", "install", "--no-deps", "--require-hashes", "-r"]
    if subprocess.call([*pip, str(HERE / "requirements.txt")], env=clean):
        shutil.rmtree(str(prefix), ignore_errors=True)
        stop("pip failed, see above; {} was removed".format(prefix))
    clean["PATH"] = os.pathsep.join([str(scripts), clean.get("PATH", "")])
    for command in bundle["compile"]:
        print("compiling: " + shown(command), flush=True)
    if bundle["compile"] and subprocess.call(["bash", "-ec", "\n".join(bundle["compile"])], env=clean, cwd=str(HERE)):
        stop("compiling failed, see above")
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.check_output([str(python), "-c", purelib], universal_newlines=True).strip()
    for name, value in sorted(bundle["environment"].items()):
        print("set at run time: {}={}".format(shown(name), shown(value.replace("{site_packages}", packages))))
    for line in bundle["missing"]:
        print("note: " + shown(line))
    mark.unlink()
    print("ready: {}".format(python))


if __name__ == "__main__":
    main(sys.argv[1:])
