"""How a translation is looked for."""

from pydantic import Field

from transduce.config.settings import Section


class SearchConfig(Section):
    """The defaults are the paper's (section 6.1)."""

    beam: int = Field(default=4, ge=1)
    """Hypotheses kept for each sentence; 1 is greedy search."""

    length_penalty: float = Field(default=0.6, ge=0.0, le=10.0)
    """Alpha in ((5 + n) / 6)^alpha, by which a hypothesis of n tokens has its log-probability divided
    (Wu et al. 2016, eq. 14)."""

    max_extra_length: int = Field(default=50, ge=1)
    """A translation has at most this many tokens more than its source."""

    min_length: int = Field(default=1, ge=1)
    """A translation has at least this many tokens, `</s>` included."""

    no_repeat_ngram: int = Field(default=0, ge=0)
    """Tokens of the shortest sequence that no translation contains twice (Paulus et al. 2018). 0: any may repeat."""

    repetition_penalty: float = Field(default=1.0, ge=1.0, le=100.0)
    """What the log-probability of a token that is there already is multiplied by when hypotheses are compared (after
    Keskar et al. 2019). 1: none."""

    diversity: float = Field(default=0.0, ge=0.0)
    """What a continuation loses for each better one of the same hypothesis when hypotheses are compared, in nats, so
    that alternatives differ more (Li et al. 2016). 0: none."""

    max_pieces: int = Field(default=256, ge=8)
    """A source line of more pieces than this is translated sentence by sentence, or in smaller parts if need be. A
    trained model's own limit is never above the longest source it was trained on."""

    batch_tokens: int = Field(default=4096, ge=1)
    """Most source tokens, padding included, translated at a time."""
