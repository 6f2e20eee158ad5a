"""bench, verify, check, lookup, compile, export, merge, list and doctor on the cpu."""
import json
import re
import shlex
import shutil
import time
import xml.etree.ElementTree

import pytest

from conftest import CANDIDATE, CPU, FEW, LAYER, SOURCE, TINY, validate


def document(kind, room, *arguments, code=0):
    """What a command says as JSON, checked against its schema."""
    result = room.run(*arguments, "--format", "json")
    assert result.returncode == code, result.stderr
    validate(kind, text=result.stdout)
    return json.loads(result.stdout)


# bench

def test_bench_always_has_the_default_and_the_baseline(room):
    points = document("bench", room, "bench", *TINY, "--candidate", CANDIDATE)["points"]
    assert [point["role"] for point in points] == ["candidate", "default", "baseline"]
    assert all(point["status"] == "ok" and point["measurement"]["samples"] == 11 for point in points)


@pytest.mark.parametrize("command", [["bench", *CPU, "--rounds", "1", "--table"], ["verify", *CPU, "--table"],
                                     ["check", *CPU, "--rounds", "5"]])
def test_options_of_cells_pick_among_those_of_a_table(room, command):
    table = room.made_table(tokens=(8, 16), projections=("up", "down"))

    def cells(*options):
        """Ids of the cells that were done, without what is the same in all."""
        result = room.run(*command, table, *options)
        assert result.returncode in (0, 4), result.stderr
        return sorted({"/".join(name.split("/")[1:5:3]) for name in re.findall(r"custom/\S+", result.stderr)})

    assert cells("--tokens", "8") == ["down/t8", "up/t8"]
    assert cells("--projection", "up") == ["up/t16", "up/t8"]
    assert cells("--tokens", "1-100", *LAYER, "--routing", "balanced", "--projection", "down") == ["down/t16", "down/t8"]


@pytest.mark.parametrize("command", [["bench", *CPU, "--table"], ["verify", *CPU, "--table"], ["check", *CPU]])
def test_nothing_that_options_pick_is_exit_1(room, command):
    table = room.made_table(tokens=(8, 16))
    for options, words in ((["--tokens", "12"], "table.json: no cell has --tokens 12 (the table has 8, 16)"),
                           (["--routing", "zipf"], "no cell has --routing zipf (the table has balanced)"),
                           (["--model", "gpt-oss-20b"], "no cell has --model gpt-oss-20b (the table has custom)"),
                           (["--seed", "3"], "no cell has --seed 3 (the table has 0)"),
                           (["--suite", "hard"], "no cell has --suite hard")):
        assert words in room.error(1, *command, table, *options)
    assert "did you mean 'gpt-oss-20b'?" in room.error(2, *command, table, "--model", "gpt-oss-20c")


def test_a_candidate_takes_what_it_does_not_name_from_the_default(room):
    for command in ("bench", "verify"):
        points = document(command, room, command, *TINY, "--candidate", "cpu", "--candidate", "cpu threads=1")["points"]
        whole = [point["contender"]["candidate"] if "contender" in point else point["candidate"] for point in points[:2]]
        assert whole[1] == {**whole[0], "threads": 1}, whole
        assert all(value > 0 for key, value in whole[0].items() if key != "variant")


def test_bench_of_a_wrong_candidate_is_exit_1_and_names_no_time(planted):
    result = planted.run("bench", *TINY, "--format", "json", "--candidate", CANDIDATE,
                         env={"MOETUNE_PLANT": "wrong:block_m=24"})
    assert result.returncode == 1
    validate("bench", text=result.stdout)
    bad, = [point for point in json.loads(result.stdout)["points"] if point["status"] != "ok"]
    assert bad["status"] == "wrong_result" and "planted" in bad["reason"] and "measurement" not in bad


def test_bench_survives_a_crash(planted):
    result = planted.run("bench", *TINY, "--candidate", CANDIDATE, env={"MOETUNE_PLANT": "crash:block_m=24"})
    assert result.returncode == 1
    assert "crashed" in result.stdout
    assert len(re.findall(r"s (?:± [\d.]+ %|to [\d.]+ .?s) ", result.stdout)) == 2  # the default and the baseline


# verify

def test_verify_tries_the_default(room):
    points = document("verify", room, "verify", *TINY)["points"]
    assert len(points) == 1 and points[0]["verdict"]["elements"] == 2 * 16 * 64  # integers, then random
    assert points[0]["verdict"]["mismatches"] == 0


def test_verify_a_space_over_hard_routings(room):
    result = room.ok("verify", *CPU, "--experts", "5", "--top-k", "2", "--n", "65", "--k", "33", "--tokens", "1,17",
                     "--routing", "single,zipf:2,balanced", "--space", "quick", "--set", "block_m=8,24")
    assert re.search(r"^(\d+) of \1 candidates right in 6 cells\.$", result.stdout, re.M), result.stdout


def test_verify_catches_a_wrong_kernel(planted):
    result = planted.run("verify", *TINY, "--candidate", CANDIDATE, "--format", "json",
                         env={"MOETUNE_PLANT": "wrong:block_m=24"})
    assert result.returncode == 1
    validate("verify", text=result.stdout)
    point, = json.loads(result.stdout)["points"]
    assert point["status"] == "wrong_result" and point["verdict"]["mismatches"] == 1


def test_verify_draws_from_a_space_by_seed(room):
    def drawn(seed):
        points = document("verify", room, "verify", *CPU, *LAYER, "--tokens", "1,8", "--space", "full",
                          "--max-candidates", "4", "--seed", seed)["points"]
        assert [point["status"] for point in points] == 8 * ["ok"]
        candidates = [point["contender"]["candidate"] for point in points]
        assert candidates[:4] == candidates[4:]  # one shape: what is compiled serves every routing
        return json.dumps(candidates)
    assert drawn(1) == drawn(1) != drawn(2)


def test_verify_draws_from_a_named_space_only(room):
    assert "needs a space to draw from" in room.error(2, "verify", *TINY, "--max-candidates", "4")
    assert "--max-candidates: 0 is outside" in room.error(2, "verify", *TINY, "--space", "full", "--max-candidates", "0")


def test_verify_names_what_is_pruned_and_why(room):
    space = ["verify", *TINY, "--space", "full", "--set", "block_m=24,100000", "--set", "block_n=32", "--set", "threads=1"]
    pruned = document("verify", room, *space)["pruned"]
    assert sum(pruned.values()) == 5 and all("block_m" in reason for reason in pruned)
    assert re.search(r"^\| pruned because .*block_m.*\| +5 \|$", room.ok(*space).stdout, re.M | re.S)


def test_verify_goes_on_after_failures_and_shows_how_to_repeat_them(planted):
    plant = {"MOETUNE_PLANT": "wrong:block_m=24 block_n=64;abort:block_m=24 block_n=32"}
    few = ["--space", "full", "--set", "block_m=24", "--set", "block_n=32,64,128", "--set", "block_k=64", "--set", "threads=1"]
    command = ["verify", *CPU, "--experts", "5", "--top-k", "2", "--n", "65", "--k", "33", "--tokens", "17", "--routing",
               "zipf:1.5", "--seed", "3", "--dtype", "fp16", "--permute-y", "--topk-weights", *few]
    result = planted.run(*command, env=plant)
    assert result.returncode == 1
    assert result.stdout.endswith("\n1 of 3 candidates right in 1 cell; failed: 1 wrong_result, 1 crashed.\n"), result.stdout
    again = re.findall(r"^Again: moetune (.*)$", result.stdout, re.M)
    assert len(again) == 2 and all(line in result.stderr for line in again)
    for line, status in zip(again, ["crashed", "wrong_result"]):
        alone = planted.run(*shlex.split(line), "--format", "json", env=plant)
        assert alone.returncode == 1
        point, = json.loads(alone.stdout)["points"]
        assert point["status"] == status and point["again"] == "moetune " + line
        assert planted.run(*shlex.split(line)).returncode == 0  # without the faults


def test_verify_counts_spills_in_a_space_as_pruned(planted):
    plant = {"MOETUNE_PLANT": "spills:block_m=24"}
    space = ["--space", "full", "--set", "block_m=24,48", "--set", "block_n=32", "--set", "block_k=64", "--set", "threads=1"]
    result = planted.run("verify", *TINY, *space, "--format", "json", env=plant)
    assert result.returncode == 0, result.stderr
    verdicts = json.loads(result.stdout)
    assert verdicts["pruned"] == {"registers spill": 1}
    assert [(point["status"], "again" in point) for point in verdicts["points"]] == [("spills", False), ("ok", False)]
    result = planted.run("verify", *TINY, "--candidate", CANDIDATE, env=plant)  # but one that is asked for isn't proven
    assert result.returncode == 1 and "failed: 1 spills" in result.stdout


def test_verify_launches_winners_again_and_again(room):
    room.made_table("moetune-table.json", tokens=(8,))
    begin = time.monotonic()
    verify = ["verify", "moetune-table.json", *CPU, "--repeat-for", "300ms"]
    point, = document("verify", room, *verify)["points"]
    assert time.monotonic() - begin > 0.3
    assert point["repetition"]["launches"] > 1 and point["repetition"]["different"] == 0
    sentence = r"^1 of 1 candidate right in 1 cell, (\d+) of \1 more launches gave the same bits\.$"
    last = room.ok(*verify).stdout.split("\n\n")[-1]
    assert re.search(sentence, " ".join(last.split()))


def test_verify_catches_results_that_differ_from_launch_to_launch(planted):
    few = ["--space", "full", "--set", "block_m=24,48", "--set", "block_n=32", "--set", "block_k=64", "--set", "threads=1"]
    plant = {"MOETUNE_PLANT": "unsteady:block_m=24"}
    result = planted.run("verify", *TINY, *few, "--repeat-for", "20ms", "-o", "verdicts.json", env=plant)
    assert result.returncode == 1
    validate("verify", planted.path / "verdicts.json")
    bad, good = planted.json("verdicts.json")["points"]
    assert bad["status"] == "wrong_result" and good["status"] == "ok"
    assert re.fullmatch(r"1 of \d+ launches gave another result than the first: launch 2 differs: planted", bad["reason"])
    message = " ".join(result.stdout.split())
    assert "1 of 2 candidates right in 1 cell" in message and "; failed: 1 wrong_result." in message
    assert bad["again"].endswith("--repeat-for 1m") and planted.run("verify", *TINY, *few, env=plant).returncode == 0


def test_verify_of_a_rank_without_rows(room):
    for fusion in ([], ["--permute-x"], ["--permute-y", "--topk-weights"]):
        point, = document("verify", room, "verify", *CPU, "--experts", "16", "--ep", "4", "--top-k", "1", "--n", "64", "--k",
                          "64", "--tokens", "1", "--routing", "balanced", *fusion)["points"]
        assert point["status"] == "ok" and point["verdict"]["elements"] == 0


def test_cells_that_do_not_fit_into_memory_are_reported(room):
    huge = [*CPU, "--experts", "4096", "--top-k", "1", "--n", "65536", "--k", "65536", "--tokens", "999"]
    for command in (["verify", *huge], ["bench", *huge]):
        result = room.run(*command)
        assert result.returncode == 3
        assert re.search(r"launch_error: .*take [\d.]+ [TP]B of memory", result.stdout), result.stdout
    result = room.run("tune", *huge)
    assert result.returncode == 3
    reason = room.json("moetune-table.json")["entries"][0]["skipped"]
    assert re.match(r"out of memory: the operands, outputs and references take [\d.]+ [TP]B of memory", reason)
    assert result.stderr.count(reason) == 1 and "0 of 1 cell tuned" in result.stdout, result.stderr


# check. On a busy machine it may be inconclusive (4), and is asked again; what it must never say is the opposite.

BUSY = 5  # percent of the processors' time, as check has it
STEADY = 1.15  # times as long, the control's own


def disturbed(finding):
    """Whether a finding shows, in figures, that it is inconclusive because of the machine and not the program."""
    others = re.search(r"other programs took (\d+) % of the processors' time while", finding["reason"])
    moved = re.search(r"itself takes ([\d.]+) times as long as in the table: this machine is in another state",
                      finding["reason"])
    if others:
        return int(others[1]) >= BUSY
    return bool(moved) and not 1 / STEADY < float(moved[1]) < STEADY


def judged(planted, plant, *arguments):
    """The first conclusive check of a new table; its findings are in check.json. That none is conclusive is the
    machine's fault only where most of them say so."""
    findings = []
    for _ in range(5):
        planted.ok("tune", *CPU, "--experts", "4", "--top-k", "2", "--n", "256", "--k", "256", "--tokens", "64", "--set",
                   "threads=1", *FEW)
        result = planted.run("check", "moetune-table.json", *CPU, *arguments, "-o", "check.json",
                             env={"MOETUNE_PLANT": plant})
        if result.returncode != 4:
            return result
        findings += planted.json("check.json")["findings"]
    reasons = "\n".join(finding["reason"] for finding in findings)
    assert sum(map(disturbed, findings)) > len(findings) / 2, f"check is inconclusive, and not for a busy machine:\n{reasons}"
    pytest.skip(f"this machine is too busy to compare times:\n{reasons}")


@pytest.mark.timing
def test_check_of_a_slowed_program_is_exit_1(planted):
    result = judged(planted, "slow:3", "--patience", "1s", "--junit", "check.xml", "--markdown", "check.md")
    assert result.returncode == 1, result.stdout
    validate("check", planted.path / "check.json")
    finding, = planted.json("check.json")["findings"]
    assert finding["finding"] == "regressed" and finding["change"] > 0.5
    suite = xml.etree.ElementTree.parse(planted.path / "check.xml").getroot()
    assert len(list(suite.iter("testcase"))) == 1 and len(list(suite.iter("failure"))) == 1
    summary = (planted.path / "check.md").read_text()
    assert summary.startswith("# moetune check ") and "threshold " in summary and "regressed" in summary


@pytest.mark.timing
def test_check_of_the_same_program_is_exit_0(planted):
    result = judged(planted, "", "--threshold", "50%", "--junit", "check.xml")
    assert result.returncode == 0, result.stdout
    assert "| tokens | routing " in result.stdout
    assert "<failure" not in (planted.path / "check.xml").read_text()


@pytest.mark.parametrize("fault, finding", [("wrong", "wrong_result"), ("crash", "failed")])
def test_check_of_a_winner_that_fails_is_exit_1(planted, fault, finding):
    result = planted.run("check", planted.tuned(), *CPU, "--format", "json", env={"MOETUNE_PLANT": f"{fault}:"})
    assert result.returncode == 1
    validate("check", text=result.stdout)
    assert json.loads(result.stdout)["findings"][0]["finding"] == finding


def test_check_without_a_control_is_inconclusive(room):
    room.made_table("alone.json", tokens=(8,))
    result = room.run("check", "alone.json", *CPU, "-o", "check.json")
    assert result.returncode == 4, result.stdout
    assert "inconclusive" in result.stdout
    finding, = room.json("check.json")["findings"]
    assert finding["finding"] == "inconclusive" and not disturbed(finding)
    assert result.stdout.endswith(f"\nNext, tune again: moetune tune\n")
    for word, kind, code in [("fail", "error", 4), ("pass", "skipped", 0)]:
        assert room.run("check", "alone.json", *CPU, "--inconclusive", word, "--junit", "c.xml").returncode == code
        suite = xml.etree.ElementTree.parse(room.path / "c.xml").getroot()
        assert len(list(suite.iter(kind))) == 1
        assert suite.get("hostname") and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp"))
        assert float(suite.get("time")) >= float(suite[0].get("time")) >= 0
    assert "one of: fail, pass" in room.error(2, "check", "alone.json", "--inconclusive", "skip")


def test_check_against_a_table_of_a_busy_machine_trusts_no_regression(planted):
    table = planted.json(planted.tuned())
    entry, = table["entries"]
    for measured in [entry, *entry["rivals"]]:
        measured["measurement"]["waited"] = 0.5
    planted.write("busy.json", table)
    result = planted.run("check", "busy.json", *CPU, "-o", "check.json", env={"MOETUNE_PLANT": "slow:3"})
    assert result.returncode == 4, result.stdout
    finding, = planted.json("check.json")["findings"]
    assert "other programs took 50 % of the processors' time while the table was made" in finding["reason"]
    assert disturbed(finding)


def test_tables_that_cannot_be_checked_here(room):
    table = room.json(room.made_table())
    entries, table["entries"] = table["entries"], []
    assert "empty.json: the table has no entries" in room.error(2, "check", room.write("empty.json", table), *CPU)
    table["entries"], table["device"]["name"] = entries, "NVIDIA H200"
    assert "NVIDIA H200" in room.error(3, "check", room.write("h200.json", table), *CPU)
    assert "NVIDIA H200" in room.error(3, "merge", "table.json", "h200.json")


def test_check_appends_the_step_summary(room):
    room.made_table("moetune-table.json", tokens=(8,))
    room.write("summary.md", "before\n")
    room.run("check", "moetune-table.json", *CPU, "--threshold", "90%",
             env={"GITHUB_STEP_SUMMARY": str(room.path / "summary.md")})
    text = (room.path / "summary.md").read_text()
    assert text.startswith("before\n# moetune check ") and " before | " in text


@pytest.mark.parametrize("threshold", ["-5%", "0", "abc", "500%", "%"])
def test_check_thresholds(room, threshold):
    assert "--threshold" in room.error(2, "check", room.made_table(), "--threshold", threshold)


# lookup

def test_lookup_shows_how_good_the_match_is(room):
    asked = ["lookup", room.made_table(tokens=(8,))]
    answers = document("lookup", room, *asked, *LAYER, "--tokens", "8,12", "--routing", "balanced,single")["answers"]
    assert [answer["match"] for answer in answers] == ["exact", "nearest", "other_routing", "other_routing"]
    answer, = document("lookup", room, *asked, "--experts", "8", *LAYER[2:], code=1)["answers"]
    assert answer["match"] == "none"


# compile

def test_show_unit_needs_no_toolkit(room):
    text = room.ok("compile", *LAYER, "--show-unit", "--arch", "sm_80").stdout
    assert "struct Config" in text and 'extern "C" __global__' in text


def test_unknown_architecture(room):
    table = SOURCE / "tests/cli/files/tuned/table-mma.json"
    for command in (["compile", *LAYER], ["export", table, "--format", "kernels", "-o", "out"]):
        message = room.error(2, *command, "--arch", "sm_99")
        assert "unknown architecture 'sm_99'\nhint: one of: sm_75, sm_80, " in message and "sm_90a, " in message


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_winners_of_another_kind_of_device_are_refused_before_operands_are_made(room, command):
    table = SOURCE / "tests/cli/files/tuned/table-mma.json"
    message = room.error(3, command, *CPU, "--table", table)
    assert "its winners are of NVIDIA H200, this device is " in message and "[1/" not in message


def test_illegal_candidates_names_the_reason(room):
    assert "is illegal for" in room.error(2, "compile", *LAYER, "--candidate", CANDIDATE)


def has_compiler(room):
    return room.run("compile", *LAYER, "--candidate", "simt block_m=16 block_n=64 block_k=16").returncode == 0


def test_compile_names_registers_and_writes_cubins(room):
    if not has_compiler(room):
        pytest.skip("no NVRTC here")
    result = room.run("compile", *LAYER, "--variant", "mma", "--set", "block_m=64", "--set", "block_n=64", "--set",
                      "block_k=32", "--set", "warps=4", "--arch", "sm_90a", "-o", "cubins", "--format", "json")
    assert result.returncode == 0, result.stdout
    validate("compile", text=result.stdout)
    results = json.loads(result.stdout)["results"]
    assert results and all(r["compile"]["registers"] > 0 and r["compile"]["spill_bytes"] == 0 for r in results)
    for r in results:
        assert (room.path / r["file"]).read_bytes().startswith(b"\x7fELF")
        assert "struct Config" in (room.path / r["file"].replace(".cubin", ".cu")).read_text()


def test_compile_of_a_broken_kernel_is_exit_1(room):
    if not has_compiler(room):
        pytest.skip("no NVRTC here")
    shutil.copytree(SOURCE / "kernels", room.path / "kernels")
    with open(room.path / "kernels/simt/simt.cuh", "a", encoding="utf-8") as file:
        file.write("\nthis is no C++\n")
    result = room.run("compile", *LAYER, "--candidate", "simt block_m=16 block_n=64 block_k=16", "--kernels", "kernels")
    assert result.returncode == 1
    assert "compile_error" in result.stdout


# export and merge

def test_where_an_export_goes(room):
    table = room.made_table()
    assert room.ok("export", table).stdout.startswith("# Tuned on")
    assert room.ok("export", table, "--format", "csv").stdout.startswith("device,")
    result = room.ok("export", table, "--format", "csv", "-o", "winners.csv")
    assert result.stdout == "" and "wrote winners.csv" in result.stderr
    assert (room.path / "winners.csv").read_text().startswith("device,")
    assert "give the name of a file" in room.error(2, "export", table, "--format", "csv", "-o", "folder/")
    text = room.error(1, "export", table, "--format", "vllm")
    assert "GPU" in text and "hint:" in text
    assert "did you mean 'vllm'?" in room.error(2, "export", table, "--format", "vlm")


def test_merge(room):
    parts = [room.made_table("a.json", tokens=(8,)), room.made_table("b.json", tokens=(16,))]
    assert "2 cells in both.json" in room.ok("merge", *parts, "-o", "both.json").stdout
    validate("table", room.path / "both.json")
    assert len(room.json("both.json")["entries"]) == 2
    validate("table", text=room.ok("merge", *parts).stdout)
    assert "a merge needs two files or more" in room.error(2, "merge", "a.json")


# list and doctor

@pytest.mark.parametrize("what", ["variants", "knobs", "models", "routings", "spaces", "suites", "formats", "devices",
                                  "strategies"])
def test_list(room, what):
    items = document("list", room, "list", what)["items"]
    # A knob may mean something else to another variant: it's listed once for each meaning.
    names = [(item["name"], tuple(item.get("variants", ()))) for item in items]
    assert names and len(names) == len(set(names))
    text = room.ok("list", what).stdout
    assert text.startswith("| name ") and all(len(line) <= 80 for line in text.splitlines()), text
    assert all(f"| {name[0]}" in text for name in names)  # with its aliases, or its parameters


def test_knobs_of_a_variant(room):
    listed = document("list", room, "list", "knobs", "--variant", "simt")["items"]
    assert [knob["name"] for knob in listed] == ["block_m", "block_n", "block_k"]


def test_every_listed_model_makes_cells(room):
    models = document("list", room, "list", "models")["items"]
    names = ",".join(item["name"] for item in models)
    plan = document("plan", room, "tune", *CPU, "--model", names, "--dtype", "bf16", "--projection", "up,down",
                    "--tokens", "1", "--dry-run")
    assert len(plan["cells"]) == 2 * len(models) >= 60


def test_every_listed_routing_makes_cells(room):
    routings = [item["name"] for item in document("list", room, "list", "routings")["items"]
                if not item["name"].startswith("trace")]
    plan = document("plan", room, "tune", *CPU, "--experts", "16", "--top-k", "2", "--n", "64", "--k", "64", "--routing",
                    ",".join(routings), "--dry-run")
    assert len(plan["cells"]) == len(routings)


def test_built_in_recordings_are_listed_and_fit_their_model(room):
    names = [item["name"] for item in document("list", room, "list", "routings")["items"]]
    recordings = [name for name in names if name.startswith("trace:")]
    assert recordings
    for name in recordings:
        room.ok("tune", *CPU, "--model", name[len("trace:"):], "--dtype", "bf16", "--routing", name, "--dry-run")


@pytest.mark.timing
def test_doctor_measures_ceilings(room):
    doctor = document("doctor", room, "doctor", *CPU)
    device, = doctor["devices"]
    assert device["word"] == "cpu"
    assert device["ceilings"]["dense_burst_tflops"] > 0 and set(device["ceilings"]) == {"dense_burst_tflops", "noise"}


def test_doctor_quick_measures_nothing(room):
    doctor = document("doctor", room, "doctor", "--device", "all", "--quick")
    assert doctor["devices"] and all("ceilings" not in device for device in doctor["devices"])


# fp8

def fp8_layer(*more):
    return ["--experts", "4", "--top-k", "2", "--n", "48", "--k", "160", "--tokens", "9", "--dtype", "fp8", *more]


@pytest.mark.parametrize("scales", ["block", "channel", "tensor"])
def test_fp8_is_right_on_the_cpu_and_its_cells_name_it(room, scales):
    results = document("verify", room, "verify", *fp8_layer("--scales", scales), *CPU, "--candidate", CANDIDATE)
    [point] = [one for one in results["points"] if one["contender"].get("candidate")]
    assert point["status"] == "ok" and point["verdict"]["mismatches"] == 0
    assert {key: point["cell"][key] for key in ("dtype", "scales", "out_dtype", "fast_sums")} == {
        "dtype": "fp8", "scales": scales, "out_dtype": "bf16", "fast_sums": False}


def test_a_table_of_fp8_is_read_back_by_its_format(room):
    made = room.run("tune", *fp8_layer("--out-dtype", "fp16"), *CPU, *FEW, "-o", "fp8.json")
    assert made.returncode in (0, 1), made.stderr
    validate("table", room.path / "fp8.json")
    found = room.run("lookup", "fp8.json", *fp8_layer("--out-dtype", "fp16"), *CPU)
    assert found.returncode == 0, found.stderr
    other = room.run("lookup", "fp8.json", *fp8_layer(), *CPU)
    assert other.returncode == 1 and "fp8-block-fp16" in other.stdout + other.stderr


def checkpoint(room, **more):
    config = {"num_experts": 4, "num_experts_per_tok": 2, "hidden_size": 64, "moe_intermediate_size": 32, **more}
    (room.path / "config.json").write_text(json.dumps(config))
    return ["--model", "config.json", "--tokens", "9", *CPU, "--dry-run"]


def test_a_checkpoint_of_fp8_is_planned_in_its_format(room):
    blocks = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    planned = room.run("tune", *checkpoint(room, quantization_config=blocks))
    assert planned.returncode == 0 and "fp8-block" in planned.stdout, planned.stderr
    as_bf16 = room.run("tune", *checkpoint(room, quantization_config=blocks), "--dtype", "bf16")
    assert as_bf16.returncode == 0 and "fp8-block" not in as_bf16.stdout
    assert "taken as bf16" in " ".join(as_bf16.stderr.split())
    gradients = room.run("tune", *checkpoint(room, quantization_config=blocks), "--op", "dx")
    assert gradients.returncode == 0 and "bf16" in gradients.stdout


def test_options_of_fp8_follow_the_format_of_the_checkpoint(room):
    refused = room.run("tune", *checkpoint(room), "--scales", "block")
    assert refused.returncode == 2 and "--scales: belongs to dtype fp8" in " ".join(refused.stderr.split())
    group = {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
    channels = checkpoint(room, quantization_config={"config_groups": {"group_0": group}})
    fast = room.run("tune", *channels, "--fast-sums")
    assert fast.returncode == 0 and "fp8-channel-fast" in fast.stdout, fast.stderr


def test_a_recording_is_described_layer_by_layer(room):
    (room.path / "loads.json").write_text(json.dumps({"experts": 4, "top_k": 2, "tokens": 6,
                                                      "layers": {"a": [6, 4, 2, 0], "b": [3, 3, 3, 3]}}))
    items = json.loads(room.ok("list", "routings", "--recording", "loads.json", "--format", "json").stdout)["items"]
    assert [(item["name"], item["rows"], item["active_experts"], item["max_over_mean"]) for item in items] == [
        ("a", 12, 3, 2), ("b", 12, 4, 1)]
    assert "effective_experts" in room.ok("list", "routings", "--recording", "gpt-oss-20b").stdout
    assert "--recording is for the list of routings" in room.error(2, "list", "models", "--recording", "loads.json")
