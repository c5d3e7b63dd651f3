"""The request for an inspection, and the checks of a request against the model that it is for."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError

from transduce.config import Settings, first_problem
from transduce.errors import ConfigError, UserError
from transduce.inspection.document import Head
from transduce.inspection.head_mask import list_heads
from transduce.inspection.searches import SentenceSearches
from transduce.model import Transformer
from transduce.translation import NativeEngine, Translator

MOST_TOKENS = 128
"""Tokens of a source and of a target, `</s>` included: matrices of more are too large to be drawn, and to be sent."""

MOST_BEAM = 16
"""Hypotheses of a search whose tree is drawn."""

MOST_CHARACTERS = 10_000
"""Characters of a text; 128 tokens never have as many."""

Part = Literal["attention", "search", "layers", "positions", "arithmetic", "heads_off", "continuations"]
QUICK: tuple[Part, ...] = ("attention", "search", "layers", "positions")
"""Parts that take no search of their own, and are not large."""

EVERYTHING: tuple[Part, ...] = (*QUICK, "arithmetic", "heads_off", "continuations")
"""All parts."""

Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]
_T = TypeVar("_T")
_List = Annotated[list[_T], Field(fail_fast=True)]
"""A list that is refused at its first wrong item."""


class InspectionRequest(Settings):
    """A sentence, and what is to be seen of its translation."""

    text: Text
    """The source: one sentence."""

    source: str | None = None
    """Language code of the text; decides between loaded models."""

    target: str | None = None
    """Language code of the translation; likewise."""

    reference: Text | None = None
    """A translation by people, which the model then judges token by token."""

    prefix: _List[int] = Field(default_factory=list, max_length=MOST_TOKENS)
    """Ids with which the translation is made to begin; `</s>` at their end ends it."""

    beam: int | None = Field(default=None, ge=1, le=MOST_BEAM)
    """Hypotheses kept; the model's own number unless given."""

    arithmetic: _List[Head] = Field(default_factory=list, max_length=64)
    """Heads whose every number is wanted; with "arithmetic" in `include`, as many others besides as fit."""

    heads_off: _List[Head] = Field(default_factory=list, max_length=4096)
    """Heads that are switched off, all at once, in everything that is computed."""

    without_each: _List[Head] = Field(default_factory=list, max_length=4096)
    """Heads without each of which it is tried what happens, one at a time; with "heads_off" in `include`, all heads."""

    include: _List[Part] = Field(default=list(QUICK))
    """The parts that are wanted; "heads_off" tries what happens without each single head."""

    @classmethod
    def checked(cls, **values: Any) -> "InspectionRequest":  # noqa: ANN401 - a value may be anything before it is checked
        """The request with these values.

        Raises:
            ConfigError: one is unknown, or breaks a rule; says which.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(first_problem(error)) from None


def get_single_model(translator: Translator) -> Transformer:
    """The network of a translator with the native engine and one model.

    Raises:
        ConfigError: the engine is not the native one, or has several models.
    """
    engine = translator.engine
    if not isinstance(engine, NativeEngine):
        raise ConfigError(f"{type(engine).__name__} does not show what it computes: use the engine native")
    if len(engine.models) > 1:
        raise ConfigError(f"an ensemble of {len(engine.models)} models: look into one model at a time")
    return engine.model


def make_searches(
    translator: Translator, model: Transformer, request: InspectionRequest, checkpoint: Callable[[], None]
) -> SentenceSearches:
    """The searches for a request.

    Raises:
        UserError: the text is blank or too long, or the prefix is none that this model has.
    """
    tokenizer = translator.tokenizer
    given = translator if request.beam is None else translator.with_search({"beam": request.beam})
    ids = tokenizer.encode(request.text)
    if not request.text.strip() or not ids:
        raise UserError("text: is blank; give a sentence")
    if len(ids) > given.search.max_pieces:
        raise UserError(
            f"text: has {len(ids)} pieces, and this model reads {given.search.max_pieces} at a time: give one sentence"
        )
    source, prefix = tokenizer.as_source(ids), tuple(request.prefix)
    check_length("text", len(source), MOST_TOKENS)
    if any(not 0 <= token < tokenizer.pad_id for token in prefix):
        raise UserError(f"prefix: {list(prefix)} must be ids of this model's tokens, from 0 to {tokenizer.pad_id - 1}")
    if tokenizer.end_id in prefix[:-1]:
        raise UserError(f"prefix: {list(prefix)} goes on behind {tokenizer.end_id}, </s>: leave out what follows it")
    check_length("prefix", len(prefix), model.longest)
    return SentenceSearches(model, tokenizer, given.search, source, prefix, tuple(request.heads_off), checkpoint)


def check_heads(heads: Sequence[Head], model: Transformer) -> None:
    """Check that the model has all of the heads.

    Raises:
        UserError: the model has no such head; names it.
    """
    config = model.config
    known = set(list_heads(config))
    for head in heads:
        if head not in known:
            raise UserError(
                f"head {head} (from 1): this model has {config.num_encoder_layers} layers in the encoder, "
                f"{config.num_decoder_layers} in the decoder, and {config.num_heads} heads in each attention"
            )


def check_length(name: str, length: int, longest: int) -> None:
    """Check that a side is short enough for an inspection.

    Raises:
        UserError: it has more tokens than are shown, or than the model reads.
    """
    if length > min(MOST_TOKENS, longest):
        raise UserError(
            f"{name}: has {length} tokens, </s> included, and at most {min(MOST_TOKENS, longest)} can be looked at: "
            f"give a shorter sentence"
        )
