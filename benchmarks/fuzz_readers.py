"""What fuzz.py reads: for each reader valid files, and the function that a case must not break."""

import asyncio
import io
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple
from urllib.parse import unquote
from uuid import UUID

import numpy as np
import torch
from fuzz_mutations import Files, Random, mutate, mutate_files, mutate_safetensors

from transduce.bulk.formats import choose_file_format
from transduce.bulk.inputs import find_input_files
from transduce.bundle import (
    Bundle,
    BundleDescription,
    FileRecord,
    Languages,
    RecordedHead,
    Shard,
    begin_checkpoint,
    collect_model_tensors,
    find_latest_checkpoint,
    finish_checkpoint,
    load_checkpoint,
    read_calibration,
    read_scorecard,
    save_bundle,
    save_checkpoint,
    update_calibration,
    write_shard,
)
from transduce.bundle.bundle import find_bundle
from transduce.config import SearchConfig, TransformerConfig, load_run_config, to_toml
from transduce.documents.formats import read_formatted_document
from transduce.documents.markup import MarkupRules, Passage, split_markup
from transduce.interop.formats import find_export_format, find_import_format
from transduce.model import Transformer
from transduce.serving.glossaries import GlossaryStore
from transduce.text import Glossary, Tokenizer, compress, open_parallel_corpus, read_lines
from transduce.training.reporting import MetricsLog
from transduce.translation import Translator

WORDS = ("sun", "moon", "river", "stone", "bird", "tree", "wind", "salt", "road", "lamp", "fish", "door")
PAIRS = [(f"{one} {other}.", f"{other} {one}!") for one in WORDS for other in WORDS[:4]]


class UnexpectedError(Exception):
    """A reader did not fail, but what it made is wrong."""


class Reader(NamedTuple):
    """Something that reads files of others.

    Args:
        make: makes valid inputs in an empty folder; each becomes the files of a case.
        read: reads the files of a case in a folder; `Random` chooses options. False: they were refused.
        share: how many cases of a hundred.
        words: what is inserted into text besides other fragments.
        mutate: changes the files.
        writes: whether it may change the files.
    """

    make: Callable[[Path], list[Files]]
    read: Callable[[Path, Random], object]
    share: float
    words: Sequence[bytes] = ()
    mutate: Callable[[Random, Files, Sequence[bytes]], Files] = mutate_files
    writes: bool = False


# Models


@cache
def make_tokenizer() -> Tokenizer:
    """A small vocabulary."""
    random = np.random.default_rng(1)
    return Tokenizer.train([" ".join(random.choice(WORDS, size=5)) for _ in range(300)], 310, "bpe")


def make_bundle(folder: Path, **settings: Any) -> Path:  # noqa: ANN401 - of the network
    """A bundle of a network with random weights, with a calibration."""
    torch.manual_seed(1)
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2}
    config = TransformerConfig.model_validate({"vocabulary": make_tokenizer().vocabulary, **sizes, **settings})
    description = BundleDescription(
        model=config,
        search=SearchConfig(beam=2, max_pieces=40, max_extra_length=2),
        languages=Languages(source="en", target="de"),
    )
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
    save_bundle(folder, model, make_tokenizer(), description)
    update_calibration(Bundle.open(folder), alignment=RecordedHead(layer=0, head=1, offset=0))
    return folder


def read_folder(folder: Path) -> Files:
    """All files of a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def _make_bundles(folder: Path) -> list[Files]:
    kinds: list[dict[str, Any]] = [
        {},
        {"norm_order": "pre", "tied_embeddings": "none"},
        {"positions": "learned", "max_positions": 50},
    ]
    kinds += [{"feed_forward": "gated"}, {"attention_score": "additive"}]
    bundles = [read_folder(make_bundle(folder / str(number), **kind)) for number, kind in enumerate(kinds)]
    int8 = folder / "int8"
    int8.mkdir()
    find_export_format("transduce").write(Bundle.open(folder / "0"), int8, "int8")
    return [*bundles, read_folder(int8)]


def _mutate_recorded(random: Random, files: Files, words: Sequence[bytes]) -> Files:
    """Change files, and record the changed ones in the description, or no reader would look further."""
    changed = dict(files)
    tensors = [name for name in files if name.endswith(".safetensors")]
    if random.random() < 0.4:
        name = tensors[int(random.integers(len(tensors)))]
        changed[name] = mutate_safetensors(random, files[name], words)
    else:
        changed = mutate_files(random, files, words)
    name = "bundle.json" if "bundle.json" in files else "checkpoint.json"
    try:
        description = json.loads(changed[name])
        for recorded, record in description["files"].items():
            if recorded in changed:
                record["bytes"], record["sha256"] = len(changed[recorded]), sha256(changed[recorded]).hexdigest()
        if "state" in description and random.random() < 0.9:
            state = json.dumps(description["state"], sort_keys=True).encode()
            description["state_sha256"] = sha256(state).hexdigest()
        if random.random() < 0.95:
            changed[name] = json.dumps(description).encode()
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        pass
    return changed


def _read_bundle(folder: Path, random: Random) -> None:
    bundle = Bundle.open(find_bundle(folder))
    read_calibration(bundle)
    read_scorecard(bundle)
    if random.random() < 0.3:
        bundle.load_arrays()
        bundle.load_model()
    for line in Translator.load(folder, device="cpu").translate(["sun moon.", "a" * 50, ""]):
        if "\n" in line:
            raise UnexpectedError(repr(line))


def _make_checkpoints(folder: Path) -> list[Files]:
    model = Transformer(
        TransformerConfig(vocabulary=20, num_encoder_layers=1, num_decoder_layers=1, d_model=8, d_ff=8, num_heads=2)
    )
    weights = collect_model_tensors(model)
    moments = {f"{name}.mean": torch.zeros_like(tensor) for name, tensor in weights.items()}
    save_checkpoint(folder, 3, {"weights": weights, "optimizer": moments}, {"epoch": 1, "best": 0.5, "seen": [1, 2]})
    with begin_checkpoint(folder / "sharded", 3) as temporary:
        files: dict[str, FileRecord] = {}
        for number in (1, 2):
            halves = {name: tensor.chunk(2)[number - 1] for name, tensor in weights.items()}
            files |= write_shard(temporary, {"weights": halves}, Shard(number, 2))
        finish_checkpoint(temporary, 3, {"epoch": 1}, files)
    return [read_folder(folder / "000000003"), read_folder(folder / "sharded" / "000000003")]


def _read_checkpoint(folder: Path, _random: Random) -> None:
    folder.rename(folder.parent / "000000003")
    try:
        found = find_latest_checkpoint(folder.parent, lambda _: None)
        if found is not None:
            load_checkpoint(folder.parent, found.update)
    finally:
        (folder.parent / "000000003").rename(folder)


def _make_tokenizers(_folder: Path) -> list[Files]:
    return [{"tokenizer.model": make_tokenizer().model_bytes}]


def _read_tokenizer(folder: Path, _random: Random) -> None:
    path = folder / "tokenizer.model"
    tokenizer = Tokenizer.from_files({path.name: path.read_bytes()} if path.is_file() else {}, str(path))
    for text in ("sun moon", "é\u0301 \U0001f4a9\u2028", ">>de<< sun", " ", "a" * 300):
        ids = tokenizer.encode_all([text])[0]
        if any(not 0 <= one < tokenizer.vocabulary for one in ids):
            raise UnexpectedError(f"ids {ids}")
        tokenizer.decode(ids)


def _make_exports(name: str, folder: Path) -> list[Files]:
    files = []
    for number, kind in enumerate(({}, {"norm_order": "pre"})):
        bundle = Bundle.open(make_bundle(folder / f"{number}.bundle", **kind))
        chosen = find_export_format(name)
        place = folder / f"export-{number}"
        place.mkdir()
        chosen.write(bundle, place / f"model{chosen.suffix}" if chosen.suffix else place, chosen.precisions[0])
        files.append(read_folder(place))
    return files


def _mutate_export(random: Random, files: Files, words: Sequence[bytes]) -> Files:
    tensors = [name for name in files if name.endswith(".safetensors")]
    if not tensors or random.random() < 0.7:
        return mutate_files(random, files, words)
    return files | {tensors[0]: mutate_safetensors(random, files[tensors[0]], words)}


def _read_export(folder: Path, _random: Random) -> None:
    files = [path for path in folder.iterdir() if path.suffix in {".npz", ".argosmodel"}]
    path = files[0] if len(files) == 1 else folder
    _, chosen = find_import_format(path)
    chosen.read(path, None)


# Text


def _write_pairs() -> dict[str, bytes]:
    """The same pairs in every format."""
    import pyarrow as pa
    from pyarrow import parquet

    tsv = "".join(f"{source}\t{target}\n" for source, target in PAIRS).encode()
    csv = b'source,target\n"a ""quoted"" cell","with, comma\nand line"\n' + tsv.replace(b"\t", b",")
    records = [{"source": source, "target": target, "number": 1.5} for source, target in PAIRS]
    nested = [{"translation": {"en": source, "de": target}} for source, target in PAIRS]
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{source} <bpt i="1">x</bpt>y<ph/></seg></tuv><tuv xml:lang="de-DE"><seg>{target} &amp; '  # noqa: E501 - a document
        f"<hi>z</hi></seg></tuv></tu>\n"
        for source, target in PAIRS[:9]
    )
    head = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4"><header srclang="en" datatype="plaintext"/><body>\n'
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for language, side in (("en", 0), ("de", 1)):
            archive.writestr(zipfile.ZipInfo(f"Books.de-en.{language}"), "".join(f"{pair[side]}\n" for pair in PAIRS))
        archive.writestr(zipfile.ZipInfo("README"), "read me")
    tables = []
    for table, compression in (
        (pa.Table.from_pylist(records), "snappy"),
        (pa.Table.from_pylist(nested), "zstd"),
        (
            pa.table({"en": pa.array([one for one, _ in PAIRS]).dictionary_encode(), "de": [two for _, two in PAIRS]}),
            "none",
        ),
    ):
        sink = io.BytesIO()
        parquet.write_table(table, sink, compression=compression)
        tables.append(sink.getvalue())
    return {
        "pairs.tsv": tsv,
        "header.tsv": b"English\tGerman\tscore\n" + tsv,
        "pairs.csv": csv,
        "pairs.jsonl": b"".join(json.dumps(one).encode() + b"\n" for one in records),
        "nested.json": json.dumps(nested, indent=1).encode(),
        "array.json": json.dumps(records).encode(),
        "pairs.tmx": f"{head}{units}</body></tmx>\n".encode(),
        "pairs.zip": file.getvalue(),
        "plain.parquet": tables[0],
        "nested.parquet": tables[1],
        "languages.parquet": tables[2],
    }


def _make_saved_datasets() -> list[Files]:
    import pyarrow as pa

    table = pa.table({"en": [one for one, _ in PAIRS], "de": [two for _, two in PAIRS]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, 20)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": "train"}
    return [{"set/state.json": json.dumps(state).encode(), "set/data-00000-of-00001.arrow": sink.getvalue()}]


def _make_pairs(_folder: Path) -> list[Files]:
    written = _write_pairs()
    plain = [{name: content} for name, content in written.items()]
    packed = [
        {name + ending: compress(written[name], name + ending)}
        for name, ending in (("pairs.tsv", ".gz"), ("pairs.jsonl", ".zst"), ("pairs.tmx", ".xz"), ("pairs.csv", ".zst"))
    ]
    return [*plain, *packed, *_make_saved_datasets(), *_make_saved_datasets()]


_COLUMNS = (*[None] * 12, ("source", "target"), ("en", "de"), ("1", "2"), ("2", "1"), ("x", ""), ("99999999999", "1"))
_LANGUAGES = (*[("en", "de")] * 12, ("", ""), ("de", "en"), ("en", "en"), ("\ud800", "x"))


def _read_pairs(folder: Path, random: Random) -> None:
    name = next((path.name for path in sorted(folder.iterdir())), "missing.tsv")
    columns = _COLUMNS[int(random.integers(len(_COLUMNS)))]
    languages = _LANGUAGES[int(random.integers(len(_LANGUAGES)))]
    corpus = open_parallel_corpus(folder, None, None, name, columns, languages)
    for source, target in corpus:
        (source + target).encode()
    corpus.describe_omissions()


def _make_lines(_folder: Path) -> list[Files]:
    text = "".join(f"{source}\n" for source, _ in PAIRS).encode()
    return [{f"text.en{ending}": compress(text, f"text{ending}")} for ending in ("", ".gz", ".xz", ".zst")]


def _read_lines(folder: Path, _random: Random) -> None:
    for path in sorted(folder.iterdir()):
        for line in read_lines(path):
            line.encode()


def _make_glossaries(_folder: Path) -> list[Files]:
    return [
        {"terms.tsv": "sun\tSonne\nMoon rise\tMondaufgang\nStraße\tstreet\nİstanbul\tIstanbul\n日\tSonne\n".encode()}
    ]


def _read_glossary(folder: Path, _random: Random) -> None:
    glossary = Glossary.read(folder / "terms.tsv")
    for text in ("The SUN over İSTANBUL and STRASSE, moon rise 日本", "ß" * 100, "\u0301sun", *glossary.targets):
        terms = glossary.find_terms(text)
        for term in terms:
            if not 0 <= term.start < term.end <= len(text):
                raise UnexpectedError(repr(term))
        selected = glossary.select_terms([text])
        if Glossary(selected).find_terms(text) != terms:
            raise UnexpectedError(f"of {terms}, only {selected} are selected")


def _make_stored_glossaries(folder: Path) -> list[Files]:
    """As the service stores them, from lines with tabs and with commas."""
    store = GlossaryStore(folder)
    tabs, commas = "sun\tSonne\nMoon rise\tMondaufgang\nStraße\tstreet\n", 'sun,"Sonne, Stern"\nmoon,Mond,en,de\n'
    added = [store.add("", "sky", ("en", "de"), tabs, "tsv"), store.add("ab" * 32, "日", ("en", "de"), commas, "csv")]
    files = []
    for number, stored in enumerate(added):  # the same at each call
        content = (folder / f"{stored.identifier}.json").read_text(encoding="utf-8")
        content = content.replace(stored.created, "2026-11-26T12:00:00.000000Z")
        name = str(UUID(int=number))
        files.append({f"{name}.json": content.replace(stored.identifier, name).encode()})
    return files


def _read_stored_glossaries(folder: Path, random: Random) -> None:
    """Read files that are there when the service starts, or that another service has just written there."""
    (path,) = folder.iterdir()
    is_new = random.random() < 0.5
    if is_new:
        path.rename(folder.parent / path.name)
    try:
        store = GlossaryStore(folder, max_glossaries=3, max_bytes=1_000)
    finally:
        if is_new:
            (folder.parent / path.name).rename(path)
    for owner in ("", "ab" * 32):
        for stored in store.list_all(owner):
            store.get(owner, stored.identifier).parse().find_terms("The SUN over STRASSE, moon rise")


def _make_bulk(_folder: Path) -> list[Files]:
    written = _write_pairs()
    names = ("pairs.tsv", "header.tsv", "pairs.jsonl", "plain.parquet", "languages.parquet")
    return [{name: written[name]} for name in names] + [
        {"pairs.jsonl.zst": compress(written["pairs.jsonl"], "pairs.zst")}
    ]


def _read_bulk(folder: Path, random: Random) -> None:
    (file,) = find_input_files([str(folder / "*")], folder.parent / "out")
    column = ("source", "en", "English", "1", "2")[int(random.integers(5))]
    chosen = choose_file_format(file.name, column, "translation", json_input=False)
    for block in chosen.read_blocks(file, 7):
        chosen.write_block(block, [line.upper() for line in block.lines], file)


# Settings


def _make_settings(_folder: Path) -> list[Files]:
    own = 'preset = "small"\n\n[data]\nsource = "a.en"\ntarget = "a.de"\n\n[training]\nupdates = 20_000\n'
    corpora = '[[data.corpora]]\nsource = "a"\ntarget = "b"\nweight = 3.0\n\n[[data.corpora]]\npairs = "c.tsv"\nweight = 0.1\n'  # noqa: E501 - a document
    config, _ = load_run_config(None, arguments={"data.pairs": "a.tsv"})
    return [{"run.toml": text.encode()} for text in (own, corpora, to_toml(config))]


def _read_settings(folder: Path, _random: Random) -> None:
    config, _ = load_run_config(folder / "run.toml")
    to_toml(config)


def _make_metrics(folder: Path) -> list[Files]:
    log = MetricsLog(folder / "metrics.jsonl")
    log.append("data", 0, {"kept": 10, "pairs": 12})
    for update in range(1, 9):
        log.append("training", update, {"loss": 5.0 / update, "digest": "ab" * 16})
        log.append("validation", update, {"loss": 5.0 / update, "bleu": 1.5 * update, "samples": [["a", "b"]]})
    return [read_folder(folder)]


def _read_metrics(folder: Path, _random: Random) -> None:
    log = MetricsLog(folder / "metrics.jsonl")
    log.read(), log.first(), log.find_damaged_lines()
    log.truncate_after(4, is_finished=False)


# Documents


def make_word() -> bytes:
    """A Word document with runs, a link, a field, a table, and a header."""
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    parts = {
        "[Content_Types].xml": (
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="xml" '
            f'ContentType="application/xml"/><Override PartName="/word/document.xml" ContentType="{kind}.document.main+xml"/>'  # noqa: E501 - a document
            f'<Override PartName="/word/header1.xml" ContentType="{kind}.header+xml"/></Types>'
        ),
        "word/document.xml": (
            f'<w:document xmlns:w="{space}"><w:body><w:p><w:pPr><w:jc w:val="left"/></w:pPr><w:r><w:t>The sun </w:t></w:r>'  # noqa: E501 - a document
            "<w:r><w:rPr><w:b/></w:rPr><w:t>and moon</w:t><w:tab/><w:t>rise.</w:t></w:r><w:hyperlink><w:r><w:t>A river</w:t>"  # noqa: E501 - a document
            "</w:r></w:hyperlink><w:r><w:drawing/></w:r><w:r><w:t> &lt;ends&gt;</w:t></w:r></w:p><w:p><w:r><w:fldChar "
            'w:fldCharType="begin"/><w:instrText>PAGE</w:instrText><w:fldChar w:fldCharType="separate"/><w:t>1</w:t>'
            '<w:fldChar w:fldCharType="end"/></w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:ins><w:r><w:t>stone</w:t></w:r></w:ins>'  # noqa: E501 - a document
            "</w:p></w:tc></w:tr></w:tbl></w:body></w:document>"
        ),
        "word/header1.xml": f'<w:hdr xmlns:w="{space}"><w:p><w:r><w:t>A bird</w:t></w:r></w:p></w:hdr>',
        "word/media/image.png": "\x89PNG",
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


HTML = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>Sun</title><style>p {}</style></head><body>
<p class="notranslate">no</p>
<p>A <b>bird</b> <i translate=no>sings</i>&nbsp;at <a href="x?a=1&amp;b">dawn</a>.<br/>Yes<p>
<ul><li>one<li>two</ul>
<pre>a  b\n c</pre><!-- note --><script>if (a<b) {}</script><table><tr><td>x</table></body></html>
"""
SRT = "1\n00:00:01,000 --> 00:00:02,500\n<i>The sun</i> and\nthe {\\an8}moon\n\n2\n00:00:03,000 --> 00:00:04,000\n- Yes.\n- No.\n"  # noqa: E501 - a document
VTT = "WEBVTT\n\nNOTE x\n\nid\n00:01.000 --> 00:02.500 align:left\n<v Ann>The <c.x>sun</c> &amp; <00:02.000>moon\n"


def _make_documents(_folder: Path) -> list[Files]:
    return [
        {"document.docx": make_word()},
        {"document.docx": make_word()},
        {"document.html": HTML.encode()},
        {"document.srt": SRT.encode()},
        {"document.vtt": VTT.encode()},
        {"document.txt": "The sun.\r\n\r\nThe moon.\n".encode("utf-16")},
    ]


def _read_document(folder: Path, random: Random) -> None:
    """Read, and write with other texts, as the translator does."""
    (path,) = folder.iterdir()
    document = read_formatted_document(path.read_bytes(), path.suffix)
    change = (
        str.upper,
        lambda text: text[::-1],
        lambda _: "",
        lambda text: f"<&\x07{text}\ufffe",
        lambda _: "\U0001f4a9",
    )
    changed = partial(map, change[int(random.integers(len(change)))])
    if document.rules is None:
        document.write("".join(changed([document.text])))
        return
    document.write(_translate_markup(document.text, document.rules, changed))


def _translate_markup(text: str, rules: MarkupRules, changed: Callable[..., Any]) -> str:
    pieces = split_markup(text, rules)
    if "".join(one if isinstance(one, str) else "".join(part.raw for part in one.parts) for one in pieces) != text:
        raise UnexpectedError("the passages are not the markup")
    translated = []
    for piece in pieces:
        if isinstance(piece, Passage):
            whole = piece.restore_tags(piece.to_marked_text())
            if whole is None:
                raise UnexpectedError(f"the marks of {piece} are not found again")
            translated.append(piece.replace_texts(changed(piece.get_texts())))
        else:
            translated.append(piece)
    return "".join(translated)


def _read_markup(folder: Path, random: Random) -> None:
    try:
        text = (folder / "markup.html").read_bytes().decode()
    except UnicodeDecodeError:
        return
    ignored = frozenset({"code"}) if random.random() < 0.5 else frozenset[str]()
    rules = MarkupRules(
        is_xml=bool(random.random() < 0.5), ignored=ignored, detects_outline=bool(random.random() < 0.5)
    )
    _translate_markup(text, rules, partial(map, str.upper))


# HTTP


def _make_requests(_folder: Path) -> list[Files]:
    def request(path: str, body: bytes, kind: str = "application/json", method: str = "POST") -> Files:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nX-Request-ID: 1\r\n\r\n"
        return {"request": head.encode() + body}

    def upload(path: str, name: str, content: bytes, fields: dict[str, str]) -> Files:
        parts = [
            f'--BB\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()
        ]
        head = f'--BB\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: text/x\r\n\r\n'
        body = "".join(parts).encode() + head.encode() + content + b"\r\n--BB--\r\n"
        return request(path, body, "multipart/form-data; boundary=BB")

    form = "application/x-www-form-urlencoded"
    everything = {
        "text": ["The sun.", "<b>Moon</b> 12"],
        "source": "en",
        "target": "de",
        "format": "text",
        "num_best": 2,
        "beam": 3,
        "length_penalty": 0.6,
        "min_length": 2,
        "max_length": 20,
        "no_repeat_ngram": 3,
        "repetition_penalty": 1.2,
        "diversity": 0.5,
        "require": ["sun"],
        "forbid": ["moon"],
        "deadline_seconds": 5,
    }
    marked = {
        "text": "<p>The <b>sun</b> <i>moon</i></p>",
        "format": "html",
        "protect": ["number"],
        "glossary": {"sun": "Sonne"},
    }
    samples = {"text": "sun", "num_samples": 4, "seed": 1, "temperature": 0.8, "tokens": True}
    libre = {"q": ["The sun.", "A moon."], "source": "auto", "target": "de", "format": "html", "alternatives": 1}
    deepl = {
        "text": ["The <x>sun</x>."],
        "target_lang": "DE",
        "source_lang": "EN",
        "tag_handling": "xml",
        "split_sentences": "1",
    }
    deepl |= {"ignore_tags": ["x"], "non_splitting_tags": ["y"], "splitting_tags": ["z"], "outline_detection": True}
    glossary = {"name": "sky", "source_lang": "en", "target_lang": "de", "entries": "sun\tSonne\nmoon\tMond"}
    glossary |= {"entries_format": "tsv"}
    return [
        *[request("/v1/translate", json.dumps(one).encode()) for one in (everything, everything, marked, samples)],
        request("/v1/score", json.dumps({"pairs": [{"text": "sun", "translation": "moon"}], "source": "en"}).encode()),
        request("/v1/inspect", json.dumps({"text": "The sun.", "source": "en", "target": "de"}).encode()),
        request("/v1/models", b"", method="GET"),
        request("/translate", json.dumps(libre).encode()),
        request("/translate?api_key=x", b"q=The+sun.&source=en&target=de&format=text&alternatives=2", form),
        upload("/translate", "x", b"", {"q": "sun", "source": "en", "target": "de"}),
        request("/detect", b'{"q": "The sun"}'),
        request("/languages", b"", method="GET"),
        upload("/translate_file", "a.srt", SRT.encode(), {"source": "en", "target": "de"}),
        upload("/translate_file", "a.html", HTML.encode(), {"source": "en", "target": "de"}),
        upload("/translate_file", "a.docx", make_word(), {"source": "en", "target": "de"}),
        request("/download_file/x.docx", b"", method="GET"),
        request("/v2/translate", json.dumps(deepl).encode()),
        request("/v2/translate", b"text=The+sun&text=Moon&target_lang=DE&auth_key=x&tag_handling=html", form),
        upload("/v2/document", "a.vtt", VTT.encode(), {"source_lang": "EN", "target_lang": "DE"}),
        request("/v2/document/x", b'{"document_key": "y"}'),
        request("/v2/document/x/result", b"document_key=y", form),
        request("/v2/languages?type=target", b"", method="GET"),
        request("/v2/usage", b"", method="GET"),
        request("/v2/glossaries", json.dumps(glossary).encode()),
        request(
            "/v2/glossaries", b"name=sky&source_lang=en&target_lang=de&entries=sun%2CSonne&entries_format=csv", form
        ),
        request("/v2/glossaries", b"", method="GET"),
        request("/v2/glossaries/x", b"", method="GET"),
        request("/v2/glossaries/x/entries", b"", method="GET"),
        request("/v2/glossaries/x", b"", method="DELETE"),
        request("/page/../app.js", b"", method="GET"),
        request("/metrics", b"", method="GET"),
        request("/openapi.json", b"", method="GET"),
    ]


def _mutate_request(random: Random, files: Files, words: Sequence[bytes]) -> Files:
    """Change the body, the head, or both; parts of a form are changed as contents of their own."""
    head, _, body = files["request"].partition(b"\r\n\r\n")
    if random.random() < 0.3:
        head = mutate(random, head, words)
    draw = random.random()
    if draw < 0.03:
        body = mutate_files(random, {"body": body}, words)["body"] * int(random.integers(1, 4))
    elif body.startswith(b"--BB") and draw < 0.6:
        parts = body.split(b"\r\n--BB")
        place = int(random.integers(len(parts)))
        before, line, content = parts[place].partition(b"\r\n\r\n")
        parts[place] = (
            mutate(random, before, words) if random.random() < 0.3 else before + line + mutate(random, content, words)
        )
        body = b"\r\n--BB".join(parts)
    elif body:
        body = mutate(random, body, words)
    return {"request": head + b"\r\n\r\n" + body}


class Application:
    """The HTTP application in this process, without a network."""

    def __init__(self, bundle: Path) -> None:
        from transduce.serving.app import make_app
        from transduce.serving.middleware import Authorization, RequestRate
        from transduce.serving.models import ModelSettings
        from transduce.serving.scheduling import Limits
        from transduce.serving.service import Service

        self.loop = asyncio.new_event_loop()
        limits = Limits(max_characters=2_000, max_delay_milliseconds=0, deadline_seconds=20)
        self.service = Service([bundle], ModelSettings(device="cpu"), limits=limits, report=lambda _: None)
        self.app = make_app(self.service, Authorization(()), RequestRate(0))
        self.loop.run_until_complete(self.service.start())

    def ask(self, raw: bytes, *, leaves: bool = False) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer; 0 if there is none, as the client has left."""
        return self.loop.run_until_complete(self._ask(raw, leaves=leaves))

    async def _ask(self, raw: bytes, *, leaves: bool) -> tuple[int, dict[str, str], bytes]:
        head, _, body = raw.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        method, address = (*first.split(b" "), b"", b"")[:2]
        path, _, query = address.partition(b"?")
        headers = [line.split(b":", 1) for line in lines if b":" in line]
        given = [(name.strip().lower(), value.strip()) for name, value in headers if name.lower() != b"content-length"]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method.decode("latin-1").upper() or "GET",
            "scheme": "http",
            "path": unquote(path.decode("latin-1")) or "/",
            "raw_path": path,
            "root_path": "",
            "query_string": query,
            "headers": [*given, (b"content-length", str(len(body)).encode())],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        messages = [{"type": "http.request", "body": body[: len(body) // 2], "more_body": True}]
        if not leaves:
            messages.append({"type": "http.request", "body": body[len(body) // 2 :], "more_body": False})
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop(0)
            if not leaves:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await asyncio.wait_for(self.app(scope, receive, send), 60)
        if not sent:
            return 0, {}, b""
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in sent[0]["headers"]}
        return sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:])


@cache
def _make_application() -> Application:
    return Application(make_bundle(Path(mkdtemp()) / "bundle"))


def _ask(folder: Path, random: Random) -> bool:
    application = _make_application()
    raw = (folder / "request").read_bytes()
    status, headers, body = application.ask(raw, leaves=bool(random.random() < 0.02))
    _check_answer(status, headers, body)
    if status == 200 and body.startswith(b'{"document_id"'):
        _follow(application, json.loads(body))
    elif status == 200 and body.startswith(b'{"translatedFileUrl"'):
        path = re.sub("^http://[^/]*", "", json.loads(body)["translatedFileUrl"])
        _check_answer(*application.ask(f"GET {path} HTTP/1.1\r\n\r\n".encode()), expected=(200,))
    elif status == 201:
        _use_glossary(application, json.loads(body)["glossary_id"])
    return 0 < status < 400


def _follow(application: Application, uploaded: dict[str, str]) -> None:
    """Ask for a document until it is done, and download it."""
    place = f"/v2/document/{uploaded['document_id']}"
    key = json.dumps({"document_key": uploaded["document_key"]})
    rest = f" HTTP/1.1\r\nContent-Type: application/json\r\n\r\n{key}"
    for _ in range(2000):
        status, headers, body = application.ask(f"POST {place}{rest}".encode())
        _check_answer(status, headers, body, expected=(200,))
        if json.loads(body)["status"] in {"done", "error"}:
            break
        application.loop.run_until_complete(asyncio.sleep(0.005))
    else:
        raise UnexpectedError("the document is never done")
    if json.loads(body)["status"] == "done":
        _check_answer(*application.ask(f"POST {place}/result{rest}".encode()), expected=(200,))


def _use_glossary(application: Application, identifier: str) -> None:
    """Translate with a glossary, read its terms, and delete it, so that there are never too many."""
    body = {"text": ["sun moon"], "source_lang": "EN", "target_lang": "DE", "glossary_id": identifier}
    rest = f" HTTP/1.1\r\nContent-Type: application/json\r\n\r\n{json.dumps(body)}"
    _check_answer(*application.ask(f"POST /v2/translate{rest}".encode()))
    place = f"/v2/glossaries/{identifier}"
    for request, status in ((f"GET {place}/entries", 200), (f"GET {place}", 200), (f"DELETE {place}", 204)):
        _check_answer(*application.ask(f"{request} HTTP/1.1\r\n\r\n".encode()), expected=(status,))


def _check_answer(status: int, headers: dict[str, str], body: bytes, expected: Sequence[int] = ()) -> None:
    if (expected and status not in expected) or (status >= 500 and status not in {501, 503, 504}):
        raise UnexpectedError(f"status {status}: {body[:300]!r}")
    if "json" in headers.get("content-type", ""):
        json.loads(body, parse_constant=_refuse_constant)


def _refuse_constant(constant: str) -> None:
    raise UnexpectedError(f"{constant} is no JSON")


_TABLE_WORDS = (b"source", b"target", b"en", b"de", b"translation", b"English", b"German", b"\t", b",", b'"', b"\n")
_JSON_WORDS = (
    b'"source"',
    b'"target"',
    b'"translation"',
    b'"en"',
    b'"de"',
    b"null",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
)
_XML_WORDS = (
    b"<tu>",
    b"</tu>",
    b"<tuv>",
    b"</tuv>",
    b"<seg>",
    b"</seg>",
    b'xml:lang="en"',
    b'lang="de"',
    b"<sub>",
    b"<hi>",
)
_WORD_WORDS = (
    b"<w:p>",
    b"</w:p>",
    b"<w:r>",
    b"</w:r>",
    b"<w:t>",
    b"</w:t>",
    b"<w:tab/>",
    b'<w:fldChar w:fldCharType="begin"/>',
)
_HTML_WORDS = (
    b"<p>",
    b"<b>",
    b"</b>",
    b"<pre>",
    b"<script>",
    b"</script>",
    b"translate=no",
    b"<li>",
    b"<code>",
    b"class=notranslate",
)
_TOML_WORDS = (
    b"[data]",
    b"[model]",
    b"[[data.corpora]]",
    b"=",
    b"training.",
    b'"',
    b"inf",
    b"1979-05-27",
    b"{",
    b"}",
    b"'''",
)
_HTTP_WORDS = (
    b"Content-Type: ",
    b"application/json",
    b"multipart/form-data; boundary=",
    b"utf-16",
    b"Content-Encoding: gzip",
)
_HTTP_WORDS += (
    b"source",
    b"target",
    b"&",
    b"=",
    b"DELETE",
    b"HEAD",
    b"OPTIONS",
    b"/v1/translate",
    b"Authorization: Bearer x",
)

READERS = {
    "pairs": Reader(_make_pairs, _read_pairs, 22, _TABLE_WORDS + _JSON_WORDS + _XML_WORDS),
    "lines": Reader(_make_lines, _read_lines, 8),
    "bulk": Reader(_make_bulk, _read_bulk, 7, _TABLE_WORDS + _JSON_WORDS),
    "glossary": Reader(_make_glossaries, _read_glossary, 6, (b"\t", b"\n", b"sun", "ß".encode())),
    "stored glossaries": Reader(_make_stored_glossaries, _read_stored_glossaries, 2, (b"\\t", b"\\n", b'"', b"sun")),
    "documents": Reader(_make_documents, _read_document, 14, _WORD_WORDS + _HTML_WORDS),
    "markup": Reader(lambda _: [{"markup.html": HTML.encode()}], _read_markup, 10, _HTML_WORDS),
    "settings": Reader(_make_settings, _read_settings, 10, _TOML_WORDS),
    "metrics": Reader(_make_metrics, _read_metrics, 5, writes=True),
    "http": Reader(_make_requests, _ask, 5, _HTTP_WORDS + _HTML_WORDS, _mutate_request),
    "bundle": Reader(_make_bundles, _read_bundle, 3, mutate=_mutate_recorded),
    "checkpoint": Reader(_make_checkpoints, _read_checkpoint, 3, mutate=_mutate_recorded),
    "tokenizer": Reader(_make_tokenizers, _read_tokenizer, 3),
    "ctranslate2": Reader(partial(_make_exports, "ctranslate2"), _read_export, 0.6),
    "argos": Reader(partial(_make_exports, "argos"), _read_export, 0.4),
    "huggingface": Reader(partial(_make_exports, "huggingface"), _read_export, 0.3, mutate=_mutate_export),
    "marian": Reader(partial(_make_exports, "marian"), _read_export, 0.7),
}
"""Every reader of files and bodies that may come from others."""
