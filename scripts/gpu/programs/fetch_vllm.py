#!/usr/bin/env python3
"""Fetches vLLM's NCCL wrapper from its source distribution, as its authors published it: for the stage `vllm` of gpu-check.

  fetch_vllm.py DIR

DIR gets the files; where they are there already, nothing is fetched.  The index is pip's (PIP_INDEX_URL, pip's configuration), else PyPI.
"""
import hashlib
import http.client
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import urllib.request

VERSION = "0.33.0"
DISTRIBUTION = "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112"  # sha256 of vllm-VERSION.tar.gz
WITHIN = f"vllm-{VERSION}/vllm/distributed/device_communicators"
FILES = {"pynccl.py": "35ffa32408c675248e07016ca936eb73e2423777a67572d145b8fc1176f173f8",
         "pynccl_wrapper.py": "3caa616958b89744620b2309212e4f2c270ada68cb29ab1f148cfce89e294e22"}
PATIENCE = 20  # seconds without a byte


def complete(folder):
    """Whether the folder has the files, unchanged."""
    def right(name, digest):
        try:
            with open(os.path.join(folder, name), "rb") as file:
                return hashlib.sha256(file.read()).hexdigest() == digest
        except OSError:
            return False
    return all(right(*file) for file in FILES.items())


def index():
    told = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False)
    return (os.environ.get("PIP_INDEX_URL") or told.stdout.strip() or "https://pypi.org/simple").rstrip("/")


def fetch(folder):
    page = f"{index()}/vllm/"
    with urllib.request.urlopen(page, timeout=PATIENCE) as answer:
        found = re.search(rf'href="([^"]*/vllm-{re.escape(VERSION)}\.tar\.gz)[#"]', answer.read().decode())
    if not found:
        raise ValueError(f"{page} has no vllm-{VERSION}.tar.gz")
    digest = hashlib.sha256()
    with tempfile.TemporaryFile() as copy:
        with urllib.request.urlopen(urllib.parse.urljoin(page, found[1]), timeout=PATIENCE) as answer:
            for piece in iter(lambda: answer.read(1 << 20), b""):
                digest.update(piece)
                copy.write(piece)
        if digest.hexdigest() != DISTRIBUTION:
            raise ValueError(f"{found[1]} is not the one that was published: sha256 {digest.hexdigest()}")
        copy.seek(0)
        os.makedirs(folder, exist_ok=True)
        with tarfile.open(fileobj=copy) as archive:
            for name in FILES:
                with open(os.path.join(folder, name), "wb") as out:
                    out.write(archive.extractfile(f"{WITHIN}/{name}").read())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    if not complete(folder):
        try:
            fetch(folder)
        except (OSError, ValueError, KeyError, tarfile.TarError, http.client.HTTPException) as error:
            sys.exit(f"FAILED: cannot fetch vLLM {VERSION}: {error}; fetch it where there is a network, {sys.argv[0]} DIR, and name DIR with --vllm")
    if not complete(folder):
        sys.exit(f"FAILED: {folder} does not have the files of vLLM {VERSION}")
    print(f"vLLM {VERSION} in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
