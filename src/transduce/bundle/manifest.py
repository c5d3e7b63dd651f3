"""Descriptions of saved folders: JSON with format, sizes and digests of the files, and a model card in Markdown."""

import json
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PureWindowsPath
from typing import Annotated, Any, Final, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, Field, JsonValue, StringConstraints, ValidationError

from transduce.config import Record, SearchConfig, TransformerConfig
from transduce.errors import BundleError
from transduce.storage import compute_file_digest
from transduce.text import TARGET_MODEL
from transduce.text.languages import simplify_code

FileName = Annotated[str, StringConstraints(pattern=r"^\w+(\.\w+)*$")]
"""A plain file name, which cannot lead out of the folder."""


def _check_path(name: str) -> str:
    path = PureWindowsPath(name)  # on Windows, the most names lead out of a folder
    if not path.parts or path.anchor or ".." in path.parts or "\0" in name:
        raise ValueError("must be the path of a file within the folder")
    return name


FilePath = Annotated[str, AfterValidator(_check_path)]
"""The path of a file in a folder, which cannot lead out of it, on any system."""


class FileRecord(Record):
    """Size and digest of a saved file."""

    bytes: int = Field(ge=0)
    """The size of the file in bytes."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """The SHA-256 of the file, in hexadecimal digits."""


class FolderDescription(Record):
    """The fields that descriptions of all kinds of folders have; each kind fixes the first two."""

    format: str
    """The kind of folder."""

    format_version: int
    """Increased by one with every change that older programs cannot read."""

    files: dict[FileName, FileRecord] = Field(default_factory=dict)
    """The other files; filled in when they are written."""


AnyDescription = TypeVar("AnyDescription", bound=FolderDescription)


def record_files(folder: Path, names: Iterable[str]) -> dict[str, FileRecord]:
    """Size and SHA-256 of the files `names` in `folder`, as they are now."""
    return {
        name: FileRecord(bytes=(folder / name).stat().st_size, sha256=compute_file_digest(folder / name))
        for name in names
    }


def check_files(folder: Path, description: FolderDescription, description_name: str) -> None:
    """Check that every file exists and is, byte for byte, the described one.

    Raises:
        BundleError: one is missing, is no regular file, has another size or another SHA-256.
    """
    for name, record in description.files.items():
        path = folder / name
        try:
            _check_regular(path)
            size = path.stat().st_size
            if size != record.bytes:
                _refuse_file(path, f"has {size} bytes, but {description_name} says {record.bytes}")
            if (digest := compute_file_digest(path)) != record.sha256:
                _refuse_file(path, f"has the SHA-256 {digest}, but {description_name} says {record.sha256}")
        except FileNotFoundError:
            _refuse_file(path, f"is missing, but {description_name} lists it")
        except OSError as error:
            raise BundleError(f"{path}: cannot be read: {error.strerror}") from error


def serialize_description(description: FolderDescription) -> bytes:
    """`description` as indented JSON."""
    return (description.model_dump_json(indent=2) + "\n").encode()


def read_description(path: Path, kind: type[AnyDescription]) -> AnyDescription:
    """The description at `path`, which must be of this kind and no newer than this program.

    Raises:
        BundleError: it is missing, is not JSON, is of another format or version, or has unknown or wrong settings.
    """
    try:
        _check_regular(path)
        text = path.read_bytes()
    except FileNotFoundError:
        raise BundleError(f"{path}: is missing; give a folder written by Transduce") from None
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: is not JSON: {error}; use an undamaged copy of the folder") from None
    _check_format(path, content, kind)
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise BundleError(f"{path}: {_describe_problems(error)}") from None


def _check_regular(path: Path) -> None:
    """Check that `path` is a regular file: a pipe would be waited for, and a device may have no end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise BundleError(f"{path}: cannot be read: it is not a regular file; use an undamaged copy of the folder")


def _check_format(path: Path, content: object, kind: type[FolderDescription]) -> None:
    known = {name: kind.model_fields[name].default for name in ("format", "format_version")}
    found = content if isinstance(content, dict) else {}
    if found.get("format") != known["format"]:
        raise BundleError(
            f"{path}: its format is {found.get('format')!r:.80}, but must be {known['format']!r}; give a folder "
            "written by Transduce"
        )
    version = found.get("format_version")
    if type(version) is int and version > known["format_version"]:
        raise BundleError(
            f"{path}: has format version {version}, but this Transduce reads versions up to {known['format_version']}: "
            f"update it"
        )


_MAX_PROBLEMS = 10
"""Wrong settings that a message names."""


def _describe_problems(error: ValidationError) -> str:
    found = error.errors(include_url=False)
    problems = [
        f"{'.'.join(map(str, problem['loc']))[:80] or 'settings'} = {problem['input']!r:.80}: {problem['msg'][:200]}"
        for problem in found[:_MAX_PROBLEMS]
    ]
    if len(found) > _MAX_PROBLEMS:
        problems.append(f"and {len(found) - _MAX_PROBLEMS:,} more")
    return "\n".join([*problems, "use an undamaged copy of the folder, or the version of Transduce that saved it"])


def _refuse_file(path: Path, finding: str) -> NoReturn:
    raise BundleError(f"{path}: {finding}: the folder is damaged or was changed; use an undamaged copy")


class Languages(Record):
    """The languages of a model; codes as in "en", empty where unknown."""

    source: str = ""
    """Source language."""

    target: str = ""
    """Target language."""

    def describe_mismatch(self, source: str | None, target: str | None) -> str:
        """What a model of these languages does instead of translating from `source` to `target`, as in "translates en
        to de"; "" if it does that, as far as the languages are known.
        """
        for wanted, own in ((source, self.source), (target, self.target)):
            if wanted and own and simplify_code(wanted) != simplify_code(own):
                return f"translates {self.source or '?'} to {self.target or '?'}"
        return ""


class RecordedScore(Record):
    """A quality score, with the information needed to reproduce it."""

    metric: str
    """Name of the metric, as in "BLEU"."""

    value: float
    """The figure itself."""

    low: float | None = None
    """Lower end of its 95 % confidence interval."""

    high: float | None = None
    """Upper end."""

    signature: str = ""
    """sacreBLEU's signature: tokenisation, smoothing, version."""

    data: str = ""
    """The translated text, as in "validation"."""


BUNDLE_VERSION: Final = 3
"""In version 1, the tensors of the cross-attention are named `memory_attention`. Before version 3 there is no int8."""


def _read_version() -> str:
    from transduce import __version__  # noqa: PLC0415 - only writing a model needs it

    return __version__


class BundleDescription(FolderDescription):
    """Everything about a trained model except its weights and its tokenizer."""

    format: Literal["transduce bundle"] = "transduce bundle"
    """Marks the folder as a bundle."""

    format_version: Literal[1, 2, 3] = BUNDLE_VERSION
    """Version of the folder's layout."""

    library_version: str = Field(default_factory=_read_version)
    """Version of Transduce that wrote it."""

    precision: Literal["float32", "int8"] = "float32"
    """Type of the stored matrices."""

    model: TransformerConfig
    """The network."""

    search: SearchConfig = Field(default_factory=SearchConfig)
    """Default search settings."""

    languages: Languages = Field(default_factory=Languages)
    """Source and target language."""

    data: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of each text the model was trained or measured with, by name."""

    scores: list[RecordedScore] = Field(default_factory=list)
    """Measured scores."""

    training: dict[str, JsonValue] = Field(default_factory=dict)
    """Progress of training: update, epoch and other records of the run."""


def render_card_template(folder: Path, **values: Any) -> str:  # noqa: ANN401 - the values used by the template
    """The model card from the template `card.md.jinja` in `folder`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only writing a model needs it

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=False,  # noqa: S701 - the result is Markdown
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"fact": format_fact, "to_json": lambda value: json.dumps(value, ensure_ascii=False)}
    return environment.get_template("card.md.jinja").render(values)


_PAPER = '"Attention Is All You Need" (Vaswani et al. 2017)'
_COMPARED = f"one of the networks that {_PAPER} compares the Transformer with"
_NETWORKS = {
    "transformer": f"A Transformer as in {_PAPER}",
    "recurrent": f"A recurrent network with attention (Bahdanau et al. 2015), {_COMPARED}",
    "convs2s": f"A convolutional network with attention, ConvS2S (Gehring et al. 2017), {_COMPARED}",
    "bytenet": f"A network of dilated convolutions, ByteNet (Kalchbrenner et al. 2016), {_COMPARED}",
}
"""What a network of each architecture is, for a model card."""


def make_model_card(description: BundleDescription, num_parameters: int) -> str:
    """The README.md of a bundle, with the front matter that the Hugging Face Hub reads.

    A score that is not in `description` is marked as missing or left out.
    """
    source, target = description.languages.source, description.languages.target
    training = dict(description.training)
    if isinstance(seconds := training.pop("seconds", None), int | float):
        training["time"] = f"{seconds / 60:,.1f} minutes, without validation"
    return render_card_template(
        Path(__file__).parent,
        about=description,
        model=description.model,
        network=_NETWORKS.get(
            description.model.architecture, f"A network of the architecture {description.model.architecture}"
        ),
        num_parameters=num_parameters,
        title=f"Translation from {source} to {target}" if source and target else "Translation model",
        codes=list(dict.fromkeys(filter(None, (source, target)))),
        results=[score for score in description.scores if score.data],
        scored=training.get("scored_pairs"),
        validation_pairs=training.get("validation_pairs"),
        training=training,
        has_two_tokenizers=TARGET_MODEL in description.files,
    )


def format_fact(value: object) -> str:
    """A JSON value in one line, as in "1,200" or "held out 206, kept 59,794"."""
    match value:
        case Mapping():
            return ", ".join(f"{str(name).replace('_', ' ')} {_format_inner(inner)}" for name, inner in value.items())
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False)


def _format_inner(value: object) -> str:
    return f"({format_fact(value)})" if isinstance(value, Mapping) else format_fact(value)
