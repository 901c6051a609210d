"""Who listens, from the words of `ss`."""

from __future__ import annotations

import re

from .facts import Listener


def parse_listeners(text: str) -> list[Listener]:
    """The listening sockets from `ss -H -l -t -n -p`; a wildcard address comes as 0.0.0.0 or ::."""
    found: list[Listener] = []
    for line in text.splitlines():
        fields = line.split()
        address, _, port = fields[3].rpartition(":") if len(fields) > 3 else ("", "", "")
        if not port.isdigit():
            continue
        owner = re.search(r'users:\(\("([^"]+)"', line)
        # `%lo` names the interface that a socket is bound to; ::ffff: is IPv4 on a socket of both families.
        plain = address.split("%")[0].strip("[]").removeprefix("::ffff:")
        name = owner.group(1) if owner else ""
        found.append({"address": "0.0.0.0" if plain == "*" else plain, "port": int(port), "process": name})
    return found
