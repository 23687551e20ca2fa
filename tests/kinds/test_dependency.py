"""Dependency trees: reader, biaffine head, loss, decoding and scores."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import log_softmax

from auxlearn import load_dataset
from auxlearn.core.errors import UserError
from auxlearn.core.settings import Columns
from auxlearn.data.memory import save_folder
from auxlearn.kinds.base import kind_of
from auxlearn.kinds.biaffine import RELATION_SIZE, Biaffine
from auxlearn.kinds.dependency import spanning_tree
from auxlearn.kinds.words import CERTAIN, NO_TAG
from tests.helpers import one_line

HERE = Path(__file__).parent
TREEBANK = (HERE / "treebank.conllu").read_text()
KIND = kind_of("dependency")
COLUMNS = Columns(kind="dependency")


def treebank(folder, text=TREEBANK):
    folder.mkdir(exist_ok=True)
    for name in ("train", "dev", "test"):
        (folder / f"{name}.conllu").write_text(text)
    return folder


def trees(words):
    for heads in itertools.product(range(words + 1), repeat=words):
        if heads.count(0) == 1:
            reached = [0]
            for one in reached:
                reached += [word for word, head in enumerate(heads, 1) if head == one]
            if len(reached) == words + 1:
                yield heads


def total(scores, heads):
    return sum(scores[word, head] for word, head in enumerate(heads))


@pytest.mark.parametrize("words", range(1, 6))
def test_the_tree_is_the_best_of_all_trees(words):
    found = list(trees(words))
    assert len(found) == words ** (words - 1)  # Cayley's formula, times the root's child
    draw = np.random.default_rng(words)
    contracted = 0
    for number in range(40):
        scores = draw.normal(size=(words, words + 1)) * 10 ** (number % 3)
        heads = spanning_tree(scores)
        contracted += heads.count(0) == 1 and heads != [int(h) for h in scores.argmax(1)]
        assert tuple(heads) in found
        best = max(total(scores, one) for one in found)
        assert total(scores, heads) == pytest.approx(best, rel=1e-12)
    assert contracted > 10


@pytest.mark.parametrize("words", range(2, 5))
def test_the_tree_of_confident_scores_is_the_best_of_all_trees(words):
    """Most arcs of such logits have a probability below 1e-8, at which what is stored is cut."""
    found, draw, unlikely = list(trees(words)), np.random.default_rng(words), 0
    for _ in range(200):
        logits = 30 * draw.normal(size=(words + 2, words + 2, 3))
        starts = np.array([-1, *range(words), -1])
        output = KIND.by_word(logits.copy(), starts, words, (0, 0))
        arcs = logits[1:-1, :-1, 0].copy()
        np.fill_diagonal(arcs[:, 1:], -np.inf)
        exact = log_softmax(arcs, axis=1)
        heads = [head for head, _ in KIND.decode(output)]
        best = max(total(exact, one) for one in found)
        assert total(exact, heads) == pytest.approx(best, rel=1e-12)
        unlikely += min(exact[word, head] for word, head in enumerate(heads)) < np.log(1e-8)
    assert unlikely > 10


def test_long_sentences_have_the_tree_of_networkx():
    import networkx

    draw = np.random.default_rng(0)
    for words in (12, 17):
        scores = draw.normal(size=(words, words + 1))
        graph = networkx.DiGraph()
        for word, head in itertools.product(range(1, words + 1), range(words + 1)):
            if word != head:
                graph.add_edge(head, word, weight=scores[word - 1, head] - 1e3 * (head == 0))
        expected = networkx.maximum_spanning_arborescence(graph)
        heads = {word: head for head, word in expected.edges}
        assert spanning_tree(scores) == [heads[word] for word in range(1, words + 1)]


def test_attachment_scores_are_those_of_the_shared_task():
    """30 random cases with their UAS and LAS by the official scorer (udtools 0.2.9)."""
    cases = json.loads((HERE / "conll18_cases.json").read_text())
    assert len(cases) == 30
    arcs = {arc.partition("-")[2] for case in cases for arc in case[0].split() if arc != "|"}
    names = sorted(arcs)

    def tree(text):
        parts = (arc.partition("-") for arc in text.split())
        return tuple((int(head), names.index(relation)) for head, _, relation in parts)

    for true, said, uas, las in cases:
        truth, predicted = ([*map(tree, text.split(" | "))] for text in (true, said))
        found = KIND.scores(truth, predicted, None, names)
        assert found == pytest.approx({"uas": uas, "las": las})
        sums = KIND.sums(truth, predicted, [], names).sum(0)
        for metric, value in found.items():
            assert KIND.of_sums(metric, sums, names) == pytest.approx(value)
        for name, row in KIND.per_class(truth, predicted, names).items():
            assert KIND.of_sums(f"f1:{name}", sums, names) == pytest.approx(row["f1"])
    assert sum(case[2] != case[3] for case in cases) > 10


def test_every_relation_has_the_f1_of_its_arcs():
    truth, said = [((0, 0), (1, 1), (1, 1))], [((0, 0), (1, 1), (2, 1))]
    found = KIND.per_class(truth, said, ("root", "obj", "never"))
    assert set(found) == {"root", "obj"}
    assert found["obj"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2}


def test_the_biaffine_scores_are_those_of_the_formula():
    torch.manual_seed(0)
    head = Biaffine(8, 3).double().eval()
    for one in head.parameters():
        torch.nn.init.normal_(one, std=0.3)
    states = torch.randn(2, 4, 8, dtype=torch.float64)
    scores = head(states)
    assert scores.shape == (2, 4, 4, 4)

    def role(layer, state):
        return torch.nn.functional.leaky_relu(layer.weight @ state + layer.bias, 0.1)

    one = torch.ones(1, dtype=torch.float64)
    matrices = head.relation.weight.view(3, RELATION_SIZE + 1, RELATION_SIZE + 1)
    for text, dependent, other in itertools.product(range(2), range(4), range(4)):
        d, h = states[text, dependent], states[text, other]
        arc = role(head.arc_head, h) @ (
            head.arc.weight @ role(head.arc_dependent, d) + head.arc.bias
        )
        d = torch.cat([role(head.relation_dependent, d), one])
        h = torch.cat([role(head.relation_head, h), one])
        expected = torch.stack([arc, *(d @ matrix @ h for matrix in matrices)])
        torch.testing.assert_close(scores[text, dependent, other], expected)


def batch_of_two():
    """Tokens [CLS] w1 _ w2 w3 [SEP], and a sentence cut off before the head of its second word."""
    first = [[NO_TAG] * 3, [1, 2, 0], [NO_TAG] * 3, [2, 0, 2], [3, 2, 1], [NO_TAG] * 3]
    second = [[NO_TAG] * 3, [1, 0, 2], [2, 5, 0], *[[NO_TAG] * 3] * 3]
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 6, 6, 4, generator=generator, dtype=torch.float64)
    return logits, torch.tensor([first, second])


#: Text, place of the word, place of its head, places of all heads it may have, relation.
ARCS = [
    (0, 1, 3, (0, 3, 4), 0),
    (0, 3, 0, (0, 1, 4), 2),
    (0, 4, 3, (0, 1, 3), 1),
    (1, 1, 0, (0, 2), 2),
]


def by_hand(logits):
    """Probability of the head and of the relation of each word, by loops."""
    for text, word, head, others, relation in ARCS:
        row = [math.exp(logits[text, word, one, 0]) for one in others]
        named = [math.exp(one) for one in logits[text, word, head, 1:]]
        yield math.exp(logits[text, word, head, 0]) / sum(row), named[relation] / sum(named)


def test_the_loss_and_the_smooth_forms_are_those_by_hand():
    logits, targets = batch_of_two()
    chosen = list(by_hand(logits))
    assert KIND.items(targets) == len(chosen) == 4
    expected = -sum(math.log(head) + math.log(relation) for head, relation in chosen) / 4
    assert float(KIND.loss(logits, targets)) == pytest.approx(expected, rel=1e-12)
    uas = 1 - sum(head for head, _ in chosen) / 4
    las = 1 - sum(head * relation for head, relation in chosen) / 4
    assert float(KIND.smooth(logits, targets, "uas")) == pytest.approx(uas, rel=1e-12)
    assert float(KIND.smooth(logits, targets, "las")) == pytest.approx(las, rel=1e-12)
    nothing = KIND.loss(logits.requires_grad_(), torch.full_like(targets, NO_TAG))
    assert nothing.item() == 0
    assert nothing.requires_grad


def test_the_output_of_a_sentence_has_the_loss_of_its_tokens():
    logits, targets = batch_of_two()
    starts = np.array([-1, 0, -1, 1, 2, -1])
    output = KIND.by_word(logits[0].numpy(), starts, 3, (1, 0))
    assert output.shape == (3, 4, 4)
    label = tuple((head, relation) for number, head, relation in targets[0].tolist() if number > 0)
    for metric in ("", "las", "uas"):
        expected = float(KIND.surrogate(logits[:1], targets[:1], metric))
        assert KIND.mean_loss([label], [output], 3, metric) == pytest.approx(expected, abs=1e-5)
    index = {name: number for number, name in enumerate("abc")}
    line = {"label": KIND.written(label, "abc"), **KIND.line(output)}
    back = KIND.output(KIND.stored(json.loads(json.dumps(line)), "abc"))
    for one, other in zip(KIND.line(back).values(), KIND.line(output).values(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert KIND.encode(line["label"], index) == label


def test_words_without_a_token_hang_where_the_constant_says():
    logits, _ = batch_of_two()
    output = KIND.by_word(logits[1].numpy(), np.array([-1, 0, 2, -1, -1, -1]), 4, (-1, 2))
    assert np.isfinite(output).all()
    assert output[1, 1, 0] == output[3, 3, 0] == 0
    assert (output[[1, 3], :, 3] == CERTAIN).all()
    heads = [head for head, _ in KIND.decode(output)]
    assert heads[1] == 1
    assert heads[3] == 3
    assert tuple(heads) in set(trees(4))


def test_a_constant_prediction_is_a_distance_and_a_relation():
    labels = [((2, 0), (0, 1), (2, 2)), ((2, 0), (0, 1))]
    assert KIND.constant(labels) == (0, 1)
    assert KIND.constant([*labels, ((2, 0), (3, 0), (0, 1))]) == (1, 0)
    assert KIND.repeated((1, 0), labels[0]) == ((2, 0), (3, 0), (0, 0))
    targets = KIND.targets(labels, 3)
    pairs = np.array([2, 2, 1]) / 5
    assert KIND.constant_loss(targets, "") == pytest.approx(-(pairs * np.log(pairs)).sum())
    assert KIND.constant_loss(targets, "las") == pytest.approx(3 / 5)
    assert KIND.constant_loss(targets, "uas") == pytest.approx(3 / 5)


def test_a_treebank_is_read_from_every_source(tmp_path):
    data = load_dataset(treebank(tmp_path / "ud"), columns=COLUMNS)
    train = data.splits["train"]
    assert (data.kind, len(train)) == (KIND, 14)
    assert train.texts[2] == "Do n't open the red door !"
    assert train.texts[4].split(" ")[4] == "Ivo"  # no empty node
    row = list(train.rows())[5]
    assert row["label"][2:4] == [[4, "nsubj"], [2, "acl:relcl"]]
    rows = [
        {
            "tokens": one.split(" "),
            "head": [str(head) for head, _ in label],
            "deprel": [data.label_names[relation] for _, relation in label],
        }
        for one, label in zip(train.texts, train.labels, strict=True)
    ]
    arcs = [row["label"] for row in train.rows()]
    frame = pd.DataFrame({"tokens": [row["tokens"] for row in rows], "arcs": arcs})
    save_folder(data, tmp_path / "saved")
    in_memory = (dict.fromkeys(("train", "dev", "test"), one) for one in (rows, frame))
    for source in (*in_memory, tmp_path / "saved"):
        for columns in (COLUMNS, Columns()):  # the kind is found
            found = load_dataset(source, columns=columns)
            assert (found.kind, found.notes) == (KIND, ())
            assert found.splits["train"].labels == train.labels


def test_a_treebank_with_tags_is_tagged_unless_it_is_said(tmp_path):
    said = "words have tags and heads: the tags are read; the kind dependency reads the heads"
    place = treebank(tmp_path / "ud")
    tagged = load_dataset(place)
    assert (tagged.kind.name, tagged.notes) == ("token_classification", (f"train: {said}",))
    given = load_dataset(place, columns=Columns(kind="token_classification"))
    assert given.notes == ()
    assert load_dataset(place, columns=Columns(label_column="head")).kind is KIND
    for path in place.iterdir():  # UPOS left out, then HEAD
        rows = [line.split("\t") for line in path.read_text().split("\n")]
        untagged = ["\t".join([*row[:3], "_", *row[4:]]) for row in rows if row[1:]]
        headless = ["\t".join([*row[:6], "_", *row[7:]]) for row in rows if row[1:]]
        for name, lines in (("untagged", untagged), ("headless", headless)):
            sentences = "\n".join("\n" * line.startswith("1\t") + line for line in lines)
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / path.name).write_text(sentences)
    assert load_dataset(tmp_path / "untagged").kind is KIND
    numbers = {"tokens": ["a", "b"], "label": [0, 1]}  # which are tags
    tagged = load_dataset({"train": [numbers] * 2, "dev": [numbers]})
    assert tagged.kind.name == "token_classification"
    headless = load_dataset(tmp_path / "headless")
    assert (headless.kind.name, headless.notes) == ("token_classification", ())


def conllu(*arcs):
    """A sentence with a good one before it, which begins in line 3."""
    lines = [
        "\t".join([str(n), f"w{n}", "_", "X", "_", "_", str(head), relation, "_", "_"])
        for n, (head, relation) in enumerate(arcs, 1)
    ]
    return "1\tw\t_\tX\t_\t_\t0\troot\t_\t_\n\n" + "\n".join(lines) + "\n\n"


ROOT = (0, "root")
BAD = {
    "a head out of range": (conllu(ROOT, (4, "obj")), "word 2 has the HEAD '4': it is the number"),
    "two roots": (conllu(ROOT, ROOT), "2 words have the HEAD 0: a tree has one root"),
    "no root": (conllu((2, "a"), (1, "a")), "0 words have the HEAD 0: a tree has one root"),
    "a cycle": (conllu(ROOT, (3, "a"), (2, "a")), "the words 2, 3 head each other in a circle"),
    "no number": (conllu(ROOT, ("x", "obj")), "word 2 has the HEAD 'x': it is the number"),
    "no relation": (conllu(ROOT, (1, "_")), "word 2 has no DEPREL"),
    "an ID twice": (conllu(ROOT, (1, "a")).replace("2\tw2", "1\tw2"), "the ID is '1'"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_tree_gives_one_line(case, tmp_path):
    text, expected = BAD[case]
    with one_line(UserError, expected, f"train.conllu:{4 if 'ID' in case else 3}"):
        load_dataset(treebank(tmp_path / "ud", text), columns=COLUMNS)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"tags": ["A", "B"]}, "dependency needs the columns head and deprel, as .conllu files"),
        ({"head": [0, 1]}, "a column 'deprel' needs the relation of each word"),
        (
            {"head": [0, 1], "deprel": ["root"]},
            "2 heads in column 'head', but 1 relations in 'deprel': each word has one of each",
        ),
        ({"head": 3, "deprel": ["root"]}, "column 'head' needs the head of each word, not 3"),
        ({"label": [[0, "root"], [1]]}, "word 2 needs [head, relation]"),
        ({"label": [[0, "root"]]}, "2 words but 1 tags"),
        ({"label": [[True, "root"], [1, "a"]]}, "word 1 has the HEAD True"),
    ],
)
def test_bad_columns_give_one_line(row, expected, tmp_path):
    rows = [{"tokens": ["a", "b"], **row}] * 3
    with one_line(UserError, expected):
        load_dataset({"train": rows, "dev": rows}, columns=COLUMNS)
