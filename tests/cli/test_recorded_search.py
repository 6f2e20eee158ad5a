"""Strategies on exhaustive journals of an H200: what tests/journals/README.md says of them."""
import json
import lzma
import pathlib

import pytest

from conftest import SOURCE

JOURNALS = sorted((pathlib.Path(SOURCE) / "tests/journals").glob("*.jsonl.xz"))


@pytest.fixture(scope="module")
def journals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("journals")
    paths = []
    for journal in JOURNALS:
        paths.append(folder / journal.stem)
        paths[-1].write_bytes(lzma.decompress(journal.read_bytes()))
    assert len(paths) == 2
    return [str(path) for path in paths]


def replay(room, journals, *words):
    report = json.loads(room.ok("replay", *journals, *words, "--format", "json").stdout)
    assert len(report["cells"]) == 15
    return report


@pytest.mark.parametrize("words", [[], ["--cold"]])
def test_auto_finds_what_an_exhaustive_search_finds(room, journals, words):
    report = replay(room, journals, *words)
    assert report["mean_loss"] < 0.005
    losses = [max(cell["losses"]) for cell in report["cells"]]
    assert sum(loss < 0.01 for loss in losses) >= len(losses) - 1
    assert all(max(cell["candidates"]) <= 150 for cell in report["cells"])


def test_the_models_first_eight_hold_a_good_candidate(room, journals):
    report = replay(room, journals, "--strategy", "model", "--max-candidates", "8", "--runs", "1")
    assert sum(cell["losses"][0] < 0.02 for cell in report["cells"]) >= 0.9 * len(report["cells"])
