from transduce.cli.options import Computation


def test_the_native_engine_takes_the_usual_precision_and_another_its_own() -> None:
    assert Computation().settled() == "float32"
    assert Computation().settled("auto") == "auto"
    assert Computation(engine="onnx").settled() == "auto"


def test_a_precision_that_is_given_is_taken() -> None:
    assert Computation(precision="bfloat16").settled("auto") == "bfloat16"
    assert Computation("ctranslate2", "int8").settled() == "int8"
