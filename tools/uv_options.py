"""What pip is told, in the words of uv.

uv reads neither pip's configuration files nor its environment variables, and takes a package from
the first index that has it, where pip compares all of them. Here both are made to mean the same.
What uv has no word for is an error: then pip has to install.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping

SAME = {
    "constraint": "--constraint",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "index-url": "--index-url",
    "no-binary": "--no-binary",
    "only-binary": "--only-binary",
    "trusted-host": "--allow-insecure-host",
}
"""Options with a value: their names for pip and for uv."""

FLAGS = {"no-index": "--no-index", "pre": "--prerelease=allow"}
"""Options without a value."""

VARIABLES = {
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "retries": ("UV_HTTP_RETRIES",),
}
"""Options that are environment variables for uv."""

WITHOUT_EFFECT = {
    *(
        "args",
        "cache-dir",
        "disable-pip-version-check",
        "exists-action",
        "no-cache-dir",
        "no-color",
    ),
    *("no-compile", "no-input", "no-warn-script-location", "prefer-binary", "progress-bar"),
    *("quiet", "require-virtualenv", "root-user-action", "verbose"),
}
"""Options that change nothing of what is installed here."""

SHORT = {"-c": "constraint", "-f": "find-links", "-i": "index-url", "-q": "quiet", "-v": "verbose"}
WITH_VALUE = {*SAME, *VARIABLES, "cache-dir", "exists-action", "progress-bar", "root-user-action"}

KEPT = ("UV_CONCURRENT_", "UV_HTTP_", "UV_LINK_MODE", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS")
"""What uv's own environment variables may begin with: others would choose other packages."""


class UntranslatableError(ValueError):
    """uv has no word for an option of pip."""


def configured(listing: str) -> list[tuple[str, str]]:
    """Return the options of pip's configuration, each with its value.

    Args:
        listing: What ``pip config list`` prints: lines ``section.name='value'``.

    Raises:
        UntranslatableError: If an option is for one command of pip alone.
    """
    by_section: dict[str, dict[str, str]] = {"global": {}, ":env:": {}}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in ("install", "download") and name not in WITHOUT_EFFECT:
            raise UntranslatableError(f"{name} of the section {section}")
        if section in by_section:
            by_section[section][name.replace("_", "-")] = str(ast.literal_eval(value))
    return [*(by_section["global"] | by_section[":env:"]).items()]


def given(words: Iterable[str]) -> list[tuple[str, str]]:
    """Return the options among pip's arguments, each with its value.

    Raises:
        UntranslatableError: If one is unknown, or no option.
    """
    found, rest = [], [*words]
    while rest:
        word, joined, value = rest.pop(0).partition("=")
        name = SHORT.get(word, word.removeprefix("--"))
        if not word.startswith("-") or name not in {*SAME, *FLAGS, *VARIABLES, *WITHOUT_EFFECT}:
            raise UntranslatableError(word)
        if not joined and name in WITH_VALUE:
            if not rest:
                raise UntranslatableError(word)
            value = rest.pop(0)
        found.append((name, value))
    return found


def for_uv(options: Iterable[tuple[str, str]]) -> tuple[list[str], dict[str, str]]:
    """Return uv's arguments and environment variables for options of pip.

    Args:
        options: Names and values; later values replace earlier ones, but join them where pip
            takes several.

    Raises:
        UntranslatableError: If uv has no word for one.
    """
    words, index = ["--index-strategy", "unsafe-best-match"], list[str]()
    variables: dict[str, str] = {}
    for name, value in options:
        if name in VARIABLES:
            variables |= dict.fromkeys(VARIABLES[name], value)
        elif name in FLAGS:
            if value.lower() not in ("0", "false", "no", "off"):
                words.append(FLAGS[name])
        elif name == "index-url":
            index = [SAME[name], value]
        elif name in SAME:
            words += [word for one in value.split() for word in (SAME[name], one)]
        elif name not in WITHOUT_EFFECT:
            raise UntranslatableError(name)
    return words + index, variables


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for uv: without settings of its own that choose packages."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("UV_") or k.startswith(KEPT)}
    return kept | {"UV_NO_CONFIG": "1", **variables}
