"""Exported kernels on a GPU, against torch: right results in every fusion and op, CUDA graphs with other rows, several
streams, a device that is busy, faults, and the two examples. Skips without a GPU and torch."""
import ctypes
import json
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("MOETUNE_BINARY", str(SOURCE / "build/release/moetune"))
E, TOP_K, N, K = 8, 2, 512, 256
LAYER = ["--experts", str(E), "--top-k", str(TOP_K), "--n", str(N), "--k", str(K)]
FEW = ["--max-candidates", "2", "--wait", "0", "-q"]
FUSIONS = {"plain": [], "permute_x": ["--permute-x"], "permute_y": ["--permute-y"],
           "permute_y+topk_weights": ["--permute-y", "--topk-weights"]}


def moetune(*words, cwd):
    subprocess.run([BINARY, *map(str, words)], check=True, cwd=cwd)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """An export of every op and fusion of a small layer, and of candidates whose blocks wait for one another."""
    path = tmp_path_factory.mktemp("kernels")
    tables = []

    def tune(name, *words):
        moetune("tune", *LAYER, "--tokens", "32,500", "--routing", "uniform,zipf:1.5", *FEW, *words, "-o", f"{name}.json", cwd=path)
        tables.append(f"{name}.json")

    for fusion, words in FUSIONS.items():
        tune(f"table-{fusion}", "--op", "fwd,dx,dw", *words)
    tune("sums", "--op", "dx", "--permute-x", "--sum-slots")
    tune("gradient", "--op", "dx", "--permute-y", "--topk-weights", "--weight-gradient")
    moetune("merge", *tables, "-o", "all.json", cwd=path)
    moetune("export", "all.json", "--format", "kernels", "-o", "out", cwd=path)
    sys.path.insert(0, str(path / "out"))
    return path / "out"


@pytest.fixture(scope="module")
def mt(kernels):
    import moetune_torch
    return moetune_torch


def routing(tokens, skew=0.0, seed=0, experts=E):
    """Distinct experts of each token, [tokens, top_k], more often the first where skew is large."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    scores = torch.rand(tokens, experts, device="cuda", generator=generator) - skew * torch.arange(experts, device="cuda") / experts
    return scores.topk(TOP_K).indices


def reference(x, w, ids, fusion, weights=None):
    """The same in fp32, slot by slot; differentiable."""
    slots = torch.arange(ids.numel(), device=x.device)
    expert = ids.reshape(-1)
    order = expert.argsort(stable=True)
    rows = x[slots // TOP_K] if fusion == "permute_x" else None
    if rows is None:  # rows come in expert order
        rows = torch.empty_like(x).index_copy(0, order, x)
    y = torch.stack([row @ w[e].float().T for row, e in zip(rows.float(), expert)]) if len(rows) < 64 else \
        torch.bmm(w.float()[expert], rows.float().unsqueeze(2)).squeeze(2)
    if weights is not None:
        y = y * weights.reshape(-1, 1)
    return y if fusion.startswith("permute_y") else y[order]


def close(a, b, bound=8e-3):
    return ((a.float() - b.float()).norm() / b.float().norm().clamp(min=1e-20)).item() < bound and bool(a.isfinite().all())


def operands(tokens, fusion, seed=0):
    torch.manual_seed(seed)
    rows = tokens if fusion == "permute_x" else tokens * TOP_K
    x = torch.randn(rows, K, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    w = (torch.randn(E, N, K, device="cuda") * K ** -0.5).to(torch.bfloat16).requires_grad_()
    weights = torch.rand(tokens, TOP_K, device="cuda", requires_grad=True) if "weights" in fusion else None
    return x, w, weights


def random(*shape, seed):
    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))


def scores_of(logits, bias, score, groups=1, top_groups=1, **_):
    """Of the weights, and of the choice, where experts of other groups are -inf."""
    scores = logits.float().softmax(-1) if score == "softmax" else logits.float().sigmoid()
    order = logits.float() if bias is None else scores + bias
    if groups > 1:
        of_groups = order.unflatten(1, (groups, -1))
        value = of_groups.amax(-1) if bias is None else of_groups.topk(2).values.sum(-1)
        left_out = torch.ones_like(value).scatter(1, value.topk(top_groups).indices, 0).bool()
        order = of_groups.masked_fill(left_out.unsqueeze(2), -float("inf")).flatten(1)
    return scores, order


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("experts, top_k, how", [
    (8, 2, {}), (60, 4, {"renormalize": False}), (128, 8, {}), (128, 8, {"score": "sigmoid", "biased": True}),
    (256, 8, {"score": "sigmoid", "biased": True, "scale": 2.5, "groups": 8, "top_groups": 4}),
    (160, 6, {"renormalize": False, "scale": 16.0, "groups": 8, "top_groups": 3}), (512, 10, {}),
    (1000, 32, {"score": "sigmoid"}), (1, 1, {}), (32, 32, {"biased": True}),
    (1024, 8, {"groups": 32, "top_groups": 32}), (16, 4, {"groups": 16, "top_groups": 5})])
def test_the_chosen_experts_are_those_of_torch(kernels, mt, experts, top_k, how, dtype):
    how = {"score": "softmax", "renormalize": True, "scale": 1.0, **how}
    bias = torch.randn(experts, device="cuda") if how.pop("biased", False) else None
    for tokens in (1, 5, 0, 300):
        logits = random(tokens, experts, seed=tokens).to(dtype)
        weights, ids = mt.choose(kernels, logits, top_k, bias=bias, **how)
        assert weights.dtype == torch.float32 and ids.dtype == torch.int32 and ids.shape == (tokens, top_k)
        scores, order = scores_of(logits, bias, **how)
        right = order.sort(dim=1, descending=True, stable=True).indices[:, :top_k]
        if bias is None:  # nothing but the logits' order counts
            assert torch.equal(ids.long(), right)
        assert (ids.sort(dim=1).values.diff(dim=1) > 0).all()
        torch.testing.assert_close(order.gather(1, ids.long()), order.gather(1, right), rtol=1e-5, atol=1e-6)
        wanted = scores.gather(1, ids.long())
        wanted = how["scale"] * (wanted / wanted.sum(1, keepdim=True) if how["renormalize"] else wanted)
        torch.testing.assert_close(weights, wanted, rtol=1e-5, atol=1e-7)
        graph_ids = torch.compile(lambda l: mt.choose(kernels, l, top_k, bias=bias, **how)[1], backend="eager")(logits)
        assert torch.equal(graph_ids, ids)


def test_a_choice_reads_what_it_is_given(kernels, mt):
    """Of equal logits the first, 0 and -0 too; a group of one with a bias; columns of another tensor; another bias."""
    equal = torch.tensor([[-0.0, 0.0, 1.0, 1.0], [0.0, -0.0, -1.0, 0.0]], device="cuda")
    assert mt.choose(kernels, equal, 3)[1].tolist() == [[2, 3, 0], [0, 1, 3]]
    wide = torch.randn(20, 128, device="cuda")
    assert torch.equal(mt.choose(kernels, wide[:, ::2], 4)[1], mt.choose(kernels, wide[:, ::2].contiguous(), 4)[1])
    for seed in range(3):
        logits, bias = random(7, 32, seed=seed), random(32, seed=seed)
        _, ids = mt.choose(kernels, logits, 4, bias=bias, score="sigmoid", groups=32, top_groups=6)
        assert torch.equal(ids.long(), (logits.sigmoid() + bias).topk(4).indices), seed
    with pytest.raises(mt.Error, match="'logits' is of torch.float64, but must be of torch.float32"):
        mt.choose(kernels, wide.double(), 4)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("slots", [0, 1, 1023, 1025, 4096, 4097, 20000])
def test_routings_of_many_slots_are_sorted(kernels, mt, slots, dtype):
    generator = torch.Generator("cuda").manual_seed(slots)
    for model, first, skew in ((8, 0, 1), (8, 0, 4), (1, 0, 1), (40, 16, 1)):
        ids = (torch.rand(slots, 1, device="cuda", generator=generator) ** skew * model).to(dtype)
        local = ids.reshape(-1).long() - first
        here = (local >= 0) & (local < min(E, model))
        count, order = int(here.sum()), (local + 10 ** 6 * ~here).argsort(stable=True)
        m_sizes, gather = mt.route(kernels, ids, min(E, model), first)
        assert torch.equal(m_sizes.long(), torch.bincount(local[here], minlength=min(E, model)))
        assert torch.equal(gather[:count].long(), order[:count]) and bool((gather[count:] == -1).all())
        few = torch.full((count // 2 + 1,), -5, device="cuda", dtype=torch.int32)  # fewer rows than slots
        mt.library(str(kernels), ids.device).route(ids, m_sizes, few[:-1], first)
        assert torch.equal(few[:-1], gather[:count // 2]) and few[-1] == -5


def test_logits_that_are_no_numbers_choose_experts_that_are_there(kernels, mt):
    logits = torch.randn(6, 64, device="cuda")
    logits[1], logits[2, 5], logits[3], logits[4, :60] = float("nan"), float("nan"), -float("inf"), -float("inf")
    weights, ids = mt.choose(kernels, logits, 8)
    assert (ids >= 0).all() and (ids < 64).all() and (ids.sort(dim=1).values.diff(dim=1) > 0).all()
    assert weights[[0, 4, 5]].isfinite().all() and weights[1:3].isnan().all()
    assert set(ids[4, :4].tolist()) == {60, 61, 62, 63} and 5 not in ids[2].tolist()


def test_a_choice_without_gradients_says_so(kernels, mt):
    logits = torch.randn(4, 16, device="cuda", requires_grad=True)
    with pytest.raises(mt.Error, match="choose has no gradients: call it under torch.no_grad"):
        mt.choose(kernels, logits, 2)
    with pytest.raises(mt.Error, match="'bias' is of torch.bfloat16, but must be of torch.float32"):
        mt.choose(kernels, logits.detach(), 2, bias=torch.zeros(16, device="cuda", dtype=torch.bfloat16))


@pytest.mark.parametrize("tokens", [1, 32, 300])
@pytest.mark.parametrize("fusion", FUSIONS)
def test_results_and_gradients_are_those_of_torch(kernels, mt, fusion, tokens):
    for skew in (0.0, 3.0):
        ids = routing(tokens, skew)
        m_sizes, gather = mt.route(kernels, ids, E)
        assert torch.equal(m_sizes.long(), torch.bincount(ids.reshape(-1), minlength=E))
        assert torch.equal(gather.long(), ids.reshape(-1).argsort(stable=True))
        x, w, weights = operands(tokens, fusion)
        given = [x, w] if weights is None else [x, w, weights]
        flat = None if weights is None else weights.reshape(-1)
        y = mt.grouped_gemm(kernels, x, w, m_sizes, gather, flat, top_k=TOP_K, fusion=fusion)
        wanted = reference(x, w, ids, fusion, weights)
        assert close(y, wanted)
        dy = torch.randn_like(y)
        for got, right in zip(torch.autograd.grad(y, given, dy), torch.autograd.grad(wanted, given, dy.float())):
            assert close(got, right)


@pytest.mark.parametrize("dtype, hidden, words", [("bf16", 256, []), ("fp16", 256, []),
                                                  ("fp16", 252, ["--variant", "simt"])])
def test_the_experts_of_a_layer_are_those_of_torch(mt, tmp_path, dtype, hidden, words):
    """Up, down and the sum over slots in one call; rows of 252 are added up one column at a time."""
    layer = ["--experts", E, "--top-k", TOP_K, "--hidden", hidden, "--intermediate", 128, "--dtype", dtype, *words]
    for name, fusions in (("up", ["--permute-x", "--gated", "silu"]), ("down", ["--permute-y", "--topk-weights"])):
        moetune("tune", *layer, "--projection", name, "--tokens", "32", *fusions, *FEW, "-o", f"{name}.json",
                cwd=tmp_path)
    moetune("merge", "up.json", "down.json", "-o", "layer.json", cwd=tmp_path)
    moetune("export", "layer.json", "--format", "kernels", "-o", "out", cwd=tmp_path)
    of = {"device": "cuda", "dtype": {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]}
    for tokens in (1, 32, 300):
        x = torch.randn(tokens, hidden, **of)
        up, down = torch.randn(E, 256, hidden, **of) / 16, torch.randn(E, hidden, 128, **of) / 11
        ids, weights = routing(tokens), torch.rand(tokens, TOP_K, device="cuda")
        leave_memory_full_of_nan()
        with torch.no_grad():
            y = mt.experts(tmp_path / "out", x, up, down, ids, weights)
        gate, rows = torch.einsum("th,tkoh->tko", x.float(), up.float()[ids]).chunk(2, dim=-1)
        inner = torch.nn.functional.silu(gate) * rows
        assert y.shape == x.shape and y.dtype == x.dtype
        assert close(y, torch.einsum("tki,tkhi,tk->th", inner, down.float()[ids], weights))
        if words or tokens == 1:
            continue
        exported = json.loads((tmp_path / "out/manifest.json").read_text())["kernels"]
        assert any(kernel["launches"][0]["follows"] == "up" for kernel in exported)
        logits, stream = torch.randn(tokens, E, device="cuda"), torch.cuda.Stream()

        def run():
            chosen, its = mt.choose(tmp_path / "out", logits, TOP_K)
            return mt.experts(tmp_path / "out", x, up, down, its, chosen)

        with torch.no_grad(), mt.Workspace():
            with torch.cuda.stream(stream):
                run()
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                captured = [run() for _ in range(3)]  # launches of one layer begin before the one before it has ended
            for seed in range(20):
                x.normal_(), logits.normal_()
                for y in captured:
                    y.fill_(float("nan"))
                graph.replay()
                wanted = run()
                torch.cuda.synchronize()
                assert wanted.isfinite().all() and all(torch.equal(y, wanted) for y in captured), seed


def leave_memory_full_of_nan():
    """Memory that torch hands out next."""
    for size in (1 << 16, 1 << 20, 1 << 24):
        kept = [torch.full((size,), float("nan"), device="cuda") for _ in range(4)]
    del kept


@pytest.mark.parametrize("sums", ["in the kernel", "in torch"])
def test_a_rank_that_holds_some_experts_leaves_the_others_out(kernels, mt, monkeypatch, sums):
    if sums == "in torch":
        monkeypatch.setattr(mt, "_has", lambda folder, op, fusion, *rest: False)  # as in an export without sum_slots
    ids = routing(100, experts=4 * E)
    m_sizes, gather = mt.route(kernels, ids, E, first_expert=E)
    local = (ids.reshape(-1) >= E) & (ids.reshape(-1) < 2 * E)
    count = int(local.sum())
    assert torch.equal(m_sizes.long(), torch.bincount(ids.reshape(-1)[local] - E, minlength=E))
    order = (ids.reshape(-1) + 10000 * ~local).argsort(stable=True)
    assert torch.equal(gather[:count].long(), order[:count]) and bool((gather[count:] == -1).all())
    x, w, _ = operands(100, "permute_x")
    y = mt.grouped_gemm(kernels, x, w, m_sizes, gather, top_k=TOP_K, fusion="permute_x")
    expert = ids.reshape(-1)[order[:count]] - E
    assert close(y[:count], torch.bmm(w.float()[expert], x.float()[order[:count] // TOP_K].unsqueeze(2)).squeeze(2))
    leave_memory_full_of_nan()
    dx, = torch.autograd.grad(y[:count].float().sum(), [x])
    wanted = torch.zeros(200, K, device="cuda").index_copy(0, order[:count], w.float().sum(1)[expert])
    assert close(dx, wanted.view(100, TOP_K, K).sum(1))


def test_a_rank_can_have_the_rest_of_its_rows_zeroed(kernels, mt):
    ids = routing(100, experts=4 * E)
    m_sizes, gather = mt.route(kernels, ids, E, first_expert=E)
    local = ((ids.reshape(-1) >= E) & (ids.reshape(-1) < 2 * E)).unsqueeze(1)
    x, w, weights = operands(100, "permute_y+topk_weights")
    given = [x, w, weights]
    leave_memory_full_of_nan()
    y = mt.grouped_gemm(kernels, x, w, m_sizes, gather, weights.reshape(-1), top_k=TOP_K, fusion="permute_y+topk_weights",
                        zero_rest=True)
    rows = torch.zeros_like(x.float()).index_copy(0, gather[gather >= 0].long(), x.float()[:int(local.sum())])
    expert = (ids.reshape(-1) - E).clamp(0, E - 1)
    wanted = torch.bmm(w.float()[expert], rows.unsqueeze(2)).squeeze(2) * weights.reshape(-1, 1) * local
    assert close(y, wanted) and bool((y[~local.squeeze(1)] == 0).all())
    dy = torch.randn_like(y)
    leave_memory_full_of_nan()
    for got, right in zip(torch.autograd.grad(y, given, dy), torch.autograd.grad(wanted, given, dy.float())):
        assert close(got, right)


def test_a_graph_takes_other_rows_at_each_replay(kernels, mt):
    tokens, fusion = 300, "permute_x"
    x, w, _ = operands(tokens, fusion)
    x, w = x.detach(), w.detach()
    ids = routing(tokens)
    stream, workspace = torch.cuda.Stream(), mt.Workspace()

    def run():
        m_sizes, gather = mt.route(kernels, ids, E)
        return mt.grouped_gemm(kernels, x, w, m_sizes, gather, top_k=TOP_K, fusion=fusion)

    with workspace:
        with torch.cuda.stream(stream):
            run()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            y = run()
    for seed in range(20):
        ids.copy_(routing(tokens, skew=seed / 4, seed=seed))
        y.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert close(y, reference(x, w, ids, fusion)), seed
    first = y.clone()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(first, y)


def test_a_capture_without_a_workspace_says_what_is_missing(kernels, mt):
    x, w, _ = operands(32, "permute_x")
    m_sizes, gather = mt.route(kernels, routing(32), E)
    with pytest.raises(Exception, match="a workspace is needed before the capture"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()), mt.Workspace():
            mt.grouped_gemm(kernels, x.detach(), w.detach(), m_sizes, gather, top_k=TOP_K, fusion="permute_x")
    torch.cuda.synchronize()


def test_two_streams_and_a_busy_device(kernels, mt):
    """Launches in two streams at the same time, beside a GEMM that holds the SMs."""
    tokens, fusion = 300, "permute_x"
    x, w, _ = operands(tokens, fusion)
    x, w = x.detach(), w.detach()
    big = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    streams = [torch.cuda.Stream() for _ in range(3)]
    routings = [routing(tokens, skew, seed=7) for skew in (0.0, 2.0)]
    sorted_ids = [mt.route(kernels, ids, E) for ids in routings]
    torch.cuda.synchronize()
    results = [[], []]
    for _ in range(20):
        with torch.cuda.stream(streams[2]):
            big @ big
        for stream, (m_sizes, gather), kept in zip(streams, sorted_ids, results):
            with torch.cuda.stream(stream):
                kept.append(mt.grouped_gemm(kernels, x, w, m_sizes, gather, top_k=TOP_K, fusion=fusion))
    torch.cuda.synchronize()
    for ids, kept in zip(routings, results):
        wanted = reference(x, w, ids, fusion)
        assert all(close(y, wanted) and torch.equal(y, kept[0]) for y in kept)


# Candidates whose blocks wait for one another: cooperative launches.
WAITING = ["wgmma split=0 tiles=static cluster=none mix=0", "wgmma pace=common tiles=static split=1 mix=0"]


def export_one(path, knobs, *words):
    """An export of a candidate with these knobs, "wgmma split=2", which need not be the winner."""
    variant, *settings = knobs.split()
    moetune("tune", *LAYER, "--tokens", "300", "--variant", variant, *(word for knob in settings for word in ("--set", knob)),
            *words, *FEW, "-o", "t.json", cwd=path)
    trials = [json.loads(line) for line in (path / "t.json.journal.jsonl").read_text().splitlines()]
    table = json.loads((path / "t.json").read_text())
    fitting = {json.dumps(trial["candidate"]) for trial in trials if trial["kind"] == "trial" and trial["status"] == "ok"
               and all(str(trial["candidate"][knob.split("=")[0]]) == knob.split("=")[1] for knob in settings)}
    table["entries"][0]["candidate"] = json.loads(min(fitting))
    (path / "t.json").write_text(json.dumps(table))
    moetune("export", "t.json", "--format", "kernels", "-o", "out", cwd=path)


RAGGED = [("wgmma tma_store=yes swap=no cluster=none", ""), ("wgmma tma_store=no swap=yes cluster=none", ""),
          ("wgmma tma_store=yes swap=no cluster=m", ""), ("wgmma tma_store=no swap=no split=2 tiles=static", ""),
          ("mma block_m=64 block_n=64", ""), ("simt block_m=64 block_n=64", ""),
          ("wgmma tma_store=yes swap=no cluster=none in_flight=0", "accumulate"),
          ("wgmma tma_store=no swap=yes cluster=none", "fp32_dw"),
          ("wgmma tma_store=no swap=no cluster=none", "accumulate+fp32_dw"),
          ("wgmma gather=first", "permute_y+topk_weights"), ("mma block_m=64 block_n=64", "permute_y+topk_weights"),
          ("mma block_m=64 block_n=64", "permute_y+topk_weights+accumulate"), ("simt block_m=64 block_n=64", "accumulate")]


@pytest.mark.skipif(torch.cuda.get_device_capability() != (9, 0), reason="wgmma needs Hopper")
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("knobs, fusion", RAGGED)
def test_dw_reads_no_row_beside_those_of_an_expert(tmp_path, knobs, fusion, dtype):
    """Rows of every second expert are NaN: the others' dW must not know. dY lies by slot with permute_y."""
    words = ["--" + word.replace("_", "-") for word in fusion.split("+") if word]
    export_one(tmp_path, knobs, "--op", "dw", "--dtype", dtype, *words,
               "--space", "backward" if knobs.startswith("wgmma") else "full")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path / 'out')!r})
import torch, moetune_kernels as mk
library = mk.Library({str(tmp_path / 'out')!r})
fusion, dtype = {fusion!r}.split("+"), {{"bf16": torch.bfloat16, "fp16": torch.float16}}[{dtype!r}]
kernel = library.pick(experts={E}, top_k={TOP_K}, n={N}, k={K}, tokens=300, op="dw", dtype={dtype!r},
                      fusion={fusion or "plain"!r})
workspace = mk.Workspace(library, 300)
for sizes in ([1, 63, 64, 65, 129, 7, 0, 271], [75] * 8, [0, 299, 1, 1, 0, 298, 1, 0]):
    assert sum(sizes) == 600 and len(sizes) == {E}
    ends = torch.tensor(sizes).cumsum(0).tolist()
    for first in (0, 1):
        x = torch.randn(600, {K}, device="cuda", dtype=dtype)
        dy = torch.randn(600, {N}, device="cuda", dtype=dtype)
        for e in range(first, {E}, 2):
            x[ends[e] - sizes[e]:ends[e]] = dy[ends[e] - sizes[e]:ends[e]] = float("nan")
        result = torch.float32 if "fp32_dw" in fusion else dtype
        before = torch.randn({E}, {N}, {K}, device="cuda").to(result)
        dw = before.clone() if "accumulate" in fusion else torch.full_like(before, float("nan"))
        operands = dict(x=x, dw=dw, dy=dy, m_sizes=torch.tensor(sizes, dtype=torch.int32, device="cuda"))
        weights = torch.ones(600, 1, device="cuda")
        if "permute_y" in fusion:
            slots = torch.randperm(600, device="cuda")
            by_slot = torch.rand(600, device="cuda")
            weights = by_slot[slots].unsqueeze(1)
            operands |= dict(dy=torch.empty_like(dy).index_copy(0, slots, dy), gather_indices=slots.int(), topk_weights=by_slot)
        kernel.launch(300, workspace, **operands)
        torch.cuda.synchronize()
        for e in range(1 - first, {E}, 2):
            rows = slice(ends[e] - sizes[e], ends[e])
            wanted = (dy[rows].float() * weights[rows]).T @ x[rows].float()
            wanted += before[e].float() if "accumulate" in fusion else 0
            assert bool(dw[e].isfinite().all()), (sizes, e)
            assert (dw[e].float() - wanted).norm() <= 8e-3 * wanted.norm(), (sizes, e)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.skipif(torch.cuda.get_device_capability() != (9, 0), reason="wgmma needs Hopper")
@pytest.mark.parametrize("knobs", WAITING)
def test_blocks_that_wait_for_one_another_run_beside_others(tmp_path, knobs):
    export_one(tmp_path, knobs, "--space", "quick")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path / 'out')!r})
import torch, moetune_kernels as mk
library = mk.Library({str(tmp_path / 'out')!r})
kernel = library.pick(experts={E}, top_k={TOP_K}, n={N}, k={K}, tokens=300)
x = torch.randn(600, {K}, device="cuda", dtype=torch.bfloat16)
w = torch.randn({E}, {N}, {K}, device="cuda", dtype=torch.bfloat16)
m = torch.full(({E},), 75, dtype=torch.int32, device="cuda")
calls = [(mk.Workspace(library, 300), torch.cuda.Stream(), torch.empty(600, {N}, device="cuda", dtype=torch.bfloat16)) for _ in range(3)]
torch.cuda.synchronize()
for _ in range(200):
    for workspace, stream, y in calls:
        kernel.launch(300, workspace, stream=stream.cuda_stream, x=x, w=w, y=y, m_sizes=m)
torch.cuda.synchronize()
wanted = torch.cat([x[75 * e:75 * e + 75].float() @ w[e].float().T for e in range({E})])
for _, _, y in calls:
    assert ((y.float() - wanted).norm() / wanted.norm()).item() < 8e-3
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert any(launch["cooperative"] for kernel in manifest["kernels"] for launch in kernel["launches"])


FP8 = [("block", "plain", "bf16", False), ("block", "permute_x", "bf16", False),
       ("channel", "permute_y+topk_weights", "fp16", True), ("tensor", "permute_y", "bf16", False)]
N8, K8 = 320, 400  # that 128 divides neither


@pytest.fixture(scope="module")
def fp8(tmp_path_factory):
    """An export of the formats."""
    path = tmp_path_factory.mktemp("fp8")
    for place, (scales, fusion, out, fast) in enumerate(FP8):
        moetune("tune", *LAYER[:4], "--n", N8, "--k", K8, "--tokens", "32,300", "--routing", "uniform,zipf:1.5", *FEW,
                "--dtype", "fp8", "--scales", scales, "--out-dtype", out, *["--fast-sums"] * fast, *FUSIONS[fusion],
                "-o", f"{place}.json", cwd=path)
    moetune("merge", *(f"{place}.json" for place in range(len(FP8))), "-o", "all.json", cwd=path)
    moetune("export", "all.json", "--format", "kernels", "-o", "out", cwd=path)
    sys.path.insert(0, str(path / "out"))
    return path / "out"


def fp8_operands(tokens, scales, fusion):
    """x and w with scales, and what they stand for."""
    torch.manual_seed(tokens)
    rows = tokens if fusion == "permute_x" else tokens * TOP_K
    sides = {"block": ((rows, -(-K8 // 128)), (E, -(-N8 // 128), -(-K8 // 128))), "channel": ((rows, 1), (E, N8, 1)),
             "tensor": ((1, 1), (E, 1, 1))}[scales]
    pairs = []
    for shape, scaled, block in zip(((rows, K8), (E, N8, K8)), sides, (1, 128)):
        values = torch.randn(shape, device="cuda").to(torch.float8_e4m3fn)
        factors = each = torch.rand(scaled, device="cuda") + 0.5
        if scales == "block":
            each = factors.repeat_interleave(block, -2)[..., :shape[-2], :].repeat_interleave(128, -1)[..., :K8]
        pairs.append((values, factors, values.float() * each))
    return zip(*pairs)


def along_rows(scales):
    """They lie as DeepGEMM wants them: rows are next to one another, columns begin at multiples of 16 bytes."""
    rows, columns = scales.shape
    room = torch.full((columns, (rows + 3) // 4 * 4), float("nan"), device="cuda")
    return room.t()[:rows].copy_(scales)


@pytest.mark.parametrize("scales, fusion, out, fast", FP8)
def test_fp8_is_that_of_what_its_operands_stand_for(fp8, scales, fusion, out, fast):
    import moetune_torch as mt
    for tokens in (1, 32, 300):
        (x, w), (x_scales, w_scales), real = fp8_operands(tokens, scales, fusion)
        weights = torch.rand(tokens, TOP_K, device="cuda") if "weights" in fusion else None
        flat = None if weights is None else weights.reshape(-1)
        ids = routing(tokens)

        def run(its_scales):
            m_sizes, gather = mt.route(fp8, ids, E)
            return mt.scaled_grouped_gemm(fp8, x, w, its_scales, w_scales, m_sizes, gather, flat, top_k=TOP_K, fusion=fusion,
                                          scales=scales, out_dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[out], fast_sums=fast)
        for its_scales in (x_scales, along_rows(x_scales)):
            assert close(run(its_scales), reference(*real, ids, fusion, weights)), tokens
        stream, graph, workspace = torch.cuda.Stream(), torch.cuda.CUDAGraph(), mt.Workspace()
        stream.wait_stream(torch.cuda.current_stream())
        with workspace:
            with torch.cuda.stream(stream):
                run(its_scales)
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                y = run(its_scales)
        for seed in range(3):
            ids.copy_(routing(tokens, skew=seed, seed=seed))
            y.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            assert close(y, reference(*real, ids, fusion, weights)), (tokens, seed)


def test_fp8_is_launched_from_c(fp8, tmp_path):
    tokens = 300
    (tmp_path / "run.c").write_text(f"""
#include "moetune.h"
int run(const char* folder, const void** at, int64_t x_row, int64_t x_step, void* stream) {{
  moetune_library* library;
  const moetune_kernel* kernel;
  moetune_workspace* workspace;
  moetune_request request = {{"fwd", "fp8-block", "plain", {E}, {TOP_K}, {N8}, {K8}}};
  moetune_operand operands[] = {{{{"x", at[0], -1}}, {{"w", at[1], -1}}, {{"y", at[2], -1}}, {{"m_sizes", at[3], -1}},
                                {{"x_scales", at[4], -1}}, {{"w_scales", at[5], -1}}}};
  moetune_strides strides = {{x_row, x_step, 12, 4, 1}};
  if (moetune_open(folder, 0, &library) || moetune_pick(library, &request, {tokens}, 0, &kernel) ||
      moetune_make_workspace(library, &request, 1, {tokens}, &workspace)) return 1;
  if (x_step == 1) return moetune_launch(kernel, {tokens}, -1, workspace, operands, 6, stream);
  return moetune_launch_scaled(kernel, {tokens}, -1, workspace, operands, 6, &strides, stream);
}}
""")
    subprocess.run(["gcc", "-shared", "-fPIC", "-I", fp8 / "include", tmp_path / "run.c", "-L", fp8 / "lib", "-lmoetune",
                    f"-Wl,-rpath,{fp8 / 'lib'}", "-o", tmp_path / "run.so"], check=True)
    run = ctypes.CDLL(str(tmp_path / "run.so")).run
    run.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    (x, w), (x_scales, w_scales), real = fp8_operands(tokens, "block", "plain")
    ids = routing(tokens)
    m_sizes = torch.bincount(ids.reshape(-1), minlength=E).int()
    for its_scales in (x_scales, along_rows(x_scales)):
        y = torch.full((tokens * TOP_K, N8), float("nan"), device="cuda", dtype=torch.bfloat16)
        at = (ctypes.c_void_p * 6)(*(tensor.data_ptr() for tensor in (x, w, y, m_sizes, its_scales, w_scales)))
        assert run(str(fp8).encode(), at, *its_scales.stride(), torch.cuda.current_stream().cuda_stream) == 0
        torch.cuda.synchronize()
        assert close(y, reference(*real, ids, "plain"))


def test_the_cpp_example(kernels, tmp_path):
    binary = tmp_path / "launch"
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    lib = kernels / "lib"
    subprocess.run(["g++", "-std=c++17", "-O1", "-I", kernels / "include", "-I", f"{cuda}/include", kernels / "examples/launch.cpp",
                    "-L", lib, "-lmoetune", f"-Wl,-rpath,{lib}", "-L", f"{cuda}/lib64/stubs", "-lcuda", "-o", binary], check=True)
    result = subprocess.run([binary, kernels], stdout=subprocess.PIPE, universal_newlines=True)
    print(result.stdout)
    assert result.returncode == 0


@pytest.mark.parametrize("more, sums", [([], []), (["--backward"], []), (["--backward"], ["--sum-slots"])])
def test_the_python_example(kernels, tmp_path, more, sums):
    """A layer whose down projection is of the same size as the exported one."""
    hidden, intermediate = K, N // 2
    gates = ["--projection", "down", "--gated", "silu"] if sums else []
    for name, words in {"up": ["--n", 2 * intermediate, "--k", hidden, "--permute-x"],
                        "down": ["--n", hidden, "--k", intermediate, "--permute-y", "--topk-weights", *sums]}.items():
        for op, op_words in {"fwd": [], "dw": [],
                             "dx": ["--sum-slots"] if name == "up" else ["--weight-gradient", *gates]}.items():
            moetune("tune", "--experts", E, "--top-k", TOP_K, *words, "--op", op, *op_words, "--tokens", 64, *FEW,
                    "-o", f"{name}-{op}.json", cwd=tmp_path)
    moetune("tune", "--experts", E, "--top-k", TOP_K, "--n", 2 * intermediate, "--k", hidden, "--permute-x", "--gated", "silu",
            "--tokens", 64, *FEW, "-o", "gated.json", cwd=tmp_path)
    moetune("merge", "gated.json", *(f"{name}-{op}.json" for name in ("up", "down") for op in ("fwd", "dx", "dw")), "-o", "layer.json", cwd=tmp_path)
    moetune("export", "layer.json", "--format", "kernels", "-o", "out", cwd=tmp_path)
    result = subprocess.run([sys.executable, tmp_path / "out/examples/moe_layer.py", tmp_path / "out", "--hidden", str(hidden),
                             "--intermediate", str(intermediate), "--experts", str(E), "--top-k", str(TOP_K),
                             "--tokens", "64,200", *more], stdout=subprocess.PIPE, universal_newlines=True)
    print(result.stdout)
    assert result.returncode == 0
