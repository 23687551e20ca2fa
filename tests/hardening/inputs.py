"""What writes the bad files of the cases."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from tests.hardening.case import Place

GOOD = '{"text": "a fine day", "label": "good"}\n{"text": "rain again", "label": "bad"}\n'
MANY = "".join(
    json.dumps({"text": f"text number {i}", "label": ("good", "bad")[i % 2]}) + "\n"
    for i in range(40)
)
CHECK = ("data", "check", "d")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def writes(name: str, content: str | bytes) -> Callable[[Place], object]:
    return lambda place: place.write(name, content)


def on_lines(extra: str) -> Callable[[Place], object]:
    """A train file with two good lines and another one."""
    return writes("d/train.jsonl", GOOD + extra + "\n")


def row(label: Any, text: Any = "some text") -> str:
    return json.dumps({"text": text, "label": label})


def csv_of(*labels: str) -> str:
    return "text,label\n" + "".join(f"text {i},{label}\n" for i, label in enumerate(labels))


def parquet(**columns: Any) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        import pyarrow
        from pyarrow import parquet

        (place.path / "d").mkdir()
        parquet.write_table(pyarrow.table(columns), place.path / "d" / "train.parquet")

    return make


def parquet_of_equal_names(place: Place) -> None:
    import pyarrow
    from pyarrow import parquet

    (place.path / "d").mkdir()
    table = pyarrow.Table.from_arrays([["a", "b"], ["x", "y"], ["y", "x"]], ["text", "label", "c"])
    parquet.write_table(
        table.rename_columns(["text", "label", "label"]), place.path / "d" / "train.parquet"
    )


def beside_good_train(make: Callable[[Place], object]) -> Callable[[Place], object]:
    def both(place: Place) -> None:
        place.write("d/train.jsonl", GOOD)
        make(place)

    return both


def linked(place: Place) -> None:
    place.write("secret.jsonl", GOOD)
    place.write("d/train.jsonl", GOOD)
    (place.path / "d" / "test.jsonl").symlink_to(place.path / "secret.jsonl")


def link_to_nowhere(place: Place) -> None:
    (place.path / "d").mkdir()
    (place.path / "d" / "train.jsonl").symlink_to("nowhere")


def link_to_itself(place: Place) -> None:
    (place.path / "d").mkdir()
    (place.path / "d" / "train.jsonl").symlink_to("train.jsonl")


def pipe(name: str) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        path = place.path / name
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)

    return make


def folder(name: str) -> Callable[[Place], object]:
    return lambda place: (place.path / name).mkdir(parents=True)


def sparse_file(name: str, size: int) -> Callable[[Place], object]:
    """A file of any size that takes no room."""

    def make(place: Place) -> None:
        os.truncate(place.write(name, b""), size)

    return make


def train(*arguments: str) -> tuple[str, ...]:
    return ("train", "--config", "c.yaml", *arguments)


def config(content: str | bytes) -> Callable[[Place], object]:
    return writes("c.yaml", content)


def sweep(content: str) -> Callable[[Place], object]:
    return writes("s.yaml", content)


SWEEP = ("sweep", "s.yaml", "--dry-run")


def spoiled(name: str, change: Callable[[Any], Any]) -> Callable[[Place], object]:
    """An encoder with a JSON file changed."""

    def make(place: Place) -> None:
        place.write("d/train.jsonl", MANY)
        path = place.copy_encoder() / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return make


def replaced(name: str, content: str | bytes) -> Callable[[Place], object]:
    """An encoder with a file replaced."""

    def make(place: Place) -> None:
        place.write("d/train.jsonl", MANY)
        place.copy_encoder()
        place.write(f"encoder/{name}", content)

    return make


def removed(*names: str) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        place.write("d/train.jsonl", MANY)
        for path in place.copy_encoder().iterdir():
            if any(path.match(name) for name in names):
                path.unlink()

    return make


def weights(
    change: Callable[[dict[str, Any]], None], copy: str = "encoder"
) -> Callable[[Place], object]:
    """An encoder, or the model of a run, with changed weights."""

    def make(place: Place) -> None:
        from safetensors.torch import load_file, save_file

        place.write("d/train.jsonl", MANY)
        model = place.copy_run() / "model" if copy == "run" else place.copy_encoder()
        tensors = load_file(model / "model.safetensors")
        change(tensors)
        save_file(tensors, model / "model.safetensors", {"format": "pt"})

    return make


def without(part: str) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if part in name]:
            del tensors[name]

    return change


def filled(part: str, value: float) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        for name, tensor in tensors.items():
            if part in name:
                tensor.view(-1)[0] = value

    return change


def narrower(part: str) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        for name in tensors:
            if part in name:
                tensors[name] = tensors[name][..., :-1].contiguous()

    return change


def spoiled_run(name: str, change: Callable[[Any], Any]) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        path = place.copy_run() / "model" / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return make
