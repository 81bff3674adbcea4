"""Which cases run.

Of a contract not every case meets every property in every mode: :func:`products`.
The quick tier (``pytest --quick``, part of ``make test``) leaves out what :data:`LONG` names, and
runs :data:`CASES` cases of the tests in :data:`FEW`, and :data:`HOLDS` cases of each property of a
contract. Only core properties are traced in the quick tier, with :data:`TRACES` cases each.
``make test-all`` runs everything.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import pytest
import torch._dynamo.config

from stringlib.testing.contract import Contract, Property, SkippedError
from stringlib.testing.modes import MODES, Mode

EVERY = 4
"""Of so many properties of a case one is run blind and another one batched."""

TRACED = 6
"""One of so many properties beside the core is compiled or exported, with one case."""

CASES = 8
"""So many cases of a test in :data:`FEW` are quick, spread evenly over all."""

HOLDS = 5
"""So many cases of a property of a contract are quick, if nothing has to be traced."""

PAGES = 3
"""So many cases of a test in the browser, where a case takes half a minute, are quick."""

TRACES = 2
"""Number of cases in which the quick tier traces a core property, spread evenly over all."""

FEW = {
    "test_features.py": (
        "test_the_mean_over_draws_is_the_exponential",
        "test_values_and_gradients_are_those_of_the_literal_form",
        "test_optimal_features_are_those_of_the_literal_form",
    ),
    "test_fold_while_training.py": ("test_values_and_gradients_are_those_on_tokens",),
    "test_independence.py": ("test_layers_begin_apart", "test_heads_begin_apart"),
    "test_inference.py": (
        "test_every_rung_gives_the_scores_of_the_definition",
        "test_folding_leaves_the_output_of_a_layer_and_the_gradients_of_its_tokens",
    ),
    "test_browser.py": ("test_a_page_reads_well_and_its_sliders_draw_what_python_computes",),
    "test_language_model.py": (
        "test_nothing_looks_ahead",
        "test_generating_with_a_state_equals_reading_all_again",
    ),
    "test_models.py": ("test_all_that_can_learn_does", "test_half_precision_stays_near"),
    "test_modes.py": ("test_contract",),
    "test_packed.py": ("test_a_language_model_gives_each_document_the_logits_it_has_alone",),
    "test_projections.py": (
        "test_rows_have_mean_zero_and_unit_covariance",
        "test_the_product_is_that_with_the_matrix",
    ),
    "test_rotation_kernel.py": ("test_gradients_of_every_kind",),
    "test_toeplitz.py": (
        "test_biases_of_any_range",
        "test_values_and_gradients_across_the_edges_of_tiles",
    ),
    "test_train_trouble.py": ("test_what_is_no_checkpoint_is_named_and_left",),
    "test_wrappers.py": (
        "test_wrapped_parts_give_the_values_and_gradients_of_bare_ones",
        "test_a_sharded_model_of_one_process",
        "test_a_model_of_one_process_in_the_older_wrapper",
        "test_replicas_have_the_values_and_gradients_of_the_model",
        "test_hooks_run_and_change_nothing",
        "test_gradients_of_each_sample_by_vmap",
        "test_low_rank_adapters",
        "test_offloaded_models",
    ),
    "test_universality.py": ("test_planes_and_frequencies_are_found_again",),
}
"""Tests with many cases that take long together, by file."""

LONG = {
    "test_figures.py": "a chapter that is run again compares every number that its figures draw",
    "test_figures_amounts.py": "as test_figures.py",
    "test_figures_attention.py": "as test_figures.py",
    "test_figures_encoders.py": "as test_figures.py",
    "test_figures_formulas.py": "as test_figures.py",
    "test_figures_moved.py": "as test_figures.py",
    "test_figures_strings.py": "as test_figures.py",
    "test_results.py::test_what_stands_beside_the_runs_is_what_the_study_says":
        "computes again what studies record; records change only when one is run anew",
    "test_results.py::test_runs_have_the_recorded_shape_and_a_seed_repeats_one":
        "runs every study for a few steps",
    "test_results.py::test_what_is_computed_fast_is_computed_again": "runs studies",
    "test_results.py::test_a_new_name_in_a_registry_changes_no_study": "loads every study twice",
    "test_results.py::test_training_learns": "trains",
    "test_results_measures.py": "records; test_claims.py compares what pages say with them",
    "test_results_models.py": "as test_results_measures.py",
    "test_results_speed.py": "as test_results_measures.py",
    "test_results_tasks.py": "as test_results_measures.py",
    "test_bench.py": "what `make bench` runs, and nothing else",
    "test_bench_read.py": "as test_bench.py",
    "test_bench_suites.py": "as test_bench.py",
    "test_exchanged.py": "the record of released models, each read by its own library",
    "test_released_norms.py": "imports the code of many models of transformers",
    "test_formulas.py::test_the_record_is_what_the_proofs_show": "a chapter that is run reads "
    "its formulas; this test tries the changes as well",
    "test_interop.py": "needs transformers and timm, which take long to import",
    "test_interop_models.py": "as test_interop.py",
    "test_browser.py::test_a_chapter_prints_with_its_figures_and_nothing_to_press":
        "prints a long chapter; test_print.py prints a short one",
    "test_bring_your_own.py": "trains by the commands of a page",
    "test_proofs.py::test_the_proofs_of_a_chapter_hold_with_sympy_alone":
        "a chapter that is run again runs its proofs; one chapter runs in the page's tests",
    "test_live.py": "works with each living figure; test_page_programs.py computes what they show",
    "test_ledger.py::test_the_project_has_no_orphan": "`make test` runs the command itself",
    "test_onnx.py": "exports each method; test_training_stack.py exports one model",
    "test_packed.py::test_it_is_one_graph_and_inspects_nothing": "compiles whole models",
    "test_pdf.py": "prints with Chromium",
    "test_published.py::test_it_is_one_graph_and_maps_over_a_batch": "compiles whole layers",
    "test_report.py": "prints with Chromium",
    "test_note.py": "prints the built book with Chromium",
    "test_engines.py": "opens pages in Firefox and WebKit, where their drivers are installed",
    "test_study_cluster.py": "starts a cluster of processes",
    "test_train_processes.py": "trains in several processes",
    "test_study.py::test_a_killed_process_costs_its_own_run_alone": "kills processes",
    "test_study.py::test_processes_end_with_the_one_that_waits_for_them": "kills processes",
    "test_train_cells.py::test_two_at_a_time_give_what_one_gives": "trains in several processes",
    "test_train_runs.py::test_ctrl_c_with_jobs_keeps_what_is_done_and_saves_what_is_under_way":
        "stops processes",
    "test_train_command.py::test_ctrl_c_saves_and_the_same_command_goes_on_but_for_fresh":
        "stops processes",
    "test_train_command.py::test_a_record_says_what_its_runs_were_made_with_not_who_reports":
        "trains many times",
    "test_train_command.py::test_methods_and_seeds_end_in_a_table_a_plot_and_a_record":
        "trains many times",
    "test_train_command.py::test_two_commands_do_not_share_a_folder": "starts processes",
    "test_train_trouble.py::test_the_command_ends_with_a_line_about_a_full_disk":
        "starts processes",
    "test_training_stack.py::test_the_compiled_block_runs_as_printed": "compiles to C++",
    "test_training_stack.py::test_the_block_about_decoding_in_onnx_runs_as_printed":
        "exports a whole model; the quick block about ONNX exports one too",
    "test_training_stack.py::test_two_processes_run_a_block_as_printed": "starts processes",
    "test_testing.py::test_what_is_right_passes": "runs whole contracts",
    "test_testing.py::test_what_is_wrong_is_told_in_words": "runs whole contracts",
    "test_testing.py::test_wrong_steps_are_told_in_words": "runs whole contracts",
    "test_independence.py::test_a_random_turn_turns_planes_and_heads_apart": "takes many draws",
    "test_rotations_linear.py::test_a_random_turn_commutes_and_is_uniform": "takes many draws",
    "test_nbval_numbers.py::test_nbval_fails_the_cells_whose_outputs_say_something_else":
        "runs notebooks",
    "test_notebook_form.py::test_two_runs_leave_the_same_bytes": "runs a notebook twice",
    "test_packaging.py::test_what_pages_compute_needs_the_extra_of_the_book_alone":
        "computes all that pages compute, as test_page_programs.py does",
    "test_packaging.py::test_the_wheel_holds_the_whole_package_and_nothing_else": "builds a wheel",
    "test_packaging.py::test_the_package_imports_with_torch_alone": "starts a process",
    "test_encoder_contract.py::test_generated_code": "compiles to C++",
    "test_explorer.py::test_without_ipywidgets_the_figure_is_static": "starts a process",
    "test_commands.py::test_help_is_printed_where_letters_are_missing": "starts processes",
    "test_cross_attention.py::test_compiled_exported_and_batched": "compiles whole layers",
    "test_decay_weight.py::test_sixteen_thousand_tokens_in_float32": "long sequences",
    "test_dropout.py::test_a_model_is_one_graph_in_training": "compiles whole models",
    "test_linear.py::test_what_threads_share_is_the_same": "starts threads many times",
    "test_modes.py::test_a_program_of_a_layer_serves_fewer_and_many_more_tokens":
        "exports whole layers",
    "test_training_stack.py::test_no_further_graph_is_compiled_for_longer_texts_or_other_prompts":
        "compiles whole models",
    "test_wrappers.py::test_a_compiled_step_of_decoding_is_compiled_once": "compiles whole models",
    "test_wrappers.py::test_causal_random_features_are_exported_from_few_tokens":
        "exports whole layers",
    "test_wrappers.py::test_compiled_parts_give_the_values_and_gradients_of_bare_ones":
        "compiles whole models",
    "test_wrappers.py::test_features_that_are_drawn_with_one_seed_are_equal_in_two_processes":
        "starts processes",
    "test_wrappers.py::test_two_processes_have_the_gradients_of_one": "starts processes",
}  # fmt: skip
"""Files and tests that the quick tier leaves out: why each can wait."""


def quick(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Split the cases of all tests into those of the quick tier and the rest.

    A property of a contract counts as a test, and as another one where it is traced. Only the long
    tier traces a property beside the core. Which cases are quick depends on the name of the test
    alone: they stay the same from run to run.
    """
    kept, groups = set[pytest.Item](), dict[str, tuple[int, list[pytest.Item]]]()
    for item in items:
        file, whole = item.path.name, item.nodeid.partition("[")[0]
        name, call = whole.rpartition("::")[2], getattr(item, "callspec", None)
        if LONG.keys() & {file, f"{file}::{name}"}:
            continue
        if call is not None and {"property", "modes"} <= call.params.keys():
            property = call.params["property"]
            traced = not all(mode.cheap for mode in call.params["modes"])
            if property.core or not traced:
                whole += f" {property.words}{' traced' * traced}"
                groups.setdefault(whole, (TRACES if traced else HOLDS, []))[1].append(item)
        elif name in FEW.get(file, ()):
            most = PAGES if file == "test_browser.py" else CASES
            groups.setdefault(whole, (most, []))[1].append(item)
        else:
            kept.add(item)
    for name, (most, group) in groups.items():
        count = min(most, len(group))
        first = zlib.crc32(name.encode()) % -(-len(group) // count)
        kept |= {group[(first + i * len(group) // count) % len(group)] for i in range(count)}
    return [i for i in items if i in kept], [i for i in items if i not in kept]


def products(
    contract: Contract, cases: Iterable[str], traced: Sequence[str] = (), every: int = 1
) -> list[object]:
    """Return what to parametrize a test of ``(name, property, modes)`` with.

    Every case has the core properties, from which the others follow, in every mode that costs
    nothing. The others meet each mode with some cases, and each case meets each mode with some of
    them. A function that has to be traced takes seconds: some cases stand for all.

    Args:
        contract: The properties.
        cases: Names of cases.
        traced: Those that have their core compiled, and every second exported.
        every: Of the other properties a case has one of so many.
    """
    names = list(cases)
    assert set(traced) <= set(names), "a case that is to be traced must be one"
    found = []
    for i, name in enumerate(names):
        for j, property in enumerate(contract.properties):
            core, own = property.core, i == j % len(names) and j % TRACED == 0
            if not (core or own) and (i + j) % every:
                continue
            runs = {
                "eager": True,
                "blind": core or (i + j) % EVERY == 0,
                "batched": core or (i + j) % EVERY == EVERY // 2,
                "compiled": name in traced if core else own and j % 2 == 0,
                "exported": name in traced[::2] if core else own and j % 2 == 1,
            }
            label = f"{name}-{property.words.replace(' ', '_')}"
            modes = [mode for mode in MODES if runs[mode.name]]
            found.append(pytest.param(name, property, modes, id=label))
    return found


# what a traced operation does to sizes that are letters is found sooner than it is remembered
@torch._dynamo.config.patch(fake_tensor_cache_enabled=False)
def hold(property: Property, case: object, modes: Iterable[Mode]) -> None:
    """Check a property of a case in some modes; skip the test where it applies in none."""
    applies = False
    for mode in modes:
        try:
            property.check(case, mode)
            applies = True
        except SkippedError:
            continue
        except Exception as error:
            error.add_note(f"in the mode {mode}")
            raise
    if not applies:
        pytest.skip("it does not apply")
