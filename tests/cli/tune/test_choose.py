"""tune --choose and --bucket-loss: robust choices in the table, its text, lookup, merge and export."""
import json
import signal
import time

from conftest import CPU, FEW, LAYER, SLOW_TRIALS, trials, validate

TABLE = "moetune-table.json"
TITLE = "custom up, fwd bf16: 4 experts, top 2, n 64, k 64"
CHOOSE = ["--choose", "worst"]


def cells(tokens="8", routings="uniform,zipf:1"):
    return [*CPU, *LAYER, "--tokens", tokens, "--routing", routings]


def ask(room, tokens, routing, *more):
    text = room.ok("lookup", TABLE, *LAYER, "--tokens", tokens, "--routing", routing, "--format", "json", *more).stdout
    validate("lookup", text=text)
    answer, = json.loads(text)["answers"]
    return answer


def ids(table):
    return [entry["id"] for entry in table["entries"]]


def test_a_choice_for_each_token_count_is_kept_shown_and_found(room):
    result = room.ok("tune", *cells("8,32"), *FEW, *CHOOSE)
    validate("table", room.path / TABLE)
    table = room.json(TABLE)
    first, second = table["choices"]
    assert (first["tokens"], second["tokens"]) == ({"from": 1, "to": 16}, {"from": 17, "to": None})
    assert sorted(first["cells"] + second["cells"]) == sorted(ids(table))
    assert first["rule"] == "worst" and first["bucket_loss"] == 0
    for choice in table["choices"]:
        contenders = [contender["candidate"] for contender in choice["contenders"]]
        winners = [entry["candidate"] for entry in table["entries"] if entry["id"] in choice["cells"]]
        assert choice["candidate"] in contenders and all(winner in contenders for winner in winners)
        assert choice["worst_regret"] == min(contender["worst_regret"] for contender in choice["contenders"])
    assert result.stderr.count("choosing: custom/up/fwd/bf16/t8/") == 2

    text, last = result.stdout.rsplit("\n\n", 1)
    assert all(len(line) <= 80 for line in text.splitlines()), text
    assert f"{TITLE}\nRobust choices of least worst regret\n" in text
    assert "| 1 to 16 " in text and "| 17 and more " in text
    assert "2 robust choices: at most " in last.replace("\n", " ")

    unseen = ask(room, 10, "hot:1:0.9")
    assert unseen["match"] == "choice" and unseen["choice"] == first
    assert unseen["explanation"].startswith("the robust choice for 1 to 16 tokens: in 2 cells at most ")
    assert ask(room, 8, "zipf:1")["match"] == "exact"
    assert "| choice |" in room.ok("lookup", TABLE, *LAYER, "--tokens", "10", "--routing", "balanced").stdout
    assert "### Robust choices of least worst regret\n" in room.ok("export", TABLE).stdout


def test_mistakes_are_refused_with_the_remedy(room):
    def mistake(*more):
        return room.error(2, "tune", *more, *FEW)

    assert "unknown --choose 'wurst'" in mistake(*cells(), "--choose", "wurst")
    alone = mistake(*cells("8,16", "uniform"), *CHOOSE)
    assert "--choose: no two cells differ in their routing alone" in alone
    assert "hint: name several --routing, or merge --tokens with --bucket-loss 2%" in alone
    assert "--bucket-loss: no layer has two cells to choose for" in mistake(*cells("8", "uniform"), "--bucket-loss", "2%")
    assert "--bucket-loss: 300% is not above 0% and up to 100%" in mistake(*cells(), "--bucket-loss", "300%")
    shard = mistake(*cells(), *CHOOSE, "--shard", "1/2")
    assert "merge the shards' tables, then run tune with --append --choose and --shard 1/1" in shard
    assert room.files() == []


def test_append_chooses_for_all_cells_of_the_layer_without_tuning_them_again(room):
    room.ok("tune", *cells("8,32"), *FEW)
    before, journal = room.json(TABLE), room.journal()
    result = room.ok("tune", "--append", *cells("8"), *FEW, *CHOOSE)
    after = room.json(TABLE)
    assert after["entries"] == before["entries"] and room.journal() == journal
    assert len(after["choices"]) == 2
    assert "| 17 and more " in result.stdout and "| 32 | uniform |" in " ".join(result.stdout.split())
    assert TABLE + ".old" not in room.files()
    validate("table", room.path / TABLE)
    part = json.loads(room.ok("tune", "--append", *cells("8"), *FEW, "--format", "json").stdout)
    assert len(part["entries"]) == 2 and "choices" not in part  # those of other cells would be among them
    assert room.json(TABLE)["choices"] == after["choices"]


def test_append_names_that_choices_are_dropped(room):
    room.ok("tune", *cells(), *FEW, *CHOOSE)
    table = room.json(TABLE)
    table["entries"][0]["complete"] = False
    room.write(TABLE, table)
    result = room.ok("tune", "--append", *cells(), *FEW)
    assert f"the robust choices of {TITLE} are dropped" in result.stderr
    assert "choices" not in room.json(TABLE)
    room.ok("tune", "--append", *cells(), *FEW, *CHOOSE)
    assert len(room.json(TABLE)["choices"]) == 1


def test_ctrl_c_while_choosing_keeps_the_winners_and_resume_chooses(planted):
    # In a fixed order: auto goes on from what won the cells before, and a resumed run decides those again.
    request = ["tune", *cells("8,12"), "--strategy", "exhaustive", "--max-candidates", "2", *CHOOSE]
    process = planted.start(*request, "-v", env=SLOW_TRIALS)
    message = ""
    end = time.monotonic() + 120
    while "choosing: " not in message:
        assert time.monotonic() < end and process.poll() is None
        message += process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.rstrip().endswith("--resume")
    validate("table", planted.path / TABLE)
    table = planted.json(TABLE)
    assert len(table["entries"]) == 4 and "choices" not in table
    before = trials(planted.journal())
    planted.ok(*request, "--resume")
    assert trials(planted.journal()) == before
    assert len(planted.json(TABLE)["choices"]) == 2
