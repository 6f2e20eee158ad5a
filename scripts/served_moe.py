"""The Triton kernels of vLLM and SGLang for MoE layers as they are: taken out of their source, without importing
the program, and described for scripts/pack_triton.py (--from vllm|sglang), which compiles them.

A pack has both GEMMs of a layer, each with kernels of its own, since top_k and the weights are compiled in: up reads X
by token and stores Y by slot (permute_x+by_slot), down reads and stores by slot and weights rows (by_slot+topk_weights).
sorted_token_ids, expert_ids and num_tokens_post_padded come from a step of ours: both servers make them once a layer.
"""
import ast
import builtins
import importlib.util
import inspect
import pathlib
import tempfile
import typing

import triton
import triton.language as tl

MOST_EXPERTS = 1024  # one block sums the row counts of all experts
KERNEL, GROUPS_KERNEL = "fused_moe_kernel", "fused_moe_kernel_gptq_awq"


class Server(typing.NamedTuple):
    """How a server runs its kernels."""
    title: str
    even_ks: bool       # its kernels have a constant even_Ks
    experts: str        # whose partial blocks it leaves room for
    clamps_depth: bool  # to a block of scales; else a deeper step reads one scale for several blocks


SERVERS = {"vllm": Server("vLLM", False, "experts", True), "sglang": Server("SGLang", True, "(experts + 1)", False)}


class Wrong(ValueError):
    """What cannot be packed, in a sentence."""


@triton.jit
def align_slots(sorted_token_ids, expert_ids, num_tokens_post_padded, first_rows, gather_indices, slots, experts, block_size_m,
                unsorted, EXPERTS: tl.constexpr, CHUNK: tl.constexpr):
    # One block per expert: the slots of its rows, then padding up to a whole block. Unsorted: each slot is a block.
    expert = tl.program_id(0)
    others = tl.arange(0, EXPERTS)
    sizes = (tl.load(first_rows + others + 1, mask=others < experts, other=0)
             - tl.load(first_rows + others, mask=others < experts, other=0))
    first_block = tl.sum(tl.where(others < expert, (sizes + block_size_m - 1) // block_size_m, 0), 0)
    first_row = tl.load(first_rows + expert)
    own_rows = tl.load(first_rows + expert + 1) - first_row
    own_blocks = (own_rows + block_size_m - 1) // block_size_m
    chunk = tl.arange(0, CHUNK)
    own = tl.zeros((CHUNK,), tl.int32) + expert
    for begin in range(0, own_blocks * block_size_m, CHUNK):
        row = begin + chunk
        slot = tl.load(gather_indices + first_row + row, mask=row < own_rows, other=slots)
        if unsorted != 0:
            tl.store(expert_ids + slot, own, mask=row < own_rows)
        else:
            tl.store(sorted_token_ids + first_block * block_size_m + row, slot, mask=row < own_blocks * block_size_m)
    if unsorted == 0:
        for begin in range(0, own_blocks, CHUNK):
            tl.store(expert_ids + first_block + begin + chunk, own, mask=begin + chunk < own_blocks)
    if expert == experts - 1:
        tl.store(num_tokens_post_padded, tl.where(unsorted != 0, slots, first_block + own_blocks) * block_size_m)


def extracted(path, name):
    """The text of a module with that function of the file, and what it calls."""
    try:
        module = ast.parse(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise Wrong(f"{path} cannot be read as Python: {error}") from None
    known = {}
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            known[node.name] = node
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            known[node.targets[0].id] = node
    if name not in known:
        raise Wrong(f"{path} has no function {name}")
    wanted, waiting = [], [name]
    while waiting:
        node = known[waiting.pop()]
        wanted.append(node)
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [ast.parse("triton.jit", mode="eval").body]
            node.body = node.body[1:] if ast.get_docstring(node) else node.body
        own = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
        own |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - own - {"tl", "triton"} - set(dir(builtins))
        for each in sorted(used):
            if each not in known:
                raise Wrong(f"{path}: {getattr(node, 'name', name)} uses '{each}', which the file does not define")
            if known[each] not in wanted and each not in waiting:
                waiting.append(each)
    texts = [ast.unparse(node) for node in module.body if node in wanted]
    return "\n\n\n".join(["import triton\nimport triton.language as tl", *texts]) + "\n"


class Format(typing.NamedTuple):
    """What is multiplied, as --dtype names it. Elements are Triton's; `w` is the name of W's in manifests."""
    x: str
    w: str
    y: str
    scales: str | None = None  # block, channel, tensor or group
    group: int = 0             # columns along k that a scale of groups covers
    w_bytes: str = ""          # elements as the kernel loads them

    @property
    def scales_x(self):
        return self.x in ("fp8", "int8")


def format_of(dtype):
    plain, y = dtype.removesuffix("-fp16"), "fp16" if dtype.endswith("fp16") else "bf16"
    kind, _, scales = plain.partition("-")
    if kind == "fp8":
        return Format("fp8", "fp8", y, scales, 0, "fp8e4nv")
    if kind == "int8":
        return Format("int8" if scales else y, "int8", y, "channel", 0, "i8")
    if kind in ("int4", "uint4"):
        return Format(y, kind, y, "group", int(scales.removeprefix("group")), "u8")
    return Format(plain, plain, plain, None, 0, plain)


def function_of(path, name):
    """The kernel, as Triton has it. Triton reads its text from a file, which lives as long as this process."""
    folder = tempfile.TemporaryDirectory(prefix="moetune-kernel-")
    file = pathlib.Path(folder.name) / "served_kernel.py"
    file.write_text(extracted(path, name), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("served_kernel", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name)
    function.folder = folder
    return function


def pointer(name):
    return {"pointer": name}


def blocks_of(experts):
    """The blocks of rows for which the server has room: each expert ends in a partial block, and every block has a row."""
    return f"max(1, min(ceil_div(rows + {experts} * (BLOCK_SIZE_M - 1), BLOCK_SIZE_M), rows))"


def parameters_of(format, blocks):
    """What the parameters of the kernels are, by name: (type, value of the manifest, whether 16 divides it), or the
    constant that is compiled in."""
    x_scales = ("*fp32", pointer("x_scales"), True) if format.scales_x else None
    w_scales = (f"*{format.y if format.group else 'fp32'}", pointer("w_scales"), True) if format.scales else None
    block, channel, zeros = format.scales == "block", format.scales == "channel", format.w == "uint4"
    x = {"fp8": "fp8e4nv", "int8": "i8"}.get(format.x, format.x)
    row = "k / 2" if format.group else "k"  # bytes of W, or elements
    stride = {name: ("i32", {"int32": name}, False) for name in ("x_scale_row", "w_scale_expert", "w_scale_row")}
    none = {name: None for name in ("b_bias_ptr", "bias_ptr", "a_desc", "b_desc", "add_mask_ptr")}
    zero = {name: 0 for name in ("stride_bbe", "stride_bbn", "stride_bias_e", "stride_bias_n")}
    off = {name: False for name in (
        "HAS_BIAS", "USE_TD", "c_sorted", "FUSE_ADD_TO_OUTPUT", "MASK_OUTPUT",
        "FUSE_SUM_ALL_REDUCE", "FUSE_SWIGLU", "USE_GDC", "GDC_EARLY", "LORA_PRESERVE_BASE")}
    return {
        "a_ptr": (f"*{x}", pointer("x"), True), "b_ptr": (f"*{format.w_bytes}", pointer("w"), True),
        "c_ptr": (f"*{format.y}", pointer("y"), True), "a_scale_ptr": x_scales, "b_scale_ptr": w_scales,
        "b_zp_ptr": ("*u8", pointer("w_zeros"), True) if zeros else None,
        "topk_weights_ptr": ("*fp32", pointer("topk_weights"), True),
        **{f"{name}_ptr": ("*i32", pointer(name), True) for name in ("sorted_token_ids", "expert_ids", "num_tokens_post_padded")},
        "N": ("i32", {"int32": "n"}, True), "K": ("i32", {"int32": "k"}, True),
        "EM": ("i32", {"int32": f"{blocks} * BLOCK_SIZE_M"}, True), "num_valid_tokens": ("i32", {"int32": "slots"}, False),
        "stride_am": ("i32", {"int32": "k"}, True), "stride_ak": 1, "stride_be": ("i64", {"int64": f"n * ({row})"}, True), "stride_bk": 1,
        "stride_bn": ("i32", {"int32": row}, True), "stride_cm": ("i32", {"int32": "n"}, True), "stride_cn": 1,
        # Scales lie row by row; of channels each row has one. Zero points of two rows share bytes.
        "stride_asm": stride["x_scale_row"] if block else 1, "stride_ask": 1,
        "stride_bse": stride["w_scale_expert"] if block or channel or format.group else 1, "stride_bsk": 1,
        "stride_bsn": stride["w_scale_row"] if block or format.group else 1,
        "stride_bze": ("i32", {"int32": "w_scale_expert / 2"}, False) if zeros else 0, "stride_bzk": 1 if zeros else 0,
        "stride_bzn": stride["w_scale_row"] if zeros else 0,
        "group_n": 128 if block else 0, "group_k": 128 if block else 0, "SPLIT_K": 1, "ROUTER_TOPK": 1,
        "filter_expert": True,
        "compute_type": {"bf16": tl.bfloat16, "fp16": tl.float16}[format.y], "use_fp8_w8a8": format.x == "fp8",
        "use_int8_w8a8": format.x == "int8", "use_int8_w8a16": format.w == "int8" and format.x != "int8",
        "use_int4_w4a16": format.group > 0, "has_zp": zeros, "group_size": format.group,
        "per_channel_quant": channel and format.scales_x, **none, **zero, **off,
    }


def describe(dtype, server, file, top_k=8, timed=False, arch="sm_90a", gemms=()):
    """As describe of triton_moe.py. `dtype` is one of pack_triton.py's; `gemms`: (projection, n, k) of all layers, for kernels
    that have n and k compiled in: those of groups."""
    path = pathlib.Path(file)
    format = format_of(dtype)
    name, scales, result = GROUPS_KERNEL if format.group else KERNEL, format.scales, format.y
    function = function_of(path, name)
    facts = SERVERS[server]
    if ("even_Ks" in function.arg_names) != facts.even_ks:
        raise Wrong(f"the kernel of {path} is not {facts.title}'s; name {facts.title}'s file with --kernel-file")
    # Sums of scaled channels and tensors of fp8 stay in the tensor core's registers along all of k.
    word = f"{dtype}-fast" if format.x == "fp8" and scales in ("channel", "tensor") else dtype
    block, blocks = scales == "block", blocks_of(facts.experts)
    names = set(function.arg_names)
    sets = {"GROUP_SIZE_M", "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "MUL_ROUTED_WEIGHT", "top_k", "SWAP_AB", "swap_ab",
            "even_Ks", "naive_block_assignment", "block_k_diviable", *(("N", "K") if format.group else ())} & names
    table = parameters_of(format, blocks)
    defaults = {name: each.default for name, each in inspect.signature(function.fn).parameters.items() if each.default is not each.empty}
    if unknown := [name for name in function.arg_names if name not in table and name not in sets and name not in defaults]:
        raise Wrong(f"{path}: {name} has parameters that moetune does not know: {', '.join(unknown)}")
    arguments = {name: value for name, value in table.items() if name in names - sets and isinstance(value, tuple)}

    def compiled(**own):
        return {name: value for name, value in own.items() if name in sets}

    def constants(knobs):
        depth = min(knobs["BLOCK_SIZE_K"], 128) if block and facts.clamps_depth else knobs["BLOCK_SIZE_K"]
        swap = format.x == "fp8" and arch.startswith("sm_90") and knobs["BLOCK_SIZE_M"] < 64 and knobs["BLOCK_SIZE_N"] >= 64
        return compiled(**{name: knobs[name] for name in ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "GROUP_SIZE_M")}, BLOCK_SIZE_K=depth,
                        SWAP_AB=swap, swap_ab=swap)

    def too_tall(more, knobs):
        """Each slot a block has one row: the tallest blocks are not worth a kernel then."""
        return more.get("naive_block_assignment") and knobs["BLOCK_SIZE_M"] > 64

    # A case of each GEMM: does vLLM take each slot for a block, does BLOCK_SIZE_K divide k?
    few = "max(experts + 1 - 4 * slots, 0) * max(rows + 1 - slots, 0)"
    cases = [({}, None)]
    if "naive_block_assignment" in names:
        cases = [({"naive_block_assignment": True}, few), ({"naive_block_assignment": False}, f"1 - min({few}, 1)")]
    elif "even_Ks" in names:
        cases = [({"even_Ks": True}, "1 - min(k % BLOCK_SIZE_K, 1)"), ({"even_Ks": False}, "k % BLOCK_SIZE_K")]
    def of_sizes(n, k):
        """The constants of one GEMM's kernel."""
        return lambda knobs: compiled(N=n, K=k, **dict.fromkeys(("block_k_diviable", "even_Ks"), k % knobs["BLOCK_SIZE_K"] == 0))

    computes = []
    for fusion, weighting in (("permute_x+by_slot", "none"), ("by_slot+topk_weights", "result")):
        up = weighting == "none"
        if format.group:
            cases = [(of_sizes(n, k), f"max(1 - max(n - {n}, {n} - n) - max(k - {k}, {k} - k), 0)")
                     for projection, n, k in gemms if projection == ("up" if up else "down")]
        for own, when in cases:
            more = compiled(MUL_ROUTED_WEIGHT=not up, top_k=top_k if up else 1, **({} if callable(own) else own))
            computes.append({"op": "fwd", "dtype": word, "fusion": fusion, "weighting": weighting, **({"when": when} if when else {}),
                             "constants": lambda knobs, more=more, own=own: None if too_tall(more, knobs) else
                             {**more, **own(knobs)} if callable(own) else more})
    rules = [{"zero": "n % 16", "reason": "n must be a multiple of 16"}, {"zero": "k % 16", "reason": "k must be a multiple of 16"},
             {"zero": f"max(experts - {MOST_EXPERTS}, 0)", "reason": f"{MOST_EXPERTS} experts are the most"},
             {"zero": f"top_k - {top_k}", "reason": f"the kernels were compiled for top_k {top_k}"}]
    if block and not facts.clamps_depth:
        rules.append({"zero": "max(BLOCK_SIZE_K - 128, 0)", "reason": f"BLOCK_SIZE_K must be at most 128: {facts.title} reads one "
                      "scale a step"})
    if format.group:
        others = " * ".join(f"min(max(n - {n}, {n} - n) + max(k - {k}, {k} - k), 1)" for _, n, k in gemms)
        rules += [{"zero": f"k % {format.group}", "reason": f"k must be a multiple of {format.group}"},
                  {"zero": others, "reason": "the kernels were compiled for n x k of " + ", ".join(f"{n} x {k}" for _, n, k in gemms)}]
    # Bytes of X and of W in shared memory, at the least: 4 bits are unpacked in registers.
    x_size, w_size = 1 if format.scales_x else 2, 0 if format.group else 2 if format.w == result else 1
    buffers = [("sorted_token_ids", f"{blocks} * BLOCK_SIZE_M * 4"), ("expert_ids", f"{blocks} * 4"), ("num_tokens_post_padded", "4")]
    operands = [("x", format.x, ["x_rows", "k"], "read"), ("w", format.w, ["experts * n", "k"], "read"), ("y", result, ["slots", "n"], "write"),
                ("first_rows", "int32", ["experts + 1"], "read"), ("gather_indices", "int32", ["rows"], "read"),
                ("topk_weights", "fp32", ["slots"], "read")]
    groups = f"k / {format.group}"
    if format.scales_x:
        operands += [("x_scales", "fp32", {"block": ["x_rows", "ceil_div(k, 128)"], "channel": ["x_rows"], "tensor": ["1"]}[scales], "read")]
    if scales:
        operands += [("w_scales", result if format.group else "fp32",
                      {"block": ["experts", "ceil_div(n, 128)", "ceil_div(k, 128)"], "channel": ["experts", "n"], "tensor": ["experts"],
                       "group": ["experts", "n", groups]}[scales], "read")]
    if format.w == "uint4":
        operands += [("w_zeros", "uint8", ["experts", "n / 2", groups], "read")]
    depths = [64, 128] if block else [32, 64, 128, 256] if format.group else [64, 128, 256]
    return {
        "file": str(path),
        "variant": f"{server}_moe",
        "summary": f"{facts.title}'s {name}, {dtype}, top_k {top_k}; sorting rows by expert is {'' if timed else 'not '}timed",
        "computes": computes,
        "knobs": [
            {"name": "BLOCK_SIZE_M", "help": "rows of a tile", "values": [16, 32, 64, 128, 256], "default": 64},
            {"name": "BLOCK_SIZE_N", "help": "columns of a tile", "values": [32, 64, 128, 256], "default": 128},
            {"name": "BLOCK_SIZE_K", "help": "depth of a step", "values": depths, "default": 128 if scales and not format.group else 64},
            {"name": "GROUP_SIZE_M", "help": "blocks of rows walked together", "values": [1, 16, 32, 64], "default": 32 if block else 1},
            {"name": "num_warps", "help": "warps of a block", "values": [4, 8], "default": 4},
            {"name": "num_stages", "help": "tiles in flight", "values": [2, 3, 4, 5], "default": 3},
        ],
        "options": ["num_warps", "num_stages"],
        "constants": constants,
        "rules": rules,
        "least_shared_bytes": lambda knobs: (knobs["num_stages"] - 1) * constants(knobs)["BLOCK_SIZE_K"]
        * (x_size * knobs["BLOCK_SIZE_M"] + w_size * knobs["BLOCK_SIZE_N"]),
        "kernel": {
            "function": function,
            "constants": {name: value for name, value in {**defaults, **table}.items()
                          if name in names - sets and not isinstance(value, tuple)},
            "grid": f"{blocks} * ceil_div(n, BLOCK_SIZE_N)",
            "arguments": arguments,
        },
        "prepare": [{
            "function": align_slots,
            "constants": {"EXPERTS": MOST_EXPERTS, "CHUNK": 1024},
            "grid": "experts",
            "options": {"num_warps": 4},
            "timed": timed,
            "arguments": {
                **{name: ("*i32", pointer(name), True) for name in ("sorted_token_ids", "expert_ids", "num_tokens_post_padded",
                                                                    "first_rows", "gather_indices")},
                "slots": ("i32", {"int32": "slots"}, False), "experts": ("i32", {"int32": "experts"}, False),
                "block_size_m": ("i32", {"int32": "BLOCK_SIZE_M"}, True),
                "unsorted": ("i32", {"int32": f"min({few}, 1)" if "naive_block_assignment" in names else "0"}, False),
            },
        }],
        "operands": [{"name": name, "dtype": kind, "shape": shape, "access": access} for name, kind, shape, access in operands],
        "buffers": [{"name": name, "bytes": size, "zeroed": False} for name, size in buffers],
    }
