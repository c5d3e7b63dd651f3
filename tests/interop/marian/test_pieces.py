from transduce.interop.marian.pieces import MarianPieces
from transduce.text import Tokenizer


def test_one_model_for_both_sides(tokenizer: Tokenizer, texts: list[str]) -> None:
    models = tokenizer.model_bytes, tokenizer.target_model_bytes
    pieces = MarianPieces(models, tokenizer.pieces(range(tokenizer.pad_id)), tokenizer)
    odd = [*texts[:20], "", "☃ </s> é", "  sun   moon "]
    ids = [[*row, 1] for row in tokenizer.encode_all(odd)]
    assert pieces.encode(odd) == ids
    assert pieces.encode([]) == []
    assert pieces.decode(ids) == [tokenizer.decode(row) for row in ids]


def test_what_the_source_lacks_is_unknown(tokenizer: Tokenizer) -> None:
    known, model = tokenizer.pieces(range(tokenizer.pad_id)), tokenizer.model_bytes
    sun = tokenizer.pieces(tokenizer.encode("sun"))
    own = Tokenizer.with_vocabulary(
        model, model, [piece for piece in known if piece not in sun], "test", source_only=[">>fra<<"], target_only=sun
    )
    source = [piece for piece in own.pieces(range(own.pad_id)) if piece not in sun]
    pieces = MarianPieces((model, model), source, own)
    texts = [">>fra<< sun moon", "sun"]
    assert pieces.encode(texts) == [[*row, 1] for row in own.encode_all(texts)]
    assert pieces.encode(["sun"]) == [[0] * len(sun) + [1]]
    assert pieces.decode([[*own.encode_targets(["moon sun"])[0], own.pieces(range(own.pad_id)).index("▁"), 1]]) == [
        "moon sun"
    ]
