"""Behind each promise of docs/security.md there is a test."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from tests.hardening.test_bad_input import CASES

PAGE = Path(__file__).parents[2] / "docs" / "security.md"

#: Beginning of each promise, and what proves it: tests as MODULE::NAME, or ids of bad inputs.
PROOFS: dict[str, tuple[str, ...]] = {
    "Weights of an encoder are read from": (
        "encoders.test_as_shipped::test_a_pickle_with_more_than_tensors_is_not_run",
        "encoders.test_as_shipped::test_a_repository_of_the_hub",
    ),
    "No other pickle is read": (
        "test_architecture::test_nothing_remote_is_executed_and_nothing_unsafe_is_loaded",
        "encoders.test_as_shipped::test_a_repository_of_the_hub",
    ),
    "Of a repository of the hub": (
        "encoders.test_hub::test_from_a_hub_that_answers_and_then_from_its_cache",
    ),
    "YAML is read with the safe loader": ("config: Python object",),
    "Python code in an encoder folder": (
        "encoders.test_as_shipped::test_a_repository_of_the_hub",
        "encoder: code of its own",
    ),
    "`evaluate`, `predict`, `perturbations`": (
        "hardening.test_security_page::test_commands_that_look_at_a_run_load_no_plug_in",
    ),
    "A plug-in is Python code": (
        "cli.test_train::test_plug_ins_of_a_file_are_announced_before_they_run",
        "cli.test_train::test_plug_ins_of_a_sweep_are_announced",
    ),
    "A run folder, or that of a sweep, is read": (
        "results.test_folder::test_nothing_is_read_outside",
        "sweeps.test_folder::test_nothing_is_read_through_links",
        "results.test_folder::test_what_killed_writes_have_left_is_deleted",
    ),
    "Names in manifests and checkpoints": (
        "core.test_manifest::test_damage_is_one_line",
        "training.test_checkpoint::test_a_damaged_checkpoint_is_one_line",
    ),
    "Names of out-of-distribution sets": ("config: name leads out", "config: absolute name"),
    "Of a data folder only files inside": ("data: a link out of the folder",),
    "An output folder that holds something else": (
        "results.test_folder::test_a_folder_that_is_not_a_run_folder_is_left_unchanged",
        "sweeps.test_folder::test_a_folder_of_something_else_is_refused_before_any_work",
        "core.test_files::test_an_output_is_checked_without_making_anything",
    ),
    "No `--output` is written over": (
        "results.test_outputs::test_an_output_over_what_is_there_is_refused_before_any_work",
    ),
    "Files are replaced atomically": (
        "core.test_files::test_a_full_disk_leaves_the_old_file",
        "core.test_files::test_all_modes_are_those_of_a_new_file",
    ),
    "Files, texts, labels and sweeps have bounds": ("config: large", "config: alias bomb"),
    "A checkpoint is verified whole": (
        "training.test_checkpoint::test_a_damaged_checkpoint_is_one_line",
        "hardening.test_damage::test_flipped_bits_are_noticed_or_harmless",
    ),
    "An exported model has": ("core.test_manifest::test_a_damaged_encoder_is_not_loaded",),
    "`results.json`, `environment.json`": (
        "core.test_files::test_checked_json_notices_a_changed_bit",
    ),
    "Cache entries carry a checksum": ("core.test_cache::test_a_damaged_file_is_computed_again",),
    "Checksums find damage": ("training.test_checkpoint::test_a_damaged_checkpoint_is_one_line",),
    "Control characters": (
        "cli.test_entry_point::test_control_characters_of_an_error_are_escaped",
        "core.test_locks::test_names_with_control_characters_are_not_shown",
    ),
    "Messages are a few lines": (
        "cli.test_entry_point::test_an_error_of_any_length_is_a_few_short_lines",
    ),
    "A folder in use is locked": (
        "core.test_locks::test_one_holds_it_and_the_other_is_told_who",
        "core.test_locks::test_a_file_left_by_a_killed_process_is_no_lock",
    ),
    "Ctrl-C, SIGTERM and SIGHUP": (
        "cli.test_entry_point::test_a_signal_ends_a_command_with_one_line",
        "training.test_run::test_ctrl_c_saves_a_checkpoint_and_says_how_to_resume",
    ),
    "A full disk is one line": (
        "hardening.test_damage::test_a_disk_that_is_full_is_one_line_and_costs_nothing",
    ),
    "An unforeseen error": (
        "cli.test_entry_point::test_an_unforeseen_error_is_one_line_and_a_log",
        "cli.test_entry_point::test_the_log_of_an_unforeseen_error_is_in_the_folder_in_use",
    ),
}


def promises() -> list[str]:
    """The bullets of the page, and the paragraphs that promise something."""
    text = PAGE.read_text(encoding="utf-8")
    bullets = re.findall(r"^- (.*?)(?=^- |^$|\Z)", text, re.DOTALL | re.MULTILINE)
    paragraphs = re.findall(r"^(?:A plug-in is|Checksums find).*?(?=\n\n)", text, re.S | re.M)
    return [" ".join(promise.split()) for promise in (*bullets, *paragraphs)]


def test_each_promise_has_a_proof():
    proofs = {promise: [key for key in PROOFS if promise.startswith(key)] for promise in promises()}
    assert len(proofs) >= 20
    assert [promise for promise, keys in proofs.items() if len(keys) != 1] == []
    assert {key for keys in proofs.values() for key in keys} == set(PROOFS)


def test_each_proof_is_there():
    cases = {case.id for case in CASES}
    for proof in {proof for proofs in PROOFS.values() for proof in proofs}:
        module, colons, name = proof.partition("::")
        if colons:
            assert callable(getattr(importlib.import_module(f"tests.{module}"), name, None)), proof
        else:
            assert proof in cases, proof


def test_commands_that_look_at_a_run_load_no_plug_in():
    """None of their modules names the function that runs a plug-in file."""
    commands = PAGE.parents[1] / "auxlearn" / "commands"
    for name in ("evaluate", "predict", "perturbations", "compare"):
        code = (commands / f"{name}.py").read_text(encoding="utf-8")
        assert "load_plugin" not in code
        assert ".resolved()" not in code  # which would load those of a configuration
    assert "load_plugin" in (commands / "check.py").read_text(encoding="utf-8")
