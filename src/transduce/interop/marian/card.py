"""The README.md of an exported Marian folder: what it is and how it is used, in lines that can be copied."""

from transduce.bundle import BundleDescription

_CARD = """\
# Translation model for Marian{languages}

Exported by Transduce {version}, weights in {precision}. `parity.json` says which program was found to compute the same
as the original, and how far: Marian itself with `transformer-new.npz`, or CTranslate2 with `model.npz`.

{usage}

One sentence is translated at a time (`mini-batch: 1`); `--cpu-threads` gives more of them at the same time. In larger
batches Marian 1.12 translates models of this type wrongly: it takes the mask of one batch for that of another.

The model was made for sentences of at most {max_pieces} pieces: divide longer text before. Marian divides the
log-probability of n tokens by n^{alpha}, the original by ((5 + n) / 6)^{alpha}: where a longer and a shorter
translation are almost equally good, they may choose differently.

## Files

- `transformer-new.npz`: the model in Marian's newer type, with its own table of positions. Marian 1.12 or newer
  computes it exactly.
- `model.npz`: the same weights in Marian's older type, `transformer`. CTranslate2's converter computes it exactly:
  `ct2-marian-converter --model_path model.npz --vocab_paths {source} {target} --output_dir converted`.
  Marian itself, and what descends from it, adds to embeddings sinusoids of other frequencies than this file says:
  there it works, but some translations are others and some are worse.
{vocabularies}
- `decoder.yml`: how Marian translates.
"""

_JOINT_USAGE = """\
```
marian-decoder -c decoder.yml < texts > translations
```

It reads and writes plain text, one sentence a line. Without a Marian of one's own:

```
pip install pymarian
pymarian decode -c decoder.yml < texts > translations
python -c 'import pymarian; print(pymarian.Translator(config="decoder.yml").translate(["One sentence."]))'
```"""

_SEPARATE_USAGE = """\
```
pip install pymarian sentencepiece
```

```python
import subprocess

import sentencepiece

source = sentencepiece.SentencePieceProcessor(model_file="tokenizer.model")
target = sentencepiece.SentencePieceProcessor(model_file="target_tokenizer.model")

texts = ["One sentence.", "And another."]
lines = "".join(" ".join(pieces) + "\\n" for pieces in source.encode(texts, out_type=str))
command = ["pymarian", "decode", "-c", "decoder.yml", "--quiet"]
found = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout
print([target.decode_pieces(line.split()) for line in found.splitlines()])
```"""

_JOINT_FILES = """\
- `vocab.spm`: divides texts into pieces and gives them numbers; `vocab.yml`: the same numbers alone.
- `tokenizer.model`: the original of `vocab.spm`, in which `<unk>` and `</s>` have each other's number."""

_SEPARATE_FILES = """\
- `source.vocab.yml`, `target.vocab.yml`: the number of each piece.
- `tokenizer.model`, `target_tokenizer.model`: divide sources into pieces, and put targets together; with
  `vocabulary.json` they are the tokenizer of the original."""


def marian_card(description: BundleDescription, precision: str, *, is_joint: bool) -> str:
    """The card in Markdown; `is_joint` says that source and target have one SentencePiece model."""
    languages = description.languages
    source, target = ("vocab.yml", "vocab.yml") if is_joint else ("source.vocab.yml", "target.vocab.yml")
    return _CARD.format(
        languages=f", from {languages.source} to {languages.target}" if languages.source and languages.target else "",
        source=source,
        target=target,
        version=description.library_version,
        precision=precision,
        usage=_JOINT_USAGE if is_joint else _SEPARATE_USAGE,
        vocabularies=_JOINT_FILES if is_joint else _SEPARATE_FILES,
        max_pieces=description.search.max_pieces,
        alpha=description.search.length_penalty,
    )
