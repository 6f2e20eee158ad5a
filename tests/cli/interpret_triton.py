"""Runs the launches that scripts/triton_moe.py describes in Triton's interpreter, on the cpu, and compares Y with numpy.
usage: TRITON_INTERPRET=1 interpret_triton.py KNOB=VALUE,... M_SIZE,M_SIZE,...   Prints "right", or what differs."""
import importlib.util
import pathlib
import sys

import numpy
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


evaluate = module(ROOT / "src/runtime/moetune_kernels.py").evaluate
triton_moe = module(ROOT / "scripts/triton_moe.py")

N, K, UNWRITTEN = 48, 80, -1000.0


def launch(kernel, knobs, constants, sizes, pointers):
    values = {}
    for name, (_, value, divisible) in kernel["arguments"].items():
        values[name] = pointers[value["pointer"]] if "pointer" in value else evaluate(next(iter(value.values())), sizes)
        if "pointer" not in value and divisible:
            assert values[name] % 16 == 0, name
    constants = {**kernel["constants"], **constants}
    kernel["function"][(evaluate(kernel["grid"], sizes),)](**values, **constants)


def main(knobs, m_sizes):
    described = triton_moe.describe("fp16")
    rows, experts = sum(m_sizes), len(m_sizes)
    sizes = {"n": N, "k": K, "experts": experts, "rows": rows, **knobs}
    random = numpy.random.default_rng(1)
    x = torch.tensor(random.integers(-4, 5, (rows, K)), dtype=torch.float16)
    w = torch.tensor(random.integers(-4, 5, (experts, N, K)), dtype=torch.float16)
    y = torch.full((rows + 1, N), UNWRITTEN, dtype=torch.float16)  # the row behind the last is for nobody
    pointers = {"x": x, "w": w, "y": y, "m_sizes": torch.tensor(m_sizes, dtype=torch.int32), "null": torch.zeros(1)}
    for buffer in described["buffers"]:
        pointers[buffer["name"]] = torch.full((evaluate(buffer["bytes"], sizes) // 4,), 1 << 30, dtype=torch.int32)
    for step in described["prepare"]:
        launch(step, knobs, {}, sizes, pointers)
    launch(described["kernel"], knobs, {name: knobs[name] for name in described["constants"]}, sizes, pointers)
    expected = torch.full_like(y, UNWRITTEN)
    first = 0
    for expert, m in enumerate(m_sizes):
        expected[first:first + m] = (x[first:first + m].float() @ w[expert].float().t()).half()
        first += m
    different = (y != expected).any(dim=1).nonzero().flatten().tolist()
    print(f"rows {different} differ" if different else "right")


if __name__ == "__main__":
    main({name: int(value) for name, value in (word.split("=") for word in sys.argv[1].split(","))},
         [int(m) for m in sys.argv[2].split(",")])
