"""validate: what a file is, whether it is valid, and that it refuses what configs/schema refuses."""
import copy
import functools
import importlib.util
import json
import random

import jsonschema
import pytest

from conftest import CPU, LAYER, SOURCE, TINY, VALIDATE, Room, made_entry, validate

SPEC = importlib.util.spec_from_file_location("schema_check", VALIDATE)
SCHEMAS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SCHEMAS)

KINDS = ["bench", "check", "compile", "cost", "doctor", "history", "journal", "kernels", "list", "lookup", "model", "pack", "peers", "plan",
         "routing", "runtime", "space", "suite", "table", "validate", "verify"]
GONE = object()  # the key or element is removed
FILES = SOURCE / "tests/cli/files"
# Only the schema describes these; readers of the others find contradictions that a schema cannot describe.
ONLY_SCHEMA = {"bench", "check", "compile", "doctor", "list", "lookup", "plan", "validate", "verify"}


def places(document, at=()):
    yield at
    for key, value in document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ():
        yield from places(value, (*at, key))


def instead_of(value):
    """What may stand in place of a value: another type, none, too small, an unknown word."""
    yield from (GONE, None, {}, [], "x", -1, 1.5, True)
    if isinstance(value, str):
        yield from ("", value + "x")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from (0, float(value), value + 0.5, str(value))
    elif isinstance(value, list):
        yield from (value[:1], value * 2, [*value, None])


def damaged(document, place, value):
    if not place:
        return document if value is GONE else value
    result = copy.deepcopy(document)
    at = result
    for key in place[:-1]:
        at = at[key]
    if value is GONE:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return result


def damages(document, seed, count):
    """`count` of a document's damages, the same in every run."""
    def value_at(place):
        return functools.reduce(lambda at, key: at[key], place, document)
    every = [(place, value) for place in places(document) for value in instead_of(value_at(place))]
    return random.Random(seed).sample(every, min(count, len(every)))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A room with a tuned table, and a document of each kind that commands write; test_versions has one of every kind."""
    room = Room(tmp_path_factory.mktemp("made"))
    room.tuned()
    table = "moetune-table.json"
    results = {"bench": ["bench", "--table", table, "--rounds", 3], "verify": ["verify", "--table", table],
               "lookup": ["lookup", table, *LAYER, "--tokens", 9], "list": ["list", "models"],
               "doctor": ["doctor", *CPU, "--quick"], "validate": ["validate", table],
               "plan": ["tune", *TINY, "--dry-run"]}
    documents = {kind: json.loads(room.ok(*words, "--format", "json").stdout) for kind, words in results.items()}
    return room, {**documents, "table": room.json(table)}


@functools.lru_cache
def validator(kind):
    return jsonschema.Draft202012Validator(SCHEMAS.load_schema(kind))


def schema_refuses(kind, document):
    return not validator(kind).is_valid(document)


def results_of(room, files):
    """(result, fault) of each file, as validate prints them."""
    result = room.run("validate", *files, "--format", "json")
    document = json.loads(result.stdout)
    validate("validate", text=result.stdout)
    return [(file["result"], file.get("fault", "")) for file in document["files"]]


def test_every_kind_has_a_schema_and_is_listed(room):
    listed = json.loads(room.ok("list", "schemas", "--format", "json").stdout)["items"]
    assert [item["name"] for item in listed] == KINDS == SCHEMAS.kinds()
    for item in listed:
        assert item["version"] == 1 and item["written_by"] and item["holds"]
        shown = room.ok("list", "schemas", "--show", item["name"]).stdout
        assert shown == (SOURCE / item["file"]).read_text(encoding="utf-8")
        schema = json.loads(shown)
        if item["name"] not in ("journal",):
            assert schema["properties"]["schema"]["const"] == f"moetune.{item['name']}/{item['version']}"


def test_show_prints_models_and_others_too(room):
    assert room.ok("list", "models", "--show", "mixtral-8x7b").stdout == (
        SOURCE / "configs/models/mixtral/mixtral-8x7b.json").read_text(encoding="utf-8")
    assert "did you mean 'table'?" in room.error(2, "list", "schemas", "--show", "tabel")
    assert "--show: variants are not kept in files" in room.error(2, "list", "variants", "--show", "mma")


def test_what_the_program_writes_is_valid(made):
    room, documents = made
    assert [kind for kind, document in documents.items() if schema_refuses(kind, document)] == []
    for result, fault in results_of(room, [room.write(f"{kind}.json", document) for kind, document in documents.items()]):
        assert result == "valid", fault


@pytest.mark.parametrize("path", sorted(FILES.rglob("*.json*")), ids=lambda path: path.name)
def test_the_program_judges_damaged_files_as_jsonschema_does(room, path):
    kind = path.name.split(".")[0].split("-")[0]
    lined = kind in ("history", "journal")
    lines = [json.loads(line) for line in path.read_text().splitlines()] if lined else [json.loads(path.read_text())]
    files, message = [], []
    for number, line in enumerate(lines):
        for place, value in damages(line, f"{path.name} {number}", 40 if lined else 120):
            broken = damaged(line, place, value)
            text = "".join(json.dumps(one) + "\n" for one in [*lines[:number], broken]) if lined else json.dumps(broken)
            files.append(room.write(f"{len(files)}{path.suffix}", text))
            message.append((schema_refuses(kind, broken), number, place, value))
    assert sum(refused for refused, *_ in message) > 20
    wrong = []
    for (result, fault), (refused, *damage) in zip(results_of(room, files), message):
        if refused != (result == "invalid") and (refused or kind in ONLY_SCHEMA):
            wrong.append((*damage, result, fault))
    assert wrong == []


LISTED = [("kernels", "kernels 0 launches 0 most_per_processor", GONE), ("kernels", "kernels 0 operands 0 dtype", "fp99"),
          ("kernels", "kernels 0 operands 0 access", "x"), ("kernels", "kernels 0 operands 0 shape", ["1"] * 4),
          ("bench", "regime", "x"), ("check", "regime", "x"), *((kind, "regime", None) for kind in ("bench", "check", "lookup-choice")),
          *(("lookup-choice", f"answers 0 choice {key}", value) for key in ("rule", "tokens", "candidate", "contenders") for value in (None, "x"))]


def test_what_was_once_called_valid(room):
    files = []
    for number, (name, words, value) in enumerate(LISTED):
        document = {**json.loads((FILES / f"{name}.json").read_text()), **({"regime": "burst"} if words == "regime" else {})}
        broken = damaged(document, [int(word) if word.isdigit() else word for word in words.split()], value)
        assert schema_refuses(name.split("-")[0], broken) and not schema_refuses(name.split("-")[0], document)
        files.append(room.write(f"{number}.json", broken))
    assert {result for result, _ in results_of(room, files)} == {"invalid"}


def test_all_configs_are_valid(room):
    folders = ("models", "models/*", "routings", "spaces", "suites", "cost", "tuned")
    files = [path for folder in folders for path in sorted((SOURCE / "configs").glob(f"{folder}/*.json"))]
    assert len(files) > 40
    result = room.ok("validate", *files)
    assert f"{len(files)} of {len(files)} files valid." in result.stdout


def test_exit_codes(room):
    good = str(SOURCE / "configs/spaces/quick.json")
    bad = room.write("bad.json", {"schema": "moetune.space/1"})
    assert room.run("validate", good).returncode == 0
    assert room.run("validate", good, bad).returncode == 1
    unreadable = room.run("validate", bad, "missing.json", good)
    assert unreadable.returncode == 2
    assert "1 of 3 files valid." in unreadable.stdout  # all are judged
    assert "missing.json" in unreadable.stdout and "unreadable" in unreadable.stdout


def test_places_and_remedies_are_reported(room):
    files = [room.write("a.json", {"schema": "moetune.tables/1"}), room.write("b.json", {"rows": 3}), room.write("c.json", "{,"),
             room.write("d.json", {"schema": "moetune.model/1", "name": 3}), room.write("e.json", "3")]
    text = " ".join(room.run("validate", *files).stdout.split())
    assert "a.json: schema: unknown schema 'moetune.tables/1' (hint: did you mean 'moetune.table/1'?)" in text
    assert "b.json: \"schema\" is missing (hint: files of moetune name their kind there: see 'moetune list schemas')" in text
    assert "c.json: line 1:2: " in text
    assert "d.json: 'architecture' is missing" in text
    assert "e.json: expected an object" in text


@pytest.mark.parametrize("file", ["model.json", "routing.json", "space.json", "suite.json", "tuned/table-cpu.json", "tuned/journal-cpu.jsonl"])
def test_text_behind_a_zero_byte_is_not_ignored(room, file):
    head, end, rest = (FILES / file).read_text().partition("\n")
    name = "damaged" + file[file.rindex("."):]
    for text in (f"{head}\0 more{end}{rest}", head + end + rest + "\0"):
        room.write(name, text)
        if text[-1] != "\0" or name.endswith(".json"):  # an unfinished last line of a journal is left out
            result, fault = results_of(room, [name])[0]
            assert result == "invalid" and "not valid JSON: a byte is zero" in fault


def test_files_of_other_formats(room):
    room.write("rows.csv", "# top_k=2\nlayer,expert,rows\n0,0,3\n0,2,1\n0,3,2\n")
    room.write("wrong.csv", "# top_k=2\nlayer,expert,rows\n0,0,3\n0,2,-1\n")
    room.write("loads.json", {"experts": 4, "top_k": 2, "layers": {"0": [3, 0, 1, 2]}})
    room.write("config.json", '{"model_type": "moe", "num_experts": 8, "num_experts_per_tok": 2, "hidden_size": 64, '
                              '"moe_intermediate_size": 32, "scale": NaN}')
    room.write("dense.json", {"model_type": "dense", "hidden_size": 64})
    text = room.run("validate", "rows.csv", "wrong.csv", "loads.json", "config.json", "dense.json", "--format", "json").stdout
    found = {file["file"]: (file["kind"], file["result"]) for file in json.loads(text)["files"]}
    assert found == {"rows.csv": ("routing", "valid"), "wrong.csv": ("routing", "invalid"),
                     "loads.json": ("routing", "valid"), "config.json": ("model", "valid"),
                     "dense.json": ("model", "invalid")}


def test_a_recording_may_leave_open_what_the_layer_of_a_sweep_says(room):
    files = [room.write("rows.json", {"layers": {"0": [3, 0, 1, 2]}}), room.write("rows.csv", "layer,expert,rows\n0,0,3\n0,2,1\n"),
             room.write("mixed.json", {"loads": [{"name": "a", "counts": [3, 1]}, {"name": "b", "counts": [1, 1, 2]}]})]
    room.ok("validate", *files)
    room.ok("tune", *CPU, "--experts", 4, "--top-k", 2, "--n", 64, "--k", 64, "--routing", "trace:rows.json", "--dry-run")
    wrong = [room.write("sum.json", {"tokens": 4, "layers": {"0": [3, 0, 1, 2]}}),
             room.write("many.json", {"tokens": 2, "top_k": 3, "layers": {"0": [3, 0, 1, 2]}}),
             room.write("bad.json", {"loads": [{"name": "a", "counts": [3, 1]}, {"name": "b", "counts": [1, 1, -2]}]})]
    assert [result for result, _ in results_of(room, wrong)] == ["invalid"] * 3


def test_text_fits_and_markdown_is_a_table(room):
    good = str(SOURCE / "configs/spaces/quick.json")
    bad = room.write("bad.json", {"schema": "moetune.space/1", "variants": {"mma": {"block_m": "a value of many words " * 9}}})
    assert room.run("validate", "bad.json").stdout.splitlines()[0].startswith("| file ")
    assert all(len(line) <= 80 for line in room.run("validate", bad).stdout.splitlines())
    assert "| valid " in room.ok("validate", good, "--format", "markdown").stdout


def test_a_folder_of_files_is_all_of_its_json(room):
    (room.path / "some").mkdir()
    assert results_of(room, ["some"])[0][0] == "unreadable"
    for name in ("b.json", "a.jsonl", "notes.txt"):
        (room.path / "some" / name).write_text("[]\n")
    files = json.loads(room.run("validate", "some", "--format", "json").stdout)["files"]
    assert [file["file"] for file in files] == ["some/a.jsonl", "some/b.json"]


def test_a_cut_off_table_is_reported(room):
    whole = json.dumps({"schema": "moetune.table/1", "entries": [made_entry("up", 8)]})
    (result, fault), = results_of(room, [room.write("cut.json", whole[:200])])
    assert result == "invalid" and fault.startswith("line 1:201: ")
