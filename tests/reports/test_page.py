"""The page: what it says, what it escapes, and what it refuses."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from tokenizers import Tokenizer, models, pre_tokenizers

from auxlearn.comparison.compare import compare, example_intervals
from auxlearn.core.errors import UserError
from auxlearn.reports.page import FILE, collect, report
from auxlearn.results.figures import figure_style, inline_svg
from auxlearn.results.folder import load_run
from auxlearn.results.record import Branch
from tests.cli.helpers import error
from tests.helpers import write_splits
from tests.reports import runs

#: Elements without an end tag.
VOID = {"meta", "input", "br", "img", "link"}


class Page(HTMLParser):
    """A parsed page: its elements, its visible text, and its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.code: dict[str, str] = {"script": "", "style": ""}
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        assert len(dict(attributes)) == len(attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in self.code:
            self.code[self.open[-1]] += data
        else:
            self.text += data

    def tags(self, name):
        return [attributes for tag, attributes in self.elements if tag == name]


def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A data set, a run with hostile names and texts, a degenerate one, and sweeps."""
    folder = tmp_path_factory.mktemp("reports")
    data = runs.write_data(folder / "data")
    hostile = folder / "<i>run's"
    runs.write_run(hostile, data, aux=["random_mlm"], weights="meta")
    runs.write_run(folder / "plain", data, degenerate=True)
    (folder / "a").mkdir()
    runs.write_sweep(folder / "a" / "sweep", data)
    (folder / "b").mkdir()
    runs.write_sweep(folder / "b" / "half", data, finished=False)
    return folder


@pytest.fixture
def drawn():
    """Named by the tests of pages with plots of runs."""


@pytest.fixture(autouse=True)
def without_plots_of_runs(request, monkeypatch):
    """Leave out the plots of runs, which take half a second each, where no test looks at them."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr("auxlearn.reports.page.MOST_PLOTS", 0)


@pytest.fixture(scope="module")
def page(place) -> Page:
    return read(report(place / "<i>run's", output=place / "page.html"))


def test_nothing_of_a_user_becomes_markup(page):
    assert len(page.tags("script")) == len(page.tags("style")) == 1
    assert {"img", "iframe", "i", "link", "object", "base"} & {
        tag for tag, _ in page.elements
    } == set()
    for tag, attributes in page.elements:
        handlers = [one for one in attributes if one.startswith("on") or one in ("style", "src")]
        assert handlers == [], tag
        assert (attributes.get("href") or "#")[0] == "#"
    for hostile in runs.HOSTILE:
        assert hostile in page.text
        assert hostile in [attributes.get("value") for attributes in page.tags("option")]
    assert runs.TEXT.replace("\u202e", r"\u202e") in page.text
    assert "\u202e" not in page.text
    assert "a note with <b>markup</b>" in page.text
    assert "alert" not in page.code["script"] + page.code["style"]


def test_the_policy_of_the_page_allows_its_own_style_and_script_only(page):
    (policy,) = (m["content"] for m in page.tags("meta") if "http-equiv" in m)
    assert policy.startswith("default-src 'none'; ")
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(page.code[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert re.findall(r"https?://", page.code["script"] + page.code["style"]) == []


def test_a_run_is_told_in_full(page, place):
    text = " ".join(page.text.split())
    assert "auxiliary tasks random_mlm" in text
    assert "test: 2, dev: 2; 4 are shown" in text
    assert "8 examples is also in train" in text  # the audit, from the data read again
    assert "the text of 1 of 8 examples is also in train" in text
    assert "auxlearn train --config" in text
    (chart,) = (one["aria-label"] for one in page.tags("svg") if one.get("role") == "img")
    assert chart == "dev scores, weights and losses by step of random_mlm, meta, seed 0"
    for label in ("score on dev (0 to 1)", "weight", "loss (nats)", "majority, 0.750"):
        assert label in page.text
    assert "test accuracy0.363 to 1.000" in text
    heats = [one["class"] for one in page.tags("td") if "heat" in (one.get("class") or "")]
    assert heats[:4] == ["heat4 hit", "heat2", "heat2", "heat4 hit"]  # 3 and 1 of 4


def test_the_gains_of_compared_runs_are_told_as_they_are_measured(place, tmp_path):
    run = runs.write_run(tmp_path / "run", place / "data", aux=["random_mlm"], weights="meta")
    single = Branch("single task", "a", {}, 0.5, None, None, None, False, [(1, 0.5)], 2.0)
    other = replace(single, title="random_mlm 0.5", gain=0.25, correct=0.2, correct_error=0.1)
    replace(load_run(run), branches=[single, other]).save(run)
    text = " ".join(read(report(run, output=tmp_path / "page.html")).text.split())
    assert "+25.0 points" in text
    assert "+0.2 ± 0.1" in text
    assert "Gain: over the single task, in the metric of dev, then of the predictions" in text
    assert "nats" not in text.partition("Gain:")[2].partition("Test data play no part")[0]


def test_a_point_between_runs_has_no_step_and_no_epoch(place, tmp_path):
    run = runs.write_run(tmp_path / "run", place / "data", aux=["random_mlm"], weights="meta")
    assert compare(run).to_frame()["epochs_to_best"].notna().all()
    taken = Branch("half of it", "a", {}, 0.75, 0.1, 0.1, 0.1, True, [(0, 0.75)], 2.0)
    replace(load_run(run), branches=[taken]).save(run)
    text = " ".join(read(report(run, output=tmp_path / "page.html")).text.split())
    assert "model point between runs: half of it, dev accuracy 0.750" in text
    assert "checkpoint" not in text.partition("Test data play no part")[0]
    assert compare(run).to_frame()["epochs_to_best"].isna().all()
    (line,) = [x for x in compare(run).to_markdown(show=["epochs"]).split("\n") if "meta" in x]
    assert line.endswith("| - |")


def test_the_interval_of_one_run_is_over_its_examples(place):
    (run,) = collect([place / "plain"]).runs
    low, high = example_intervals(run.results, "test")["accuracy"]
    # Of 8 examples 6 are right: the variance of the mean is 0.75 * 0.25 / 7; t(0.975, 7) = 2.3646.
    assert low == pytest.approx(0.75 - 2.364624 * (0.75 * 0.25 / 7) ** 0.5)
    assert high == 1  # no score is above


def test_several_runs_stand_beside_each_other_and_their_plots_are_the_same_bytes(
    place, tmp_path, drawn
):
    again = runs.write_run(tmp_path / "again", place / "data", right=4, seed=1)
    other = runs.write_run(tmp_path / "other", place / "data", right=4, learning_rate=1e-3)
    runs_of = [place / "plain", again, other, place / "<i>run's"]
    methods = ["single task, learning_rate none"] * 2 + ["single task, learning_rate 0.001"]
    found = collect(runs_of).runs
    assert [run.named.method for run in found] == [*methods, "random_mlm, meta, learning_rate none"]
    first, second = (report(*runs_of, output=tmp_path / f"{n}.html").read_bytes() for n in range(2))
    assert first == second
    page = Page(first.decode())
    known = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(known) > 50
    assert len(set(known)) == len(known), "plots share an identifier"
    used = {one["href"] for one in page.tags("use")}
    used |= {one["clip-path"][4:-1] for one in page.tags("path") if "clip-path" in one}
    assert len(used) > 50
    assert used <= {f"#{one}" for one in known}
    assert "single task, learning_rate none262.5 ± 17.7" in page.text
    charts = [one["aria-label"] for one in page.tags("svg")]
    assert [label.partition(",")[0] for label in charts[:3]] == [
        "mean scores with 95% intervals over seeds and examples",
        "dev score by epoch",
        "score by epoch of the best checkpoint",
    ]
    assert len(charts) == 4 + 4  # the weights of a method, and each run


def test_names_become_no_markup_and_no_formula_in_plots():
    with figure_style():
        figure = Figure()
        axes = figure.subplots()
        axes.set_title('</text><script>alert("1")</script> $x$ style="fill:red" \u202e')
    drawn = inline_svg(figure, "a <b> & c", "salt")
    page = Page(drawn)
    assert {"script", "b"} & {tag for tag, _ in page.elements} == set()
    assert not any("style" in attributes for _, attributes in page.elements)
    text = page.text.replace("\xa0", " ")
    assert '</text><script>alert("1")</script> $x$ style="fill:red" \\u202e' in text
    assert page.tags("svg")[0]["aria-label"] == "a <b> & c"


def test_an_unfinished_sweep_has_what_has_finished(place, monkeypatch):
    text = " ".join(read(report(place / "b" / "half")).text.split())
    assert "sweep sweep is not finished: 3 of its trials have results" in text
    assert "Trials without results: 1" in text
    half = str(place / "b" / "half")
    assert f"auxlearn sweep {half}/sweep.yaml --output {half}" in text
    assert f"{half}-again" not in text


def test_scores_that_the_choice_on_dev_hides_are_not_shown(place, tmp_path):
    grid = {"learning_rate": [1e-3, 1e-4]}
    content = {"cases": [], "grid": grid, "select": {"over": ["learning_rate"]}, "seeds": 2}
    half = runs.write_sweep(tmp_path / "half", place / "data", finished=False, **content)
    page = read(report(half))
    heads = {data for data in page.text.split("\n") if "accuracy" in data}
    assert any("dev accuracy" in head for head in heads)
    assert not any("test accuracy" in head for head in heads)
    assert "Classes of test" not in page.text


def test_texts_can_be_left_out_and_changed_data_are_not_shown(place, tmp_path):
    run = place / "plain"
    without = read(report(run, output=tmp_path / "a.html", texts=False)).text
    assert "javascript:" not in without
    assert "texts are left out as requested" in without
    shutil.copytree(place / "data", tmp_path / "data")
    moved = runs.write_run(tmp_path / "run", tmp_path / "data")
    with (tmp_path / "data" / "test.jsonl").open("a") as file:
        file.write(json.dumps({"text": "one more", "label": runs.HOSTILE[0]}) + "\n")
    text = read(report(moved)).text
    assert "the data set has changed since the run" in text
    assert "javascript:" not in text
    shutil.rmtree(tmp_path / "data")
    assert "there is no folder" in read(report(moved)).text


def test_perturbed_texts_are_marked(place, tmp_path):
    run = runs.write_run(tmp_path / "run", place / "data")
    tokens = ["[CLS]", "it", "is", "<b>", "good", "##s", "[SEP]"]
    vocab = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[CLS]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    (run / "model").mkdir()
    tokenizer.save(str(run / "model" / "tokenizer.json"))
    record = {"step": 3, "epoch": 1, "task": "mask_tuning", "example": 4, "label": 0}
    record |= {"input_ids": [0, 1, 2, 4, 5, 6], "words": [-1, 0, 1, 2, 2, -1]}
    record |= {"token_type_ids": None, "positions": [1, 3], "predicted": [1, 3]}
    write_splits(run, perturbations=[record])
    text = report(run).read_text(encoding="utf-8")
    assert "<mark>it</mark> is <del>good</del> <ins>&lt;b&gt;</ins> ##s</p>" in text
    assert "javascript:" not in read(report(run, texts=False)).text
    (run / "model" / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.json is damaged"):
        report(run)


def test_masked_tokens_are_on_colours_by_how_often_they_are_masked(place, tmp_path):
    run = runs.write_run(tmp_path / "run", place / "data")
    text = {"example": 4, "tokens": ["a", "<b>", "##c", "d", "e"], "random": {"l3mask": 0.2}}
    text["rates"] = {"l3mask": [0.0, 0.12, 0.2, 0.3, 0.5]}
    (run / "masks").mkdir()
    (run / "masks" / "masks.json").write_text(json.dumps({"texts": [text]}))
    page = report(run).read_text(encoding="utf-8")
    spans = re.findall(r'<span class="m(\d)">(.*?)</span>', page)
    assert spans == [("0", "a"), ("1", "&lt;b&gt;"), ("2", "##c"), ("3", "d"), ("4", "e")]
    assert "example 5, l3mask" in page
    assert "example 5, l3mask" not in report(run, texts=False).read_text(encoding="utf-8")
    text["rates"] = {"l3mask": [0.1]}
    (run / "masks" / "masks.json").write_text(json.dumps({"texts": [text]}))
    with pytest.raises(UserError, match=r"masks\.json is damaged .*auxlearn masks"):
        report(run)


def spoil(folder: Path, name: str, content: str | None = "{") -> Path:
    """Write a file; without content it becomes a link out of the folder."""
    (folder / name).unlink(missing_ok=True)
    if content is None:
        (folder / name).symlink_to("/etc/passwd")
    else:
        (folder / name).write_text(content)
    return folder


def unfinished(folder: Path) -> Path:
    (folder / "results.json").unlink()
    return folder


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda p, t: [t / "nothing"], "there is no folder .*nothing"),
        (lambda p, t: [t], "is neither a run nor a sweep"),
        (lambda p, t: [p / "plain", p / "plain"], "is given twice"),
        (lambda p, t: [spoil(t / "run", "predictions/test.jsonl", None)], "leads out of"),
        (lambda p, t: [unfinished(t / "run")], "resume it with `auxlearn train --config"),
        (lambda p, t: [p / "plain", "--output", t / "run"], "is a folder"),
        (
            lambda p, t: [p / "plain", "--output", spoil(t, "x.html") / "x.html"],
            "exists and is no report",
        ),
        (lambda p, t: [p / "plain", "--output", spoil(t, "x") / "x" / "y.html"], "cannot write"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(place, tmp_path, drawn, make, line):
    shutil.copytree(place / "plain", tmp_path / "run", ignore=shutil.ignore_patterns(FILE))
    arguments = make(place, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert re.search(line, error("report", *arguments)), line
    assert sorted(tmp_path.rglob("*")) == before


def test_a_report_needs_neither_torch_nor_pyplot(place, tmp_path):
    code = (
        "import sys; from auxlearn import report; "
        f"report({str(place / 'plain')!r}, output={str(tmp_path / 'x.html')!r}); "
        "heavy = ('torch', 'transformers', 'matplotlib.pyplot'); "
        "print('matplotlib.figure' in sys.modules, [m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True []"
