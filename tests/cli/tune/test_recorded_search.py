"""Strategies on the exhaustive journals that tests/journals/README.md describes; and on journals of searches, which hold
today's default of more cells."""
import json
import lzma
import os
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import BINARY, SOURCE

FOLDER = pathlib.Path(SOURCE) / "tests/journals"
REPLAY = pathlib.Path(BINARY).parent / "replay_journals"  # tests/tune/search/replay_main.cpp


def unpacked(packed, folder):
    paths = []
    for journal in sorted(packed):
        paths.append(folder / journal.stem)
        paths[-1].write_bytes(lzma.decompress(journal.read_bytes()))
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def journals(tmp_path_factory):
    paths = unpacked(FOLDER.glob("*.jsonl.xz"), tmp_path_factory.mktemp("journals"))
    assert len(paths) == 5
    return paths


def replay(journals, *words):
    return json.loads(subprocess.run([REPLAY, *journals, *words], stdout=subprocess.PIPE, check=True, text=True).stdout)


@pytest.mark.parametrize("words", [[], ["--cold"]])
def test_auto_finds_what_an_exhaustive_search_finds(journals, words):
    report = replay(journals, "--runs", "4", *words)
    assert len(report["cells"]) == 27
    assert report["mean_loss"] < 0.005
    losses = [max(cell["losses"]) for cell in report["cells"]]
    assert sum(loss < 0.01 for loss in losses) >= len(losses) - 1
    assert all(max(cell["candidates"]) <= 64 for cell in report["cells"])
    known = [cell for cell in report["cells"] if cell.get("default_loss") is not None]
    assert all(max(cell["losses"]) <= cell["default_loss"] for cell in known)


def test_a_search_never_ends_below_the_default(tmp_path):
    names = ["h200-hopper-backward-second", "h200-hopper-backward", "h200-training-step", "h100-training-step", "h100-dw"]
    report = replay(unpacked([FOLDER / f"searches/nvidia-{name}.jsonl.xz" for name in names], tmp_path), "--runs", "1")
    known = [cell for cell in report["cells"] if cell.get("default_loss") is not None]
    assert len(known) >= 100
    assert [cell["id"] for cell in known if max(cell["losses"]) > cell["default_loss"]] == []


def test_the_models_first_eight_hold_a_good_candidate(journals):
    report = replay(journals, "--strategy", "model", "--max-candidates", "8", "--runs", "1")
    assert sum(cell["losses"][0] < 0.02 for cell in report["cells"]) >= 0.9 * len(report["cells"])


def test_a_strategy_that_tries_one_candidate_has_the_defaults_loss(journals):
    report = replay(journals[:1], "--strategy", "random", "--max-candidates", "1", "--runs", "2")
    for cell in report["cells"]:
        assert cell["candidates"] == [1, 1] and cell["losses"][0] == cell["losses"][1] >= 0
        assert cell["losses"][0] == cell.get("default_loss", cell["losses"][0])


def fit_cost(*arguments):
    """The last line of its table: the error before and after, the loss of the first eight before and after."""
    result = subprocess.run([sys.executable, SOURCE / "scripts/fit_cost", *arguments], stdout=subprocess.PIPE,
                            env={**os.environ, "REPLAY_JOURNALS": str(REPLAY)}, check=True, text=True)
    return [float(percent) for percent in re.findall(r"([\d.]+)%", result.stdout.splitlines()[-1])]


def test_fit_cost_predicts_a_journal_that_is_held_back(room, tmp_path):
    """It begins far from the constants of configs/cost. No cell of the held journal is in the others."""
    pytest.importorskip("numpy")
    names = ["nvidia-h100-training-step", "nvidia-h200-backward", "nvidia-h200-hopper-peers"]
    *others, held = unpacked([FOLDER / f"searches/{name}.jsonl.xz" for name in names], tmp_path)
    factors = iter([1.35, 0.74] * 50)
    cost = json.loads((SOURCE / "configs/cost/wgmma.json").read_text())
    for constant in cost["constants"].values():
        constant["value"] *= next(factors)
    spoiled, fitted = tmp_path / "spoiled.json", tmp_path / "fitted.json"
    spoiled.write_text(json.dumps(cost))
    today, _, loss_today, _ = fit_cost("--steps", "0", "-o", fitted, held)
    before, after, _, loss = fit_cost("--cost", spoiled, "--steps", "3", "-o", fitted, "--hold", held, *others)
    assert before > 5 * today and after < 2 * today < 10 and loss < loss_today + 0.5
    room.ok("validate", fitted)


@pytest.mark.parametrize("journal, space_file, count, size", [
    ("nvidia-h200-fwd-dx", "reference.json", 12, 356), ("nvidia-h100-fwd", "reference.json", 6, 356),
    ("nvidia-h100-dx", "reference.json", 2, 356), ("nvidia-h100-dw", "reference-dw.json", 4, 416)])
def test_a_journal_is_that_of_its_space(room, journals, journal, space_file, count, size):
    """All values of the committed space were recorded, and of each cell the default of then beside it."""
    room.ok("validate", FOLDER / space_file)
    space = json.loads((FOLDER / space_file).read_text())["variants"]["wgmma"]
    path, = [path for path in journals if path.endswith(f"{journal}.jsonl")]
    header, *lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    assert pathlib.Path(header["space"]).name == space_file
    cells = {}
    for line in lines:
        if line["kind"] == "trial":
            cells.setdefault(line["cell"], []).append(line["candidate"])
    assert len(cells) == count
    for candidates in cells.values():
        within = [candidate for candidate in candidates
                  if all(candidate[knob] in values or "most" in values for knob, values in space.items())]
        assert len(candidates) == size + 1 and len(within) in (size, size + 1)
        for knob, values in space.items():
            assert "most" in values or {candidate[knob] for candidate in within} == set(values), knob
