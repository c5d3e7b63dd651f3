"""The README.md of an exported CTranslate2 folder: what it is and how it is used, in lines that can be copied."""

from transduce.bundle import BundleDescription
from transduce.config import SearchConfig
from transduce.text import SOURCE_MODEL, TARGET_MODEL

_CARD = """\
# Translation model for CTranslate2{languages}

Exported by Transduce {version}, weights in {precision}. `parity.json` says how far CTranslate2 was found to compute the
same as the original.

```
pip install ctranslate2 sentencepiece
```

```python
import ctranslate2
import sentencepiece

folder = "."
source = sentencepiece.SentencePieceProcessor(model_file=f"{{folder}}/{source_model}")
target = sentencepiece.SentencePieceProcessor(model_file=f"{{folder}}/{target_model}")
translator = ctranslate2.Translator(folder)


def score(scored):
    # The log-probability divided by the length penalty of Wu et al. 2016; the end symbol counts.
    return sum(scored.log_probs) / ((5 + len(scored.log_probs)) / 6) ** {alpha}


def translate(text):
    pieces = source.encode(text, out_type=str)
    if not pieces:
        return ""
    (result,) = translator.translate_batch(
        [pieces],
        beam_size={beam},
        num_hypotheses={beam},
        length_penalty=0,
        max_input_length=0,
        max_decoding_length={limit},
        min_decoding_length={shortest},
        no_repeat_ngram_size={no_repeat_ngram},
    )
    found = result.hypotheses
    scores = translator.score_batch([pieces] * len(found), found, max_input_length=0)
    best = max(zip(found, scores), key=lambda one: score(one[1]))[0]
    return target.decode(best){spaced}


print([translate(text) for text in ["One sentence.", "And another."]])
```

These are the settings with which Transduce translates, and `transduce translate --engine ctranslate2` does the same.
The length penalty of CTranslate2 is another formula, so that the hypotheses are ranked here; its limit of length is one
for all sentences of a batch, so that each is translated by itself. Few translations differ from Transduce's: where two
hypotheses score the same but for rounding, or where CTranslate2 ends its search earlier.{lacking}

CTranslate2 itself puts an end symbol behind every source if the model wants one (`add_source_eos` in `config.json`).
The model was made for sentences of at most {max_pieces} pieces: divide longer text before.
"""


def ctranslate2_card(description: BundleDescription, precision: str, *, is_joint: bool, ends_sources: bool) -> str:
    """The card in Markdown.

    Args:
        description: of the bundle.
        precision: of the weights.
        is_joint: whether source and target have one SentencePiece model.
        ends_sources: whether an end symbol stands behind every source, and counts for the limit of its translation.
    """
    source, target = description.languages.source, description.languages.target
    search = description.search
    # CTranslate2 counts no end symbol.
    limit = f"len(pieces) + {search.max_extra_length - (0 if ends_sources else 1)}"
    lacking = [
        f"`{name} = {getattr(search, name):g}`"
        for name in ("repetition_penalty", "diversity")
        if getattr(search, name) != SearchConfig.model_fields[name].default
    ]
    return _CARD.format(
        languages=f", from {source} to {target}" if source and target else "",
        version=description.library_version,
        precision=precision,
        source_model=SOURCE_MODEL,
        target_model=SOURCE_MODEL if is_joint else TARGET_MODEL,
        # A piece that the target's model does not have keeps its sign for a space.
        spaced="" if is_joint else '.replace("▁", " ").strip()',
        beam=search.beam,
        alpha=search.length_penalty,
        limit=f"min({limit}, {search.max_length - 1})" if search.max_length else limit,
        shortest=search.min_length - 1,
        no_repeat_ngram=search.no_repeat_ngram,
        lacking=f" CTranslate2 does not have {' and '.join(lacking)}, with which Transduce translates."
        if lacking
        else "",
        max_pieces=search.max_pieces,
    )
