"""The README.md of an exported Transformers folder: what it is and how it is used, in lines that can be copied."""

import json

from transduce.bundle import BundleDescription

_CARD = """\
---
{languages}pipeline_tag: translation
library_name: transformers
tags:
- translation
---

# Translation model for Transformers{direction}

Exported by Transduce {version}, weights in {precision}. `parity.json` says how far Transformers was found to compute
the same as the original.

```
pip install "transformers>=5" torch sentencepiece sacremoses
```

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = "."
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder)

texts = ["One sentence.", "And another."]
sources = tokenizer(texts, return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**sources), skip_special_tokens=True))
```

- It translates sentence by sentence, of at most {max_pieces} pieces each; divide longer text.
- Beam search in Transformers divides the log-probability of n tokens by n^{alpha}, the original by
  ((5 + n) / 6)^{alpha}: where a longer and a shorter translation are almost equally good, they may choose differently.
- The tokenizer takes `>>...<<` at the beginning of a text for the name of a language.
"""


def huggingface_card(description: BundleDescription, precision: str) -> str:
    """The card in Markdown, with the front matter that the Hugging Face Hub reads."""
    source, target = description.languages.source, description.languages.target
    # Quoted, because YAML takes a bare "no" (Norwegian) for a false.
    codes = [f"- {json.dumps(code, ensure_ascii=False)}\n" for code in dict.fromkeys([source, target]) if code]
    return _CARD.format(
        languages=f"language:\n{''.join(codes)}" if codes else "",
        direction=f", from {source} to {target}" if source and target else "",
        version=description.library_version,
        precision=precision,
        max_pieces=description.search.max_pieces,
        alpha=description.search.length_penalty,
    )
