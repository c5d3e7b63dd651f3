"""One process of argos.py, run by the Python that has Argos Translate: installs a package and translates lines.

Reads {"package", "lines", "from", "to"} as JSON from standard input and prints {"version", "sentences", "translations",
"connections"}. Whatever asks for the network is refused, and counted.
"""

import json
import socket
import sys
from importlib.metadata import version
from typing import NoReturn

connections: list[str] = []


def refuse(*address: object, **_: object) -> NoReturn:
    """Stands in for what opens connections."""
    connections.append(repr(address))
    raise OSError("the network is off")


def main() -> None:
    """Install, translate, print."""
    socket.socket.connect = socket.socket.connect_ex = refuse
    socket.getaddrinfo = socket.create_connection = refuse
    task = json.load(sys.stdin)
    from argostranslate import package, translate

    package.install_from_path(task["package"])
    (installed,) = package.get_installed_packages()
    translation = translate.get_translation_from_codes(task["from"], task["to"])
    answer = {
        "version": version("argostranslate"),
        "package": str(installed),
        "sentences": [translation.underlying.sentencizer.split_sentences(line) for line in task["lines"]],
        "translations": [translate.translate(line, task["from"], task["to"]) for line in task["lines"]],
        "connections": connections,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
