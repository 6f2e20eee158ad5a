"""check as a gate: against another program, the formats of continuous integration, --update, scripts/gate and scripts/ci."""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import string
import subprocess
import sys
import time
import xml.etree.ElementTree

import pytest
import yaml

from conftest import BINARY, CPU, FEW, LAYER, PLANTED, SOURCE, made_pack, validate, wait_until_gone
from test_readme import require_names, require_options

LARGER = [*CPU, "--experts", "4", "--top-k", "2", "--n", "256", "--k", "256", "--set", "threads=1", *FEW]
GUARD = SOURCE / "scripts/ci/guard/action.yml"
WORKFLOWS = sorted((SOURCE / "scripts/ci").glob("*.yml"))
WRONG = {"MOETUNE_PLANT": "wrong:"}


def worker_script(room, body):
    """A program that serves file descriptor 3 as a worker does, with `body` after it has read the request `ask`."""
    path = room.path / "other"
    path.write_text(f"#!{sys.executable}\nimport json, os\nask = json.loads(os.read(3, 65536).split(b'\\n')[0])\n{body}\n")
    path.chmod(0o755)
    return path


# --- against another program ---

def test_a_check_against_itself_has_all_outputs(planted):
    room, env = planted, {"MOETUNE_PLANT": "waited:0;steady:100"}  # a cell that other programs disturb has no part in the mean
    table = room.tuned("--tokens", "8,16")
    result = room.run("check", table, *CPU, "--against", PLANTED, "--threshold", "90%", "--rounds", "8", "-o",
                      "check.json", "--junit", "check.xml", "--markdown", "check.md", "--benchmark", "times.json", env=env)
    assert result.returncode in (0, 4), result.stdout + result.stderr
    assert f"and {PLANTED} keep their operands at the same time: at least " in result.stderr
    assert "both have the same kernels" in result.stderr
    validate("check", room.path / "check.json")
    assert "check" in room.ok("validate", "check.json").stdout
    check = room.json("check.json")
    assert check["against"]["path"] == PLANTED and check["against"]["environment"] == check["environment"]
    assert [finding["cell"]["tokens"] for finding in check["findings"]] == [8, 16]
    for finding in check["findings"]:
        assert finding["detectable"] > 0 and finding["control"] == "loop" and "time_change" not in finding
    assert check["mean"]["cells"] == 2 and check["mean"]["detectable"] > 0.5  # the threshold, at least
    times = room.json("times.json")
    assert [point["name"].split("/")[4] for point in times] == ["t8", "t16"]
    assert all(point["unit"] == "µs" and point["value"] > 0 and re.fullmatch(r"± \S+", point["range"]) for point in times)
    suite = xml.etree.ElementTree.parse(room.path / "check.xml").getroot()
    assert [case.get("name") for case in suite][-1] == "geometric mean"
    assert "finds" in (room.path / "check.md").read_text() and "geometric mean over 2 cells" in result.stdout
    again = room.run("check", table, *CPU, "--against", PLANTED, "--threshold", "90%", "--rounds", "8", "--benchmark",
                     "times.json", env=env)  # over its own file
    assert again.returncode in (0, 4), again.stderr


@pytest.mark.timing
def test_against_finds_a_slowdown_and_its_author(planted):
    planted.ok("tune", *LARGER, "--tokens", "64,128", "-q")
    slow = planted.run("check", "moetune-table.json", *CPU, "--against", BINARY, "--threshold", "10%", "--patience", "1s",
                       "-o", "check.json", env={"MOETUNE_PLANT": "slow:2"})
    found = [finding["finding"] for finding in planted.json("check.json")["findings"]]
    if set(found) <= {"untrusted", "inconclusive"}:
        pytest.skip("this machine is too busy to compare times: " + slow.stdout)
    assert slow.returncode == 1, slow.stdout + slow.stderr
    assert "regressed" in found and not {"equivalent", "improved"} & set(found)


@pytest.mark.timing
def test_five_runs_of_three_cells_find_no_regression_at_ten_percent(room):
    room.ok("tune", *LARGER, "--tokens", "32,64,128", "-q")
    result = subprocess.run([sys.executable, "-B", str(SOURCE / "scripts/gate"), "5", "moetune-table.json", *CPU, "--against",
                             BINARY, "--threshold", "10%", "--wait", "2s"], cwd=room.path, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, universal_newlines=True, env={**room.env, "MOETUNE": BINARY}, timeout=550)
    assert result.returncode == 0, result.stderr
    rows = [line for line in result.stdout.splitlines() if line.startswith("| up fwd ")]
    assert len(rows) == 3 and all(sum(map(int, re.findall(r" (\d+) \|", row))) == 5 for row in rows), result.stdout
    assert "regressed" not in result.stdout and "wrong_result" not in result.stdout, result.stdout


@pytest.mark.parametrize("against", [[], ["--against", BINARY]])
def test_a_wrong_kernel_is_exit_1_and_named_first(planted, against):
    table = planted.tuned("--tokens", "8,16,24")
    first = planted.json(table)["entries"][2]["candidate"]
    words = " ".join(f"{knob}={value}" for knob, value in first.items() if knob != "variant")
    result = planted.run("check", table, *CPU, *against, "--threshold", "90%", "--rounds", "5", "--annotate", "-o", "c.json",
                         env={"MOETUNE_PLANT": f"wrong:{words}"})
    assert result.returncode == 1, result.stdout
    findings = planted.json("c.json")["findings"]
    assert findings[2]["finding"] == "wrong_result"
    wrong = sum(finding["finding"] == "wrong_result" for finding in findings)
    words = " ".join(result.stdout.split())
    assert f"3 cells: {wrong} wrong result" in words
    assert re.search(rf"\d+ candidates? (with .*)?gave wrong results in {wrong} cells?. The first, in custom/.* differs: planted. Next: moetune verify", words)
    assert re.search(r"^::error title=moetune check%3A wrong_result::custom/.* differs: planted$", result.stderr, re.M)


@pytest.mark.parametrize("path, code, text", [
    ("none", 2, "--against: none: no such file or folder"),
    ("moetune-table.json", 2, "--against: moetune-table.json cannot be run"),
    (".", 2, "--against: . is a folder of GPU kernels, and the device is a cpu"),
    ("/bin/true", 3, "/bin/true is not a moetune, or does not run here: "),
])
def test_against_what_is_no_moetune(room, path, code, text):
    room.made_table("moetune-table.json")
    assert text in room.error(code, "check", "moetune-table.json", *CPU, "--against", path)


def test_against_a_program_of_another_protocol(room):
    room.made_table("moetune-table.json")
    other = worker_script(room, "os.write(3, (json.dumps({'id': ask['id'], 'ok': {'protocol': 99}}) + '\\n').encode())")
    text = room.error(3, "check", "moetune-table.json", *CPU, "--against", other)
    assert f"{other} speaks version 99 of the worker protocol, this program version 1" in text


def test_ctrl_c_ends_a_program_that_does_not_answer_and_what_it_started(room):
    room.made_table("moetune-table.json")
    other = room.path / room.write("other", "#!/bin/sh\nsleep 600 &\necho $$ $! > pids.new\nmv pids.new pids\nwait\n")
    other.chmod(0o755)
    process = room.start("check", "moetune-table.json", *CPU, "--against", other)
    while not (room.path / "pids").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert all([wait_until_gone(pid) for pid in (room.path / "pids").read_text().split()])


def test_a_benchmark_file_without_a_trusted_cell_is_replaced(room):
    room.made_table("moetune-table.json")
    room.write("times.json", "[]\n")
    assert "exists" not in room.run("check", "moetune-table.json", *CPU, "--benchmark", "times.json", "--rounds", "5").stderr


# --- two sides of packs ---

H200 = {"MOETUNE_PLANT": "h200:"}
RACE = ["--device", "cuda", *LAYER, "--tokens", "64"]


def findings_in(room, file):
    validate("check", room.path / file)
    return room.json(file)["findings"]


def raced(room, *options, table=None, code=0):
    result = room.run("check", *([table] if table else RACE), "--pack", "new", "--against", "old", "--patience", "0s", "-o", "race.json",
                      *options, env=H200)
    assert result.returncode == code, result.stdout + result.stderr
    return result, findings_in(room, "race.json")


def test_equal_packs_are_equivalent_and_a_slower_or_wrong_one_is_found(planted):
    made_pack(planted, "old")
    made_pack(planted, "new")
    same, (finding,) = raced(planted)
    assert finding["finding"] == "equivalent" and finding["change"] == 0 and "both have the same kernels" in same.stderr
    made_pack(planted, "new", summary="slow:1.1")
    slow, (finding,) = raced(planted, code=1)
    assert finding["finding"] == "regressed" and finding["change"] == pytest.approx(0.1, abs=1e-3)
    assert finding["reason"].startswith("its time differs from that with old by +10.0 %") and ": regressed\n" in slow.stderr
    made_pack(planted, "old", summary="slow:1.3")
    assert raced(planted)[1][0]["finding"] == "improved"
    made_pack(planted, "new", summary="wrong")
    assert raced(planted, code=1)[1][0]["finding"] == "wrong_result"


def test_a_table_of_another_build_of_the_pack_gives_the_winners(planted):
    made_pack(planted, "old", summary="the base")
    planted.ok("tune", *RACE, "--pack", "old", "--variant", "toy", "-o", "table.json", "-q", env=H200)
    made_pack(planted, "old", summary="another build")
    made_pack(planted, "new", summary="slow:1.1")
    winner = planted.json("table.json")["entries"][0]["candidate"]
    result, (finding,) = raced(planted, "--device", "cuda", "-v", table="table.json", code=1)
    assert finding["finding"] == "regressed"
    assert f"toy block_m={winner['block_m']} fast={winner['fast']}" in " ".join(result.stdout.split())


def test_a_kernel_of_one_side_alone_is_named(planted):
    made_pack(planted, "packs/a"), made_pack(planted, "packs/b", variant="gone")
    (planted.path / "packs").rename(planted.path / "old")
    manifest = planted.json("old/a/pack.json")
    made_pack(planted, "new", candidates=manifest["candidates"][1:])
    first = manifest["candidates"][0]
    result, findings = raced(planted, "--junit", "race.xml", code=1)
    assert f"only in old: gone, toy block_m={first[0]} fast={first[1]}" in " ".join(result.stderr.split())
    found = {finding["kernel"]: finding for finding in findings}
    assert found["toy"]["finding"] == "equivalent"
    assert found["gone"]["finding"] == "failed" and found["gone"]["reason"] == "gone block_m=32 fast=yes is only in old"
    assert " gone: failed\n" in result.stderr and " gone\"" in (planted.path / "race.xml").read_text()
    (planted.path / "old").rename(planted.path / "swap"), (planted.path / "new").rename(planted.path / "old")
    (planted.path / "swap").rename(planted.path / "new")
    found = {finding["kernel"]: finding for finding in raced(planted, code=4)[1]}
    assert found["gone"]["finding"] == "inconclusive" and found["gone"]["reason"].endswith(" is only in new")
    assert [finding["finding"] for finding in raced(planted, "--filter", " toy ")[1]] == ["equivalent"]


def test_a_knob_that_came_with_the_change_has_its_default(planted):
    made_pack(planted, "old")
    manifest = planted.json("old/pack.json")
    knob = {"name": "depth", "help": "new", "values": [1, 2], "default": 2}
    made_pack(planted, "new", knobs=[*manifest["knobs"], knob],
              candidates=[[*row[:2], depth, *row[2:]] for row in manifest["candidates"] for depth in (1, 2)])
    result, (finding,) = raced(planted, "-v")
    assert finding["finding"] == "equivalent" and "only in" not in result.stderr
    assert "block_m=32 fast=yes depth=2" in " ".join(result.stdout.split())


def test_tune_prints_the_check_command_with_its_packs(planted):
    made_pack(planted, "new")
    tuned = planted.ok("tune", "--device", "cuda", *LAYER, "--tokens", "64", "--pack", "new", "--variant", "toy", "-o", "t.json", env=H200)
    assert tuned.stdout.endswith("Next: moetune check t.json --pack new\n")


def test_two_exports_are_raced_cell_by_cell(planted):
    if not (exporter := pathlib.Path(BINARY).parent / "export_main").exists():
        pytest.skip("built without the CUDA toolkit")
    (planted.path / "old").mkdir()
    subprocess.run([exporter, planted.path / "old"], check=True)
    shutil.copytree(planted.path / "old", planted.path / "new")
    cell = next(cell for cell in planted.json("old/manifest.json")["cells"] if "/fwd/" in cell["id"])
    asked = cell["asked"]
    layer = [word for side in ("experts", "top_k", "n", "k") for word in ("--" + side.replace("_", "-"), asked[side])]
    options = ["--device", "cuda", *layer, "--tokens", cell["tokens"], "--pack", "new", "--against", "old"]
    result = planted.ok("check", *options, "-v", env=H200)
    assert f"exported_{cell['kernel'].replace('-', '_')}" in " ".join(result.stdout.split()), result.stdout
    assert "none is slower than with old" in " ".join(result.stdout.split())
    more = [kernel["name"] for kernel in planted.json("old/manifest.json")["kernels"] if len(kernel["launches"]) > 1]
    for side in ("old", "new"):
        assert f"note: {side}: {', '.join(more)} are left out: packs have one launch, and no gradients of gates\n" in result.stderr
    missing = planted.error(1, "check", *options[:-6], "--tokens", "77", *options[-4:], env=H200)
    assert "no kernel of either side" in missing


def test_a_history_names_what_crept_in_below_the_threshold(planted):
    made_pack(planted, "old"), made_pack(planted, "new")
    for commit in ("a1", "a2", "a3", "a4"):
        quiet, _ = raced(planted, "--history", "past.jsonl", "--commit", commit)
    assert "since" not in quiet.stderr
    made_pack(planted, "old", summary="slow:1.03"), made_pack(planted, "new", summary="slow:1.03")
    for commit in ("b1", "b2", "b3"):
        crept, (finding,) = raced(planted, "--history", "past.jsonl", "--commit", commit)
        assert finding["finding"] == "equivalent"
    assert re.search(r"past.jsonl: custom/up/fwd/bf16/t64/uniform/e4/top2/n64/k64: \+3.0 % since \S+, commit b1",
                     " ".join(crept.stderr.split()))
    lines = (planted.path / "past.jsonl").read_text().splitlines()
    assert [json.loads(line)["commit"] for line in lines] == ["a1", "a2", "a3", "a4", "b1", "b2", "b3"]
    for line in lines:
        validate("history", text=line)
    assert "history" in planted.ok("validate", "past.jsonl").stdout
    page = planted.ok("report", "--history", "past.jsonl", "--format", "markdown", "-o", "-").stdout
    assert re.search(r"\| +7 \|.*\+3.0 % since .*commit b1", page), page
    title = page.splitlines()[0]
    planted.write("two.jsonl", "".join(line.replace('"device":"', '"device":"Other ') + "\n" + line + "\n" for line in lines))
    page = planted.ok("report", "--history", "two.jsonl", "--format", "markdown", "-o", "-").stdout
    assert page.startswith("# moetune report: past checks on several devices\n") and title != page.splitlines()[0]
    assert len(re.findall(r"^### Other .*, burst$", page, re.M)) == 1 and len(re.findall(r"\| +7 \|.*\+3.0 % since .*commit b1", page)) == 2, page
    planted.ok("report", "--history", "past.jsonl")
    with open(planted.path / "past.jsonl", "a") as file:
        file.write('{"schema":"moetune.history/1","da')  # cut off: left out, and gone with the next run
    planted.ok("report", "--history", "past.jsonl")
    html = (planted.path / "past.jsonl.html").read_text()
    assert html.count("<title>") >= 7 and "times of custom/up/fwd" in html and "noise band" in html
    planted.write("past.jsonl", "\n".join([*lines[:3], lines[3][:50], *lines[4:]]) + "\n")
    skipped, (finding,) = raced(planted, "--history", "past.jsonl", "--commit", "c1")
    assert finding["finding"] == "equivalent" and "this line of the history is left out: past.jsonl:4:" in " ".join(skipped.stderr.split())
    assert [line["commit"] for line in map(json.loads, (planted.path / "past.jsonl").read_text().splitlines()[4:])] == ["b1", "b2", "b3", "c1"]
    assert "past.jsonl:4:" in planted.ok("report", "--history", "past.jsonl").stderr
    assert "line 4" in " ".join(planted.run("validate", "past.jsonl").stdout.split())
    planted.write("past.jsonl", "{}\n")
    assert "is not a history of moetune check" in raced(planted, "--history", "past.jsonl", code=2)[0].stderr


@pytest.mark.parametrize("options, text", [
    ([], "TABLE is required"),
    (["--against", "old"], "--against: old holds packs, and this side has none"),
    (["--pack", "old", "--against", BINARY], "TABLE is required"),
])
def test_without_a_table_both_sides_must_be_packs(planted, options, text):
    made_pack(planted, "old")
    assert text in planted.error(2, "check", *RACE, *options, env=H200)


def test_packs_without_a_table_need_a_gpu(planted):
    made_pack(planted, "old")
    words = ["cpu" if word == "cuda" else word for word in RACE]
    assert "packs are of GPU kernels" in planted.error(3, "check", *words, "--pack", "old", "--against", "old")


# --- other libraries ---

def peers_file(room, name, version="2.9.1", **times):
    """Times of peers in two cells, in µs, each ± 0.5 %."""
    peers = json.loads((SOURCE / "tests/cli/files/peers.json").read_text())
    sample, = peers["entries"]
    peers["environment"]["torch"] = version
    peers["entries"] = []
    for tokens in (8, 16):
        for peer, time in times.items():
            entry = json.loads(json.dumps(sample).replace("/t8/", f"/t{tokens}/"))
            entry["cell"]["tokens"] = tokens
            entry.update(peer=peer.replace("_", "-"), median_us=time, low_us=time * 0.995, high_us=time * 1.005, waited=0)
            peers["entries"].append(entry)
    return room.write(name, peers)


def check_peers(room, new, code, *options):
    result = room.run("check", "--peers", new, "--against", "old.json", "-o", "peers-check.json", *options)
    assert result.returncode == code, result.stdout + result.stderr
    return result, {(finding["cell"]["tokens"], finding["kernel"]): finding for finding in findings_in(room, "peers-check.json")}


def test_an_update_that_costs_a_library_time_is_found(room):
    peers_file(room, "old.json", torch_cublas=100, deepgemm=50, moetune_export=40)
    peers_file(room, "same.json", torch_cublas=101, deepgemm=50, moetune_export=40)
    assert {finding["finding"] for finding in check_peers(room, "same.json", 0)[1].values()} == {"equivalent"}
    peers_file(room, "new.json", version="2.10.0", torch_cublas=107, deepgemm=45, moetune_export=40)
    result, found = check_peers(room, "new.json", 1, "--history", "peers.jsonl")
    assert found[8, "torch-cublas"]["finding"] == "regressed" and found[8, "deepgemm"]["finding"] == "improved"
    assert found[16, "moetune-export"]["finding"] == "equivalent"
    assert found[8, "torch-cublas"]["change"] == pytest.approx(0.07, abs=1e-6)
    assert 'torch: "2.10.0" now, "2.9.1" before' in result.stderr
    assert re.search(r"kernel +torch-cublas", result.stdout), result.stdout
    assert "t16/uniform/e4/top2/n64/k64 torch-cublas" in json.loads((room.path / "peers.jsonl").read_text())["points"][0]["name"]


def test_a_slower_machine_is_no_slower_library(room):
    peers_file(room, "old.json", torch=100, moetune_export=40)
    peers_file(room, "new.json", torch=110, moetune_export=44)
    assert {key: finding["finding"] for key, finding in check_peers(room, "new.json", 4)[1].items() if key[1] == "torch"} == \
        {(8, "torch"): "equivalent", (16, "torch"): "equivalent"}
    peers_file(room, "new.json", moetune_export=40)
    assert check_peers(room, "new.json", 1)[1][8, "torch"]["reason"] == "torch is only in old.json"


def test_a_command_measures_a_regression_of_a_peer_again(room):
    peers_file(room, "old.json", torch=100), peers_file(room, "slow.json", torch=110)
    # The second time it is as before.
    passed, found = check_peers(room, "f={}; if test -e ran; then cp old.json $f; else touch ran; cp slow.json $f; fi", 0)
    assert (room.path / "ran").exists() and found[8, "torch"]["finding"] == "equivalent", passed.stdout
    assert check_peers(room, "cp slow.json {}", 1)[1][8, "torch"]["finding"] == "regressed"
    assert "failed" in check_peers_error(room, 3, "false {}")
    assert "wrote no file" in check_peers_error(room, 2, "true {}")
    assert "no cell and peer of old.json hold it" in check_peers_error(room, 2, "slow.json", "--filter", "zzz")
    assert "takes no TABLE" in room.error(2, "check", "old.json", "--peers", "slow.json", "--against", "old.json")
    assert "--peers needs --against FILE" in room.error(2, "check", "--peers", "old.json")
    assert "--update has no effect with --peers" in check_peers_error(room, 2, "slow.json", "--update")
    assert list(check_peers(room, "slow.json", 1, "--tokens", "16")[1]) == [(16, "torch")]
    peers_file(room, "slow.json", torch=110, deepgemm=1), peers_file(room, "old.json", torch=100, deepgemm=1)
    assert list(check_peers(room, "slow.json", 0, "--filter", "t8/.* deep")[1]) == [(8, "deepgemm")]
    other = room.json("slow.json")
    other["environment"]["device"] = "NVIDIA H100"
    room.write("h100.json", other)
    assert f"--against old.json: these times are of {room.json('old.json')['environment']['device']} (burst), those of --peers of " \
        "NVIDIA H100 (burst)" in check_peers_error(room, 3, "h100.json")


def check_peers_error(room, code, *options):
    return room.error(code, "check", "--against", "old.json", "--peers", *options)


# --- --filter ---

def test_a_filter_picks_cells_and_candidates(room):
    table = json.loads((SOURCE / "tests/cli/files/tuned/table-cpu.json").read_text())
    ids = [entry["id"] for entry in table["entries"]]
    dry = ["tune", *CPU, *LAYER, "--tokens", "8,16,24", "--dry-run", "--format", "json"]
    assert [cell["cell"]["tokens"] for cell in json.loads(room.ok(*dry, "--filter", "/t(8|24)/").stdout)["cells"]] == [8, 24]
    assert "no cell's id holds 'zipf'" in room.error(2, *dry, "--filter", "zipf")
    for pattern, column, rest in [("(", 1, "("), ("t16/(a", 5, "(a"), ("a)", 2, ")"), ("x[ab", 2, "[ab"), ("*b", 1, "*b"),
                                  ("t[9-1]", 2, "[9-1]"), ("a{x}", 2, "{x}"), ("a\\", 2, "\\")]:
        message = room.error(2, *dry, "--filter", pattern)
        assert f"'{pattern}' is not a regular expression: see column {column}, '{rest}'" in message
    room.write("table.json", table)
    assert "no cell and its winner hold 'mma'" in room.error(1, "check", "table.json", "--filter", "mma")
    verify = ["verify", *CPU, *LAYER, "--tokens", "8,16", "--set", "threads=1,2", "--space", "quick", "--format", "json"]
    points = json.loads(room.ok(*verify, "--filter", "/t16/.* threads=2( |$)").stdout)["points"]
    assert points and {(point["cell"]["tokens"], point["contender"]["candidate"]["threads"]) for point in points} == {(16, 2)}
    assert "no cell and candidate hold it" in room.error(1, *verify, "--filter", "threads=9")


# --- formats ---

def test_annotations_where_github_runs_it(planted):
    table = planted.tuned()
    plain = planted.run("check", table, *CPU, "-q", env=WRONG)
    github = planted.run("check", table, *CPU, "-q", "--format", "json", env={**WRONG, "GITHUB_ACTIONS": "true"})
    assert "::" not in plain.stderr
    assert github.stderr.startswith("::error title=moetune check%3A wrong_result::custom/up/fwd/")
    json.loads(github.stdout)  # nothing of them is there


@pytest.mark.parametrize("command", ["::error::planted", "  ::set-output name=x::y", "##[error]planted"])
def test_names_give_the_runner_no_commands(room, command):
    room.made_table("table.json")
    table = room.json("table.json")
    table["entries"][0]["cell"]["model"] = f"name\n{command}"
    room.write("table.json", table)
    for arguments in (["check", "table.json", *CPU], ["validate", "table.json"], ["lookup", "table.json", f"--model=x\n{command}"]):
        result = room.run(*arguments, env={"GITHUB_ACTIONS": "true"})
        assert result.returncode in (1, 2), result.stdout
        assert not re.search(r"^\s*(::|##\[)", result.stdout + result.stderr, re.M), result.stderr


# --- --update ---

def test_update_rewrites_the_times_and_keeps_the_reason(planted):
    table = planted.tuned()
    before = planted.json(table)
    for attempt in range(5):
        result = planted.run("check", table, *CPU, "--update", "--reason", "a new machine", "-q",
                             env={"MOETUNE_PLANT": "waited:0"})
        assert result.returncode in (0, 4), result.stdout + result.stderr
        after = planted.json(table)
        if result.returncode == 0:
            break
        assert "times are not updated" in result.stderr and after == before  # too noisy for a baseline
    else:
        pytest.skip("this machine is too noisy for a baseline")
    validate("table", table)
    update, = after["updates"]
    assert update["reason"] == "a new machine" and update["tool"]["argv"][1] == "check"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", update["date"])
    old, = before["entries"]
    new, = after["entries"]
    assert update["cells"] == [new["id"]] == [old["id"]]
    assert new["candidate"] == old["candidate"] and new["measurement"] != old["measurement"]
    assert [rival["name"] for rival in new["rivals"]] == [rival["name"] for rival in old["rivals"]]
    assert after["tool"] == before["tool"]  # how to tune it again
    assert planted.ok("validate", table) and "1 of 1 cell updated" not in result.stdout
    assert not (planted.path / "moetune-table.json.old").exists()


def test_update_never_takes_a_wrong_winner(planted):
    table = planted.tuned()
    before = pathlib.Path(table).read_text()
    result = planted.run("check", table, *CPU, "--update", "--reason", "x", env=WRONG)
    assert result.returncode == 1 and "times are not updated: " in result.stderr
    assert pathlib.Path(table).read_text() == before


@pytest.mark.parametrize("options, text", [
    (["--update"], "--update needs a reason"),
    (["--reason", "x"], "--reason has no effect without --update"),
    (["--update", "--reason", "x", "--against", BINARY], "which --against does not measure"),
])
def test_update_options(room, options, text):
    room.made_table("table.json")
    assert text in room.error(2, "check", "table.json", *CPU, *options)


# --- scripts/gate, scripts/ci ---

def test_gate_counts_verdicts(planted):
    table = planted.tuned()
    result = subprocess.run([sys.executable, "-B", str(SOURCE / "scripts/gate"), "2", table, *CPU], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, universal_newlines=True, cwd=planted.path, timeout=300,
                            env={**planted.env, **WRONG, "MOETUNE": planted.binary})
    assert result.returncode == 0, result.stderr
    assert "| cell | wrong_result |\n| --- | ---: |\n| up fwd 8 uniform | 2 |" in result.stdout
    assert result.stdout.endswith("\nExit codes: 1: 2\n")
    usage = subprocess.run([sys.executable, "-B", str(SOURCE / "scripts/gate"), "table.json"], stderr=subprocess.PIPE)
    assert usage.returncode == 2 and b"usage: gate RUNS TABLE" in usage.stderr


@pytest.mark.parametrize("installed", [True, False])
def test_an_installed_gate_takes_moetune_of_the_path(room, installed):
    scripts, bin_ = room.path / "share/moetune/scripts", room.path / "bin"
    scripts.mkdir(parents=True), bin_.mkdir()
    shutil.copy(SOURCE / "scripts/gate", scripts)
    if installed:
        (bin_ / "moetune").symlink_to(BINARY)
    env = {name: value for name, value in room.env.items() if name != "MOETUNE"}
    result = subprocess.run([sys.executable, "-B", str(scripts / "gate"), "1", "none.json"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, universal_newlines=True, cwd=room.path, env={**env, "PATH": str(bin_)})
    message = "moetune: error: none.json" if installed else "gate: there is no moetune in build/release or PATH: build or install it"
    assert result.returncode == 2 and result.stderr.startswith(message), result.stderr


def steps_of(workflow):
    return [step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]]


def test_there_are_workflows_with_a_gpu_and_without():
    assert [workflow.name for workflow in WORKFLOWS] == ["cpu.yml", "gpu.yml", "pack-cpu.yml", "pack-gpu.yml"]


@pytest.mark.parametrize("workflow", [*WORKFLOWS, GUARD], ids=lambda path: path.name)
def test_workflows_use_commands_that_exist(room, workflow):
    document = yaml.safe_load(workflow.read_text())
    guard = workflow == GUARD
    assert "runs" in document if guard else "jobs" in document and (True in document or "on" in document)  # YAML 1.1: true
    used = []
    for step in document["runs"]["steps"] if guard else steps_of(workflow):
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@v\d+|./moetune/scripts/ci/guard", step["uses"]) if "uses" in step else step["run"].strip()
        script = step.get("run", "")
        subprocess.run(["bash", "-n"], input=script, check=True, universal_newlines=True)
        for line in re.findall(r"^ *moetune .*", script.replace("\\\n", " "), re.M):
            line = re.sub(r"\$\{HISTORY:\+(.*)\}", r"\1", line.split(" > ")[0].split(" || ")[0])
            words = shlex.split(string.Template(line).safe_substitute(document.get("env", {})))
            result = room.run(*words[1:], "--help")
            assert result.returncode == 0, f"{line}\n{result.stderr}"
            require_options(words, result.stdout)
            require_names(room, words)
            used.append(words[1])
        for script_file in re.findall(r"(?<![\w/])scripts/\w+", script):
            assert (SOURCE / script_file).exists(), script_file
    assert used
    if not guard:  # They build what quickstart builds, which continuous integration runs.
        build = set(re.findall(r"cmake [^&;)\n]+\b", (SOURCE / "scripts/quickstart").read_text()))
        assert set(re.findall(r"cmake [^&;)\n]+\b", workflow.read_text())) == build
    for file in re.findall(r"configs/[\w/.-]+", workflow.read_text()):
        assert (SOURCE / file).exists(), file


def run_steps(room, steps, **variables):
    """Runs steps as a runner does, up to the first that fails: its name, or None, and what they printed."""
    (room.path / "bin").mkdir(exist_ok=True)
    if not (room.path / "bin/moetune").exists():
        (room.path / "bin/moetune").symlink_to(room.binary)
    printed = ""
    for step in steps:
        env = {**room.env, **{name: str(value) for name, value in variables.items()}, "PATH": f"{room.path / 'bin'}:{os.environ['PATH']}",
               "GITHUB_STEP_SUMMARY": str(room.path / "summary.md"), "GITHUB_OUTPUT": str(room.path / "output"), "GITHUB_SHA": "c0ffee"}
        result = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=room.path, env=env,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=300)
        printed += result.stdout
        if result.returncode != 0:
            return step.get("name", "?"), printed
    return None, printed


def test_the_workflow_without_a_gpu_passes_and_finds_what_a_change_costs(room):
    workflow = SOURCE / "scripts/ci/pack-cpu.yml"
    steps = [step for step in steps_of(workflow) if "run" in step and not step["name"].startswith("Install ")]
    assert [step["name"] for step in steps] == ["Make the pack", "Registers, spills and shared memory beside the stored ones"]
    assert "--device cpu" not in workflow.read_text()  # that would run moetune's kernels, not the pack's
    (room.path / "moetune/scripts").mkdir(parents=True)
    (room.path / "moetune/scripts/ci").symlink_to(SOURCE / "scripts/ci")
    made_pack(room, "pack")
    cells = " ".join([*LAYER, "--tokens", "8"])
    env = {**yaml.safe_load(workflow.read_text())["env"], "BUILD": "true", "VARIANT": "toy", "CELLS": cells, "STORED": "stored.json"}
    room.write("stored.json", room.ok("compile", "--pack", "pack", "--variant", "toy", "--arch", "sm_90a", *LAYER, "--tokens", "8",
                                      "--format", "json").stdout)
    failed, printed = run_steps(room, steps, **env)
    assert failed is None, printed
    assert "0 differ from stored.json" in (room.path / "summary.md").read_text()
    files = json.loads((room.path / "pack/pack.json").read_text())["files"]
    files["slow.cubin"].update(registers=80, spill_bytes=16)
    made_pack(room, "pack", files=files)
    failed, printed = run_steps(room, steps, **env)
    assert failed == steps[1]["name"], printed
    assert re.search(r"\| toy, .* \| .*fast=no.* \| 40 → 80 \| 0 → 16 \|.*\*\*.*more registers, more spill_bytes\*\*", printed), printed
    (room.path / "pack/slow.cubin").write_text("cut")
    assert run_steps(room, steps, **env)[0] == steps[0]["name"]


def fake_gh(room):
    """A gh in PATH whose comments, in comments.json, are those of two other workflows under the same name at first."""
    (room.path / "bin").mkdir()
    room.write("bin/gh", f"""#!{sys.executable}
import json, re, sys
words, comments = sys.argv[1:], json.load(open("comments.json"))
fields = dict(word.split("=", 1) for flag, word in zip(words, words[1:]) if flag in ("-f", "-F"))
if words[:2] == ["pr", "comment"] and words[2:4] == ["7", "--body-file"]:
    comments.append({{"id": f"C{{len(comments)}}", "body": open(words[4]).read(), "viewerDidAuthor": True}})
elif words[:2] == ["api", "graphql"] and fields["query"].startswith("mutation"):
    comment, = [each for each in comments if each["id"] == fields["id"]]
    comment["body"] = open(fields["body"].lstrip("@")).read()
else:
    assert words[:2] == ["api", "graphql"] and fields["number"] == "7" and "viewerDidAuthor" in fields["query"]
    mark, = re.findall(r'select\\(.viewerDidAuthor and \\(.body \\| startswith\\("(.*?)"\\)\\)\\) \\| .id$', words[words.index("--jq") + 1])
    print("\\n".join(each["id"] for each in comments if each["viewerDidAuthor"] and each["body"].startswith(mark)))
json.dump(comments, open("comments.json", "w"))
""")
    (room.path / "bin/gh").chmod(0o755)
    comments = [{"id": f"C{place}", "body": "of another workflow", "viewerDidAuthor": True} for place in range(2)]
    room.write("comments.json", comments)
    return comments


def test_the_action_reads_its_arguments_as_a_shell_would(room):
    """Lines, quotes and comments; nothing is expanded or run."""
    check = yaml.safe_load(GUARD.read_text())["runs"]["steps"][0]
    (room.path / "bin").mkdir()
    room.write("bin/moetune", f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], open('words.json', 'w'))\n")
    (room.path / "bin/moetune").chmod(0o755)
    given = "--pack 'my pack'\n  --against \"base/it's\" # both sides\n--filter a\\ b --set x=\nd $(touch ran) `touch ran` *"
    assert run_steps(room, [check], CHECK=given, THRESHOLD="3%", INCONCLUSIVE="pass", HISTORY="")[0] is None
    assert room.json("words.json") == [
        "check", "--pack", "my pack", "--against", "base/it's", "--filter", "a b", "--set", "x=", "d", "$(touch", "ran)", "`touch", "ran`", "*",
        "--threshold", "3%", "--inconclusive", "pass", "--markdown", "check.md", "--junit", "check.xml"]
    assert not (room.path / "ran").exists()
    failed, printed = run_steps(room, [check], CHECK="--pack 'new", THRESHOLD="3%", INCONCLUSIVE="pass", HISTORY="")
    assert failed and "::error::the input 'check' cannot be read as a command line: No closing quotation" in printed


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_that_build_may_not_write_and_none_that_waits_is_cancelled(workflow):
    document = yaml.safe_load(workflow.read_text())
    concurrency = document.get("concurrency")
    assert not concurrency or concurrency.get("queue") == "max" and not concurrency.get("cancel-in-progress")
    assert "contents" in document["permissions"]
    for name, job in document["jobs"].items():
        may = job.get("permissions", document["permissions"])
        builds = any(re.search(r"^ *(cmake|eval|moetune|scripts/\S+) ", step.get("run", ""), re.M) for step in job["steps"])
        assert not builds or may.get("contents") != "write", name


def test_the_example_of_a_pack_script_makes_a_pack_or_says_what_is_missing(room):
    for workflow in ("pack-cpu.yml", "pack-gpu.yml"):
        assert "scripts/ci/make_pack.sh" in (SOURCE / "scripts/ci" / workflow).read_text()
    install, = [step for step in steps_of(SOURCE / "scripts/ci/pack-cpu.yml") if step.get("name") == "Install Triton"]
    assert "pip install" in install["run"]
    shutil.copy(SOURCE / "scripts/ci/make_pack.sh", room.path / "make_pack.sh")
    (room.path / "bin").mkdir()
    (room.path / "bin/moetune").symlink_to(BINARY)
    done = subprocess.run(["./make_pack.sh"], cwd=room.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                          env={**room.env, "PATH": f"{room.path / 'bin'}:{os.environ['PATH']}"}, timeout=250)
    assert done.returncode == 0 and (room.path / "pack/pack.json").exists() or "triton is not installed" in done.stdout, done.stdout


def test_the_action_races_comments_and_passes_the_exit_code_on(planted):
    made_pack(planted, "old"), made_pack(planted, "new", summary="slow:1.1")
    action = yaml.safe_load(GUARD.read_text())
    check, comment, leave = action["runs"]["steps"]
    inputs = {name: given.get("default", "") for name, given in action["inputs"].items()}
    race = {"CHECK": " ".join([*RACE, "--patience", "0s", "--pack", "new", "--against", "old"]), "THRESHOLD": inputs["threshold"],
            "INCONCLUSIVE": inputs["inconclusive"], "HISTORY": "past.jsonl", **H200}
    comments = fake_gh(planted)
    failed, printed = run_steps(planted, [check, comment], NUMBER=7, GITHUB_WORKFLOW="guard", GITHUB_JOB="gpu", **race)
    assert failed is None, printed
    assert (planted.path / "output").read_text() == "code=1\n"
    assert "**regressed**" in (planted.path / "check.md").read_text()
    others = planted.json("comments.json")
    assert [each["id"] for each in others] == ["C0", "C1", "C2"] and others[0]["body"] == "of another workflow"
    assert others[2]["body"].startswith("<!-- moetune guard ") and others[2]["body"].endswith((planted.path / "check.md").read_text())
    assert json.loads((planted.path / "past.jsonl").read_text())["commit"] == "c0ffee"
    # Again: it edits its own comment, not that of another workflow behind it, nor one that somebody else made to look alike.
    comments.append({**others[2], "id": "C3", "viewerDidAuthor": False}), comments.append({**others[0], "id": "C4"})
    planted.write("comments.json", [*others, *comments[-2:]])
    planted.write("check.md", "the second time")
    for job, edited in (("gpu", 2), ("other", 5)):
        assert run_steps(planted, [comment], NUMBER=7, GITHUB_WORKFLOW="guard", GITHUB_JOB=job)[0] is None
        after = planted.json("comments.json")
        assert [place for place, each in enumerate(after) if each["body"].endswith("the second time")] == sorted({2, edited})
    assert run_steps(planted, [leave], CODE=1)[0] and not run_steps(planted, [leave], CODE=0)[0]


def compiled(room, stored, new):
    return subprocess.run([sys.executable, "-B", str(SOURCE / "scripts/ci/compiled.py"), stored, new], cwd=room.path,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)


def compiled_file(room, name, *results):
    """Results of moetune compile: each like that of the sample, with changes of its cell, candidate and figures."""
    document = json.loads((SOURCE / "tests/cli/files/compile.json").read_text())
    sample, = document["results"]
    document["results"] = [{**sample, **{part: {**sample[part], **of.get(part, {})} for part in ("cell", "candidate", "compile")}}
                           for of in results]
    return room.write(name, document)


@pytest.mark.parametrize("stored, code, text", [
    ("none.json", 2, "none.json"), ("stored.json", 0, "0 differ"), ("lost.json", 1, "**gone**"), ("check.json", 2, "its schema is moetune.check/1"),
])
def test_compiled_says_what_differs(room, stored, code, text):
    compiled_file(room, "stored.json", {})
    compiled_file(room, "lost.json", {}, {"candidate": {"block_m": 512}})
    room.write("check.json", {"schema": "moetune.check/1"})
    done = compiled(room, stored, "stored.json")
    assert done.returncode == code and text in done.stdout, done.stdout


@pytest.mark.parametrize("one, other", [
    ({"dtype": "fp8", "scales": "block"}, {"dtype": "fp8", "scales": "channel"}),
    ({"dtype": "fp8", "scales": "block", "out_dtype": "bf16"}, {"dtype": "fp8", "scales": "block", "out_dtype": "fp16"}),
    ({"tokens": 16}, {"tokens": 4096}), ({"top_k": 1}, {"top_k": 2})])
def test_compiled_keeps_kernels_of_different_cells_apart(room, one, other):
    """The second's figures hid the first's."""
    compiled_file(room, "old.json", {"cell": one, "compile": {"registers": 64}}, {"cell": other, "compile": {"registers": 128}})
    compiled_file(room, "new.json", {"cell": one, "compile": {"registers": 128}}, {"cell": other, "compile": {"registers": 128}})
    done = compiled(room, "old.json", "new.json")
    assert done.returncode == 1 and "64 → 128" in done.stdout and "1 of them for the worse" in done.stdout, done.stdout


def test_compiled_shows_which_knobs_changed(room):
    old = [{"cell": {"tokens": tokens}, "candidate": {"stages": 3, "block_m": block}, "compile": {"registers": 100}}
           for tokens in (16, 64) for block in (64, 128)]
    new = [{**each, "candidate": {**each["candidate"], "stages": 4}, "compile": {"registers": 120}} for each in old]
    done = compiled(room, compiled_file(room, "old.json", *old), compiled_file(room, "new.json", *new))
    rows = done.stdout.splitlines()[2:-2]
    assert done.returncode == 1 and len(rows) == 2, done.stdout
    for row, block in zip(rows, (64, 128)):
        assert re.search(rf"tokens 16 64 \| .*block_m={block} .*stages=4; was stages=3 \| 100 → 120 \|.*more registers", row), row
    assert "gone" not in done.stdout and "new |" not in done.stdout


def test_compiled_prints_no_command_and_mentions_nobody(room):
    name = "x\n::error::planted|@somebody"
    compiled_file(room, "old.json", {"candidate": {"note": name}})
    compiled_file(room, "new.json", {"candidate": {"note": name}, "compile": {"status": name}})
    printed = compiled(room, "old.json", "new.json").stdout
    room.write("other.json", {"schema": name})
    assert compiled(room, "other.json", "new.json").stdout.startswith("compiled.py: other.json: its schema is x ::error::planted")
    assert not re.search(r"^::|@somebody|[^\\]\|@", printed, re.M) and "planted" in printed, printed
