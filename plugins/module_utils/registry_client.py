"""Asks a registry over HTTP, which is I/O; Docker itself moves the images."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request

from .registry import MANIFESTS, REPOSITORY

# Seconds: for one answer, for the registry to come up, between two looks.
ANSWER = 10
PATIENCE = 20
PAUSE = 0.5
# Where the version of the protocol is asked for, and the header by which a registry of that version answers.
BASE, VERSION = "/v2/", "Docker-Distribution-Api-Version"


class RegistryError(RuntimeError):
    """The registry does not do what it should; the text is one plain line without the host."""


def wait_for(address: str, patience: float = PATIENCE) -> None:
    """Return when a registry answers there. Raises RegistryError when the time is up."""
    until, why = time.monotonic() + patience, ""
    while True:
        try:
            if _open(address, BASE).get(VERSION):
                return
            why = "what answers is no registry"
        except (OSError, http.client.HTTPException) as error:
            why = " ".join(str(error).split())
        if time.monotonic() >= until:
            raise RegistryError(f"no registry at {address}: {why}; limit: an answer within {patience:.0f} s")
        time.sleep(PAUSE)


def manifest_digest(address: str, tag: str) -> str:
    """The digest of the image of that tag, empty when the registry has none. Raises RegistryError.

    A manifest is what a push sends last, so what has one is whole.
    """
    try:
        found = _open(address, f"/v2/{REPOSITORY}/manifests/{tag}", method="HEAD")
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return ""
        raise RegistryError(f"the registry at {address} answers {error.code} for {REPOSITORY}:{tag}") from None
    except (OSError, http.client.HTTPException) as error:
        raise RegistryError(f"the registry at {address} does not answer: {' '.join(str(error).split())}") from None
    return found.get("Docker-Content-Digest", "")


def _open(address: str, path: str, method: str = "GET") -> dict[str, str]:
    """The headers of an answer; nothing of it goes through a proxy."""
    request = urllib.request.Request(f"http://{address}{path}", method=method, headers={"Accept": ", ".join(MANIFESTS)})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=ANSWER) as response:
        return dict(response.headers.items())
