"""How large is the image of Containerfile, and how long does it take from its start to the first translation?

    python benchmarks/image.py localhost/transduce runs/mine --languages en de --text "Two dogs play." --starts 5

The container is created once, read-only, as nobody, without capabilities and with the network of this machine, and then
started again and again: that is what a user waits for, while creating it may copy the whole image, as podman's storage
`vfs` does. --podman gives a command with options of its own. Prints a table and, last, a line of JSON.
"""

import argparse
import contextlib
import http
import http.client
import json
import shlex
import statistics
import subprocess
import time
from pathlib import Path
from uuid import uuid4

_PATIENCE_SECONDS = 120.0


def create(given: argparse.Namespace, name: str) -> float:
    """Seconds to create the container."""
    model = given.model.resolve()
    began = time.monotonic()
    container = [
        "--name",
        name,
        "--read-only",
        "--cap-drop",
        "all",
        "--network=host",
        "--volume",
        f"{model.parent}:/models:ro",
    ]
    command = ["serve", f"/models/{model.name}", "--host", "127.0.0.1", "--port", str(given.port)]
    languages = ["--source-language", given.languages[0], "--target-language", given.languages[1]]
    subprocess.run(
        [*given.podman, "create", *container, given.image, *command, *languages], check=True, stdout=subprocess.DEVNULL
    )
    return time.monotonic() - began


def translate(given: argparse.Namespace) -> str:
    """What the server of the container answers.

    Raises:
        OSError: Nothing listens yet, or it does not answer.
        http.client.HTTPException: It refuses, as it does while it loads the model.
    """
    body = {"q": given.text, "source": given.languages[0], "target": given.languages[1]}
    connection = http.client.HTTPConnection("127.0.0.1", given.port, timeout=_PATIENCE_SECONDS)
    with contextlib.closing(connection):
        connection.request("POST", "/translate", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(answer.read().decode())
        translation: str = json.load(answer)["translatedText"]
    return translation


def start(given: argparse.Namespace, name: str) -> tuple[float, str]:
    """Seconds from the start to the first translation, and the translation; then the container is stopped."""
    began = time.monotonic()
    server = subprocess.Popen([*given.podman, "start", "--attach", name], stderr=subprocess.PIPE, text=True)
    try:
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                translation = translate(given)
                return time.monotonic() - began, translation
            if server.poll() is not None:
                raise SystemExit(f"the container ended: {server.stderr.read() if server.stderr else ''}")
            if time.monotonic() - began > _PATIENCE_SECONDS:
                raise SystemExit(f"no answer within {_PATIENCE_SECONDS:g} seconds")
            time.sleep(0.02)
    finally:
        subprocess.run([*given.podman, "stop", "--time", "20", name], check=False, stdout=subprocess.DEVNULL)
        server.communicate()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image")
    parser.add_argument("model", type=Path, help="a bundle or a run folder; the folder above it is mounted")
    parser.add_argument("--languages", nargs=2, default=["en", "de"], metavar=("SOURCE", "TARGET"))
    parser.add_argument("--text", default="Two dogs play.")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--port", type=int, default=5077)
    parser.add_argument("--podman", type=shlex.split, default=["podman"], help="as in 'podman --storage-driver=vfs'")
    given = parser.parse_args()
    if given.starts < 1:
        parser.error("--starts has to be at least 1")

    size = subprocess.run(
        [*given.podman, "image", "inspect", "--format", "{{.Size}}", given.image], check=True, capture_output=True
    )
    name = f"transduce-image-{uuid4().hex[:8]}"
    created = create(given, name)
    try:
        starts = [start(given, name) for _ in range(given.starts)]
    finally:
        subprocess.run([*given.podman, "rm", "--force", name], check=False, stdout=subprocess.DEVNULL)
    seconds = [round(taken, 2) for taken, _ in starts]
    print(f"{'size':24} {int(size.stdout) / 1e6:.0f} MB")
    print(f"{'created in':24} {created:.2f} s")
    print(f"{'start to translation':24} {', '.join(map(str, seconds))} s; median {statistics.median(seconds)} s")
    print(f"{'translation':24} {starts[0][1]}")
    print(json.dumps({"bytes": int(size.stdout), "created": round(created, 2), "seconds": seconds}))


if __name__ == "__main__":
    main()
