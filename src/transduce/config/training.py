"""How the network is trained: the loss, the optimiser, and periodic actions such as validation."""

import math
import re
from typing import Literal

from pydantic import Field, model_validator

from transduce.config.settings import Section

SCHEDULES_BY_LENGTH = frozenset({"linear", "cosine"})
"""Schedules whose learning rate in every update depends on `training.updates`, which may then not change."""

UNLIMITED_UPDATES = 100_000_000
"""Number of updates of a run that its time limit alone ends."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_MAX_HOURS = 10_000


def parse_duration(duration: str) -> float:
    """The number of seconds of a duration, as in "90s", "30m", "2h" or "1h30m".

    Raises:
        ValueError: it has another form, is zero, or is more than 10,000 hours.
    """
    match = _DURATION.fullmatch(duration.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f'"{duration}" must be a duration such as "90s", "30m", "2h" or "1h30m"')
    # For thousands of digits, `int` raises an error, and `float` returns infinity.
    hours, minutes, seconds = (float(number or 0) for number in match.groups())
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total <= 3600 * _MAX_HOURS:
        raise ValueError(f'"{duration}" must be from 1s to {_MAX_HOURS}h')
    return total


class TrainingConfig(Section):
    """Settings of training; the defaults are those of the paper's base model (sections 5.1 to 5.4)."""

    start_from: str | None = None
    """A bundle, or a run with one, whose weights training starts from (fine-tuning), relative to the working directory.
    Network and tokenizer are then the bundle's; of [model], only dropout may differ, and with `start_layers` the number
    of layers. Languages and [search] settings that neither the recipe nor its preset sets are also the bundle's."""

    start_vocabulary: Literal["kept", "new"] = "kept"
    """The tokenizer of a run with `start_from`: the bundle's, or one that is trained on the text of the run, as for
    another pair of languages (Zoph et al. 2016). Tokens that both have keep their vectors (Nguyen & Chiang 2017)."""

    start_layers: Literal["all", "spread"] = "all"
    """The layers of a run with `start_from`: the bundle's; or as many as `model.num_encoder_layers` and
    `model.num_decoder_layers` say, which take the weights of layers spread evenly over the bundle's, from the first to
    the last, so that a student begins with what its teacher knows (Shleifer & Rush 2020)."""

    initial_embeddings: Literal["random", "cooccurrence"] = "random"
    """Token embeddings before the first update, unless `start_from` gives them: random, or co-occurrence vectors in
    which tokens that occur in the same training pairs are similar, so that a small model uses its source early (Dumais
    et al. 1997, Levy et al. 2015)."""

    updates: int = Field(default=100_000, ge=1)
    """Optimiser steps of the whole run (paper 5.2)."""

    epochs: float | None = Field(default=None, gt=0.0, le=1e6)
    """Passes over the training text after which the run ends; `updates` is then computed from it."""

    time_limit: str | None = None
    """How long the run may take, validations included, as in "30m", "2h" or "1h30m", up to 10000h. Where updates or
    epochs are given as well, the run ends with whichever is reached first. Requires schedule = "warmup_stable_decay",
    whose decay then begins early enough to end in time."""

    batch_tokens: int = Field(default=25_000, ge=1)
    """Maximum number of tokens, padding included, on either side of one batch (paper 5.1), for each rank."""

    accumulation: int = Field(default=1, ge=1)
    """Batches whose gradients are summed for one update."""

    schedule: Literal["paper", "inverse_square_root", "linear", "cosine", "warmup_stable_decay", "plateau"] = "paper"
    """The learning rate over time: eq. 3; or linear warm-up to `learning_rate` over `warmup` updates, followed by
    inverse-square-root decay, by linear decay to zero at the last update, by the same along half a cosine (Loshchilov &
    Hutter 2017, without restarts), by a constant rate with linear decay over the last `decay_share` of the run (Hägele
    et al. 2024), or by a rate that is lowered when validation no longer improves (Wilson et al. 2017)."""

    decay_share: float = Field(default=0.2, gt=0.0, le=1.0)
    """Part of the run over which the learning rate of schedule = "warmup_stable_decay" falls to zero."""

    plateau_patience: int = Field(default=3, ge=1)
    """Validations in a row without a better `best_by` after which schedule = "plateau" lowers the learning rate, and
    again after as many more. A `patience` must be greater, and `validate_every` a number."""

    plateau_factor: float = Field(default=0.5, gt=0.0, lt=1.0)
    """Factor by which schedule = "plateau" multiplies the learning rate each time."""

    learning_rate: float | None = Field(default=None, gt=0.0)
    """Peak learning rate; not for eq. 3, which computes it from d_model and warmup."""

    warmup: int = Field(default=4000, ge=1)
    """Updates over which the learning rate rises (paper 5.3)."""

    dropout_warmup: int = Field(default=0, ge=0)
    """Updates over which dropout rises from 0 to `model.dropout` (Morerio et al. 2017), so that a run learns fast at
    first and does not overfit later. 0: constant dropout."""

    optimizer: Literal["adam", "muon"] = "adam"
    """`adam`: all weights are updated by Adam (paper 5.3). `muon`: the matrices of layers are moved by the nearest
    matrix with orthonormal rows or columns to the mean of their gradients, which decays by 0.95, so that a model of
    little text needs fewer updates (Jordan et al. 2024, Liu et al. 2025); all other weights by Adam, at the same
    learning rate. An update takes longer, the more so the smaller batches are. Not for `model.architecture =
    "convs2s"`, whose matrices are normalised."""

    adam_beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Decay of Adam's mean of gradients (paper 5.3)."""

    adam_beta2: float = Field(default=0.98, ge=0.0, lt=1.0)
    """Decay of Adam's mean of squared gradients (paper 5.3)."""

    adam_epsilon: float = Field(default=1e-9, gt=0.0)
    """Epsilon, added to the denominator of Adam's update (paper 5.3)."""

    weight_decay: float = Field(default=0.0, ge=0.0)
    """Decoupled weight decay of Adam (AdamW: Loshchilov & Hutter 2019) and Muon: in every update, a weight also loses
    this share of itself, multiplied by the learning rate; biases and the parameters of normalisation do not. 0: off
    (the paper has none)."""

    label_smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Probability spread evenly over all tokens in the training target (paper 5.4)."""

    guided_alignment: float = Field(default=0.0, ge=0.0, le=1000.0)
    """Weight of a second loss that trains one head of the encoder-decoder attention to follow a word alignment learned
    from the training text (Chen et al. 2016, Garg et al. 2019). 0: off."""

    r_drop: float = Field(default=0.0, ge=0.0, le=1000.0)
    """R-Drop (Liang et al. 2021): every batch passes twice through the network, with different dropout, and the
    Kullback-Leibler divergence between the two predictions, the mean of both directions, is added to the loss with this
    weight (alpha; 5 in their translation). An update takes about twice the time and memory. 0: off. Requires
    `model.dropout`."""

    clip_norm: float = Field(default=0.0, ge=0.0)
    """Maximum norm of the gradient; a larger one is scaled down to it. 0: off (the paper has none)."""

    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Arithmetic of the activations; weights and their updates are in float32. `auto`: bfloat16 on a GPU or CPU with
    hardware support, if it is faster (on a CPU: d_model of at least 128); else float32; a run that is resumed keeps
    the precision in which it began. `float16`: for GPUs without bfloat16; the loss is multiplied by a scale, which is
    halved when a gradient overflows, so that the update is skipped, and doubled after 2,000 updates without overflow
    (Micikevicius et al. 2018). It is slow on a CPU."""

    device: str = "auto"
    """`cpu`, `cuda`, `mps`, or `auto`: the first available of cuda, mps, cpu. Each rank uses its own GPU."""

    sharding: Literal["none", "fsdp"] = "none"
    """Distribution of the model over the ranks started by torchrun: `none`, each holds the whole model (DDP); `fsdp`,
    each holds a shard of all weights, gradients and optimiser state (FSDP2). No effect with a single rank."""

    rank_timeout: str = "10m"
    """How long a rank waits for another within updates before the run ends with an error, as in "90s" or "10m": longer
    than the slowest update, as the other may hang. Where one rank prepares text, validates or saves, others wait for up
    to a day. No effect with a single rank."""

    seed: int = Field(default=1, ge=0, lt=2**31)
    """Seed of the initial weights, the order of data, and dropout."""

    log_every: int = Field(default=50, ge=1)
    """Updates between two lines of metrics."""

    validate_every: int | Literal["auto"] = Field(default=1000)
    """Updates between two validations with real translations; `auto`: the first after 90 seconds of training, then
    at intervals such that validation takes about 5 % of the time."""

    max_validation_pairs: int = Field(default=0, ge=0)
    """Maximum number of validation pairs that are translated and scored, the first ones; the loss is always computed
    on all pairs, but for those of more than 2,048 pieces on a side, or `text.max_pieces` if that is more. 0: all."""

    checkpoint_every: int = Field(default=1000, ge=1)
    """Updates between two checkpoints."""

    keep_checkpoints: int = Field(default=5, ge=1)
    """Checkpoints kept, the latest ones; at the end of the run they are averaged (paper 6.1: the last 5), and the
    average becomes `best` if it scores better than every single one."""

    ema_decay: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Decay of an exponential moving average of the weights (Polyak & Juditsky 1992), as in 0.999. Validations then
    measure the average, and `last` and `best` contain it. 0: none (the paper averages checkpoints instead)."""

    best_by: Literal["bleu", "chrf", "loss"] = "bleu"
    """The validation metric that selects the `best` model; ties are broken by chrF, then by the loss."""

    fit_length_penalty: bool = False
    """Whether the length penalty of `best` is tuned on the validation text when the run ends. The paper's 0.6 was found
    in the same way (6.1) with millions of training pairs; a model trained on few is under-confident, and with 0.6 its
    translations are too short."""

    fit_no_repeat_ngram: bool = False
    """Whether it is tried, when the run ends, that `best` may not repeat any four tokens within a translation
    (`search.no_repeat_ngram`): that stays if its translations of the validation text are then better by both BLEU and
    chrF. A model of little text often writes the same words again and again."""

    baseline: str | None = None
    """A bundle, or a run with one, that the best model is compared with when the run ends: differences of BLEU and chrF
    on at most 1,000 validation pairs, with confidence intervals and significance, as by `transduce compare`. Default:
    `data.teacher`, or `start_from` unless the vocabulary is new, or the model that translates
    `data.monolingual_source`."""

    scorecard_sentences: int = Field(default=30, ge=0)
    """Validation sentences of which inputs are made when the run ends, to show in the report how the best model behaves
    on unusual input, as by `transduce scorecard`. 0: not measured."""

    patience: int = Field(default=0, ge=0)
    """Validations in a row without a better `best_by` after which training stops. 0: never."""

    tensorboard: bool = False
    """Whether metrics are also written as TensorBoard event files, to `tensorboard/` in the run folder."""

    def describe_length(self) -> str:
        """The limit of training, as in "8,000 updates", "30m", or "8,000 updates or 30m"."""
        updates = f"{self.updates:,} updates"
        if self.time_limit is None:
            return updates
        return self.time_limit if self.updates >= UNLIMITED_UPDATES else f"{updates} or {self.time_limit}"

    @property
    def time_limit_seconds(self) -> float:
        """`time_limit` in seconds; infinite if there is none."""
        return math.inf if self.time_limit is None else parse_duration(self.time_limit)

    @model_validator(mode="after")
    def _check_start(self) -> "TrainingConfig":
        if self.start_vocabulary == "new" and self.start_from is None:
            raise ValueError(
                'start_vocabulary = "new" has no effect without start_from: leave it out, or give a bundle'
            )
        if self.start_layers == "spread" and (self.start_from is None or self.start_vocabulary == "new"):
            raise ValueError(
                'start_layers = "spread" needs start_from and its vocabulary: leave it out, or give a bundle and leave '
                "out start_vocabulary"
            )
        return self

    @model_validator(mode="after")
    def _check_schedule(self) -> "TrainingConfig":
        if self.schedule == "paper" and self.learning_rate is not None:
            raise ValueError(
                f'learning_rate = {self.learning_rate} has no effect with schedule = "paper", which computes its own '
                'peak: leave it out, or choose schedule = "inverse_square_root"'
            )
        try:
            parse_duration(self.rank_timeout)
        except ValueError as error:
            raise ValueError(f"rank_timeout: {error}") from None
        if self.validate_every != "auto" and self.validate_every < 1:
            raise ValueError(f'validate_every = {self.validate_every} must be at least 1, or "auto"')
        if self.time_limit is not None:
            try:
                parse_duration(self.time_limit)
            except ValueError as error:
                raise ValueError(f"time_limit: {error}") from None
            if self.schedule != "warmup_stable_decay":
                raise ValueError(
                    f'time_limit = "{self.time_limit}" needs schedule = "warmup_stable_decay", as the decay of '
                    f'"{self.schedule}" cannot begin at any time: set it, as in --set '
                    "training.schedule=warmup_stable_decay, or leave out the time limit"
                )
        if self.schedule == "plateau":
            self._check_plateau()
        if self.schedule != "paper" and self.learning_rate is None:
            raise ValueError(f'schedule = "{self.schedule}" needs a peak learning_rate, as in 5e-4')
        return self

    def _check_plateau(self) -> None:
        if self.validate_every == "auto":
            raise ValueError(
                'schedule = "plateau" lowers the learning rate after validations, which validate_every = "auto" times '
                "by the clock, so that a resumed run would differ: set validate_every to a number of updates"
            )
        if 0 < self.patience <= self.plateau_patience:
            raise ValueError(
                f"patience = {self.patience} would end the run before a plateau_patience of {self.plateau_patience} "
                "lowers its learning rate: raise patience, or set it to 0"
            )
