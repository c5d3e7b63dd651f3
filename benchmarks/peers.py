"""The same network in PyTorch's own parts and in Hugging Face's, trained by a plain loop.

Both take over the weights of a Transduce model, so that all three must have the same loss.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import TrainingConfig
from transduce.data import Batch
from transduce.model import Transformer
from transduce.model.attention import MultiHeadAttention
from transduce.model.sublayers import LayerNormalization
from transduce.training import compute_learning_rate


class Peer(nn.Module):
    """A network that gives logits, and the plain training loop around it."""

    def __init__(self, training: TrainingConfig, d_model: int, *, bfloat16: bool) -> None:
        super().__init__()
        self.training_config, self.d_model, self.bfloat16 = training, d_model, bfloat16

    def logits(self, batch: Batch) -> Tensor:
        """Logits of every target token; [batch, target, vocabulary]."""
        raise NotImplementedError

    def begin(self) -> None:
        """Make the optimiser, when the weights are where they will stay."""
        self.optimizer = torch.optim.Adam(self.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def update(self, number: int, batch: Batch) -> Tensor:
        """One step on one batch; its loss in nats a real target token, on the batch's device."""
        self.train()
        with torch.autocast(batch.source_ids.device.type, torch.bfloat16, enabled=self.bfloat16):
            logits = self.logits(batch)
            targets = batch.target_ids.masked_fill(~batch.target_mask, -100)
            loss = F.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), label_smoothing=self.training_config.label_smoothing
            )
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = compute_learning_rate(self.training_config, self.d_model, number)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


class TorchPeer(Peer):
    """torch.nn.Transformer (post-norm), with tied embeddings and sinusoids around it."""

    def __init__(self, ours: Transformer, training: TrainingConfig, *, bfloat16: bool) -> None:
        config = ours.config
        super().__init__(training, config.d_model, bfloat16=bfloat16)
        self.pad_id = ours.pad_id
        self.embedding = nn.Embedding(config.vocabulary, config.d_model, padding_idx=self.pad_id)
        self.positions = nn.Buffer(ours.positions(1024, 0).detach().clone())
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_encoder_layers,
            config.num_decoder_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )
        # The paper's network has no normalisation behind the stacks, which torch.nn.Transformer adds.
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        for module in self.modules():  # and no dropout within attention and feed-forward network
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Identity()
        self._take_over(ours)

    def logits(self, batch: Batch) -> Tensor:
        """Encoder, decoder, and the projection by the embedding's matrix."""
        shifted = batch.target_ids.roll(1, dims=1).index_fill(1, batch.target_ids.new_zeros(1), self.pad_id)
        length = shifted.size(1)
        causal = torch.ones(length, length, dtype=torch.bool, device=shifted.device).triu(1)
        hidden = self.transformer(
            self._embed(batch.source_ids),
            self._embed(shifted),
            tgt_mask=causal,
            src_key_padding_mask=~batch.source_mask,
            memory_key_padding_mask=~batch.source_mask,
            tgt_is_causal=True,
        )
        return F.linear(hidden, self.embedding.weight)

    def _embed(self, ids: Tensor) -> Tensor:
        embedded = self.embedding(ids) * math.sqrt(self.d_model) + self.positions[: ids.size(1)]
        return self.dropout(embedded)

    @torch.no_grad()
    def _take_over(self, ours: Transformer) -> None:
        self.embedding.weight.copy_(ours.source_embedding.weight)
        stacks = [(ours.encoder, self.transformer.encoder), (ours.decoder, self.transformer.decoder)]
        for our_layer, their_layer in (pair for a, b in stacks for pair in zip(a.layers, b.layers, strict=True)):
            attentions = [(our_layer.self_attention, their_layer.self_attn)]
            norms = [our_layer.self_attention_residual]
            if hasattr(our_layer, "cross_attention"):
                attentions.append((our_layer.cross_attention, their_layer.multihead_attn))
                norms.append(our_layer.cross_attention_residual)
            norms.append(our_layer.feed_forward_residual)
            for our_attention, their_attention in attentions:
                their_attention.in_proj_weight.copy_(our_attention.projection.weight)
                their_attention.in_proj_bias.copy_(our_attention.projection.bias)
                _copy_linear(our_attention.output, their_attention.out_proj)
            for number, residual in enumerate(norms, start=1):
                _copy_norm(residual.normalization, getattr(their_layer, f"norm{number}"))
            _copy_linear(our_layer.feed_forward.inner, their_layer.linear1)
            _copy_linear(our_layer.feed_forward.outer, their_layer.linear2)


class HuggingFacePeer(Peer):
    """transformers' MarianMTModel, the post-norm Transformer of that library."""

    def __init__(self, ours: Transformer, training: TrainingConfig, *, bfloat16: bool) -> None:
        from transformers import MarianConfig, MarianMTModel

        config = ours.config
        super().__init__(training, config.d_model, bfloat16=bfloat16)
        self.pad_id = ours.pad_id
        self.marian = MarianMTModel(
            MarianConfig(
                vocab_size=config.vocabulary,
                max_position_embeddings=1024,
                d_model=config.d_model,
                encoder_layers=config.num_encoder_layers,
                decoder_layers=config.num_decoder_layers,
                encoder_attention_heads=config.num_heads,
                decoder_attention_heads=config.num_heads,
                encoder_ffn_dim=config.d_ff,
                decoder_ffn_dim=config.d_ff,
                activation_function="relu",
                dropout=config.dropout,
                attention_dropout=0.0,
                activation_dropout=0.0,
                scale_embedding=True,
                pad_token_id=self.pad_id,
                decoder_start_token_id=self.pad_id,
                eos_token_id=1,
                use_cache=False,
            )
        )
        self._take_over(ours)

    def logits(self, batch: Batch) -> Tensor:
        """What the library's own forward gives for the shifted target."""
        shifted = batch.target_ids.roll(1, dims=1).index_fill(1, batch.target_ids.new_zeros(1), self.pad_id)
        return self.marian(
            input_ids=batch.source_ids,
            attention_mask=batch.source_mask.long(),
            decoder_input_ids=shifted,
            use_cache=False,
        ).logits

    @torch.no_grad()
    def _take_over(self, ours: Transformer) -> None:
        inner = self.marian.model
        inner.shared.weight.copy_(ours.source_embedding.weight)
        for stack in (inner.encoder, inner.decoder):
            stack.embed_positions.weight.copy_(ours.positions(1024, 0))
        stacks = [(ours.encoder, inner.encoder), (ours.decoder, inner.decoder)]
        for our_layer, their_layer in (pair for a, b in stacks for pair in zip(a.layers, b.layers, strict=True)):
            _copy_attention(our_layer.self_attention, their_layer.self_attn)
            _copy_norm(our_layer.self_attention_residual.normalization, their_layer.self_attn_layer_norm)
            if hasattr(our_layer, "cross_attention"):
                _copy_attention(our_layer.cross_attention, their_layer.encoder_attn)
                _copy_norm(our_layer.cross_attention_residual.normalization, their_layer.encoder_attn_layer_norm)
            _copy_linear(our_layer.feed_forward.inner, their_layer.fc1)
            _copy_linear(our_layer.feed_forward.outer, their_layer.fc2)
            _copy_norm(our_layer.feed_forward_residual.normalization, their_layer.final_layer_norm)


PEERS = {"torch": TorchPeer, "huggingface": HuggingFacePeer}


def _copy_linear(ours: nn.Linear, theirs: nn.Linear) -> None:
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


def _copy_norm(ours: LayerNormalization, theirs: nn.LayerNorm) -> None:
    theirs.weight.copy_(ours.gain)
    theirs.bias.copy_(ours.bias)


def _copy_attention(ours: MultiHeadAttention, theirs: nn.Module) -> None:
    projections = (theirs.q_proj, theirs.k_proj, theirs.v_proj)
    weights, biases = ours.projection.weight.chunk(3), ours.projection.bias.chunk(3)
    for projection, weight, bias in zip(projections, weights, biases, strict=True):
        projection.weight.copy_(weight)
        projection.bias.copy_(bias)
    _copy_linear(ours.output, theirs.out_proj)
