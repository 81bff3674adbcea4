"""Serve the built book on this machine alone, until Ctrl-C.

python -m tools.serve _build/html 8000
"""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


def main(folder: str, port: str) -> str | None:
    """Serve a folder; return what is wrong if it cannot be."""
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    try:
        server = ThreadingHTTPServer(("127.0.0.1", int(port)), handler)
    except (OSError, OverflowError, ValueError) as error:
        other = int(port) + 1 if port.isdecimal() and int(port) < 65535 else 8000
        return f"error: port {port} cannot be used ({error}). Take another: make serve PORT={other}"
    with server:
        print(f"The book is at http://localhost:{port} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
