"""import moetune: a kernel of one's own, recorded from its launch, compiled without a GPU and planned by the program.
MOETUNE_TRITON_PYTHON names a Python with triton where this one has none."""
import json
import os
import re
import subprocess
import sys

import pytest

from conftest import BINARY, SOURCE, Room

PYTHON = os.environ.get("MOETUNE_TRITON_PYTHON", sys.executable)
pytestmark = pytest.mark.skipif(subprocess.run([PYTHON, "-c", "import triton"], capture_output=True).returncode != 0,
                                reason="needs triton")
BEGIN = "import moetune, triton\nfrom grouped import grouped\n"
LAUNCH = """
def launch(x, w, y, first_rows, BLOCK_M, num_warps):
    (rows, k), n = x.shape, w.size(1)
    grid = lambda meta: (w.shape[0], triton.cdiv(rows, meta["BLOCK_M"]), triton.cdiv(n, 64))
    grouped[grid](x, w, y, first_rows, n, w.stride(1), BLOCK_M, 64, BLOCK_K=64, MASKED=k % 64 != 0, num_warps=num_warps)
"""
CELLS = "--device h200 --experts 8 --top-k 2 --n 256 --k 128 --tokens 16,64"


@pytest.fixture
def room(tmp_path):
    room = Room(tmp_path)
    for name in ("grouped.py", "autotuned.py"):
        room.write(name, (SOURCE / "tests/cli/files/packs" / name).read_text())
    return room


def python(room, text, code=0):
    room.write("mine.py", text)
    result = subprocess.run([PYTHON, "-B", "mine.py"], capture_output=True, text=True, cwd=room.path,
                            env={**room.env, "MOETUNE_BINARY": BINARY, "PYTHONPATH": str(SOURCE / "scripts"),
                                 "TRITON_CACHE_DIR": str(room.path / "cache/triton")})
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout if code == 0 else result.stderr


def rounding_first(formula):
    """triton.cdiv adds before it subtracts 1, or, in later versions, after: here as in the first."""
    formula = re.sub(r"\((\w+) \+ \((\w+) - 1\)\)", r"((\1 + \2) - 1)", formula)
    return re.sub(r"\((\w+) \+ 15\) / 16", r"((\1 + 16) - 1) / 16", formula)


def test_the_ten_lines_of_the_document_are_recorded_compiled_and_planned(room):
    section = (SOURCE / "configs/your-kernel.md").read_text(encoding="utf-8")
    text = re.search(r"```python\n(.*?)```", section, re.S).group(1)
    assert len(text.replace("\n\n", "\n").splitlines()) <= 10
    text = text.replace("my_kernels", "grouped").replace("--tokens", "--device h200 --tokens")
    text = text.replace("legal=", "options='--dry-run --format json', legal=")
    text = text.replace("[64, 128]", "[64]").replace("[64, 16, 128]", "[64, 16]")  # less to compile
    cells = json.loads(python(room, text))["cells"]
    assert [(cell["legal"], cell["total"], cell["cell"]["n"]) for cell in cells] == [(3, 4, n) for n in (1536, 2048) for _ in range(3)]
    manifest = room.json("mine-pack/pack.json")
    launch, = manifest["launches"]
    assert [rounding_first(launch[side]) for side in ("grid", "grid_y", "grid_z")] == [
        "experts", "max(1, (((x_rows + BLOCK_M) - 1) / BLOCK_M))", "(((n + BLOCK_N) - 1) / BLOCK_N)"]
    assert launch["arguments"] == [{"pointer": each} for each in ("x", "w", "y", "first_rows")] + [{"int32": "n"}, {"int32": "k"}]
    assert [(knob["name"], knob["values"], knob["default"]) for knob in manifest["knobs"]] == [
        ("BLOCK_M", [64, 16], 64), ("BLOCK_N", [64], 64), ("num_warps", [4, 8], 4)]
    assert [row[:3] for row in manifest["candidates"]] == [[64, 64, 4], [64, 64, 8], [16, 64, 4]]
    assert len(manifest["binaries"]) == 3  # up and down share theirs
    room.ok("validate", "mine-pack")
    room.ok("compile", "--arch", "sm_90a", "--pack", "mine-pack", "--variant", "grouped", "--model", "qwen3-30b-a3b")
    python(room, text)  # in place of the first


def test_constants_of_a_layer_are_distinguished_and_other_layers_are_refused(room):
    text = BEGIN + LAUNCH + (f"moetune.tune(launch, {{'BLOCK_M': [16], 'num_warps': [4]}}, {CELLS!r}, 'mine.json', '--dry-run --format json', "
                             "name='own')")
    assert [cell["legal"] for cell in json.loads(python(room, text))["cells"]] == [1, 1]
    words = ["tune", "--device", "h200", "--pack", "mine-pack", "--variant", "own", "--experts", "8", "--top-k", "2", "--n", "256", "--tokens", "16",
             "--dry-run"]
    room.ok(*words, "--k", "128")
    assert "the pack has no kernel that was compiled for these knobs" in room.error(2, *words, "--k", "160")


def test_knobs_of_autotune_are_the_space(room):
    python(room, f"""
import moetune, triton
from autotuned import grouped
def launch(x, w, y, first_rows, n, k, experts, tokens):
    sides = lambda meta: (experts, triton.cdiv(x.shape[0], meta["BLOCK_M"]), triton.cdiv(n, meta["BLOCK_N"]))
    grouped[sides](x, w, y, first_rows, n, k, BLOCK_K=32 if tokens < 64 else 64)
moetune.tune(launch, cells={CELLS!r}, output="t.json", options="--dry-run")
""")
    manifest = room.json("t-pack/pack.json")
    assert [row[:2] for row in manifest["candidates"]] == [[16, 32], [32, 16]]
    assert [computes["when"].count("tokens") for computes in manifest["computes"]] == [2, 2]  # BLOCK_K is another for each
    assert all(len(set(row[-2:])) == 2 for row in manifest["candidates"])


def test_formulas_that_differ_depend_on_the_knob_that_decides(room):
    python(room, BEGIN + f"""
def launch(x, w, y, m_sizes, n, k, rows, processors, experts, PERSISTENT):
    tiles = triton.cdiv(rows, 16) * min(n // 64, 7)
    grid = (min(processors, tiles) if PERSISTENT else tiles, experts)
    grouped[grid](x, w, y, m_sizes, n + 0 * (1 << 31), k, 16, 64, 64)
moetune.pack(launch, {{"PERSISTENT": [False, True]}}, {CELLS!r})
""")
    launch, = room.json("pack/pack.json")["launches"]
    tiles = "((((rows + 16) - 1) / 16) * min((n / 64), 7))"
    assert rounding_first(launch["grid"]) == (f"max(1 - max(PERSISTENT - 0, 0 - PERSISTENT), 0) * ({tiles}) + "
                                              f"max(1 - max(PERSISTENT - 1, 1 - PERSISTENT), 0) * (min(processors, {tiles}))")
    assert launch["grid_y"] == "experts"


WRONG = [
    ("grouped[(1,)](x.data_ptr(), w, y, x, 1, 1, 16, 16, 16)", {"A": [1]}, "launch() for up of 16 tokens, A=1: x.data_ptr: "),
    ("None", {"A": [1]}, "launch() for up of 16 tokens, A=1: it launches 0 kernels: expected one"),
    ("none()", {"A": [1]}, "launch() for up of 16 tokens, A=1: NameError: name 'none' is not defined"),
    ("grouped[(1,)](x, w, y, y, 1.5, w if A == 2 else 1, 16, 16, 16)", {"A": [1, 2]}, "the kernel's k is a Tensor: expected an operand"),
    ("grouped[(A,)](x, w, y, y, 1, x.shape[0], 16, 16, 16)", {"B": [1]}, "it does not take B of the space"),
    ("grouped[(1,)](x, w, y, y, 1, 1, 16, 16, 16)", None, "launches no kernel under @triton.autotune: pass a space"),
    ("grouped[(1,)](x, w, y, y, 1, 1, 16, 16, 7)", {"A": [1]}, "nothing was compiled that can be launched"),
    ("grouped[(1,)](x, w, y, y, 1, 1, 16, 16, 16)", {"A": [0]}, "no combination of the space is legal"),
]


def test_launches_that_cannot_be_recorded_are_refused(room):
    text = BEGIN
    for place, (body, space, _) in enumerate(WRONG):
        text += f"""
def launch(x, w, y, A=0):
    {body}
try:
    moetune.pack(launch, {space}, {CELLS!r}, "pack{place}", legal=lambda A=1, B=1: A > 0)
except moetune.Wrong as error:
    print(error)
"""
    lines = python(room, text).splitlines()
    assert len(lines) == len(WRONG)
    assert [sentence for line, (_, _, sentence) in zip(lines, WRONG) if sentence not in line] == [], lines


def test_a_parameter_that_nothing_fills_is_named(room):
    error = python(room, BEGIN + f"def launch(x, w, y, row_ends, A):\n    pass\nmoetune.pack(launch, {{'A': [1]}}, {CELLS!r})", code=1)
    assert "row_ends is neither a knob of the space nor one of x, w, y, m_sizes, first_rows, " in error


def test_errors_of_the_program_are_its_own(room):
    text = BEGIN + LAUNCH + "moetune.tune(launch, {'BLOCK_M': [16], 'num_warps': [4]}, '--modell qwen3 --tokens 1')"
    message = python(room, text, 2)
    assert "--modell" in message and "Traceback" not in message
    caught = BEGIN + "import subprocess" + LAUNCH + text[len(BEGIN + LAUNCH):].join(
        ["\ntry:\n    ", "\nexcept subprocess.CalledProcessError as error:\n    print(error.returncode)\n"])
    assert python(room, caught) == "2\n"


@pytest.mark.parametrize("text, sentence", [
    ("moetune.tune(launch, {'BLOCK_M': [16], 'num_warps': [4]}, '--device cpu --experts 8 --top-k 2 --n 64 --k 64 --tokens 1')",
     "moetune: error: this machine has no GPU, or --device cpu was given"),
    ("import sys\nsys.modules['torch'] = None\nmoetune.tune(lambda x, A: x.dtype, {'A': [1]}, '" + CELLS + "', options='--dry-run')",
     "moetune: error: <lambda>() for up of 16 tokens, A=1: x.dtype is one of torch, which is not installed: pip install torch\n"),
    ("sys = __import__('sys')\nsys.modules['triton'] = None\nmoetune.pack(launch, {'A': [1]}, '" + CELLS + "')",
     "moetune: error: triton is not installed: pip install triton\n")])
def test_what_is_missing_is_one_sentence(room, text, sentence):
    message = python(room, BEGIN + LAUNCH + text, 2 if "--device cpu" in text else 1)
    assert sentence in message and "Traceback" not in message
