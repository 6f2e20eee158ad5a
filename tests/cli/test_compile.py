"""compile: what is refused, and before what."""
import json

import pytest

from conftest import LAYER


def compiles(room):
    """Skips where this build has no CUDA toolkit."""
    result = room.run("compile", *LAYER, "--arch", "sm_80", "-q")
    if "no CUDA toolkit" in result.stderr:
        pytest.skip("no CUDA toolkit in this build")


def test_simt_compiles_for_the_oldest_architecture(room):
    compiles(room)
    for op in ("fwd", "dx", "dw"):
        text = room.ok("compile", *LAYER, "--op", op, "--arch", "sm_75", "--variant", "simt", "--set", "block_m=16",
                       "--set", "block_n=64", "--set", "block_k=16", "--format", "json").stdout
        assert [result["compile"]["status"] for result in json.loads(text)["results"]] == ["ok"]
    assert "mma needs sm_80 or newer" in room.error(2, "compile", *LAYER, "--arch", "sm_75", "--variant", "mma")


def test_a_format_for_one_architecture_takes_it_twice(room):
    compiles(room)
    once = json.loads(room.ok("compile", *LAYER, "--arch", "sm_80", "--format", "json").stdout)
    twice = json.loads(room.ok("compile", *LAYER, "--arch", "sm_80,sm_80", "--format", "json").stdout)
    assert len(once["results"]) == len(twice["results"]) > 0


def test_wrong_folders_are_refused_at_once(room):
    compiles(room)
    text = room.error(2, "compile", *LAYER, "--kernels", "/nonexist")
    assert "/nonexist: no such folder of kernels" in text and "compiling" not in text
    room.write("taken", "mine")
    text = room.error(2, "compile", *LAYER, "-o", "taken")
    assert "taken" in text and "compiling" not in text
    assert (room.path / "taken").read_text() == "mine"


def test_fp8_has_candidates_by_default(room):
    cells = ["--model", "qwen3-30b-a3b", "--tokens", "256", "--dtype", "fp8"]
    shown = room.ok("compile", "--arch", "sm_90a", "--variant", "wgmma", *cells, "--show-unit").stdout
    assert shown.count("// wgmma ") > 100


def test_no_unit_of_a_big_space_is_shown_twice(room):
    text = room.ok("compile", "--model", "qwen3-30b-a3b", "--space", "full", "--variant", "mma", "--set", "block_m=64",
                   "--set", "block_n=64", "--show-unit").stdout
    units = ["\n".join(unit.strip().splitlines()[1:]) for unit in ("\n" + text).split("\n// mma ")[1:]]
    assert len(units) > 400
    assert len(set(units)) == len(units)
