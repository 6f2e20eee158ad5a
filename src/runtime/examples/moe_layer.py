"""A mixture-of-experts layer on exported kernels, beside the same layer on torch._grouped_mm with separate permutes.

    moetune tune --model qwen3-30b-a3b --projection up --permute-x --tokens 256,4096 --routing zipf:1.0 -o up.json
    moetune tune --model qwen3-30b-a3b --projection down --permute-y --topk-weights --tokens 256,4096 --routing zipf:1.0 -o down.json
    moetune merge up.json down.json -o layer.json && moetune export layer.json --format kernels -o kernels
    python kernels/examples/moe_layer.py kernels --tokens 256,4096

Prints for each number of tokens how far the two layers' results are apart and how long they take, in eager mode and under
CUDA graphs. With --backward it does so for a step forward and backward in eager mode; the export then needs kernels of dx
and dw (tune with --op fwd,dx,dw; dx of up with --sum-slots; dx of down with --weight-gradient --gated silu --sum-slots and dw
of down with --sum-slots, without which passes of torch stand between them). With --host it prints what a call of the
operator costs the host instead.
"""
import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch
import torch.nn.functional as F

import moetune_torch


class Experts(torch.nn.Module):
    """Gated experts of a Mixtral-like layer; gate and up are one projection of 2 * intermediate columns."""

    def __init__(self, hidden, intermediate, experts, top_k, dtype=torch.bfloat16, device="cuda"):
        super().__init__()
        self.experts, self.top_k = experts, top_k

        def weight(*shape):
            return torch.nn.Parameter(torch.randn(shape, device=device, dtype=dtype) * shape[-1] ** -0.5)

        self.router = weight(experts, hidden)
        self.up = weight(experts, 2 * intermediate, hidden)
        self.down = weight(experts, hidden, intermediate)

    def choose(self, x):
        """Weights in fp32 and experts [tokens, top_k]."""
        weights, ids = torch.topk(torch.softmax(F.linear(x, self.router).float(), dim=-1), self.top_k)
        return weights / weights.sum(dim=-1, keepdim=True), ids

    def on_moetune(self, x, kernels):
        """Experts are chosen in one launch (without gradients). Rows are gathered while the first GEMM loads them,
        gates and ups joined while it stores (without gradients, if up was tuned with --gated silu), and rows weighted
        and scattered while the second stores them."""
        if torch.is_grad_enabled():
            weights, ids = self.choose(x)
        else:
            weights, ids = moetune_torch.choose(kernels, F.linear(x, self.router), self.top_k)
        return moetune_torch.experts(kernels, x, self.up, self.down, ids, weights)

    def on_torch(self, x):
        """Rows are sorted, multiplied, weighted and put back by operations of their own."""
        weights, ids = self.choose(x)
        order = ids.reshape(-1).argsort(stable=True)
        ends = F.one_hot(ids.reshape(-1), self.experts).sum(dim=0).cumsum(0).to(torch.int32)  # without a sync
        hidden = torch._grouped_mm(x[order // self.top_k], self.up.transpose(1, 2), offs=ends)
        gate, up = hidden.chunk(2, dim=-1)
        rows = torch._grouped_mm(F.silu(gate) * up, self.down.transpose(1, 2), offs=ends)
        rows = rows * weights.reshape(-1)[order].to(rows.dtype).unsqueeze(1)
        y = torch.empty_like(rows).index_copy(0, order, rows)
        return y.view(x.shape[0], self.top_k, -1).sum(dim=1)


def graph_of(run):
    """`run` captured, after some launches outside."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()
    return graph.replay


def host_time(call, calls=200):
    """Microseconds of the host for each call, the least of several rounds; the device is idle before each round."""
    least = float("inf")
    for _ in range(10):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        least = min(least, (time.perf_counter() - begin) / calls * 1e6)
    return least


def medians(runs, rounds=31):
    """Median microseconds of each, measured in turns; L2 is overwritten before each, and the device is idle."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times = [[] for _ in runs]
    for _ in range(rounds):
        for run, kept in zip(runs, times):
            flush.zero_()
            torch.cuda.synchronize()
            begin.record()
            run()
            end.record()
            end.synchronize()
            kept.append(begin.elapsed_time(end) * 1e3)
    return [sorted(kept)[rounds // 2] for kept in times]


def print_host_times(layer, kernels, counts):
    print("| tokens | choose | route | grouped_gemm | torch._grouped_mm |\n| ---: | ---: | ---: | ---: | ---: |")
    with torch.no_grad():
        for tokens in counts:
            x = torch.randn(tokens, layer.up.shape[2], device="cuda", dtype=torch.bfloat16)
            logits = F.linear(x, layer.router)
            _, ids = moetune_torch.choose(kernels, logits, layer.top_k)
            m_sizes, gather = moetune_torch.route(kernels, ids, layer.experts)
            rows, ends = x.repeat_interleave(layer.top_k, 0), m_sizes.cumsum(0).to(torch.int32)
            calls = [lambda: moetune_torch.choose(kernels, logits, layer.top_k),
                     lambda: moetune_torch.route(kernels, ids, layer.experts),
                     lambda: moetune_torch.grouped_gemm(kernels, x, layer.up, m_sizes, gather, top_k=layer.top_k,
                                                        fusion="permute_x"),
                     lambda: torch._grouped_mm(rows, layer.up.transpose(1, 2), offs=ends)]
            print(f"| {tokens} | " + " | ".join(f"{host_time(call):.1f} us" for call in calls) + " |")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernels", help="the folder of an export")
    for name, default in (("hidden", 2048), ("intermediate", 768), ("experts", 128), ("top-k", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tokens", default="256,4096")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--host", action="store_true", help="what a call costs the host")
    options = parser.parse_args()
    torch.manual_seed(0)
    layer = Experts(options.hidden, options.intermediate, options.experts, options.top_k)
    counts = [int(tokens) for tokens in options.tokens.split(",")]
    if options.host:
        return print_host_times(layer, options.kernels, counts)
    print("| tokens | mode | error | moetune | torch | speedup |\n| ---: | --- | ---: | ---: | ---: | ---: |")
    worst = 0.0
    for tokens in counts:
        x = torch.randn(tokens, options.hidden, device="cuda", dtype=torch.bfloat16, requires_grad=options.backward)
        forward = [lambda: layer.on_moetune(x, options.kernels), lambda: layer.on_torch(x)]
        dy = torch.randn_like(x)
        workspace = moetune_torch.Workspace()
        with workspace, torch.set_grad_enabled(options.backward):
            if options.backward:
                modes = {"step, eager": [lambda call=call: torch.autograd.grad(call(), [x, layer.up, layer.down], dy)
                                         for call in forward]}
            else:
                modes = {"eager": forward}
                for call in forward:
                    call()
                modes["graph"] = [graph_of(call) for call in forward]
            for mode, runs in modes.items():
                ours, theirs = medians(runs)
                results = [call() for call in modes.get("step, eager", forward)]
                pairs = zip(*results) if options.backward else [results]
                error = max(((a - b).float().norm() / b.float().norm()).item() for a, b in pairs)
                worst = max(worst, error) if error == error else float("inf")
                print(f"| {tokens} | {mode} | {error:.2e} | {ours:.1f} us | {theirs:.1f} us | {theirs / ours:.2f}x |")
    return 0 if worst < 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
