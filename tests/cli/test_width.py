"""Text of commands: lines of at most 80 columns, candidates with the knobs that differ from the default, all knobs with --verbose."""
import re

from conftest import CPU, SOURCE, TINY
from test_compile import compiles

H200 = SOURCE / "configs/tuned/nvidia-h200-hopper-peers.json"
ALL_KNOBS = re.compile(r"cpu block_m=\d+ block_n=\d+ block_k=\d+ threads=\d+")
KERNELS = ["--candidate", "wgmma", "--candidate", "wgmma block_m=16 block_n=64 stages=3 group=8 consumers=1 hold=0 split=2",
           "--arch", "sm_90a", "-q"]


def narrow(text):
    lines = text.splitlines()
    assert lines and all(len(line) <= 80 for line in lines), text
    return text


def test_bench_fits_80_columns(room):
    command = ["bench", *TINY, "--rounds", "3", "--candidate", "cpu block_m=24", "-q"]
    text = narrow(room.ok(*command).stdout)
    assert "| cpu block_m=24 " in text and "| cpu, the default " in text and "vs loop" in text
    assert not ALL_KNOBS.search(text)
    assert len(set(ALL_KNOBS.findall(room.ok(*command, "--verbose").stdout))) == 2


def test_verify_fits_80_columns(room):
    command = ["verify", *TINY, "--space", "quick", "--max-candidates", "4", "--candidate", "cpu block_m=24", "-q"]
    text = narrow(room.ok(*command).stdout)
    assert "| cpu block_m=24 " in text
    assert len(set(ALL_KNOBS.findall(room.ok(*command, "--verbose").stdout))) == 5
    assert "custom up, fwd bf16: 4 experts, top 2, n 64, k 64\n8 tokens, uniform\n" in text


def test_check_fits_80_columns(room):
    table = room.tuned()
    result = room.run("check", table, "--rounds", "5", "--patience", "0")
    text = narrow(result.stdout.split("\n\nNext")[0])
    assert "[1/1] custom/up/" in narrow(result.stderr)
    assert re.search(r"^(\| tokens \| routing |8 tokens, uniform$)", text, re.M) and not ALL_KNOBS.search(text)
    verbose = room.run("check", table, "--rounds", "5", "--patience", "0", "-q", "-v").stdout
    assert ALL_KNOBS.search(verbose)


def test_lookup_fits_80_columns(room):
    command = ["lookup", H200, "--model", "qwen3-30b-a3b", "--tokens", "16,300,4096", "--routing", "uniform,zipf:1"]
    text = narrow(room.ok(*command).stdout)
    assert "| wgmma, the default |" in text or "| wgmma block_" in text
    assert "schedule=cooperative swap=yes cluster=none" not in text
    verbose = room.ok(*command, "--verbose").stdout
    assert len(re.findall(r"wgmma block_m=\d+ block_n=.* schedule=.* mix=\d", verbose)) == 6


def test_compile_fits_80_columns(room):
    compiles(room)
    text = narrow(room.ok("compile", "--model", "qwen3-30b-a3b", "--tokens", "16", *KERNELS).stdout)
    assert "| wgmma, the default " in text and "\nsm_90a, 16 tokens, uniform\n" in text
    verbose = room.ok("compile", "--model", "qwen3-30b-a3b", "--tokens", "16", *KERNELS, "--verbose").stdout
    assert len(re.findall(r"wgmma block_m=\d+ block_n=.* schedule=.* mix=\d", verbose)) == 2


def test_errors_and_notes_fit_the_columns_that_are_asked_for(room):
    command = ["tune", *TINY, "--max-candidates", "2", "-q", "--filter", "(no such cell", "-o", "a.json"]
    whole = room.error(2, *command)
    assert max(map(len, whole.splitlines())) > 50
    message = room.run(*command, env={"COLUMNS": "50"}).stderr
    assert message.startswith("moetune: error: --filter: ") and max(map(len, message.splitlines())) <= 50
    for columns in ("50", "9"):
        assert " ".join(room.run(*command, env={"COLUMNS": columns}).stderr.split()) == " ".join(whole.split())


def test_a_baseline_that_lacks_the_product_is_left_out(planted):
    result = planted.ok("bench", *TINY, "--rounds", "3", env={"MOETUNE_PLANT": "lacks"})
    assert "the baseline loop is left out: it has no such product: planted" in result.stderr
    assert "| loop " not in result.stdout and "1 contender measured in 1 cell." in result.stdout


def test_notes_of_doctor_fit_80_columns(room):
    assert "Note: no CUDA device" in narrow(room.ok("doctor", "--quick", env={"CUDA_VISIBLE_DEVICES": "-1"}).stdout.partition("|\n\n")[2])


def test_a_dry_run_fits_80_columns(room):
    command = ["tune", *CPU, "--model", "qwen3-30b-a3b", "--projection", "up,down", "--tokens", "16,4096", "--dry-run"]
    text = narrow(room.ok(*command, "--routing", "uniform,zipf:1", "--space", "quick").stdout)
    assert text.count("\n|   4096 | zipf:1  |") == 4 and "\nqwen3-30b-a3b down, fwd bf16: 128 experts" in text
