"""Runs the launches that a description for scripts/pack_triton.py describes in Triton's interpreter, on the cpu, and compares Y with
numpy. Prints "right", or what differs.
usage: TRITON_INTERPRET=1 interpret_triton.py FUSION KNOB=VALUE,... M_SIZE,M_SIZE,... TOP_K [FILE.py DTYPE [SERVER KERNEL_FILE]]"""
import importlib.util
import pathlib
import sys

import numpy
import torch

ROOT = pathlib.Path(__file__).resolve().parents[3]
N, K, PROCESSORS, UNWRITTEN = 48, 96, 3, -1000.0
TYPES = {"fp16": torch.float16, "fp8": torch.float8_e4m3fn, "bf16": torch.bfloat16, "int8": torch.int8}

spec = importlib.util.spec_from_file_location("pack_triton", ROOT / "scripts/pack_triton.py")
packer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(packer)


def launch(kernel, constants, sizes, pointers):
    values = {}
    for name, (_, value, divisible) in kernel["arguments"].items():
        values[name] = pointers[value["pointer"]] if "pointer" in value else packer.evaluate(next(iter(value.values())), sizes)
        if "pointer" not in value and divisible:
            assert values[name] % 16 == 0, name
    grid = kernel["grid"] if isinstance(kernel["grid"], list) else [kernel["grid"]]
    kernel["function"][tuple(packer.evaluate(side, sizes) for side in grid)](**values, **{**kernel.get("constants", {}), **constants})


def scales_of(shape, random):
    return torch.tensor(2.0 ** random.integers(-1, 2, shape), dtype=torch.float32)


def packed(nibbles, axis):
    """Bytes of two neighbours along an axis, the first in the low bits."""
    even, odd = (nibbles.index_select(axis, torch.arange(first, nibbles.shape[axis], 2)) for first in (0, 1))
    return (even + 16 * odd).to(torch.uint8)


def main(fusion, knobs, m_sizes, top_k, described):
    rows, experts, dtype = sum(m_sizes), len(m_sizes), described["operands"][0]["dtype"]
    of_w, word = described["operands"][1]["dtype"], described["computes"][0]["dtype"]
    scales = "channel" if of_w == "int8" else [*word.split("-"), ""][1]
    group = int(scales[5:]) if scales.startswith("group") else 0
    random = numpy.random.default_rng(1)
    slots = torch.tensor(random.permutation(rows) if "by_slot" in fusion else range(rows))  # of the rows in expert order
    x_rows = rows // top_k if "permute_x" in fusion else rows
    x = torch.tensor(random.integers(-2, 3, (x_rows, K)), dtype=torch.float32)  # sums are exact in bf16
    w = torch.tensor(random.integers(-4, 5, (experts, N, K)), dtype=torch.float32)
    y = torch.full((rows + 1, N), UNWRITTEN, dtype=TYPES[described["operands"][2]["dtype"]])  # the row behind the last is for nobody
    weights = torch.tensor(2.0 ** random.integers(-2, 1, rows), dtype=torch.float32)
    x_scales = scales_of(1 if scales == "tensor" else x_rows, random)
    w_scales = scales_of((experts, N * K // group if group else N if scales == "channel" else 1), random)
    zeros = torch.tensor(random.integers(0, 16, (experts, N, K // group)) if of_w == "uint4" else 8) if group else None
    x_scaled = dtype in ("fp8", "int8")
    first = numpy.concatenate([[0], numpy.cumsum(m_sizes)])
    sizes = {"n": N, "k": K, "experts": experts, "rows": rows, "slots": rows, "tokens": rows // top_k, "top_k": top_k, "x_rows": x_rows, "processors": PROCESSORS,
             "x_scale_row": 1, "w_scale_row": K // group if group else 1, "w_scale_expert": w_scales.shape[1], **knobs}
    pointers = {"x": x.to(TYPES[dtype]), "w": packed(w.int() + 8, 2) if group else w.to(TYPES[of_w]), "y": y, "m_sizes": torch.tensor(m_sizes, dtype=torch.int32),
                "first_rows": torch.tensor(first, dtype=torch.int32), "gather_indices": slots.to(torch.int32), "topk_weights": weights,
                "x_scales": x_scales, "w_scales": w_scales.to(y.dtype) if group else w_scales, "null": torch.zeros(1)}
    if group:  # each element of W, less its zero point and times its scale
        if of_w == "uint4":
            pointers["w_zeros"] = packed(zeros, 1)
        w = (w.view(experts, N, -1, group) + 8 - zeros.view(-1, N, K // group, 1) if of_w == "uint4" else w.view(experts, N, -1, group))
        w = (w * w_scales.view(experts, N, -1, 1)).view(experts, N, K)
    for buffer in described["buffers"]:
        pointers[buffer["name"]] = torch.full((packer.evaluate(buffer["bytes"], sizes) // 4,), 1 << 30, dtype=torch.int32)
    computation = next(each for each in described["computes"] if each["fusion"] == fusion and packer.applies(each, sizes))
    for step in described["prepare"]:
        launch(step, {}, sizes, pointers)
    launch(described["kernel"], packer.constants_of(described, knobs, computation), sizes, pointers)
    expected = torch.full_like(y, UNWRITTEN)
    for expert in range(experts):
        for row in range(first[expert], first[expert + 1]):
            at = int(slots[row])
            source = at // top_k if "permute_x" in fusion else at
            total = w[expert] @ x[source] * (w_scales[expert] if scales and not group else 1)
            total *= x_scales[source % len(x_scales)] if x_scaled else 1
            expected[at] = (total * (weights[at] if "topk_weights" in fusion else 1)).to(y.dtype)
    different = (y != expected).any(dim=1).nonzero().flatten().tolist()
    print(f"rows {different} differ" if different else "right")


if __name__ == "__main__":
    fusion, knobs, m_sizes, top_k, *source = sys.argv[1:]
    path, dtype, *server = source or [ROOT / "scripts/triton_moe.py", "fp16"]
    options = {"server": server[0], "file": server[1], "top_k": int(top_k)} if server else {}
    if "int4" in dtype:
        options["gemms"] = (("up", N, K), ("down", N, K))
    sizes = (("n", N), ("k", K), ("experts", m_sizes.count(",") + 1), ("top_k", int(top_k)), ("processors", PROCESSORS))
    main(fusion, {name: int(value) for name, value in (word.split("=") for word in knobs.split(","))},
         [int(m) for m in m_sizes.split(",")], int(top_k), packer.described(str(path), dtype, tuple(options.items()), (sizes,)))
