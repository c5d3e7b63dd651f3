"""What fuzz.py does to valid files: every change is drawn from a generator, so that a seed gives the same again.

A file is changed at one of its layers: as bytes, as text, as a JSON tree, or as what a compression or an archive
contains, which is then compressed again, with right checksums: damage that a checksum finds never reaches a reader.
"""

import gzip
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import zstandard

Random = np.random.Generator
Files = dict[str, bytes]
"""The files of a case by their names, which may have folders."""

NUMBERS = (
    "0",
    "-1",
    "1",
    "2147483648",
    "-2147483649",
    "9223372036854775807",
    "18446744073709551616",
    "1e999",
    "1e-999",
)
NUMBERS += ("NaN", "-Infinity", "0.5", "1" * 5000, "0x10", "1_000", "00", "-0", "null", "true", '""', "[]", "{}")
VALUES = (None, True, False, 0, 1, -1, 2, 3, 0.5, -0.0, 1e308, 2**31, 2**63, 2**64, 10**30, "", "x", "\0", "\ud800")
VALUES += (
    "a" * 20_000,
    "1",
    [],
    {},
    [[]],
    [None],
    {"": None},
    [0] * 2000,
    "../../etc/passwd",
    "\u2028",
    "é",
    "en",
    "de",
)
FRAGMENTS = (b"", b"\0", b"\n", b"\r", b"\r\n", b"\t", b" ", b'"', b"'", b",", b";", b"{", b"}", b"[", b"]", b"<", b">")
FRAGMENTS += (b"&", b"&#0;", b"&#xD800;", b"&lol;", b"]]>", b"<!--", b"-->", b"<![CDATA[", b"<?x?>", b"<p>", b"</p>")
FRAGMENTS += (b"<b>", b"</b>", b"<m0>", b"<a href='x'>", b"\\", b"\\u0000", b"\\ud800", b"%00", b"%ff", b"..", b"/")
FRAGMENTS += (b"\xed\xa0\x80", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\xe2\x80\xa8")
FRAGMENTS += (
    "\u0130\u00df\ufb01".encode(),
    "\u200b\u202e\u2066".encode(),
    "e\u0301\u0301\u0301".encode(),
    b"\x1a",
    b"\x7f\x85",
)
FRAGMENTS += (
    b"-->",
    b"00:00:01,000 --> 00:00:02,000\n",
    b"\xe2\x96\x81",
    b"<unk>",
    b"</s>",
    b">>de<<",
    b"1",
    b"--",
    b"#",
)
FRAGMENTS += (
    b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
    b"<!ENTITY % x SYSTEM 'file:///etc/passwd'>",
    b"encoding='utf-7'",
    b"\xf0\x9f\x92\xa9",
)
INTEGERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def mutate_files(random: Random, files: Files, words: Sequence[bytes]) -> Files:
    """Change one of the files, rarely two; or remove one, exchange two, or put something hostile in its place."""
    changed = dict(files)
    names = sorted(files)
    for _ in range(1 + (random.random() < 0.1)):
        name = _choose(random, names)
        draw = random.random()
        if draw < 0.01 and len(names) > 1:
            changed.pop(name, None)
        elif draw < 0.02 and len(names) > 1:
            other = _choose(random, names)
            changed[name], changed[other] = files[other], files[name]
        elif draw < 0.05:
            changed[name] = make_hostile(random, name)
        elif name in changed:
            changed[name] = mutate(random, changed[name], words)
    return changed


def mutate(random: Random, content: bytes, words: Sequence[bytes], depth: int = 0) -> bytes:
    """Change a content at one of its layers; what cannot be parsed as a layer is changed as bytes or text."""
    if depth < 4 and random.random() < 0.75:
        for start, change in _LAYERS.items():
            if content.startswith(start):
                try:
                    return change(random, content, words, depth + 1)
                except (
                    ValueError,
                    OSError,
                    EOFError,
                    LookupError,
                    RuntimeError,
                    zlib.error,
                    lzma.LZMAError,
                    zipfile.BadZipFile,
                    zstandard.ZstdError,
                ):
                    break
    return (
        _mutate_bytes(random, content)
        if random.random() < (0.1 if _is_text(content) else 0.9)
        else _mutate_text(random, content, words)
    )


def make_hostile(random: Random, name: str) -> bytes:
    """Something that no program would write, and somebody may send."""
    size = int(10 ** random.uniform(1, 5.3))
    fragment = _choose(random, FRAGMENTS)
    content = _choose(
        random,
        (
            lambda: b"",
            lambda: random.bytes(size),
            lambda: bytes(size),
            lambda: b"[" * size,
            lambda: b'{"a":' * size,
            lambda: b"<a>" * size,
            lambda: b"[[x]]\n" + b"[x." * size,
            lambda: b"a=[" * 1 + b"[" * size,
            lambda: fragment * size,
            lambda: b"a" * size + b"\n",
            lambda: b"[\n" + b"{" + b"\n" * size,
            lambda: b'[\n{"source": "' + b"a\n" * (size // 2),
            lambda: b",".join([b"x"] * size),
            lambda: b"\t".join([b"x"] * size),
            lambda: json.dumps({str(number): 0 for number in range(size // 10)}).encode(),
            lambda: b"1" * size,
        ),
    )()
    if random.random() < 0.5:
        return content
    bomb = bytes(200_000_000) if random.random() < 0.05 else content
    for ending, compress in _COMPRESS.items():
        if name.endswith(ending):
            return compress(bomb)
    return content


def _mutate_bytes(random: Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(int(random.geometric(0.5))):
        start = int(random.integers(len(data) + 1))
        length = int(min(len(data) - start, random.geometric(0.1)))
        match int(random.integers(9)):
            case 0 if start < len(data):
                data[start] ^= 1 << int(random.integers(8))
            case 1 if start < len(data):
                data[start] = int(random.integers(256))
            case 2:
                data[start:start] = random.bytes(length)
            case 3:
                del data[start : start + length]
            case 4:
                width, order = _choose(random, (1, 2, 4, 8)), _choose(random, ("little", "big"))
                data[start : start + width] = (_choose(random, INTEGERS) % 256**width).to_bytes(width, order)
            case 5:
                del data[start:]
            case 6:
                other = int(random.integers(len(data) + 1))
                data[start:start] = data[other : other + length]
            case 7:
                data[start : start + length] = data[start : start + length] * int(random.integers(2, 50))
            case _:
                data[start : start + 4 * length] = bytes([_choose(random, (0, 255, 128, 1))]) * (4 * length)
    return bytes(data)


def _mutate_text(random: Random, content: bytes, words: Sequence[bytes]) -> bytes:  # noqa: C901 - a list of changes
    for _ in range(int(random.geometric(0.6))):
        lines = content.split(b"\n")
        place = int(random.integers(len(lines)))
        start = int(random.integers(len(content) + 1))
        match int(random.integers(9)):
            case 0:
                found = list(_NUMBER.finditer(content))
                if found:
                    one = _choose(random, found)
                    content = content[: one.start()] + _choose(random, NUMBERS).encode() + content[one.end() :]
            case 1:
                content = b"\n".join([*lines[:place], *lines[place + 1 :]])
            case 2:
                count = _choose(random, (1, 1, 2, 300))
                content = b"\n".join([*lines[:place], *[lines[place]] * count, *lines[place:]])
            case 3:
                other = int(random.integers(len(lines)))
                lines[place], lines[other] = lines[other], lines[place]
                content = b"\n".join(lines)
            case 4 if words:
                content = content[:start] + _choose(random, words) + content[start:]
            case 5 if words:
                old, new = _choose(random, words), _choose(random, words)
                content = content.replace(old, new, _choose(random, (1, -1)))
            case 6:
                content = content.replace(b"\n", _choose(random, (b"\r\n", b"\r", b"", b"\n\n", b"\0")))
            case 7 if random.random() < 0.2:
                encoding = _choose(random, ("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1", "utf-7", "cp037"))
                content = content.decode("latin-1").encode(encoding)
            case _:
                content = content[:start] + _choose(random, FRAGMENTS) + content[start:]
    return content


def _mutate_json(random: Random, content: bytes, _words: Sequence[bytes], _depth: int) -> bytes:
    """Change a value, a name, or the structure of one JSON text, or of one line of several."""
    try:
        tree, lines, place = json.loads(content), [], 0
    except ValueError:
        lines = content.split(b"\n")
        place = int(random.integers(len(lines)))
        tree = json.loads(lines[place])
    for _ in range(int(random.geometric(0.6))):
        tree = _mutate_tree(random, tree)
    indent = 2 if b"\n  " in content and not lines else None
    changed = json.dumps(tree, ensure_ascii=bool(random.random() < 0.5), indent=indent).encode("utf-8", "surrogatepass")
    return b"\n".join([*lines[:place], changed, *lines[place + 1 :]]) if lines else changed


def _mutate_tree(random: Random, tree: Any) -> Any:  # noqa: ANN401 - any JSON
    if not isinstance(tree, dict | list) or not tree or random.random() < 0.03:
        return _mutate_value(random, tree)
    changed: Any = dict(tree) if isinstance(tree, dict) else list(tree)
    key = _choose(random, list(tree) if isinstance(tree, dict) else range(len(tree)))
    draw = random.random()
    if isinstance(tree[key], dict | list) and draw < 0.7:
        changed[key] = _mutate_tree(random, tree[key])
    elif draw < 0.8:
        changed[key] = _mutate_value(random, tree[key])
    elif draw < 0.87:
        del changed[key]
    elif draw < 0.94 and isinstance(changed, dict):
        changed[_choose(random, ("", "x", "model", "\ud800", key + " ", key.upper()))] = changed.pop(key)
    elif isinstance(changed, dict):
        changed[key] = tree[_choose(random, list(tree))]
    else:
        changed += changed[key : key + 1] * _choose(random, (1, 10, 1500))
    return changed


def _mutate_value(random: Random, value: Any) -> Any:  # noqa: ANN401 - any JSON
    draw = random.random()
    if isinstance(value, bool) or value is None or draw < 0.4:
        return _choose(random, VALUES)
    if isinstance(value, int):
        return _choose(
            random, (value + 1, value - 1, -value, value * 2, value * 1000, value // 2, float(value), str(value))
        )
    if isinstance(value, float):
        return _choose(random, (-value, value * 1e10, value / 1e10, int(min(max(value, -1e15), 1e15)), str(value)))
    if isinstance(value, str):
        place = int(random.integers(len(value) + 1))
        inserted = _choose(random, FRAGMENTS).decode("utf-8", "replace")
        return _choose(
            random, (value[:place] + inserted + value[place:], value[:place], value * 50, [value], value.upper())
        )
    return _choose(random, VALUES)


def _mutate_zip(random: Random, content: bytes, words: Sequence[bytes], depth: int) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, info.compress_type, archive.read(info)) for info in archive.infolist()]
    place = int(random.integers(len(members)))
    name, kind, data = members[place]
    match int(random.integers(12)):
        case 0:
            name = _choose(random, ("", "/", "../x", "/etc/passwd", name + "/", name.upper(), "x" * 300, "\u0130.en"))
        case 1:
            kind = _choose(random, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        case 2:
            members.insert(0, members[place])
            place += 1
        case _:
            data = make_hostile(random, name) if random.random() < 0.05 else mutate(random, data, words, depth)
    members[place] = (name, kind, data)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for one, of_kind, of_data in members:
            info = zipfile.ZipInfo(one)
            info.compress_type = of_kind
            with archive.open(info, "w") as member:
                member.write(of_data)
    return file.getvalue()


def _mutate_npy(random: Random, content: bytes, words: Sequence[bytes], depth: int) -> bytes:
    """Change the header of an array, and keep its length right."""
    end = content.index(b"\n", 10) + 1
    header = mutate(random, content[10:end], words, depth)
    return content[:8] + (len(header) % 65536).to_bytes(2, "little") + header + content[end:]


def mutate_safetensors(random: Random, content: bytes, words: Sequence[bytes]) -> bytes:
    """Change the header of safetensors, and keep its length right; or single numbers of the tensors."""
    length = int.from_bytes(content[:8], "little")
    if random.random() < 0.3:
        data = bytearray(content)
        for _ in range(int(random.geometric(0.3))):
            place = 8 + length + 4 * int(random.integers((len(data) - 8 - length) // 4))
            number = _choose(random, (np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-45, 0.0))
            data[place : place + 4] = np.float32(number).tobytes()
        return bytes(data)
    header = _mutate_json(random, content[8 : 8 + length], words, 1)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def _through(decompress: Callable[[bytes], bytes], compress: Callable[[bytes], bytes]) -> Callable[..., bytes]:
    def change(random: Random, content: bytes, words: Sequence[bytes], depth: int) -> bytes:
        return compress(mutate(random, decompress(content), words, depth))

    return change


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


def _zstd(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(content)


def _xz(content: bytes) -> bytes:
    return lzma.compress(content, preset=0)


_COMPRESS = {".gz": _gzip, ".zst": _zstd, ".xz": _xz}
_LAYERS: dict[bytes, Callable[[Random, bytes, Sequence[bytes], int], bytes]] = {
    b"\x1f\x8b": _through(gzip.decompress, _gzip),
    b"\x28\xb5\x2f\xfd": _through(lambda content: zstandard.ZstdDecompressor().decompress(content, 1 << 26), _zstd),
    b"\xfd7zXZ": _through(lzma.decompress, _xz),
    b"PK": _mutate_zip,
    b"\x93NUMPY": _mutate_npy,
    b"{": _mutate_json,
    b"[": _mutate_json,
}


def _is_text(content: bytes) -> bool:
    return b"\0" not in content[:1000]


def _choose(random: Random, choices: Sequence[Any]) -> Any:  # noqa: ANN401 - one of the choices
    return choices[int(random.integers(len(choices)))]
