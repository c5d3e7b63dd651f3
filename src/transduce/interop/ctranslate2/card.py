"""The README.md of an exported CTranslate2 folder: what it is and how it is used, in lines that can be copied."""

from transduce.bundle import BundleDescription
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

texts = ["One sentence.", "And another."]
results = translator.translate_batch(source.encode(texts, out_type=str), beam_size={beam})
print([target.decode(result.hypotheses[0]){spaced} for result in results])
```

CTranslate2 itself puts an end symbol behind every source if the model wants one (`add_source_eos` in `config.json`).
The model was made for sentences of at most {max_pieces} pieces: divide longer text before.
"""


def ctranslate2_card(description: BundleDescription, precision: str, *, is_joint: bool) -> str:
    """The card in Markdown; `is_joint` says that source and target have one SentencePiece model."""
    source, target = description.languages.source, description.languages.target
    return _CARD.format(
        languages=f", from {source} to {target}" if source and target else "",
        version=description.library_version,
        precision=precision,
        source_model=SOURCE_MODEL,
        target_model=SOURCE_MODEL if is_joint else TARGET_MODEL,
        # A piece that the target's model does not have keeps its sign for a space.
        spaced="" if is_joint else '.replace("▁", " ").strip()',
        beam=description.search.beam,
        max_pieces=description.search.max_pieces,
    )
