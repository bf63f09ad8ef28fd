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

HERE = Path(__file__).resolve().parent


def stop(message):
    """End with a message."""
    sys.exit("install.py: " + message)


def digest(path):
    """Return the SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()


def check(bundle):
    """Stop if this is another machine than the bundle is for, or if a file was damaged on its way."""
    here = "{}.{}".format(*sys.version_info[:2])
    if bundle["python"] not in (None, here):
        stop("the bundle is for Python {0}, and this is {1}: run it with python{0}".format(bundle["python"], here))
    system, machine = platform.system().lower(), {"amd64": "x86_64", "arm64": "aarch64"}
    arch = machine.get(platform.machine().lower(), platform.machine().lower())
    if bundle["platforms"] and [system, arch] not in bundle["platforms"]:
        stop("the bundle is for {}, and this is {} {}".format(bundle["platforms"], system, arch))
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
    if prefix.exists() and any(prefix.iterdir()):
        stop("{} already exists: name another directory, or remove it".format(prefix))
    bundle = json.loads((HERE / "bundle.json").read_text(encoding="utf-8"))
    print("checking {} files".format(len(bundle["files"])), flush=True)
    check(bundle)
    print("making {}".format(prefix), flush=True)
    try:
        subprocess.check_call([sys.executable, "-m", "venv", str(prefix)])
    except subprocess.CalledProcessError:
        stop("this Python cannot make environments: on Debian and Ubuntu install python3-venv")
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
        print("compiling: " + command, flush=True)
    if bundle["compile"] and subprocess.call(["bash", "-ec", "\n".join(bundle["compile"])], env=clean, cwd=str(HERE)):
        stop("compiling failed, see above")
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.check_output([str(python), "-c", purelib], universal_newlines=True).strip()
    for name, value in sorted(bundle["environment"].items()):
        print("set where it runs: {}={}".format(name, value.replace("{site_packages}", packages)))
    for line in bundle["missing"]:
        print("note: " + line)
    print("ready: {}".format(python))


if __name__ == "__main__":
    main(sys.argv[1:])
