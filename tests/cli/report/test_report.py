"""report: the page as Markdown and HTML, what it takes from which file, hostile names, and how a browser shows it."""
import html.parser
import itertools
import json
import shutil

import pytest

from chromium import PROGRAM, Chromium
from conftest import TOOL, SOURCE, made_entry, validate

H200_TABLE = SOURCE / "configs/tuned/nvidia-h200-hopper-peers.json"
HOSTILE = "</title></style><script>alert(1)</script>\"'><img src=x onerror=alert(2)> & `*[a](http://b) \u00b5"
BENIGN = ("plain words of a file, " * 9)[:len(HOSTILE)].strip() + "."  # as long
RIGHT = made_entry("up", 8)["verdict"]
JOURNAL = "table.json.journal.jsonl"


def measurement(us):
    return {"median_us": us, "low_us": 0.99 * us, "high_us": 1.01 * us, "samples": 5, "launches": 100, "clock_mhz": 0.0}


def made_journal(table, reason=BENIGN):
    """Lines of a journal of the cells of a table: every tile of the cpu, and a candidate that failed."""
    header = {"schema": "moetune.journal/1", "kind": "header", "device": table["device"],
              "environment": table["environment"], "space": "all", "strategy": "exhaustive", "seed": 0,
              "regime": table["regime"], "cells": [{"id": entry["id"], **entry["cell"]} for entry in table["entries"]]}
    lines = [header]
    for entry in table["entries"]:
        entry["candidates"] = {"legal": 36, "measured": 33, "failed": 1}
        for i, (m, n, k) in enumerate(itertools.product((24, 48, 96, 192), (64, 128, 256, 512), (128, 256))):
            candidate = {"variant": "cpu", "block_m": m, "block_n": n, "block_k": k, "threads": 1}
            lines.append({"kind": "trial", "cell": entry["id"], "candidate": candidate, "status": "ok",
                          "measurement": measurement(20 - 0.25 * i), "verdict": RIGHT, "took_us": 1000.0})
        wrong = {"variant": "cpu", "block_m": 24, "block_n": 64, "block_k": 128, "threads": 2}
        lines.append({"kind": "trial", "cell": entry["id"], "candidate": wrong, "status": "wrong_result", "reason": reason})
        lines.append({"kind": "final", "cell": entry["id"], "took_us": 2e6})
    return lines


def made_peers(table, names=("triton",)):
    entries = [{**measurement(entry["measurement"]["median_us"] * (1.2 + 0.1 * i)), "id": entry["id"],
                "cell": entry["cell"], "peer": name, "note": ""}
               for entry in table["entries"] if "measurement" in entry for i, name in enumerate(names)]
    return {"schema": "moetune.peers/1", "tool": {"name": "peers.py", "argv": []},
            "environment": {"device": table["device"]["name"], "torch": "2.9", "cuda": None, "triton": None,
                            "deep_gemm": None}, "regime": table["regime"], "entries": entries}


def write_lines(room, name, lines):
    return room.write(name, "".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def recorded(room):
    """table.json, its journal beside it, and peers.json."""
    room.made_table(tokens=(8, 16, 64), projections=("up", "down"))
    table = room.json("table.json")
    write_lines(room, JOURNAL, made_journal(table))
    room.write("table.json", table)
    room.write("peers.json", made_peers(table))
    validate("peers", room.path / "peers.json")
    return room


class Structure(html.parser.HTMLParser):
    """The elements of a page with the names of their attributes, and the text that it shows."""
    EMPTY = ("meta", "link", "wbr")

    def __init__(self, page):
        super().__init__()
        self.elements, self.open, self.text, self.values = [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, tuple(name for name, _ in attributes)))
        self.values += [value for _, value in attributes]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


# --- files and options ---


def test_the_page_is_beside_the_table_and_has_its_journal(recorded):
    result = recorded.ok("report", "table.json")
    assert result.stdout == "" and "wrote table.html" in result.stderr
    page = (recorded.path / "table.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "There is no journal" not in page and "There are no times of other libraries" in page
    assert BENIGN in page


def test_markdown_by_the_name_and_by_the_option(recorded):
    recorded.ok("report", "table.json", "--peers", "peers.json", "-o", "page.md")
    text = (recorded.path / "page.md").read_text(encoding="utf-8")
    assert text.startswith("# moetune report: ")
    assert "| triton " in text
    assert recorded.ok("report", "table.json", "--peers", "peers.json", "--format", "markdown", "-o", "-").stdout == text
    recorded.ok("report", "table.json", "--format", "markdown")
    assert (recorded.path / "table.md").exists()
    assert recorded.ok("report", "table.json", "-o", "-").stdout.startswith("<!doctype html>")


def test_both_forms_have_the_same_sections_and_figures(recorded):
    page = Structure(recorded.ok("report", "table.json", "-o", "-").stdout)
    text = recorded.ok("report", "table.json", "--format", "markdown", "-o", "-").stdout
    titles = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert len(titles) == 7 and all(title in page.text for title in titles)
    shown = "".join(page.text)
    cells = [cell.strip() for line in text.splitlines() if line.startswith("|") for cell in line.split("|")]
    assert [cell for cell in cells if cell.strip("-:") and cell not in shown] == []


def test_wrong_words_and_files(recorded):
    assert "did you mean 'markdown'?" in recorded.error(2, "report", "table.json", "--format", "markdwn")
    assert "TABLE is required" in recorded.error(2, "report")
    assert "nowhere.json" in recorded.error(2, "report", "nowhere.json")
    assert "nowhere.jsonl" in recorded.error(2, "report", "table.json", "--journal", "nowhere.jsonl")
    assert "nowhere.json" in recorded.error(2, "report", "table.json", "--peers", "nowhere.json")
    error = recorded.error(2, "report", "table.json", "-o", "x.png")
    assert "report writes HTML (.html) and Markdown (.md), not .png" in error and "--format html" in error
    assert not {"table.html", "x.png"} & set(recorded.files())
    recorded.ok("report", "table.json", "-o", "page.of-today", "--format", "html")


def test_it_replaces_its_own_page_and_nothing_else(recorded):
    recorded.ok("report", "table.json")
    recorded.ok("report", "table.json")
    recorded.ok("report", "table.json", "-o", "page.md")
    recorded.write("other.html", "<!doctype html>\n<title>a page of the user's</title>\n")
    before = {name: (recorded.path / name).read_bytes() for name in recorded.files()}
    for output, words in (("table.json", "name the same file"), (JOURNAL, "name the same file"),
                          ("peers.json", "name the same file"), ("other.html", "other.html"), ("page.md", "page.md")):
        error = recorded.error(2, "report", "table.json", "--peers", "peers.json", "--format", "html", "-o", output)
        assert words in error, error
    assert {name: (recorded.path / name).read_bytes() for name in recorded.files()} == before


def test_a_journal_of_another_run_beside_the_table_is_left_out_and_named(recorded):
    table = recorded.json("table.json")
    table["device"]["name"] = "another device"
    write_lines(recorded, JOURNAL, made_journal(table))
    result = recorded.ok("report", "table.json")
    assert f"{JOURNAL} is left out: it is of 'another device'" in result.stderr
    assert "There is no journal" in (recorded.path / "table.html").read_text(encoding="utf-8")
    assert "is of another run than the table" in recorded.error(3, "report", "table.json", "--journal", JOURNAL)


@pytest.mark.parametrize("change, words", [
    (lambda table: table.update(regime="sustained"), "it is of the regime sustained"),
    (lambda table: table.update(entries=[made_entry("up", 128)]), "it has no cell of the table"),
])
def test_what_a_journal_of_another_run_differs_in(recorded, change, words):
    table = recorded.json("table.json")
    change(table)
    write_lines(recorded, "other.jsonl", made_journal(table))
    assert words in recorded.error(3, "report", "table.json", "--journal", "other.jsonl")


def test_a_journal_without_the_winners_is_of_another_run(recorded):
    lines = made_journal(recorded.json("table.json"))
    for line in lines:
        if "candidate" in line:
            line["candidate"]["block_k"] = 1024
    write_lines(recorded, "other.jsonl", lines)
    error = recorded.error(3, "report", "table.json", "--journal", "other.jsonl")
    assert "other.jsonl is of another run than the table: it tried none of the table's winners" in error


def test_a_journal_with_fewer_candidates_may_be_of_another_run(recorded):
    lines = made_journal(recorded.json("table.json"))
    assert "may be of another run" not in recorded.ok("report", "table.json").stderr
    write_lines(recorded, "other.jsonl", [line for line in lines if line.get("candidate", {}).get("block_m") != 192])
    notes = recorded.ok("report", "table.json", "--journal", "other.jsonl").stderr
    assert "other.jsonl may be of another run: it has fewer candidates of custom/up/fwd/bf16/t8/" in notes


def test_peers_of_another_device_are_refused(recorded):
    peers = recorded.json("peers.json")
    peers["environment"]["device"] = "another device"
    recorded.write("peers.json", peers)
    assert "another device" in recorded.error(3, "report", "table.json", "--peers", "peers.json")


# --- hostile names ---


def plant(room, word):
    """A page of a table, journal and peers with `word` wherever a file may hold one."""
    table = room.json("table.json")
    model = word.replace("/", "")  # which ids of cells cannot hold
    table["device"]["name"] = table["environment"]["identity"]["device"] = word
    table["environment"]["more " + word] = word
    table["tool"] = {**TOOL, "version": word, "argv": ["moetune", word]}
    table["entries"].append(made_entry("up", 4096))
    for entry in table["entries"]:
        entry["cell"]["model"] = model
        entry["id"] = entry["id"].replace("custom", model, 1)
        entry["rivals"] = [{"name": "loop " + word, "measurement": measurement(20.0), "ratio": 0.5,
                            "ratio_low": 0.49, "ratio_high": 0.51}]
    for key in ("candidate", "measurement", "occupancy", "derived", "verdict", "rivals", "ties"):
        del table["entries"][-1][key]
    table["entries"][-1].update(skipped=word, complete=False, candidates={"legal": 0, "measured": 0, "failed": 0})
    lines = made_journal(table, word)
    lines[0]["strategy"] = lines[0]["space"] = word
    room.write("table.json", table)
    write_lines(room, JOURNAL, lines)
    room.write("peers.json", made_peers(table, (word,)))
    return room.ok("report", "table.json", "--journal", JOURNAL, "--peers", "peers.json", "-o", "-").stdout


def test_no_name_becomes_markup(recorded):
    for name in ("table.json", JOURNAL, "peers.json"):
        shutil.copy(recorded.path / name, recorded.path / (name + ".kept"))
    benign = Structure(plant(recorded, BENIGN))
    for name in ("table.json", JOURNAL, "peers.json"):
        shutil.copy(recorded.path / (name + ".kept"), recorded.path / name)
    page = plant(recorded, HOSTILE)
    hostile = Structure(page)

    def counted(structure):  # a slash in a name may end a line
        return [element for element in structure.elements if element != ("wbr", ())]
    assert counted(hostile) == counted(benign)
    shown = "".join(hostile.text)
    model = HOSTILE.replace("/", "")
    assert shown.count(HOSTILE) + shown.count(model) == "".join(benign.text).count(BENIGN) > 20
    assert any(model in (value or "") for value in hostile.values)  # in descriptions of charts
    assert page.count("<script") == 1


@pytest.mark.parametrize("reason", ["\u0000\u001b[31mred\u0007", "\u202eover\u2066", "\ud800 alone", "a\nb\tc", "\u0085\u009b"])
def test_control_bytes_are_shown_and_not_sent(recorded, reason):
    lines = made_journal(recorded.json("table.json"), reason)
    if "\ud800" in reason:  # no JSON reader takes it
        write_lines(recorded, JOURNAL, lines)
        recorded.error(2, "report", "table.json", "--journal", JOURNAL)
        return
    write_lines(recorded, JOURNAL, lines)
    for form in ("html", "markdown"):
        text = recorded.ok("report", "table.json", "--format", form, "-o", "-").stdout
        assert [c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c in "\u202e\u2066"] == []


# --- size ---


def many_cells(room, count):
    room.made_table(tokens=range(2, count + 1, 2), projections=("up", "down"))
    table = room.json("table.json")
    assert len(table["entries"]) == count
    room.write("peers.json", made_peers(table, [f"library-~{i}" for i in range(6)]))
    return table


def test_a_page_of_2040_cells_has_less_than_3_MB(room):
    table = many_cells(room, 2040)
    room.ok("report", "table.json", "--peers", "peers.json")
    path = room.path / "table.html"
    page = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 3e6
    Structure(page)  # ends what it begins
    assert "A page of over 500 cells has one chart" in page
    assert all(f"<td class=\"right\">{entry['cell']['tokens']}</td>" in page for entry in table["entries"])
    assert page.count("<th scope=\"col\" class=\"right\">vs library-~5</th>") == 2  # of up and of down


def test_a_page_of_100_cells_has_less_than_3_MB(room):
    table = many_cells(room, 100)
    write_lines(room, JOURNAL, made_journal(table))
    room.write("table.json", table)
    room.ok("report", "table.json", "--peers", "peers.json")
    page = (room.path / "table.html").read_bytes()
    assert page.count(b"library-~5") > 100 and page.count(BENIGN.encode()) > 0
    assert len(page) < 3e6


# --- in a browser ---


@pytest.fixture
def browser(tmp_path):
    if PROGRAM is None:
        pytest.skip("Chromium is not installed")
    with Chromium(tmp_path) as chromium:
        yield chromium


TOO_WIDE = """[...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll") &&
           e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.outerHTML.slice(0, 99))"""
COLUMN = """(title => {
  const heading = [...document.querySelectorAll("table.sortable th")].find(th => th.textContent === title);
  heading.querySelector("button").click();
  return [...heading.closest("table").tBodies[0].rows].map(row => row.cells[heading.cellIndex].textContent);
})"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_all_of_it(recorded, browser, width, dark):
    recorded.ok("report", H200_TABLE, "-o", "h200.html")
    recorded.ok("report", "table.json", "--peers", "peers.json")
    for name in ("h200.html", "table.html"):
        path = recorded.path / name
        browser.open(path, width, dark=dark)
        assert browser.faults() == []
        assert browser.requests() == [path.as_uri()]
        assert browser.value("innerWidth") == width
        assert browser.value(TOO_WIDE) == []
        assert browser.value("document.querySelectorAll('svg[role=img]').length") > 10
        assert browser.value("""[...document.querySelectorAll("svg[role=img] g path:not(.line)")]
                                .filter(path => !path.querySelector("title")?.textContent).length""") == 0
        light, = {browser.value("getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'")}
        assert light is not dark


def test_a_table_is_sorted_by_the_heading_that_is_pressed(recorded, browser):
    recorded.ok("report", H200_TABLE, "-o", "h200.html")
    browser.open(recorded.path / "h200.html", 1280)
    units = {"µs": 1e-6, "ms": 1e-3}

    def seconds(texts):
        return [float(text.split()[0]) * units[text.split()[1]] for text in texts]
    first = seconds(browser.value(f"{COLUMN}('time')"))
    assert first == sorted(first) and len(set(first)) > 3
    assert seconds(browser.value(f"{COLUMN}('time')")) == first[::-1]
    routings = browser.value(f"{COLUMN}('routing')")
    assert routings == sorted(routings) and len(set(routings)) == 2
    assert browser.faults() == []


def test_everything_is_in_the_page_without_a_script(recorded, browser):
    recorded.ok("report", "table.json", "--peers", "peers.json")
    path = recorded.path / "table.html"
    page = path.read_text(encoding="utf-8")
    browser.open(path, 1280)
    with_script = browser.value("document.querySelector('main').textContent")
    begin, end = page.index("<script>"), page.index("</script>")
    path.write_text(page[:begin] + page[end + len("</script>"):], encoding="utf-8")
    browser.open(path, 1280)
    assert browser.value("document.querySelector('main').textContent") == with_script


def test_a_printed_page_has_what_is_folded(recorded, browser):
    recorded.ok("report", "table.json", "--peers", "peers.json")
    browser.open(recorded.path / "table.html", 1280)
    assert browser.value("document.querySelectorAll('details').length") > 3
    browser.pdf(recorded.path / "table.pdf")
    assert browser.value("document.querySelectorAll('details:not([open])').length") == 0
    assert (recorded.path / "table.pdf").read_bytes().startswith(b"%PDF")


def test_a_browser_runs_nothing_that_names_hold(recorded, browser):
    page = plant(recorded, HOSTILE)
    (recorded.path / "hostile.html").write_text(page, encoding="utf-8")
    browser.open(recorded.path / "hostile.html", 390)
    assert browser.faults() == []
    assert browser.requests() == [(recorded.path / "hostile.html").as_uri()]
    assert browser.value("document.images.length + document.querySelectorAll('[onerror], main script').length") == 0
    assert browser.value(TOO_WIDE) == []
