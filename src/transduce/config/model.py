"""Settings of the network and of the search, recorded in every trained model, with the paper's terms and defaults."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from transduce.config.settings import Section, describe_setting_error
from transduce.errors import ConfigError

_SHARED_SETTINGS = (
    *("architecture", "vocabulary", "num_encoder_layers", "num_decoder_layers", "d_model"),
    *("tied_embeddings", "output_bias", "dropout"),
)
_SETTINGS_OF_BASELINES = {
    "recurrent": _SHARED_SETTINGS,
    "convs2s": (*_SHARED_SETTINGS, "kernel_width", "max_positions"),
    "bytenet": (*_SHARED_SETTINGS, "kernel_width"),
}
"""The settings that networks other than the Transformer read."""


def _compute_head_width(given: Mapping[str, Any]) -> int:
    """d_model / num_heads; 1 at least, as a network without heads may be narrower than the default number of heads."""
    return max(1, int(given.get("d_model", 0)) // int(given.get("num_heads", 1)))


class TransformerConfig(Section):
    """Settings that determine the network and its number of parameters.

    The defaults are the base model of "Attention Is All You Need" (Table 3, first row).
    """

    architecture: Literal["transformer", "recurrent", "convs2s", "bytenet"] = "transformer"
    """The kind of network: the paper's, or one of those that it is compared with: recurrent layers with attention
    (Bahdanau et al. 2015), ConvS2S (Gehring et al. 2017), ByteNet (Kalchbrenner et al. 2016). These read the numbers of
    layers, d_model, dropout, vocabulary, tied_embeddings and output_bias; those that convolve, kernel_width; ConvS2S
    alone, max_positions. All other settings are the Transformer's."""

    vocabulary: int = Field(default=37_000, ge=4)
    """Number of token ids, shared by source and target; the last one is `<pad>` (paper 5.1)."""

    num_encoder_layers: int = Field(default=6, ge=1)
    """N, identical layers in the encoder stack (paper 3.1)."""

    num_decoder_layers: int = Field(default=6, ge=1)
    """N, identical layers in the decoder stack (paper 3.1)."""

    d_model: int = Field(default=512, ge=2)
    """Width of every sub-layer's output (paper 3.1)."""

    d_ff: int = Field(default=2048, ge=1)
    """Inner width of the position-wise feed-forward networks (paper 3.3)."""

    feed_forward: Literal["plain", "gated"] = "plain"
    """Kind of the feed-forward networks (paper eq. 2: plain); in `gated` ones a second linear map multiplies the
    activation (Shazeer 2020). They have three matrices: two thirds of d_ff give as many parameters."""

    num_heads: int = Field(default=8, ge=1)
    """h, parallel attention heads (paper 3.2.2)."""

    d_k: int = Field(default_factory=_compute_head_width, ge=1)
    """Width of a query and of a key in one head; d_model / num_heads unless given (paper 3.2.2)."""

    d_v: int = Field(default_factory=_compute_head_width, ge=1)
    """Width of a value in one head; d_model / num_heads unless given (paper 3.2.2)."""

    attention_score: Literal["scaled_dot", "dot", "additive"] = "scaled_dot"
    """How a query is compared with a key (paper 3.2.1): divided by sqrt(d_k), undivided, or one hidden layer."""

    activation: Literal["relu", "gelu", "swish"] = "relu"
    """The non-linearity of the feed-forward networks (paper eq. 2: relu)."""

    normalization: Literal["layer", "batch", "rms"] = "layer"
    """Normalisation of each sub-layer (paper 3.1: layer); statistics of `batch` exclude padding; `rms` divides by the
    root mean square and has no bias (Zhang & Sennrich 2019)."""

    norm_order: Literal["post", "pre"] = "post"
    """Normalise after the residual sum (paper 3.1), or before the sub-layer with a final norm on each stack."""

    tied_embeddings: Literal["three_way", "two_way", "none"] = "three_way"
    """One matrix for source, target and output projection (paper 3.4); for target and output; or three."""

    output_bias: bool = False
    """A learned bias on the logit of each token; the paper has none (3.4), some imported models do."""

    positions: Literal["sinusoidal", "learned", "relative", "rotary", "none"] = "sinusoidal"
    """Positional encoding, added to the embeddings (paper 3.5; `learned` is Table 3, row E); or, in self-attention,
    learned vectors for distances (`relative`: Shaw et al. 2018), or turned queries and keys (`rotary`: Su et al. 2021).
    """

    max_positions: int = Field(default=1024, ge=1)
    """Number of `learned` positions, which ConvS2S always has, and the maximum length of a sentence; all other
    positions have no limit."""

    max_relative_distance: int = Field(default=16, ge=1)
    """Distance beyond which `relative` positions do not tell distances apart (Shaw et al. 2018)."""

    kernel_width: int = Field(default=3, ge=1)
    """k, neighbouring positions that a convolution reads, an odd number; `convs2s` and `bytenet` only (paper 4)."""

    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    """P_drop, the dropout probability for the output of every sub-layer and for the sums of embeddings and positions
    (paper 5.4)."""

    @model_validator(mode="after")
    def _check_widths(self) -> "TransformerConfig":
        if self.kernel_width % 2 == 0:
            raise ValueError(f"kernel_width = {self.kernel_width} must be odd: as many positions on either side")
        if self.architecture == "bytenet" and self.d_model % 2:
            raise ValueError(f"d_model = {self.d_model} must be even: the blocks of ByteNet have half of it inside")
        if self.architecture == "transformer":
            self._check_heads_and_positions()
        return self

    def _check_heads_and_positions(self) -> None:
        given = self.model_fields_set
        if self.d_model % self.num_heads and not {"d_k", "d_v"} <= given:
            raise ValueError(
                f"d_model = {self.d_model} cannot be divided by num_heads = {self.num_heads}: "
                f"choose a multiple, or give d_k and d_v"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"d_model = {self.d_model} must be even: sinusoidal positions come in pairs")
        if self.positions == "rotary" and self.d_k % 2:
            raise ValueError(f"d_k = {self.d_k} must be even: rotary positions turn pairs of its components")
        if self.has_positions_in_attention and not self.has_dot_product_attention:
            raise ValueError(
                f'positions = "{self.positions}" needs dot products of queries and keys: set attention_score to '
                f'"scaled_dot" or "dot", not "{self.attention_score}"'
            )

    @property
    def has_dot_product_attention(self) -> bool:
        """Whether attention scores are dot products of queries and keys, which fused operations and other programs
        support.
        """
        return self.attention_score in {"scaled_dot", "dot"}

    def select_own_settings(self) -> dict[str, Any]:
        """The settings that a network of this architecture reads, with their values."""
        all_settings = self.model_dump()
        if self.architecture == "transformer":
            unused = {"kernel_width", *(["max_relative_distance"] if self.positions != "relative" else [])}
            return {name: value for name, value in all_settings.items() if name not in unused}
        return {name: all_settings[name] for name in _SETTINGS_OF_BASELINES[self.architecture]}

    @property
    def has_position_limit(self) -> bool:
        """Whether `max_positions` limits the length of a sentence, as the network has learned positions."""
        if self.architecture == "transformer":
            return self.positions == "learned"
        return self.architecture == "convs2s"

    @property
    def has_positions_in_attention(self) -> bool:
        """Whether positions are relative or rotary: part of self-attention, instead of added to embeddings."""
        return self.positions in {"relative", "rotary"}

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters of a Transformer, computed without building it. Shared matrices count once.

        Raises:
            ConfigError: the network is no Transformer; `bundle.weights.count_parameters` counts those of any.
        """
        if self.architecture != "transformer":
            raise ConfigError(
                f'model.architecture = "{self.architecture}" is no Transformer, whose parameters are counted here: '
                "count them by transduce.bundle.weights.count_parameters"
            )
        heads, d_model = self.num_heads, self.d_model
        projected = heads * (2 * self.d_k + self.d_v)
        attention = (d_model + 1) * projected + (heads * self.d_v + 1) * d_model
        if self.attention_score == "additive":
            attention += 2 * self.d_k**2 + self.d_k
        num_inner_matrices = 2 if self.feed_forward == "gated" else 1
        feed_forward = num_inner_matrices * (d_model + 1) * self.d_ff + (self.d_ff + 1) * d_model
        normalization = d_model if self.normalization == "rms" else 2 * d_model
        relative = (2 * self.max_relative_distance + 1) * (self.d_k + self.d_v) if self.positions == "relative" else 0
        encoder_layer = attention + relative + feed_forward + 2 * normalization
        decoder_layer = 2 * attention + relative + feed_forward + 3 * normalization
        num_matrices = {"three_way": 1, "two_way": 2, "none": 3}[self.tied_embeddings]
        return (
            num_matrices * self.vocabulary * d_model
            + (self.vocabulary if self.output_bias else 0)
            + (self.max_positions * d_model if self.positions == "learned" else 0)
            + self.num_encoder_layers * encoder_layer
            + self.num_decoder_layers * decoder_layer
            + (2 * normalization if self.norm_order == "pre" else 0)
        )


class SearchConfig(Section):
    """Settings of the search for translations; the defaults are the paper's (section 6.1)."""

    beam: int = Field(default=4, ge=1)
    """Hypotheses kept for each sentence; 1 is greedy search."""

    length_penalty: float = Field(default=0.6, ge=0.0, le=10.0)
    """Alpha: the log-probability of a hypothesis of n tokens is divided by ((5 + n) / 6)^alpha (Wu et al. 2016,
    eq. 14)."""

    max_extra_length: int = Field(default=50, ge=1)
    """Maximum number of tokens by which a translation may exceed its source."""

    min_length: int = Field(default=1, ge=1)
    """Minimum number of target tokens, `</s>` included. If the maximum for a source is smaller, the maximum applies."""

    max_length: int = Field(default=0, ge=0)
    """Maximum number of target tokens, `</s>` included, at least 2. 0: limited by `max_extra_length` only."""

    no_repeat_ngram: int = Field(default=0, ge=0)
    """Forbid repeating any n-gram of this length in a translation (Paulus et al. 2018). 0: off."""

    repetition_penalty: float = Field(default=1.0, ge=1.0, le=100.0)
    """Factor for the log-probability of a token that already occurs in the hypothesis, used only to compare hypotheses
    (after Keskar et al. 2019). 1: off."""

    diversity: float = Field(default=0.0, ge=0.0)
    """Penalty in nats that makes alternatives differ more: of the continuations of one hypothesis, the one ranked k
    (from 0) loses k · diversity when hypotheses are compared (Li et al. 2016). 0: off."""

    max_pieces: int = Field(default=256, ge=8)
    """A source line with more pieces than this is translated sentence by sentence, or in smaller parts if necessary. A
    trained model's limit is at most the longest source in its training text."""

    batch_tokens: int = Field(default=4096, ge=1)
    """Maximum number of source tokens in a batch, padding included."""

    def compute_max_target_length(self, source: int, required: int = 0) -> int:
        """The maximum number of target tokens for a source of `source` tokens. Both counts include `</s>`.

        `required` is the number of tokens that constraints require, for instance a prefix; it raises the maximum.
        `max_length` applies in any case.
        """
        limit = source + self.max_extra_length + required
        return min(limit, self.max_length) if self.max_length else limit

    def with_overrides(self, settings: Mapping[str, Any]) -> "SearchConfig":
        """Copy these settings, with new values for those that are named in `settings`.

        Raises:
            ConfigError: a setting is unknown, has an invalid value, or contradicts another.
        """
        unknown = settings.keys() - SearchConfig.model_fields.keys()
        if unknown:
            names = ", ".join(SearchConfig.model_fields)
            raise ConfigError(f"{min(unknown)} is not a search setting; these exist: {names}")
        try:
            found = SearchConfig.model_validate({**dict(self), **settings})
        except ValidationError as error:
            raise ConfigError(describe_setting_error(error)) from None
        limit = found.compute_max_target_length(found.max_pieces + 1)
        if "min_length" in settings and found.min_length > limit:
            raise ConfigError(
                f"min_length = {found.min_length}: must be at most {limit}, the maximum length of a translation "
                "(max_pieces + 1 + max_extra_length)"
            )
        return found

    @model_validator(mode="after")
    def _check_lengths(self) -> "SearchConfig":
        if self.max_length == 1:
            raise ValueError("max_length = 1 leaves room for `</s>` only: set at least 2, or 0 for no limit")
        if 0 < self.max_length < self.min_length:
            raise ValueError(
                f"min_length = {self.min_length} is above max_length = {self.max_length}: change one of them"
            )
        return self
