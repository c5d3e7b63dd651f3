"""Where the parts of a Marian model are: the model itself, its vocabularies and the settings of its search."""

from dataclasses import dataclass
from pathlib import Path

from transduce.errors import BundleError
from transduce.interop.marian.settings import DECODER_FILE, MODEL_FILE, MarianSettings
from transduce.interop.marian.vocabulary import SENTENCEPIECE

ARCHIVE = ".npz"

_VOCABULARIES = (SENTENCEPIECE, ".yml", ".yaml", ".json")


@dataclass(frozen=True)
class Places:
    """Of one model.

    Args:
        model: the .npz file.
        vocabularies: of source and target, which may be one file.
        decoder: what decoder.yml says; nothing if there is none.
    """

    model: Path
    vocabularies: tuple[Path, Path]
    decoder: MarianSettings


def find_places(path: Path, tokenizer: Path | None = None) -> Places:
    """Those of the model at `path`.

    Vocabularies are those that decoder.yml names, as files beside the model, or the only file that is called one; if
    there is none, the SentencePiece model `tokenizer`, whose pieces then are the rows of the embeddings.

    Args:
        path: an .npz file, or the folder of one.
        tokenizer: a SentencePiece model, or a folder with some, that is given beside the model.

    Raises:
        BundleError: there are none, or several, and nothing says which.
    """
    folder = path if path.is_dir() else path.parent
    decoder = _decoder(folder / DECODER_FILE)
    model = _model(folder, decoder) if path.is_dir() else path
    if not decoder.values:  # Marian's training calls it so
        decoder = _decoder(model.with_name(f"{model.name}.{DECODER_FILE}"))
    return Places(model, _vocabularies(folder, decoder, tokenizer), decoder)


def _decoder(path: Path) -> MarianSettings:
    if not path.is_file():
        return MarianSettings({}, str(path))
    try:
        return MarianSettings.parsed(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: cannot be read: {error}") from None


def _model(folder: Path, decoder: MarianSettings) -> Path:
    """The one of the usual name, the one that decoder.yml names, or the only one."""
    named = [folder / MODEL_FILE, *(folder / Path(name).name for name in decoder.texts("models"))]
    if found := [path for path in named if path.is_file()]:
        return found[0]
    models = sorted(folder.glob(f"*{ARCHIVE}"))
    if len(models) != 1:
        raise BundleError(
            f"{folder}: has {len(models)} models ({', '.join(path.name for path in models)}): give the file of one"
        )
    return models[0]


def _vocabularies(folder: Path, decoder: MarianSettings, tokenizer: Path | None) -> tuple[Path, Path]:
    paths = [folder / Path(name).name for name in decoder.texts("vocabs")]
    if not paths:
        named = sorted(path for path in folder.glob("*vocab*") if path.suffix in _VOCABULARIES)
        # Our own exports have both, with the same pieces.
        paths = [path for path in named if path.suffix == SENTENCEPIECE] or named
        if not paths and tokenizer is not None and tokenizer.is_file():
            return tokenizer, tokenizer
        if not paths:
            raise BundleError(
                f"{folder}: has no vocabulary of the model: put it there with vocab in its name, as in vocab.yml or "
                f"vocab.spm, or give a SentencePiece model that is one by --tokenizer"
            )
        if len(paths) != 1:
            raise BundleError(
                f"{folder}: has {len(paths)} vocabularies ({', '.join(path.name for path in paths)}): name that of "
                f"the source and that of the target in {folder / DECODER_FILE}, as in vocabs: [source.yml, target.yml]"
            )
    if len(paths) > 2:
        raise BundleError(f"{decoder.name}: names {len(paths)} vocabularies, must be those of source and target")
    return paths[0], paths[-1]
