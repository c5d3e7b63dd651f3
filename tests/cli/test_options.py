from transduce.cli.options import EngineFlags


def test_the_native_engine_takes_the_usual_precision_and_another_its_own() -> None:
    assert EngineFlags().choose_precision() == "float32"
    assert EngineFlags().choose_precision("auto") == "auto"
    assert EngineFlags(engine="onnx").choose_precision() == "auto"


def test_a_precision_that_is_given_is_taken() -> None:
    assert EngineFlags(precision="bfloat16").choose_precision("auto") == "bfloat16"
    assert EngineFlags("ctranslate2", "int8").choose_precision() == "int8"
