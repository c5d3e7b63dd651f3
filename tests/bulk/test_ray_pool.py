import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.bulk import BulkTask, RayPool, translate_files
from transduce.bulk.output_folder import WORKING_FOLDER
from transduce.errors import MissingExtraError, UserError

ray = pytest.importorskip("ray", reason="needs pip install 'transduce[scale]'")

# Ray leaves files and processes to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def test_files_are_what_one_process_writes_though_an_actor_is_killed(
    tmp_path: Path, write_text: Any, make_task: Callable[..., BulkTask], translate_alone: Any
) -> None:
    contents = {name: write_text(f"in/{name}", 100, seed) for seed, name in enumerate(("a", "b"))}
    pools: list[RayPool] = []
    messages: list[str] = []

    def make_pool(*given: Any) -> RayPool:
        pools.append(RayPool(*given, 2, report=messages.append))
        return pools[0]

    states = translate_files(make_task(), make_pool, messages.append)
    next(states)
    os.kill(pools[0].find_process_ids()[0], signal.SIGKILL)
    last = list(states)[-1]
    assert any("a worker was lost" in message for message in messages)
    assert last.num_lines == 200
    for name, content in contents.items():
        assert (tmp_path / "out" / name).read_bytes() == translate_alone(content)


def test_an_error_of_an_actor_is_raised_once(make_task: Any, write_text: Any) -> None:
    write_text("in/text", 30)
    with pytest.raises(UserError, match=r"^num_best = 5: must be from 1 to the beam, 2; for more, raise `beam`$"):
        list(translate_files(make_task(options={"num_best": 5}), lambda *given: RayPool(*given, 1)))


def test_a_killed_driver_goes_on_where_it_was(
    tmp_path: Path,
    bundle: Path,
    write_text: Any,
    make_task: Any,
    run: Any,
    start: Any,
    wait_until: Any,
    translate_alone: Any,
) -> None:
    content = write_text("in/text", 3000)
    blocks, task = tmp_path / "out" / WORKING_FOLDER / "000000", make_task(block_lines=20)
    command = ["translate", bundle, "--input", *task.inputs, "--output", task.output, "--block-lines", 20, "--ray"]
    with start(*command, "--workers", 2) as running:
        wait_until((blocks / "000000002").exists)
        running.kill()
    before = len(list(blocks.glob("0*")))
    assert run(task)[-1].num_lines == 3000 - 20 * before
    assert (tmp_path / "out/text").read_bytes() == translate_alone(content)


def test_there_is_no_ray_at_an_address(tmp_path: Path, make_task: Any, write_text: Any) -> None:
    write_text("in/text", 3)
    with pytest.raises(UserError, match=r"--ray 127\.0\.0\.1:1: there is no Ray"):
        list(translate_files(make_task(), lambda *given: RayPool(*given, 1, "127.0.0.1:1")))


def test_the_command_that_installs_it_is_named() -> None:
    assert "pip install 'transduce[scale]'" in str(MissingExtraError("ray", "scale", "--ray"))
