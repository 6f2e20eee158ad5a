"""scripts/peer_libraries.py on a torch made of numpy: each peer gets the operands of its op, and its result is put in
expert order. The libraries themselves are replaced by loops with their interfaces."""
import math
import itertools
import sys
import types

import pytest

from conftest import SOURCE

numpy = pytest.importorskip("numpy")

from numpy_torch import made, numpy_torch  # noqa: E402

TOKENS, TOP_K, N, K = 6, 2, 16, 8
M_SIZES = [5, 0, 6, 1]
FUSIONS = [{}, {"permute_x": True}, {"permute_y": True}]
WEIGHTED = {"permute_y": True, "topk_weights": True}
OPS = ["fwd", "dx", "dw"]


@pytest.fixture(scope="module")
def libraries():
    sys.path.insert(0, str(SOURCE / "scripts"))
    import peer_libraries
    return peer_libraries


@pytest.fixture
def problem(libraries):
    def make(op, fusion=None):
        cell = {"projection": "down" if (fusion or {}).get("permute_y") else "up", "op": op, "experts": 4,
                "top_k": TOP_K, "n": N, "k": K, "dtype": "bf16", "tokens": TOKENS, **(fusion or {})}
        return libraries.Problem(numpy_torch(), {"id": "a", "cell": cell, "m_sizes": M_SIZES}, "cuda:0")

    return make


def dequantised(p, x, x_scales, w, w_scales):
    """x and w of any shape times their scales."""
    if p.scales == "block":
        x_scales = numpy.repeat(x_scales, 128, -1)[..., : p.k]
        w_scales = numpy.repeat(numpy.repeat(w_scales, 128, -2)[..., : p.n, :], 128, -1)[..., : p.k]
        return x * x_scales, w * w_scales
    return x * x_scales[..., None], w * w_scales[..., None]


def product(p, i=0):
    """By the definition of each op, from the gathered rows of set i: rows in expert order, or dW."""
    begin, parts = 0, []
    weights = p.weights[p.slot_index][:, None] if p.weighted else numpy.ones((p.rows, 1))
    if p.op == "fwd":
        x, w = dequantised(p, p.x[i], p.x_scales[i], p.w[i], p.w_scales[i]) if p.scales else (p.x[i], p.w[i])
    for e, m in enumerate(M_SIZES):
        rows = slice(begin, begin + m)
        begin += m
        if p.op == "fwd":
            parts.append(numpy.einsum("mk,nk->mn", x[rows], w[e]))
        elif p.op == "dx":
            parts.append(numpy.einsum("mn,nk->mk", p.dy[i][rows], p.w[i][e]))
        else:
            parts.append(numpy.einsum("mn,mk->nk", p.dy[i][rows] * weights[rows], p.x[i][rows]))
    if p.op == "dw":
        return numpy.stack(parts)
    return numpy.concatenate(parts) * weights


def require_right(p, variants):
    """All variants give the product, whatever lay in their outputs and in their gathered operands."""
    for variant in variants:
        for i in range(p.sets):
            expected = product(p, i)
            variant.launch(i)
            assert numpy.allclose(variant.in_order(variant.outputs[i]), expected, atol=1e-4), variant.note
        assert p.error_of(variant.in_order(variant.outputs[0])) < 1e-5


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("fusion", [*FUSIONS, WEIGHTED])
def test_the_reference_is_the_definition(problem, op, fusion):
    p = problem(op, fusion)
    assert numpy.allclose(p.expected, product(p), atol=1e-4)
    assert p.error_of(made(product(p))) < 1e-5
    assert p.sets >= 2 and p.result_shape() == p.expected.shape
    wrong = made(product(p))
    wrong[(0, 0) if op != "dw" else (3, 0, 0)] += 1
    assert p.error_of(wrong) > 1e-2
    wrong.fill_(math.nan)
    assert not p.error_of(wrong) < 1


def silu(gate):
    return gate / (1 + numpy.exp(-gate))


def torch_with_silu():
    torch = numpy_torch()
    torch.nn = types.SimpleNamespace(functional=types.SimpleNamespace(silu=silu))
    torch._dynamo = types.SimpleNamespace(reset=lambda: None)
    torch.compile = lambda function, dynamic: function
    return torch


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_pass_joins_gates_and_ups_behind_any_peer(libraries, interleaved):
    torch = torch_with_silu()
    cell = {"projection": "up", "op": "fwd", "experts": 4, "top_k": TOP_K, "n": N, "k": K, "dtype": "bf16", "tokens": TOKENS,
            "permute_x": True, "silu": True, "interleaved": interleaved}
    p = libraries.Problem(torch, {"id": "a", "cell": cell, "m_sizes": M_SIZES}, "cuda:0")
    whole = product(p)
    gate, up = (whole[:, ::2], whole[:, 1::2]) if interleaved else numpy.split(whole, 2, axis=1)
    assert numpy.allclose(p.expected, silu(gate) * up, atol=1e-4)
    for variant in libraries.torch_permuting(p, None) + libraries.cublas_loop(p, None):
        joined = libraries.with_pass(p, variant)
        joined.launch(0)
        assert p.error_of(joined.in_order(joined.outputs[0])) < 1e-5
        assert "activation by torch.compile" in joined.note and libraries.with_pass(p, joined) is joined


def test_dw_of_an_expert_without_rows_must_be_zeros(problem):
    p = problem("dw")
    for value in (1e-3, math.nan):
        result = made(product(p))
        result[1, 0, 0] = value
        assert p.error_of(result) == math.inf


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("peer", ["torch-grouped-mm", "cublas-loop"])
def test_of_rows_permuted_before(libraries, problem, op, peer):
    p = problem(op)
    require_right(p, libraries.PEERS[peer][0](p, None))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("fusion", [*FUSIONS[1:], WEIGHTED])
def test_torch_permutes_what_the_layer_gathers_and_scatters(libraries, problem, op, fusion):
    p = problem(op, fusion)
    variant, = libraries.torch_permuting(p, None)
    expected = {("fwd", "permute_x"): ["index_select"], ("fwd", "permute_y"): ["index_copy_"],
                ("dx", "permute_x"): ["index_copy_"], ("dx", "permute_y"): ["index_select"],
                ("dw", "permute_x"): ["index_select"], ("dw", "permute_y"): ["index_select"],
                ("fwd", *WEIGHTED): ["mul_", "index_copy_"], ("dx", *WEIGHTED): ["index_select", "mul_"],
                ("dw", *WEIGHTED): ["index_select", "mul_"]}[op, *fusion]
    assert [step for step in variant.note.split(", ") if step != "torch._grouped_mm"] == expected
    products = [product(p, i) for i in range(p.sets)]
    for _, _, operands in p.gathered:
        for rows in operands:
            rows.fill_(math.nan)  # the launch must gather them
    for i in range(p.sets):
        variant.launch(i)
        assert numpy.allclose(variant.in_order(variant.outputs[i]), products[i], atol=1e-4)
    if p.scatters:
        assert not numpy.allclose(variant.outputs[0], products[0], atol=1e-2)


@pytest.mark.parametrize("op", OPS)
def test_quack_gets_the_ends_of_its_ragged_dimension(libraries, problem, op, monkeypatch):
    def gemm(left, right, out, dynamic_scheduler, tuned, cu_seqlens_m=None, cu_seqlens_k=None):
        assert (cu_seqlens_k is None) == (op != "dw") and tuned
        ends = cu_seqlens_m if cu_seqlens_k is None else cu_seqlens_k
        assert list(ends) == [0, 5, 5, 11, 12]
        out[...] = numpy_torch()._grouped_mm(left, right, ends[1:])

    monkeypatch.setitem(sys.modules, "quack", types.ModuleType("quack"))
    monkeypatch.setattr(sys.modules["quack"], "gemm_interface", types.SimpleNamespace(gemm=gemm), raising=False)
    p = problem(op)
    variants = libraries.quack(p, None)
    assert [variant.note.split("; ")[1].split()[0] for variant in variants] == ["static", "dynamic"]
    require_right(p, variants)


@pytest.mark.parametrize("interleaved", [False, True])
def test_quack_joins_gates_and_ups_itself(libraries, interleaved, monkeypatch):
    cell = {"projection": "up", "op": "fwd", "experts": 4, "top_k": TOP_K, "n": N, "k": K, "dtype": "bf16", "tokens": TOKENS,
            "silu": True, "interleaved": interleaved}
    p = libraries.Problem(torch_with_silu(), {"id": "a", "cell": cell, "m_sizes": M_SIZES}, "cuda:0")

    def gemm_gated(x, w, postact_out, activation, store_preact, concat_layout, **how):
        assert (activation, store_preact, concat_layout) == ("swiglu", False, None if interleaved else ("B",))
        postact_out[...] = p.activated(numpy_torch()._grouped_mm(x, w, how["cu_seqlens_m"][1:]))

    monkeypatch.setitem(sys.modules, "quack", types.SimpleNamespace(
        gemm_interface=types.SimpleNamespace(gemm_gated=gemm_gated)))
    for variant in libraries.quack(p, None):
        joined = libraries.with_pass(p, variant)
        joined.launch(0)
        assert joined is variant and p.error_of(joined.outputs[0]) < 1e-5


def with_sonicmoe(monkeypatch):
    """SonicMoE's two products by its documentation: W is [n, k, experts], gates and ups alternate."""
    def multiply(x, w, ends):
        return numpy_torch()._grouped_mm(x, w.permute(2, 1, 0), ends[1:])

    def up(x, w1, z, y1, b1, expert_frequency_offset, expert_schedule_order, x_gather_idx, stream_id, activation_type,
           is_glu_activation, is_inference_mode_enabled):
        assert (b1, expert_schedule_order, stream_id) == (None, None, 7)
        assert (activation_type, is_glu_activation, is_inference_mode_enabled) == ("swiglu", True, True)
        assert w1.shape == (N, K, 4) and z.shape == (sum(M_SIZES), N) and x_gather_idx.dtype == numpy.int32
        whole = multiply(x[x_gather_idx], w1, expert_frequency_offset)
        y1[...] = silu(whole[:, ::2]) * whole[:, 1::2]

    def down(w2, y1, y2, b2, expert_frequency_offset, expert_schedule_order, x_gather_idx, stream_id):
        assert (b2, expert_schedule_order, stream_id) == (None, None, 7) and len(x_gather_idx) == len(y1)
        y2[...] = multiply(y1, w2, expert_frequency_offset)

    for name in ("sonicmoe", "sonicmoe.functional", "sonicmoe.functional.forward"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules[name]._up_projection_forward, sys.modules[name]._down_projection_forward = up, down


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("permute_x", [False, True])
def test_sonicmoe_gathers_and_combines_alternating_gates_and_ups(libraries, interleaved, permute_x, monkeypatch):
    with_sonicmoe(monkeypatch)
    cell = {"projection": "up", "op": "fwd", "experts": 4, "top_k": TOP_K, "n": N, "k": K, "dtype": "bf16", "tokens": TOKENS,
            "silu": True, "interleaved": interleaved, "permute_x": permute_x}
    p = libraries.Problem(torch_with_silu(), {"id": "a", "cell": cell, "m_sizes": M_SIZES}, "cuda:0")
    before = [w.copy() for w in p.w]
    variant, = libraries.sonicmoe(p, None)
    assert libraries.with_pass(p, variant) is variant
    assert ("permute_x in the kernel" in variant.note) == permute_x
    assert ("of W by turns before" in variant.note) != interleaved
    variant.launch(0)
    assert p.error_of(variant.outputs[0]) < 1e-5
    assert all((ours == theirs).all() for ours, theirs in zip(before, p.w)), "other peers multiply by it"


@pytest.mark.parametrize("fusion", [{"projection": "down"}, {"permute_y": True}])
def test_sonicmoe_multiplies_down_in_expert_order(libraries, problem, fusion, monkeypatch):
    with_sonicmoe(monkeypatch)
    p = problem("fwd", fusion)
    variants = libraries.sonicmoe(p, None)
    require_right(p, variants)
    assert variants[0].note == "X permuted before"


@pytest.mark.parametrize("cell", [{"projection": "up"}, {"silu": True, "dtype": "fp16"}, {"gelu": True}])
def test_sonicmoe_says_which_cells_it_has(libraries, problem, cell):
    p = problem("fwd")
    p.dtype_name, p.activation = cell.get("dtype", "bf16"), next((a for a in ("silu", "gelu") if a in cell), None)
    with pytest.raises(ValueError, match="bf16 alone, of up with --gated silu and of down"):
        libraries.sonicmoe(p, None)


class Exported:
    """A kernel of moetune_kernels.py by its documentation: rows of permute_x are tokens, those of permute_y slots."""
    name, id = "wgmma-1", "a"

    def __init__(self, asked):
        self.asked = asked
        names = {"fwd": "x w y", "dx": "dy w dx", "dw": "dy x dw"}[asked["op"]].split() + ["m_sizes"]
        names += ["gather_indices"] if asked["fusion"] != "plain" else []
        names += ["topk_weights"] if asked["fusion"].endswith("topk_weights") else []
        self.names = names

    def needs(self, tokens, rows):
        return [types.SimpleNamespace(name=name) for name in self.names]

    def launch(self, tokens, workspace, rows, m_sizes, gather_indices=None, topk_weights=None, **operands):
        assert (tokens, rows, workspace) == (TOKENS, sum(M_SIZES), "workspace")
        given = {"gather_indices": gather_indices, "topk_weights": topk_weights}
        assert {"m_sizes", *operands, *(name for name, value in given.items() if value is not None)} == set(self.names)
        op, fusion = self.asked["op"], self.asked["fusion"]
        slots = numpy.arange(sum(M_SIZES)) if gather_indices is None else gather_indices
        x, dy, w, y, dx, dw = (operands.get(name) for name in ("x", "dy", "w", "y", "dx", "dw"))
        x = x[slots // TOP_K] if x is not None and fusion == "permute_x" else x
        dy = dy[slots] if dy is not None and fusion == "permute_y" else dy
        begin = 0
        for e, m in enumerate(m_sizes):
            rows = numpy.arange(begin, begin + m)
            begin += m
            if op == "fwd":
                weights = 1 if topk_weights is None else topk_weights[slots[rows]][:, None]
                y[slots[rows] if fusion.startswith("permute_y") else rows] = x[rows] @ w[e].T * weights
            elif op == "dx":
                dx[slots[rows] if fusion == "permute_x" else rows] = dy[rows] @ w[e]
            else:
                dw[e] = dy[rows].T @ x[rows]


@pytest.mark.parametrize("op, fusion", [*itertools.product(OPS, FUSIONS), ("fwd", {"permute_y": True, "topk_weights": True})])
def test_an_export_is_launched_with_the_operands_of_its_fusion(libraries, problem, op, fusion, monkeypatch):
    class Library:
        def __init__(self, folder):
            assert folder == "/kernels"

        def pick(self, **asked):
            assert asked.pop("skew") == pytest.approx(6 * 4 / 12)
            assert asked == {"op": op, "dtype": "bf16", "fusion": "+".join(fusion) or "plain", "experts": 4,
                             "top_k": TOP_K, "n": N, "k": K, "tokens": TOKENS}
            return Exported(asked)

    monkeypatch.setitem(sys.modules, "moetune_kernels",
                        types.SimpleNamespace(Library=Library, Workspace=lambda library, tokens, requests: "workspace"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    p = problem(op, fusion)
    require_right(p, libraries.moetune_export(p, types.SimpleNamespace(export="/kernels")))


class Unsloth:
    """Its three functions by their documentation: gather_indices are slots, X of permute_x has a row a token."""

    def __init__(self):
        self._autotuned_kernel = types.SimpleNamespace(cache={"key": "tuned for another number of tokens"})

    @staticmethod
    def check(m_sizes, gather_indices, topk, autotune):
        assert list(m_sizes) == M_SIZES and len(gather_indices) == TOKENS * TOP_K and topk == TOP_K and autotune

    @staticmethod
    def loaded(rows, gather_indices, topk, gathers):
        count = len(gather_indices)
        assert rows.shape[0] == (count // topk if gathers == "tokens" else count)
        if gathers == "tokens":
            return rows[gather_indices // topk]
        return rows[gather_indices] if gathers == "slots" else rows

    @staticmethod
    def stored(rows, gather_indices, scatters):
        result = numpy.full_like(rows, math.nan)
        result[gather_indices if scatters else slice(None)] = rows
        return result

    def grouped_gemm_forward(self, X, W, topk, m_sizes, gather_indices, permute_x, permute_y, autotune):
        self.check(m_sizes, gather_indices, topk, autotune)
        x = self.loaded(X, gather_indices, topk, "tokens" if permute_x else "")
        y = numpy_torch()._grouped_mm(x, W.transpose(-2, -1), numpy.cumsum(m_sizes))
        return self.stored(y, gather_indices, permute_y)

    def grouped_gemm_dX(self, dY, W, gather_indices, m_sizes, topk, permute_x, permute_y, autotune):
        self.check(m_sizes, gather_indices, topk, autotune)
        dy = self.loaded(dY, gather_indices, topk, "slots" if permute_y else "")
        return self.stored(numpy_torch()._grouped_mm(dy, W, numpy.cumsum(m_sizes)), gather_indices, permute_x)

    def grouped_gemm_dW(self, X, dY, m_sizes, gather_indices, topk, permute_x, permute_y, autotune):
        self.check(m_sizes, gather_indices, topk, autotune)
        x = self.loaded(X, gather_indices, topk, "tokens" if permute_x else "")
        dy = self.loaded(dY, gather_indices, topk, "slots" if permute_y else "")
        return numpy_torch()._grouped_mm(dy.T, x, numpy.cumsum(m_sizes))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("fusion", FUSIONS)
def test_unsloth_fuses_the_permutations_and_is_tuned_anew(libraries, problem, op, fusion, monkeypatch):
    interface = Unsloth()
    for name in ("unsloth", "unsloth.kernels", "unsloth.kernels.moe"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "unsloth.kernels.moe.grouped_gemm", types.SimpleNamespace(interface=interface))
    p = problem(op, fusion)
    variants = libraries.unsloth(p, None)
    assert interface._autotuned_kernel.cache == {}
    assert variants[0].note.startswith("".join(fusion) or p.moved_before())
    require_right(p, variants)


class DeepGemm(types.SimpleNamespace):
    """Contiguous layouts: an owner a row; padded rows are random for forward and dX, and must be zeros for dW."""

    @staticmethod
    def multiply(inputs, w, outputs, owners, across):
        for row, e in enumerate(owners):
            outputs[row] = math.nan if e < 0 else (w[e].T @ inputs[row] if across else w[e] @ inputs[row])

    def m_grouped_bf16_gemm_nt_contiguous(self, inputs, w, outputs, owners):
        self.multiply(inputs, w, outputs, owners, False)

    def m_grouped_bf16_gemm_nn_contiguous(self, inputs, w, outputs, owners):
        self.multiply(inputs, w, outputs, owners, True)

    def k_grouped_bf16_gemm_tn_contiguous(self, a, b, d, heights, layout, c):
        assert heights == [128, 0, 128, 128] == list(layout)
        if c is None and self.adds_only:
            raise RuntimeError("dW must be fp32")
        for e, end in enumerate(numpy.cumsum(heights)):
            rows = slice(end - heights[e], end)
            d[e] = a[rows].T @ b[rows] + (0 if c is None else c[e])


@pytest.mark.parametrize("op", OPS)
def test_deepgemm_gets_padded_experts(libraries, problem, op, monkeypatch):
    monkeypatch.setitem(sys.modules, "deep_gemm", DeepGemm(adds_only=False))
    p = problem(op)
    require_right(p, libraries.PEERS["deepgemm-contiguous"][0](p, None))


def test_deepgemm_that_only_adds_to_dw_starts_from_zeros(libraries, problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "deep_gemm", DeepGemm(adds_only=True))
    p = problem("dw")
    overwriting, adding = libraries.PEERS["deepgemm-contiguous"][0](p, None)
    with pytest.raises(RuntimeError):
        overwriting.launch(0)
    require_right(p, [adding])
    require_right(p, [adding])  # a second launch adds to zeros too
    assert adding.note.endswith("fp32 dW, zeroed, then added to")


@pytest.fixture
def deep_gemm(monkeypatch):
    """DeepGEMM's products of fp8, by their documentation, of the problem that is given to it."""
    def make(p):
        def multiply(inputs, weights, result, expert, rows):
            (x, of_x), (w, of_w) = inputs, weights
            assert of_x.strides[-2:] == (4, 4 * x.shape[-2]) and of_w.flags.c_contiguous
            where = (expert, rows) if x.ndim == 3 else rows
            x, w = dequantised(p, x[where], of_x[where], w[expert], of_w[expert])
            result[where] = x @ w.T

        def contiguous(inputs, weights, result, owners):
            for row, e in enumerate(owners):
                result[row] = math.nan
                if e >= 0:
                    multiply(inputs, weights, result, e, slice(row, row + 1))

        def masked(inputs, weights, result, m_sizes, expected):
            result.fill_(math.nan)
            for e, m in enumerate(m_sizes):
                multiply(inputs, weights, result, e, slice(0, m))

        monkeypatch.setitem(sys.modules, "deep_gemm", types.SimpleNamespace(
            m_grouped_fp8_gemm_nt_contiguous=contiguous, m_grouped_fp8_fp4_gemm_nt_masked=masked,
            get_mk_alignment_for_contiguous_layout=lambda: 128, set_mk_alignment_for_contiguous_layout=lambda rows: None))

    return make


@pytest.mark.parametrize("scales", ["block", "channel", "tensor"])
@pytest.mark.parametrize("fusion", FUSIONS)
def test_fp8_is_multiplied_with_its_scales(libraries, scales, fusion, deep_gemm):
    n, k = 160, 272  # blocks at their ends are narrower
    cell = {"projection": "up", "op": "fwd", "experts": 4, "top_k": TOP_K, "n": n, "k": k, "dtype": "fp8",
            "scales": scales, "out_dtype": "bf16", "fast_sums": False, "tokens": TOKENS, **fusion}
    p = libraries.Problem(numpy_torch(), {"id": "a", "cell": cell, "m_sizes": M_SIZES}, "cuda:0")
    assert numpy.allclose(p.expected, product(p), atol=1e-3)
    assert len(numpy.unique(p.w_scales[0])) == {"block": 4 * 2 * 3, "channel": 4 * n, "tensor": 4}[scales]
    assert len(numpy.unique(p.x_scale_source[0])) == {"block": TOKENS * 3, "channel": TOKENS, "tensor": 1}[scales]

    deep_gemm(p)
    peers = [peer for peer in libraries.FP8_PEERS[scales] if peer != "triton-vllm"]
    assert peers
    for peer in peers:
        variants = libraries.PEERS[peer][0](p, None)
        assert len(variants) == (1 if peer.startswith("torch") else 2)
        require_right(p, variants)


def test_a_pass_behind_fp8_quantises_too(libraries, deep_gemm):
    cell = {"projection": "up", "op": "fwd", "experts": 4, "top_k": TOP_K, "n": 512, "k": 256, "dtype": "fp8", "scales": "block",
            "out_dtype": "fp8", "silu": True, "tokens": TOKENS}
    p = libraries.Problem(torch_with_silu(), {"id": "a", "cell": cell, "m_sizes": M_SIZES}, "cuda:0")
    deep_gemm(p)
    for variant in libraries.deepgemm_contiguous(p, None) + libraries.deepgemm_masked(p, None):
        finished = libraries.with_pass(p, variant)
        finished.launch(0)
        values, scales = finished.outputs[0]
        assert scales.shape == (*values.shape[:-1], 2)
        assert p.error_of(finished.in_order((values, scales))) < 1e-5
        assert numpy.nanmax(numpy.abs(values)) == pytest.approx(448)
        assert "activation and quantisation by torch.compile" in finished.note


@pytest.mark.parametrize("m_sizes", [[1] * 8, [64] * 8, [1024] * 8])
@pytest.mark.parametrize("scales, group", [("block", 32), ("channel", 1)])
def test_configurations_of_fp8_begin_with_vllms_and_fit_an_sm(libraries, m_sizes, scales, group):
    tried = [config for config, _ in libraries.fp8_configs(8, 100, m_sizes, scales, True)]
    assert tried[0] == (64, 128, group, 4, 3, False) and 10 <= len(tried) == len(set(tried)) <= 11
    assert [config for config, _ in libraries.fp8_configs(8, 100, m_sizes, scales, False)] == tried[:1]
    assert all((m + n) * libraries.SCALE_BLOCK * stages <= 227 * 1024 for m, n, _, _, stages, _ in tried)


def test_every_peer_says_its_ops(libraries):
    assert {peer for peer, (_, _, ops) in libraries.PEERS.items() if "dw" in ops} == {
        "torch-grouped-mm", "torch-permuting", "cublas-loop", "deepgemm-contiguous", "quack", "unsloth", "moetune-export"}
    assert all("fwd" in ops and set(ops) <= set(OPS) for _, _, ops in libraries.PEERS.values())
