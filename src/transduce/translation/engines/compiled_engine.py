"""Translation in compiled code, for processors: float32 or int8, several times as fast as PyTorch's operations.

Nothing here loads PyTorch, except for functions other than beam search: weights are NumPy arrays, as the file of a
bundle has them, by the names of their tensors.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np

from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import UserError
from transduce.kernels.memory import address
from transduce.kernels.native.decoding import (
    AttentionSizes,
    DecoderCache,
    PackedStack,
    PackedTransformer,
    run_beam_search,
)
from transduce.kernels.native.library import (
    AttentionStructure,
    LayerStructure,
    Library,
    LinearStructure,
    NormalizationStructure,
)
from transduce.kernels.native.packing import (
    Floats,
    Integers,
    PackedMatrix,
    PackedNormalization,
    PaddedLayout,
    WeightMemory,
)
from transduce.search import Constraints, Hypothesis, Sampling, SearchTask, length_penalty
from transduce.search.task import check_settings
from transduce.translation.engines.engine import BatchEngine, Engine, Sources, count_token_bytes, make_logits_processor

_FIRST_POSITIONS = 256
"""Number of positional encodings computed at once."""


class CompiledModel:
    """A Transformer in compiled code: with dot products as attention scores, and layer normalisation.

    Embeddings are shared with `weights`, all other weights are packed copies. The result of a sentence is bit-identical
    in every batch. Methods may be called by several threads concurrently; the library releases Python's global lock
    while it computes.

    Args:
        config: the network.
        weights: in float32, by the names that their tensors have in a `Transformer`; a shared one by the first of its
            names.
        library: the level of instruction sets.
        is_int8: whether linear layers multiply 8-bit integers.
    """

    def __init__(
        self, config: TransformerConfig, weights: Mapping[str, Floats], library: Library, *, is_int8: bool = False
    ) -> None:
        self.config = config
        scale = {"scaled_dot": config.d_k**-0.5, "dot": 1.0}[config.attention_score]
        sizes = AttentionSizes(config.num_heads, config.d_k, config.d_v, scale)
        packer = _Packer(weights, library, sizes, is_int8=is_int8)
        source_embedding = weights["source_embedding.weight"]
        target_embedding = weights.get("target_embedding.weight", source_embedding)
        self._packed = PackedTransformer(
            library,
            packer.packed,
            encoder=packer.pack_stack("encoder", config.num_encoder_layers, source_embedding),
            decoder=packer.pack_stack("decoder", config.num_decoder_layers, target_embedding),
            projection=packer.pack_projection(target_embedding),
            attention=sizes,
            activation=config.activation,
            is_pre_norm=config.norm_order == "pre",
        )
        self.vocabulary = self._packed.vocabulary
        self._learned = weights.get("positions.table")
        self.max_length = sys.maxsize if self._learned is None else len(self._learned)
        """Maximum number of tokens of a source or a target."""
        self.max_hypotheses = library.group_rows
        """Maximum number of hypotheses in a batch: as many as go through all layers together. The keys and values of a
        larger batch no longer fit the processor's caches, and a step takes as long for each hypothesis or longer.
        """
        self._tables = [self._compute_positions(min(_FIRST_POSITIONS, self.max_length))]

    def start(self, sources: Sequence[Sequence[int]]) -> DecoderCache:
        """Read sentences, each with `</s>`; returns the cache before the first token."""
        lengths = [len(source) for source in sources]
        positions = [position for length in lengths for position in range(length)]
        ids = list(chain.from_iterable(sources))
        return self.encode(np.array(ids), np.array(positions), np.array(lengths))

    def encode(self, ids: Integers, positions: Integers, lengths: Integers, longest: int = 0) -> DecoderCache:
        """Run the encoder on the tokens of one sentence after the other; see `PackedTransformer.encode`.

        `longest` is the least number of positions that the model must have.
        """
        table = self._find_table(max(longest, int(lengths.max(initial=0))))
        return self._packed.encode(ids, positions, lengths, table)

    def step(self, last_ids: Sequence[int], cache: DecoderCache, log_probs: int) -> None:
        """One step of a search, which writes all log-probabilities to an address; see `DecoderCache.step`."""
        position = cache.length
        cache.step(last_ids, address(self._find_table(position + 1)[position]), log_probs)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        task: SearchTask,
        *,
        beam: int,
        alpha: float,
        num_best: int = 1,
        no_repeat_ngram: int = 0,
    ) -> list[list[Hypothesis]]:
        """The result of `search.beam_search` without constraints, bit-identical; the whole search is compiled code.

        Constraints of `task` are ignored; for `no_repeat_ngram`, see `search.LogitsProcessor`.

        Raises:
            ConfigError: `beam` or `num_best` is below 1, `beam` is above 2^29, or `alpha` is negative.
            IndexError: an id is not in the vocabulary.
            NotANumberError: a log-probability is NaN.
            UserError: a sentence is longer than the learned positions.
        """
        check_settings(beam, num_best, alpha)
        found = run_beam_search(
            self.start(sources),
            self._find_table,
            lambda length: length_penalty(length, alpha),
            start_id=task.start_id,
            end_id=task.end_id,
            max_lengths=task.max_lengths,
            min_length=task.min_length,
            no_repeat_ngram=no_repeat_ngram,
            beam=beam,
            num_best=num_best,
        )
        return [[Hypothesis(*one) for one in of_sentence] for of_sentence in found]

    def _find_table(self, length: int) -> Floats:
        """At least the first `length` positions; tables are never freed, as another thread may still read them."""
        table = self._tables[-1]
        if length > len(table):
            if length > self.max_length:
                raise UserError(
                    f"a sentence reaches position {length}; this model has learned positions up to {self.max_length} "
                    f"(model.max_positions): split the sentence, or lower max_pieces"
                )
            table = self._compute_positions(min(2 * length, self.max_length))
            self._tables.append(table)
        return table

    def _compute_positions(self, length: int) -> Floats:
        """Encodings of the first positions, [length, d_model], as `model.embeddings` has them (paper 3.5)."""
        if self._learned is not None:
            return self._learned[:length].copy()
        d_model = self.config.d_model
        if self.config.positions == "none":
            return np.zeros((length, d_model), dtype=np.float32)
        angles = np.arange(length, dtype=np.float64)[:, None] / 10_000 ** (np.arange(0, d_model, 2) / d_model)
        pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
        return pairs.reshape(length, d_model).astype(np.float32)


class _Packer:
    """Packs weights, which it finds by the names of their tensors, for a level of instruction sets.

    Its methods return where the weights are; `packed` holds them.
    """

    def __init__(
        self, weights: Mapping[str, Floats], library: Library, sizes: AttentionSizes, *, is_int8: bool
    ) -> None:
        self.weights, self.library, self.sizes, self.is_int8 = weights, library, sizes, is_int8
        self.packed: list[PackedMatrix | PackedNormalization] = []
        self._memory = WeightMemory()

    def pack(self, weight: Floats, bias: Floats, **layout: Any) -> LinearStructure:  # noqa: ANN401 - of PackedMatrix
        """A linear layer."""
        matrix = PackedMatrix(self.library, weight, bias, is_int8=self.is_int8, memory=self._memory, **layout)
        self.packed.append(matrix)
        return matrix.structure

    def pack_linear(self, name: str, **layout: Any) -> LinearStructure:  # noqa: ANN401 - of PackedMatrix
        """The linear layer of this name."""
        return self.pack(self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], **layout)

    def pack_norm(self, name: str) -> NormalizationStructure:
        """The layer normalisation of this name."""
        normalization = PackedNormalization(self.weights[f"{name}.gain"], self.weights[f"{name}.bias"])
        self.packed.append(normalization)
        return normalization.structure

    def pack_projection(self, target_embedding: Floats) -> LinearStructure:
        """The layer before the softmax, in which `<pad>`, the last token, has the logit -inf."""
        weight = self.weights.get("projection.weight", target_embedding)
        mask = np.zeros(len(weight), dtype=np.float32)
        mask[-1] = -np.inf
        bias = self.weights.get("projection.bias")
        return self.pack(weight, mask if bias is None else bias + mask, bias_fill=-np.inf)

    def pack_stack(self, name: str, num_layers: int, embedding: Floats) -> PackedStack:
        """The encoder or the decoder."""
        layers = [self.pack_layer(f"{name}.layers.{number}") for number in range(num_layers)]
        has_norm = f"{name}.final.gain" in self.weights
        return PackedStack(embedding, layers, self.pack_norm(f"{name}.final") if has_norm else NormalizationStructure())

    def pack_layer(self, name: str) -> LayerStructure:
        """A layer of either."""
        has_cross_attention = f"{name}.cross_attention.projection.weight" in self.weights
        cross_attention = AttentionStructure()
        if has_cross_attention:
            cross_attention = self.pack_attention(f"{name}.cross_attention", is_cross_attention=True)
        return LayerStructure(
            self.pack_attention(f"{name}.self_attention", is_cross_attention=False),
            cross_attention,
            self.pack_linear(f"{name}.feed_forward.inner"),
            self.pack_linear(f"{name}.feed_forward.outer"),
            self.pack_norm(f"{name}.feed_forward_residual.normalization"),
        )

    def pack_attention(self, name: str, *, is_cross_attention: bool) -> AttentionStructure:
        """An attention, with queries, keys and values of each head at their padded positions."""
        queries, values = self.sizes.queries, self.sizes.values
        weight, bias = self.weights[f"{name}.projection.weight"], self.weights[f"{name}.projection.bias"]
        width = self.sizes.num_heads * self.sizes.d_k
        memory = LinearStructure()
        if is_cross_attention:
            projection = self.pack(weight[:width], bias[:width], outputs=queries)
            memory = self.pack(weight[width:], bias[width:], outputs=PaddedLayout.side_by_side([queries, values]))
        else:
            projection = self.pack(weight, bias, outputs=PaddedLayout.side_by_side([queries, queries, values]))
        output = self.pack_linear(f"{name}.output", inputs=values)
        return AttentionStructure(projection, memory, output, self.pack_norm(f"{name}_residual.normalization"))


class CompiledEngine(BatchEngine):
    """The engine of a `CompiledModel`. Only beam search needs no PyTorch, with repeated n-grams forbidden or
    not; all else is passed on to `pytorch_engine`.

    Args:
        model: the model.
        end_id: `</s>`.
        load_pytorch_engine: makes the PyTorch engine with the same model and precision; called once.
    """

    def __init__(self, model: CompiledModel, end_id: int, load_pytorch_engine: Callable[[], Engine]) -> None:
        config = model.config
        super().__init__(end_id, config.vocabulary, model.max_length, partial(count_token_bytes, config))
        self._model = model
        self._load_pytorch_engine = load_pytorch_engine
        self._pytorch_engine: Engine | None = None
        self._loading_lock = Lock()

    @property
    def pytorch_engine(self) -> Engine:
        """The engine that computes with PyTorch, loaded on first use."""
        with self._loading_lock:
            if self._pytorch_engine is None:
                self._pytorch_engine = self._load_pytorch_engine()
                del self._load_pytorch_engine  # and with it the weights that it holds
            return self._pytorch_engine

    def search(
        self,
        sources: Sources,
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses found by beam search; see `Engine`."""
        processor = make_logits_processor(config)
        if constraints is not None or not (processor is None or processor.only_forbids):
            return self.pytorch_engine.search(sources, config, num_best, constraints)

        search = partial(
            self._model.search,
            beam=config.beam,
            alpha=config.length_penalty,
            num_best=num_best,
            no_repeat_ngram=config.no_repeat_ngram,
        )
        return self._search_batches(
            sources, config, search, ("beam", config.beam), max_hypotheses=self._model.max_hypotheses
        )

    def sample(
        self, sources: Sources, config: SearchConfig, num_samples: int, sampling: Sampling, seed: int
    ) -> list[list[Hypothesis]]:
        """Hypotheses drawn at random; see `Engine`."""
        return self.pytorch_engine.sample(sources, config, num_samples, sampling, seed)
