"""scripts/chart: the picture of the README is what it draws from the figures of configs/tuned/README.md."""
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

from conftest import SOURCE

CHART = SOURCE / "scripts/chart"
PAGE = SOURCE / "configs/tuned/README.md"
SVG = "{http://www.w3.org/2000/svg}"


def drawn(script=CHART):
    return subprocess.run([sys.executable, "-B", str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, encoding="utf-8")


def copy_with(tmp_path, change):
    """The script beside a page whose text was changed."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "configs/tuned").mkdir(parents=True)
    shutil.copy(CHART, tmp_path / "scripts/chart")
    (tmp_path / "configs/tuned/README.md").write_text(change(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return tmp_path / "scripts/chart"


def with_last_pair(pair):
    """A change of the last pair of speeds in Qwen3 up's row."""
    return lambda page: re.sub(r"(\| Qwen3-30B-A3B up (?:\| [^|]+){2})\| [^|]+\|", rf"\1| {pair} |", page, count=1)


def test_the_committed_chart_is_drawn_anew():
    result = drawn()
    assert result.returncode == 0, result.stderr
    kept = (SOURCE / "configs/tuned/chart.svg").read_text(encoding="utf-8")
    assert result.stdout == kept, "run scripts/chart > configs/tuned/chart.svg"
    assert "configs/tuned/chart.svg)" in (SOURCE / "README.md").read_text(encoding="utf-8")


def test_every_figure_of_the_table_has_its_bar():
    section = PAGE.read_text(encoding="utf-8").partition("## wgmma beside six others")[2].partition("\n## ")[0]
    wanted = [speed for row in re.findall(r"^\| .*x / .*$", section, re.M) for speed in re.findall(r"(\d\.\d\d)x", row)]
    root = xml.fromstring(drawn().stdout)
    shown = [text.text[:-1] for text in root.iter(SVG + "text") if text.get("class") == "value"]
    assert len(wanted) == 36 and shown == wanted
    bars = [bar for bar in root.iter(SVG + "rect") if bar.get("class") in ("uniform", "zipf")][2:]  # the legend's first
    assert [bar.get("class") for bar in bars] == ["uniform", "zipf"] * 18
    for bar, speed in zip(bars, wanted):
        assert float(bar.get("width")) == max(1, round(300 * abs(float(speed) - 1), 3)), speed
    for part in [*bars, *root.iter(SVG + "text")]:
        assert 0 <= float(part.get("x")) < float(root.get("width")) - 20 and 0 < float(part.get("y")) < float(root.get("height"))


def test_the_mean_is_that_of_the_page():
    page = PAGE.read_text(encoding="utf-8")
    mean, = re.findall(r"Geometric means over the 36 cells: (\d\.\d\dx) over the best", page)
    assert f"mean {mean}" in drawn().stdout


def test_other_figures_make_another_chart(tmp_path):
    result = drawn(copy_with(tmp_path, with_last_pair("1.30x / 0.90x")))
    assert result.returncode == 0 and ">1.30x<" in result.stdout and ">0.90x<" in result.stdout
    bars = [bar for bar in xml.fromstring(result.stdout).iter(SVG + "rect") if bar.get("class") in ("uniform", "zipf")][2:]
    ends = [(float(bar.get("x")), float(bar.get("x")) + float(bar.get("width"))) for bar in bars]
    assert min(start for start, _ in ends) >= 0 and max(end for _, end in ends) <= 440 - 40  # room for a figure
    for (_, end), (start, _) in zip(ends, ends[2:]):
        assert end < start or start < 50, "a bar reaches into the next panel"


def test_a_page_without_the_table_is_reported(tmp_path):
    result = drawn(copy_with(tmp_path, lambda page: page.replace("## wgmma beside six others", "## wgmma")))
    assert result.returncode == 1 and "no table under '## wgmma beside six others'" in result.stderr


def test_a_row_that_is_no_pair_of_speeds_is_reported(tmp_path):
    result = drawn(copy_with(tmp_path, with_last_pair("1.20x")))
    assert result.returncode == 1 and "the row of Qwen3-30B-A3B up is not made of pairs" in result.stderr
