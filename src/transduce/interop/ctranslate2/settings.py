"""What an exported CTranslate2 folder says beyond what CTranslate2 reads: the section `transduce` of config.json."""

import json
from pathlib import Path

from pydantic import ValidationError

from transduce.bundle import BundleDescription, Languages
from transduce.config import SearchConfig, Settings, TransformerConfig
from transduce.errors import BundleError

CONFIG_FILE = "config.json"
SECTION = "transduce"


class ExportedSettings(Settings):
    """CTranslate2 has no words for these; it passes over them."""

    model: TransformerConfig
    """The network, in our words."""

    search: SearchConfig
    """How the model translates unless told otherwise."""

    languages: Languages
    """From which language to which."""

    precision: str
    """Of the weights, as CTranslate2 calls it."""

    @classmethod
    def of(cls, description: BundleDescription, precision: str) -> "ExportedSettings":
        """Those of a bundle."""
        languages, search = description.languages, description.search
        return cls(model=description.model, search=search, languages=languages, precision=precision)


def read_settings(folder: Path) -> ExportedSettings:
    """Those in the config.json of `folder`.

    Raises:
        BundleError: there is no such file, or `transduce export` has not written it.
    """
    path = folder / CONFIG_FILE
    try:
        section = json.loads(path.read_bytes())[SECTION]
        # As JSON, in which pydantic's strict mode takes what Python's types would not let pass.
        return ExportedSettings.model_validate_json(json.dumps(section))
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror}): give a folder that was exported") from None
    except (ValueError, KeyError, TypeError, RecursionError, ValidationError):
        raise BundleError(
            f"{path}: has no section {SECTION!r}, or not its settings: give a folder that "
            f"transduce export --to ctranslate2 has written"
        ) from None


def adds_source_end(folder: Path) -> bool:
    """Whether CTranslate2 itself puts `</s>` behind every source of the model in `folder`."""
    path = folder / CONFIG_FILE  # which CTranslate2 before version 3 did not write
    return path.exists() and bool(json.loads(path.read_bytes()).get("add_source_eos", False))
