"""Why an installation failed, in one sentence."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

GOES_ON = "the same command goes on from here"

# In this order: a full disk and a proxy also break connections, and without a network pip ends
# with "no matching distribution".
CAUSES = {
    r"No space left on device|Errno 28|os error 28|Disk quota exceeded": "disk",
    r"ProxyError|Cannot connect to proxy|Tunnel connection failed|Proxy Authentication": (
        "the proxy does not let the package index through. "
        f"Set HTTPS_PROXY to the right address; {GOES_ON}"
    ),
    r"CERTIFICATE_VERIFY_FAILED|SSLCertVerification|SSLError|certificate verify failed|invalid peer"
    r" certificate": (
        "the certificate of the package index is not trusted here, as happens behind a proxy that "
        "opens encrypted connections. Name the proxy's certificate: "
        'PIP_ARGS="--cert FILE"'
    ),
    r"NewConnectionError|NameResolutionError|name resolution|Name or service not known|nodename nor"
    r"|Network is unreachable|No route to host|Connection refused|ConnectTimeout|Read timed out"
    r"|ReadTimeout|Connection reset|RemoteDisconnected|Connection aborted|IncompleteRead": (
        f"the package index cannot be reached. With the network on, {GOES_ON}"
    ),
    r"Permission denied|Errno 13": "a file or folder of the environment cannot be written",
    r"No matching distribution|ResolutionImpossible|conflicting dependencies": (
        "the package index has no version that fits; the lines above name the package"
    ),
}


def reason(log: str, folder: Path) -> str:
    """Return what the log of a failed installation says was wrong.

    Args:
        log: All that pip wrote.
        folder: Of the environment.
    """
    for pattern, sentence in CAUSES.items():
        if re.search(pattern, log):
            return sentence if sentence != "disk" else full(folder)
    return f"pip could not install what is missing, as it says above. Once mended, {GOES_ON}"


def full(folder: Path) -> str:
    """Return how much room there is where pip writes."""
    free = shutil.disk_usage(folder).free / 1e9
    return f"the disk of {folder} is full: {free:.1f} GB are free. With more room, {GOES_ON}"
