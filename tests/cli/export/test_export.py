"""Exported files, read back by the rules of the programs that they are for: what each picks for a number of tokens is
what `lookup` answers."""
import json
import math

import pytest

from conftest import SOURCE, h200_device, made_entry, rule_pick, validate

EXPERTS = TOP_K = 4  # balanced rows: each expert has one of each token, so the skew is 1 for all token counts
SIZES = {"up": (512, 256), "down": (256, 256)}  # n, k
SERVED = [*range(1, 1100), *range(1100, 8192, 13), 8192]  # every border of few tokens, and enough of many
STANDARD = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096]  # their tuners' token counts
CANDIDATES = [{"variant": "triton_moe", "pack": "0123456789ab", "BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n,
               "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": stages}
              for block_m in (16, 32, 64, 128) for block_n in (64, 128) for stages in (2, 3, 4)]
TOOL = {"name": "moetune", "version": "0.1.0", "commit": "0123456789ab", "dirty": False, "argv": ["moetune", "tune"]}


# vLLM: get_moe_configs and try_get_optimal_moe_config of fused_moe.py.
def vllm_configs(folder, experts, n, device="NVIDIA_H200"):
    configs = json.loads((folder / f"E={experts},N={n},device_name={device}.json").read_text())
    configs.pop("triton_version", None)
    return {int(key): value for key, value in configs.items()}


def nearest(configs, tokens):
    return configs[min(configs.keys(), key=lambda key: abs(key - tokens))]


# SGLang: the same of fused_moe_triton_config.py; every key is a number, and the down projection may have its own file.
def sglang_configs(folder, experts, n, down, device="NVIDIA_H200"):
    name = f"E={experts},N={n},device_name={device}{'_down' if down else ''}.json"
    return {int(key): value for key, value in json.loads((folder / name).read_text()).items()}


def sglang_pair(folder, experts, n, tokens):
    up = nearest(sglang_configs(folder, experts, n, False), tokens)
    down = dict(nearest(sglang_configs(folder, experts, n, True), tokens))
    down.pop("USE_TMA")
    assert down["BLOCK_SIZE_M"] == up["BLOCK_SIZE_M"]  # they assert it
    return up, down


def row(candidate):
    """A candidate's knobs, which are theirs, as a row of theirs."""
    return {knob: int(candidate[knob]) for knob in CANDIDATES[0] if knob not in ("variant", "pack")}


def entry(projection, tokens, candidate, m_sizes=None, routing="balanced"):
    """An entry with these rows; without them of EXPERTS, each of which has all tokens."""
    n, k = SIZES[projection]
    m_sizes = m_sizes or [tokens] * EXPERTS
    experts, total = len(m_sizes), sum(m_sizes)
    mean, squares, active = total / experts, sum(rows * rows for rows in m_sizes), sum(rows > 0 for rows in m_sizes)
    made = made_entry(projection, experts, experts, total // tokens, n, k)
    made["cell"].update(tokens=tokens, routing=routing)
    made["id"] = made["id"].replace(f"/t{experts}/balanced/", f"/t{tokens}/{routing}/")
    made.update(candidate=candidate, m_sizes=m_sizes, flops=2 * total * n * k,
                bytes=2 * (active * n * k + total * (n + k)) + 4 * experts,
                occupancy=round(total / sum(-(-rows // candidate["BLOCK_SIZE_M"]) * candidate["BLOCK_SIZE_M"] for rows in m_sizes), 5),
                figures={"rows": total, "active_experts": active, "max_rows": max(m_sizes),
                         "max_over_mean": round(max(m_sizes) / mean, 5),
                         "cv": round(math.sqrt(max(0, squares / experts - mean * mean)) / mean, 5),
                         "effective_experts": round(total * total / squares, 3)})
    return made


def table_of(entries, choices=()):
    table = {"schema": "moetune.table/1", "tool": TOOL, "device": h200_device(), "environment": {}, "regime": "burst",
             "entries": entries}
    return {**table, "choices": list(choices)} if choices else table


def tuned(counts, projections=("up", "down")):
    """A winner of its own for every token count, whose block_m is the same in both projections."""
    entries = []
    for place, tokens in enumerate(counts):
        candidate = CANDIDATES[place % len(CANDIDATES)]
        for projection in projections:
            other = {**candidate, "BLOCK_SIZE_N": 192 - candidate["BLOCK_SIZE_N"]} if projection == "down" else candidate
            entries.append(entry(projection, tokens, other))
    return entries


def choices_of(entries, borders):
    """Robust choices of up, one for each range that ends at a border and one behind them; each cell's winner competes."""
    made, first = [], 1
    for last in [*borders, None]:
        cells = [one for one in entries if one["cell"]["tokens"] >= first and (last is None or one["cell"]["tokens"] <= last)]
        candidate = cells[0]["candidate"]
        contender = {"candidate": candidate, "median_us": [10.0] * len(cells), "low_us": [9.9] * len(cells),
                     "high_us": [10.1] * len(cells), "regrets": [0] * len(cells), "worst_regret": 0, "mean_regret": 0}
        made.append({"rule": "worst", "bucket_loss": 1, "tokens": {"from": first, "to": last}, "candidate": candidate,
                     "worst_regret": 0, "mean_regret": 0, "cells": [one["id"] for one in cells],
                     "contenders": [contender], "left_out": []})
        first = (last or 0) + 1
    return made


def answers(room, table, projection, *more, experts=EXPERTS, top_k=TOP_K):
    """What lookup says for balanced rows of every token count."""
    n, k = SIZES[projection]
    result = room.ok("lookup", table, "--experts", experts, "--top-k", top_k, "--projection", projection, "--n", n, "--k", k,
                     "--routing", "balanced", "--tokens", ",".join(map(str, SERVED)), "--format", "json", *more)
    rows = {}
    for one in json.loads(result.stdout)["answers"]:
        found = one.get("entry", one.get("choice"))
        rows[one["cell"]["tokens"]] = {"match": one["match"], "table_id": found.get("id"), **found["candidate"]}
    assert list(rows) == SERVED
    return rows


def exported(room, table, name, *more):  # winners alone: no other row has times
    room.ok("export", table, "--format", name, "-o", name, "--unproven", *more)
    return room.path / name


def runtime(room, table, *more):
    room.ok("export", table, "--format", "runtime", "-o", "runtime.json", *more)
    validate("runtime", room.path / "runtime.json")
    room.ok("validate", "runtime.json")
    return room.json("runtime.json")


def asked_of(projection, experts=EXPERTS, top_k=TOP_K):
    n, k = SIZES[projection]
    return {"op": "fwd", "dtype": "bf16", "experts": experts, "top_k": top_k, "n": n, "k": k, "fusion": "plain"}


@pytest.mark.parametrize("counts", [STANDARD, sorted([*STANDARD, 3, 20, 1000, 1001, 8192])], ids=["theirs", "more"])
def test_the_servers_pick_what_lookup_answers(room, counts):
    table = room.write("table.json", table_of(tuned(counts)))
    up, down = answers(room, table, "up"), answers(room, table, "down")
    assert len({tuple(row(line).values()) for line in up.values()}) == len(CANDIDATES[:len(counts)])
    vllm = vllm_configs(exported(room, table, "vllm"), EXPERTS, 256)
    sglang = exported(room, table, "sglang")
    for tokens in SERVED:
        assert nearest(vllm, tokens) == row(up[tokens]), tokens
        assert sglang_pair(sglang, EXPERTS, 256, tokens) == (row(up[tokens]), row(down[tokens])), tokens


def test_robust_choices_end_where_lookup_has_them_end(room):
    entries = tuned([16, 200, 3000])
    choices = choices_of([one for one in entries if one["cell"]["projection"] == "up"], [56, 774])
    table = room.write("table.json", table_of(entries, choices))
    up = {tokens: line for tokens, line in answers(room, table, "up").items() if line["match"] == "choice"}
    assert len(up) > 100
    vllm = vllm_configs(exported(room, table, "vllm"), EXPERTS, 256)
    folder = exported(room, table, "sglang")
    picks = runtime(room, table)
    for tokens in set(SERVED) & set(up):
        assert nearest(vllm, tokens) == row(up[tokens]), tokens
        assert sglang_pair(folder, EXPERTS, 256, tokens)[0] == row(up[tokens]), tokens
        assert row(rule_pick(picks, asked_of("up"), tokens)["knobs"]) == row(up[tokens]), tokens
    assert len(picks["ranges"]) == 3


def test_runtime_picks_what_lookup_answers_by_tokens_and_skew(room):
    experts, top_k = 8, 2
    cells = [(tokens, "balanced", [tokens * top_k // experts] * experts) for tokens in (4, 64, 1000)]
    cells += [(1, "zipf:1", [1, 1, 0, 0, 0, 0, 0, 0]), (3, "single", [3, 3, 0, 0, 0, 0, 0, 0]),
              (16, "zipf:1", [12, 6, 4, 3, 3, 2, 1, 1]), (300, "zipf:1", [210, 110, 80, 60, 50, 40, 30, 20]),
              (300, "zipf:2", [300, 200, 50, 20, 10, 10, 5, 5]), (4096, "hot:1:0.9", [4096, *[586] * 4, *[584] * 3])]
    entries = [entry("up", tokens, CANDIDATES[place], m_sizes, routing)
               for place, (tokens, routing, m_sizes) in enumerate(cells)]
    table = room.write("table.json", table_of(entries))
    lookup = answers(room, table, "up", experts=experts, top_k=top_k)
    picks = runtime(room, table)
    assert picks["ranges"] == []
    chosen = set()
    for tokens in SERVED:
        rows = tokens * top_k
        cell = rule_pick(picks, asked_of("up", experts, top_k), tokens, skew=-(-rows // experts) * experts / rows)
        assert cell is picks["cells"][lookup[tokens]["table_id"]], tokens
        chosen.add(lookup[tokens]["table_id"])
        assert row(cell["knobs"]) == row(lookup[tokens])
    assert len(chosen) > 4


def test_runtime_holds_every_cell_of_an_h200_table(room):
    source = SOURCE / "configs/tuned/nvidia-h200-hopper-peers.json"
    table, picks = json.loads(source.read_text(encoding="utf-8")), runtime(room, source)
    assert picks["device"]["name"] == "NVIDIA H200" and list(picks["cells"]) == [one["id"] for one in table["entries"]]
    for one in table["entries"]:
        cell = picks["cells"][one["id"]]
        assert rule_pick(picks, cell["asked"], one["cell"]["tokens"], one["figures"]["max_over_mean"]) is cell
        known = {"variant": cell["variant"], **cell["knobs"]}
        assert {knob: value for knob, value in one["candidate"].items() if knob != "addressing"}.items() <= known.items()
        assert cell["time_us"] == one["measurement"]["median_us"]
        assert cell["file"].startswith("wgmma-") and cell["file"].endswith(".sm_90a.cubin")
    assert len((room.path / "runtime.json").read_bytes()) < source.stat().st_size / 2


def test_runtime_names_the_cubins_of_the_kernels_export(room):
    source = SOURCE / "tests/cli/files/tuned/table-mma.json"
    result = room.run("export", source, "--format", "kernels", "-o", "kernels")
    if result.returncode == 3:
        pytest.skip("no NVRTC here")
    assert result.returncode == 0, result.stderr
    manifest = json.loads((room.path / "kernels/manifest.json").read_text())
    picks = runtime(room, source)
    kernels = {kernel["name"]: kernel for kernel in manifest["kernels"]}
    for cell in manifest["cells"]:
        file = picks["cells"][cell["id"]]["file"]
        assert (room.path / "kernels" / file).is_file() or (room.path / "kernels/cubins" / file).is_file(), file
        assert file.startswith(cell["kernel"] + ".") and cell["kernel"] in kernels


def test_a_winner_by_pointers_is_exported_with_one_address(room):
    table = json.loads((SOURCE / "configs/tuned/nvidia-h200-hopper-peers.json").read_text(encoding="utf-8"))
    entry = next(one for one in table["entries"] if one["candidate"].get("tma_store") == "no")
    entry["candidate"]["addressing"] = "pointers"
    room.write("table.json", {**table, "entries": [entry], "choices": []})
    result = room.run("export", "table.json", "--format", "kernels", "-o", "kernels")
    if result.returncode == 3:
        pytest.skip("no NVRTC here")
    assert result.returncode == 0 and "gets its winner with addressing=base, which was not timed" in result.stderr
    manifest = json.loads((room.path / "kernels/manifest.json").read_text())
    assert [(cell["id"], cell["tuned"]) for cell in manifest["cells"]] == [(entry["id"], False)]
    cell = runtime(room, "table.json")["cells"][entry["id"]]
    assert cell["file"].startswith(manifest["cells"][0]["kernel"]) and cell["knobs"]["addressing"] == "base"


def test_a_routing_is_picked(room):
    source = SOURCE / "configs/tuned/nvidia-h200-qwen3-30b-a3b.json"
    table = json.loads(source.read_text(encoding="utf-8"))
    for routing in ("uniform", "zipf:1.0"):
        picks = runtime(room, source, "--routing", routing)
        assert len(picks["cells"]) == 6 and all(f"/{routing[:6]}" in cell for cell in picks["cells"])
    both = runtime(room, source, "--routing", "zipf:1,uniform")
    assert list(both["cells"]) == [one["id"] for one in table["entries"]]
    lines = room.ok("export", source, "--format", "csv", "--routing", "zipf:1").stdout.splitlines()
    assert len(lines) == 7 and all(",zipf:1," in line for line in lines[1:])
    text = room.error(1, "export", source, "--routing", "zipf:2")
    assert "no cell has --routing zipf:2 (the table has uniform, zipf:1)" in text
    assert "unknown routing 'zpif'" in room.error(2, "export", source, "--routing", "zpif")


def test_choices_of_all_routings_are_left_out_of_one(room):
    entries = tuned([16, 200], ["up"])
    table = room.write("table.json", table_of(entries, choices_of(entries, [56])))
    assert len(runtime(room, table)["ranges"]) == 2
    result = room.ok("export", table, "--format", "runtime", "--routing", "balanced", "-o", "one.json")
    assert room.json("one.json")["ranges"] == [] and "the robust choices are left out" in result.stderr


def served_rows(room, base=None, *more):
    """Rows of the sample's files after an export for vLLM, or why there is none."""
    source = SOURCE / "tests/cli/files/tuned/table-triton.json"
    result = room.run("export", source, "--format", "vllm", "-o", "out", *(["--base", base] if base else []), *more)
    file = room.path / "out/E=8,N=14336,device_name=NVIDIA_H200.json"
    return json.loads(file.read_text()) if result.returncode == 0 else result.stderr


def test_a_base_keeps_its_rows_and_winners_need_proof(room):
    name = "E=8,N=14336,device_name=NVIDIA_H200.json"
    timed = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 8, "num_stages": 3}
    other = {**timed, "num_stages": 2}
    room.write(name, {"triton_version": "3.6.0", "16": other, "256": timed})
    rows = served_rows(room, name)
    assert nearest({int(key): one for key, one in rows.items()}, 256)["BLOCK_SIZE_N"] == 256  # 1.25x as fast as the base's
    assert all(nearest({int(key): one for key, one in rows.items()}, tokens) == other for tokens in range(1, 136))
    room.write(name, {"16": other})
    assert "the times of both rows are not known" in served_rows(room, name)
    assert "moetune tune --for vllm with the model's options" in served_rows(room, name)
    assert served_rows(room, name, "--unproven")["16"]["BLOCK_SIZE_N"] == 256
    room.write("other.json", {"16": other})
    assert "--base other.json: no file of the export has this name" in served_rows(room, "other.json")
    assert "no such file or folder" in served_rows(room, "missing.json")
    assert "16: 'BLOCK_SIZE_M' is missing" in served_rows(room, room.write(name, {"16": {}}))


def test_ranks_and_sglangs_folders_are_picked(room):
    source = SOURCE / "tests/cli/files/tuned/table-triton.json"
    room.ok("export", source, "--format", "sglang", "--tp", "1", "--triton", "3.6.0", "-o", "out")
    assert (room.path / "out/configs/triton_3_6_0/E=8,N=14336,device_name=NVIDIA_H200.json").is_file()
    assert "no cell has --tp 2 (the table has 1)" in room.error(1, "export", source, "--format", "vllm", "--tp", "2")
    assert "is not a version such as 3.6.0" in room.error(2, "export", source, "--format", "sglang", "--triton", "../x")
    assert "--triton has no effect without --format sglang" in room.error(2, "export", source, "--format", "vllm", "--triton", "3")
