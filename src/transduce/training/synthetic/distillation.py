"""Distillation: a student learns from the translations of a teacher instead of from the targets of its text.

Sequence-level knowledge distillation (Kim & Rush 2016): what one model says is more uniform than what many people
wrote, and a small network learns it better.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from transduce.bundle import Bundle, find_bundle, replace_file
from transduce.config import CorpusConfig, DataConfig, RunConfig
from transduce.data import find_made_columns, open_corpus
from transduce.data.inputs import choose_held_out
from transduce.data.store import writable_cache
from transduce.text import Cleaner
from transduce.training.synthetic.translation import SyntheticText
from transduce.translation import TranslationOptions


def replace_targets(config: RunConfig, cache: Path, report: Callable[[str], None]) -> DataConfig:
    """Translate the sources of a run's text by `data.teacher`, and put the translations in place of the targets.

    Validation text keeps its targets. Without any, pairs are held out of the given text, as for every run, and the
    teacher's translations of their sources are not trained on.

    Args:
        config: the run.
        cache: the folder for the pairs.
        report: receives messages about progress.

    Returns:
        `config.data` with one synthetic corpus instead of its own.

    Raises:
        BundleError, CorpusError: the teacher or the text cannot be read.
    """
    data = config.data
    teacher = Bundle.open(find_bundle(Path(str(data.teacher))))
    held_out = [] if data.has_validation_text else _choose_validation(config)
    excluded = {source for source, _ in held_out}

    def read_sources() -> Iterator[str]:
        for corpus in data.training_corpora:
            yield from (source for source, _ in open_corpus(data, corpus) if source not in excluded)

    name = ", ".join(corpus.name for corpus in data.training_corpora)
    synthetic = SyntheticText(name, read_sources, teacher, TranslationOptions(), is_target=False)
    path = synthetic.translate(cache, config.training.device, data.translation_workers, report).resolve()
    columns = ("source", "target")
    changes: dict[str, object] = {
        "source": None,
        "target": None,
        "pairs": None,
        "corpora": (CorpusConfig(pairs=str(path), columns=find_made_columns(data), synthetic=True),),
    }
    if held_out:
        validation = path.with_name(f"{path.stem}-validation.jsonl")
        with writable_cache(cache), replace_file(validation) as beside:
            lines = [json.dumps(dict(zip(columns, pair, strict=True)), ensure_ascii=False) for pair in held_out]
            beside.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
        changes |= {"validation_pairs": str(validation), "validation_columns": columns}
    return data.model_copy(update=changes)


def _choose_validation(config: RunConfig) -> list[tuple[str, str]]:
    """The pairs that any run with this text holds out."""
    data, cleaner = config.data, Cleaner(config.text)
    num_pairs = 0

    def read_pairs() -> Iterator[tuple[str, str]]:
        nonlocal num_pairs
        for corpus in data.training_corpora:
            for pair in open_corpus(data, corpus):
                num_pairs += 1
                yield pair

    def is_clean(pair: tuple[str, str]) -> bool:
        return cleaner.keeps(*pair, *(len(side.split()) for side in pair), repeats=False)

    chosen = choose_held_out(read_pairs(), data.held_out, is_clean)
    return chosen[: max(1, num_pairs // 10)]
