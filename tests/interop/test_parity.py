import math
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, collect_model_tensors, save_bundle
from transduce.bundle.manifest import read_description, serialize_description
from transduce.errors import BundleError, ParityError
from transduce.interop.ctranslate2 import FORMAT
from transduce.interop.export_import import prove_export
from transduce.interop.formats import Runtime
from transduce.interop.parity import TOLERANCES, Claim, Parity, _find_changed_tensors, prove
from transduce.interop.probe_sentences import Probe
from transduce.model import sinusoids
from transduce.text import Tokenizer
from transduce.translation import ForcedDecoder


@pytest.mark.parametrize("content", ["", "{}", '{"format": "transduce bundle"}'])
def test_what_is_no_proof_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "parity.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(
        BundleError,
        match=r"parity\.json: (is not JSON|its format is .*, but must be 'transduce "
        r"parity')",
    ):
        read_description(path, Parity)
    with pytest.raises(BundleError, match="is missing"):
        read_description(tmp_path / "none.json", Parity)


def test_a_proof_is_as_strict_as_its_precision() -> None:
    order = ["float32", "float16", "int16", "bfloat16", "int8"]
    assert sorted(order, key=lambda name: TOLERANCES[name].mean) == order
    assert all(found.mean < found.largest for found in TOLERANCES.values())


pytest.importorskip("ctranslate2")


TEXTS = ("sun moon", "river", "stone bird tree wind", "fish fish door")
PROBE = Probe(TEXTS, "made for this test")


class Altered:
    """CTranslate2, some of whose answers are changed before they are seen."""

    def __init__(self, runtime: Runtime, **changes: Callable[[Any], Any]) -> None:
        self._runtime, self._changes = runtime, changes

    @property
    def name(self) -> str:
        return "Altered 1.0"

    def encode(self, texts: Sequence[str]) -> Any:
        return self._altered("encode", self._runtime.encode(texts))

    def decode(self, ids: Sequence[Sequence[int]]) -> Any:
        return self._altered("decode", self._runtime.decode(ids))

    def score_targets(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Any:
        return self._altered("scores", self._runtime.score_targets(sources, targets))

    def translate_greedily(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> Any:
        return self._altered("greedy", self._runtime.translate_greedily(sources, max_lengths))

    def _altered(self, name: str, answer: Any) -> Any:
        return self._changes[name](answer) if name in self._changes else answer


@pytest.fixture
def bundle(make_bundle: Callable[..., Bundle]) -> Bundle:
    return make_bundle(num_encoder_layers=1)


@pytest.fixture
def decoder(bundle: Bundle) -> ForcedDecoder:
    return ForcedDecoder.from_bundle(bundle, device="cpu")


@pytest.fixture
def written(bundle: Bundle, tmp_path: Path) -> Path:
    (tmp_path / "written").mkdir()
    FORMAT.write(bundle, tmp_path / "written", "float32")
    return tmp_path / "written"


def claim(precision: str = "float32", **weights: Any) -> Claim:
    return Claim("ctranslate2", precision, "ab" * 32, **weights)


def altered_by_one_percent(content: bytes, values: torch.Tensor) -> bytes:
    """A file in which the largest of these numbers, which stand there as they are, is another."""
    place = content.index(values.numpy().tobytes()) + 4 * int(values.abs().argmax())
    (value,) = struct.unpack_from("<f", content, place)
    return content[:place] + struct.pack("<f", 1.01 * value) + content[place + 4 :]


def test_what_is_equal_is_proven_and_kept(decoder: ForcedDecoder, written: Path, tmp_path: Path) -> None:
    parity = prove_export(decoder, FORMAT, written, PROBE, claim())
    assert parity.sentences == parity.identical_tokenizations == parity.identical_greedy == 4
    assert parity.largest_difference < TOLERANCES["float32"].largest / 5
    assert parity.mean_difference <= parity.largest_difference
    assert parity.bleu.against == "ours"
    assert parity.bleu.ours == pytest.approx(parity.bleu.theirs)
    assert parity.identical_weights == len(collect_model_tensors(decoder.model))
    assert parity.theirs.startswith("CTranslate2 4.")
    assert "4 of 4 identical" in parity.summarize()["tokenization"]
    (tmp_path / "parity.json").write_bytes(serialize_description(parity))
    assert read_description(tmp_path / "parity.json", Parity) == parity


def test_twice_as_many_targets_are_scored_and_half_of_them_are_changed(decoder: ForcedDecoder, written: Path) -> None:
    seen: list[Any] = []
    runtime = FORMAT.load(written, decoder.tokenizer)
    score = runtime.score_targets
    runtime.score_targets = lambda sources, targets: seen.append((sources, targets)) or score(sources, targets)
    parity = prove(decoder, runtime, PROBE, claim())
    ((sources, targets),) = seen
    assert len(targets) == 8
    assert list(sources[:4]) == list(sources[4:])
    own, changed = targets[:4], targets[4:]
    tokens = [(one, other) for pair in zip(own, changed, strict=True) for one, other in zip(*pair, strict=True)]
    assert 0.1 < sum(one != other for one, other in tokens) / len(tokens) < 0.6
    assert all(row[-1] == 1 and decoder.tokenizer.pad_id not in row for row in changed)
    assert parity.tokens == 2 * len(tokens)


def test_one_number_changed_by_one_percent_fails(decoder: ForcedDecoder, written: Path) -> None:
    values = decoder.model.decoder.layers[0].feed_forward.inner.weight.detach()
    path = written / "model.bin"
    path.write_bytes(altered_by_one_percent(path.read_bytes(), values))
    with pytest.raises(ParityError, match=r"decoder.layers.0.feed_forward.inner.weight: values differ") as error:
        prove_export(decoder, FORMAT, written, PROBE, claim())
    assert "worst is sentence" in str(error.value)
    assert error.value.exit_code == 1


def test_in_every_tensor_such_a_number_is_found(decoder: ForcedDecoder, written: Path) -> None:
    path, whole = written / "model.bin", (written / "model.bin").read_bytes()
    assert _find_changed_tensors(decoder.model, claim(weights=FORMAT.read_back(written))) == []
    for name, tensor in collect_model_tensors(decoder.model).items():
        values = tensor.detach()[: 16 if "cross_attention.projection" in name else None]  # CTranslate2 has it in two
        values = values[:-1] if name == "source_embedding.weight" else values
        path.write_bytes(altered_by_one_percent(whole, values))
        assert _find_changed_tensors(decoder.model, claim(weights=FORMAT.read_back(written))) == [name]


def test_the_worst_sentence_is_named_with_both_scores(decoder: ForcedDecoder, written: Path) -> None:
    runtime = FORMAT.load(written, decoder.tokenizer)

    def moved(scores: list[list[float]]) -> list[list[float]]:
        scores[2][1] -= 0.002
        return scores

    before = prove(decoder, runtime, PROBE, claim())
    with pytest.raises(ParityError) as error:
        prove(decoder, Altered(runtime, scores=moved), PROBE, claim())
    message = str(error.value)
    assert "Altered 1.0 does not compute the same" in message
    assert "the largest difference is 0.002 nats per token; allowed are 0.0001 in float32" in message
    found = [float(word) for word in message.replace(";", "").split() if word.lstrip("-").replace(".", "").isdigit()]
    assert "worst is sentence 3, 'stone bird tree wind'" in message
    *_, whole_ours, whole_theirs, ours, theirs = found
    assert whole_ours - whole_theirs == pytest.approx(0.002, abs=1e-5)
    assert ours - theirs == pytest.approx(0.002, abs=1e-5)
    # In another precision so much is rounding.
    assert prove(decoder, Altered(runtime, scores=moved), PROBE, claim("int8")).largest_difference > 0.0019
    assert before.largest_difference < 1e-4


@pytest.mark.parametrize("wrong", [[], [math.nan], [-math.inf]])
def test_scores_that_are_none_are_refused(decoder: ForcedDecoder, written: Path, wrong: list[float]) -> None:
    def spoilt(scores: list[list[float]]) -> list[list[float]]:
        return [scores[0], [*wrong, *scores[1][1:]], *scores[2:]]

    runtime = Altered(FORMAT.load(written, decoder.tokenizer), scores=spoilt)
    with pytest.raises(ParityError, match=r"as the log-probabilities of the .* a translation of 'river'"):
        prove(decoder, runtime, PROBE, claim("int8"))


def test_other_ids_of_a_text_are_refused(decoder: ForcedDecoder, written: Path) -> None:
    runtime = Altered(FORMAT.load(written, decoder.tokenizer), encode=lambda ids: [*ids[:3], [5, *ids[3]]])
    with pytest.raises(ParityError, match="gives different ids for 'fish fish door'"):
        prove(decoder, runtime, PROBE, claim())


def test_without_a_tokenizer_nothing_is_said_of_it(decoder: ForcedDecoder, written: Path) -> None:
    runtime = FORMAT.load(written, decoder.tokenizer)
    expected = prove(decoder, runtime, PROBE, claim()).bleu
    parity = prove(decoder, Altered(runtime, encode=lambda _: None, decode=lambda _: None), PROBE, claim())
    assert parity.identical_tokenizations is None
    assert parity.bleu == expected


@pytest.mark.parametrize("change", [lambda row: [*row[:2], 7, *row[3:]], lambda row: row[:2]])
def test_another_greedy_translation_is_refused(
    decoder: ForcedDecoder, written: Path, change: Callable[[list[int]], list[int]]
) -> None:
    runtime = Altered(FORMAT.load(written, decoder.tokenizer), greedy=lambda rows: [change(rows[0]), *rows[1:]])
    with pytest.raises(ParityError, match="the greedy translation of sentence 1 differs"):
        prove(decoder, runtime, PROBE, claim())


def test_a_greedy_translation_that_is_as_probable_passes(bundle: Bundle, tmp_path: Path) -> None:
    model, tokenizer = bundle.load_model(), bundle.load_tokenizer()
    FORMAT.write(bundle, _made(tmp_path / "first"), "float32")
    rows = FORMAT.load(tmp_path / "first", tokenizer).translate_greedily([[*tokenizer.encode(TEXTS[0]), 1]], [8])
    ((common, _),) = Counter(rows[0]).most_common(1)
    twin = 300 if common < 300 else 299
    with torch.no_grad():
        model.source_embedding.weight[twin] = model.source_embedding.weight[common]
    save_bundle(tmp_path / "twins", model, tokenizer, bundle.description)
    twins = Bundle.open(tmp_path / "twins")
    FORMAT.write(twins, _made(tmp_path / "second"), "float32")
    decoder = ForcedDecoder.from_bundle(twins, device="cpu")
    swap = {common: twin, twin: common}
    runtime = Altered(
        FORMAT.load(tmp_path / "second", tokenizer),
        greedy=lambda found: [[swap.get(index, index) for index in row] for row in found],
    )
    parity = prove(decoder, runtime, PROBE, claim())
    assert parity.identical_greedy < 4
    assert parity.largest_difference < 1e-4


@pytest.mark.parametrize(("reference", "tokenization"), [("a b c d", "13a"), ("我喜欢猫。", "zh")])
def test_references_say_how_good_both_are(
    decoder: ForcedDecoder, written: Path, reference: str, tokenization: str
) -> None:
    runtime = FORMAT.load(written, decoder.tokenizer)
    parity = prove(decoder, runtime, Probe(TEXTS, "here", (reference,) * 4), claim())
    assert parity.bleu.against == "reference"
    assert parity.bleu.ours == parity.bleu.theirs < 50
    assert "against the references" in parity.summarize()
    assert f"tok:{tokenization}|" in parity.bleu.signature


def test_without_references_it_is_said_that_bleu_compares_the_two_programs(
    decoder: ForcedDecoder, written: Path
) -> None:
    parity = prove(decoder, FORMAT.load(written, decoder.tokenizer), PROBE, claim())
    told = parity.summarize()["its translations against Transduce's"]
    bleu = f"{parity.bleu.theirs:.2f}; identical ones would have {parity.bleu.ours:.2f}"
    assert told == f"BLEU {bleu} ({parity.bleu.signature})"


def test_more_threads_change_nothing(decoder: ForcedDecoder, written: Path) -> None:
    runtime = FORMAT.load(written, decoder.tokenizer)
    before = prove(decoder, runtime, PROBE, claim())
    torch.set_num_threads(2)
    try:
        assert prove(decoder, runtime, PROBE, claim()) == before
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_only_white_space_at_the_ends_may_be_left_out(
    decoder: ForcedDecoder, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real model wrote U+2000 in bytes for the words of a probe."""
    runtime, decode = FORMAT.load(written, decoder.tokenizer), decoder.tokenizer.decode
    monkeypatch.setattr(Tokenizer, "decode", lambda _, ids: f"\u2000{decode(ids)}\u2000")
    stripped = Altered(runtime, decode=lambda texts: [text.strip() for text in texts])
    assert prove(decoder, stripped, PROBE, claim()).identical_texts == len(TEXTS)
    lengthened = Altered(runtime, decode=lambda texts: [f"{text}\u2000" for text in texts])
    with pytest.raises(ParityError, match=r"is decoded as '.*\\u2000' from the same ids"):
        prove(decoder, lengthened, PROBE, claim())


def test_other_words_for_the_same_ids_fail(decoder: ForcedDecoder, written: Path) -> None:
    runtime = FORMAT.load(written, decoder.tokenizer)
    runtime = Altered(runtime, decode=lambda _: [decoder.tokenizer.decode([2])] * len(TEXTS))
    with pytest.raises(ParityError, match=r"the translation '.*' is decoded as '.*' from the same ids"):
        prove(decoder, runtime, PROBE, claim())


@pytest.mark.parametrize("precision", FORMAT.precisions)
def test_weights_are_as_near_as_their_precision_allows_and_no_further(
    bundle: Bundle, decoder: ForcedDecoder, tmp_path: Path, precision: str
) -> None:
    FORMAT.write(bundle, tmp_path, precision)
    weights = dict(FORMAT.read_back(tmp_path))
    assert not _find_changed_tensors(decoder.model, claim(precision, weights=weights))
    name = "encoder.layers.0.self_attention.output.weight"
    weights[name] = weights[name] * -1
    assert _find_changed_tensors(decoder.model, claim(precision, weights=weights)) == [name]


@pytest.mark.parametrize("row", [0, 2047])
def test_a_position_that_no_sentence_of_the_probe_reaches_is_compared_too(
    decoder: ForcedDecoder, written: Path, row: int
) -> None:
    path, table = written / "model.bin", sinusoids(2048, decoder.model.config.d_model)
    content = path.read_bytes()
    place = content.index(table.numpy().tobytes()) + 4 * row * table.size(1)
    path.write_bytes(
        content[:place] + bytes(4 * table.size(1) - 4) + struct.pack("<f", 9.0) + content[place + 4 * table.size(1) :]
    )
    with pytest.raises(ParityError, match="its positions were exported as learned, expected sinusoidal"):
        prove_export(decoder, FORMAT, written, PROBE, claim())
