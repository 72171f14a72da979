"""Each requirement of the source papers is shown by a test or judged by a claim of a reproduction."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
COUNTS = {"CNMT": 20, "FNI": 19, "FVP": 21, "STI": 28, "SHARP": 19, "XP": 7}
"""Number of requirements by paper; 114 in all."""

SHOWN_BY = {
    "CNMT-01": ["invariants/test_whole_scenarios.py::test_each_request_is_executed_whole_by_the_device_that_its_row_names"],
    "CNMT-02": [
        "invariants/test_whole_scenarios.py::test_back_to_back_nothing_waits_and_latencies_add_up_to_the_makespan",
        "invariants/test_common_random_numbers.py::test_all_policies_meet_the_same_arrivals_lengths_noise_and_rtt",
    ],
    "CNMT-03": ["policies/test_worked_examples.py::test_cnmt_03_a_request_of_108_bytes_takes_8_64_us"],
    "CNMT-04": [
        "network/test_rtt_series.py::test_lookup_at_between_and_after_sample_times_holds_the_last_sample",
        "network/test_shared_traces.py::test_cp1_is_slower_on_average_and_more_restless_than_cp2",
        "network/test_shared_traces.py::test_shipped_profiles_state_that_they_are_synthetic_and_what_they_represent",
    ],
    "CNMT-05": [
        "policies/test_worked_examples.py::test_cnmt_05_four_exact_rows_give_their_plane_back",
        "profile/test_execution_fit.py::test_10_000_noisy_inferences_find_the_plane_and_its_error",
    ],
    "CNMT-06": ["CNMT-06 (linear in M)", "CNMT-06 (Transformer on a GPU)", "CNMT-06 (recurrent encoders)"],
    "CNMT-07": [
        "policies/test_worked_examples.py::test_cnmt_07_four_pairs_give_slope_offset_r2_and_mse",
        "workload/test_length_table.py::test_french_takes_more_words_than_english",
        "workload/test_length_table.py::test_chinese_takes_more_han_characters_than_english_words",
    ],
    "CNMT-08": ["workload/test_filters.py::test_every_filter_halves_the_shift_on_made_up_text"],
    "CNMT-09": [
        "policies/test_worked_examples.py::test_cnmt_09_a_sentence_of_24_tokens_stays_and_one_of_25_goes",
        "policies/test_worked_examples.py::test_cnmt_09_the_border_lies_at_24_7368_tokens",
    ],
    "CNMT-10": [
        "policies/test_worked_examples.py::test_choices_and_totals",
        "policies/test_worked_examples.py::test_percentages_against_gateway_server_and_oracle",
    ],
    "CNMT-11": ["policies/test_worked_examples.py::test_the_gateway_measures_50_and_leaves_the_wait_at_the_server_out"],
    "CNMT-12": ["CNMT-12", "calibrate/test_run.py::test_a_decision_takes_less_than_a_thousandth_of_an_inference"],
    "CNMT-13": [
        "nmt/test_models.py::test_the_three_models_have_the_sizes_of_the_paper",
        "nmt/test_decoder.py::test_greedy_output_is_identical_on_repeat",
    ],
    "CNMT-14": [
        "goldens/test_goldens.py::test_a_shipped_scenario_gives_the_figures_that_it_gave",
        "papers/test_cnmt.py::test_the_tables_hold_every_cell_and_ratio_with_a_column_for_each_part",
        "invariants/test_reproducibility.py::test_the_same_seed_repeats_and_another_does_not",
    ],
    "CNMT-15": ["papers/test_cnmt.py::test_table_one_has_36_cells_and_sums_to_the_printed_digits"],
    "CNMT-16": [
        "papers/test_cnmt.py::test_worked_example_of_cnmt_16",
        "papers/test_cnmt.py::test_eleven_of_twelve_double_derivations_disagree_by_more_than_the_rounding",
    ],
    "CNMT-17": [*(f"CNMT-17 ({letter})" for letter in "abcde"), "CNMT-17 (reductions)"],
    "CNMT-18": ["report/test_reproduction_page.py::test_every_figure_is_drawn_without_errors"],
    "CNMT-19": ["invariants/test_gap_analysis.py::test_told_everything_it_decides_as_the_oracle_does_request_by_request"],
    "CNMT-20": ["papers/test_cnmt_claims.py::test_the_slips_are_listed"],
    "FNI-01": [
        "kernels/test_output_layer.py::test_the_reference_agrees_with_float64",
        "nmt/test_fused.py::test_the_stages_of_a_step_are_timed_separately",
    ],
    "FNI-02": ["papers/test_fused.py::test_beam_1_gains_more_than_memory_traffic_allows"],
    "FNI-03": ["kernels/test_output_layer.py::test_worked_example_of_fni_03"],
    "FNI-04": [
        "kernels/test_output_layer.py::test_worked_example_of_fni_04",
        "kernels/test_output_layer.py::test_any_split_and_order_of_a_row_combine_to_the_same_result",
    ],
    "FNI-05": ["kernels/test_output_layer.py::test_the_best_candidates_of_all_rows_are_the_best_of_the_beam"],
    "FNI-06": [
        "kernels/test_output_layer.py::test_without_probabilities_the_same_column_is_best",
        "nmt/test_decoder.py::test_greedy_search_chooses_equally_without_scores",
    ],
    "FNI-07": [
        "kernels/test_output_layer.py::test_masked_columns_add_nothing",
        "kernels/test_output_layer.py::test_a_row_without_a_finite_value_is_refused_by_name",
        "kernels/test_output_layer.py::test_nan_and_infinity_are_refused_at_any_column",
        "kernels/test_output_layer.py::test_large_values_do_not_overflow",
        "kernels/test_output_layer.py::test_log_probabilities_hold_at_large_logits",
    ],
    "FNI-08": ["batching/test_worked_examples.py::test_eight_sentences_in_batches_of_four"],
    "FNI-09": [
        "batching/test_worked_examples.py::test_results_of_maxi_batching_are_in_the_original_order",
        "batching/test_invariants.py::test_no_sentence_is_encoded_before_the_last_of_its_collection_arrived",
    ],
    "FNI-10": [
        "batching/test_worked_examples.py::test_eight_sentences_in_batches_of_four",
        "batching/test_invariants.py::test_topped_up_more_than_the_threshold_are_active_while_sentences_wait",
        "nmt/test_batched.py::test_a_real_decoder_follows_the_worked_examples_of_the_paper",
    ],
    "FNI-11": [
        "nmt/test_fused.py::test_neither_fusing_nor_batching_changes_a_translation",
        "nmt/test_batched.py::test_in_float16_at_least_999_of_1000_tokens_are_equal",
    ],
    "FNI-12": [
        *(f"FNI-12 ({letter})" for letter in "abcdef"),
        "batching/test_worked_examples.py::test_iterations_are_about_those_of_fni_12",
    ],
    "FNI-13": ["nmt/test_models.py::test_the_model_of_the_paper_on_top_up_batching_has_its_sizes"],
    "FNI-14": ["FNI-14", "workload/test_configuration.py::test_every_workload_has_the_moments_of_table_1_within_2_percent"],
    "FNI-15": [
        *(f"FNI-15 ({letter})" for letter in "abcd"),
        "papers/test_fused.py::test_sums_changes_and_ratios_follow_from_the_printed_seconds",
    ],
    "FNI-16": [f"FNI-16 ({letter})" for letter in "abcdefghijklm"],
    "FNI-17": [
        *(f"FNI-17 ({letter})" for letter in "abcd"),
        "papers/test_fused.py::test_a_real_decoder_is_compared_with_amdahls_prediction",
    ],
    "FNI-18": ["calibrate/test_fits.py::test_a_device_that_is_flat_until_it_is_full_becomes_a_table"],
    "FNI-19": ["papers/test_fused.py::test_the_slips_are_listed"],
    "FVP-01": ["kernels/test_columns.py::test_worked_examples_of_fvp_01_and_fvp_07"],
    "FVP-02": [
        "nmt/test_clusters.py::test_every_step_of_every_sentence_is_recorded_with_the_tokens_that_dense_logits_rank_first",
        "nmt/test_clusters.py::test_worked_example_of_fvp_01_and_the_lowest_of_equal_tokens_comes_first",
    ],
    "FVP-03": [
        "nmt/test_clusters.py::test_inertia_never_rises_from_iteration_to_iteration",
        "nmt/test_clusters.py::test_every_context_belongs_to_its_nearest_centroid_and_no_cluster_is_empty",
        "nmt/test_clusters.py::test_the_same_seed_gives_the_same_clusters_and_another_does_not",
    ],
    "FVP-04": [
        "nmt/test_clusters.py::test_worked_example_of_fvp_04",
        "nmt/test_clusters.py::test_sets_equal_the_union_of_their_members_tokens_and_grow_with_k",
    ],
    "FVP-05": [
        "kernels/test_columns.py::test_worked_example_of_fvp_05",
        "kernels/test_columns.py::test_the_nearest_centroid_equals_brute_force",
    ],
    "FVP-06": [
        "kernels/test_columns.py::test_worked_example_of_fvp_06",
        "kernels/test_columns.py::test_the_union_equals_pythons_and_never_shrinks_when_a_row_is_added",
    ],
    "FVP-07": [
        "kernels/test_columns.py::test_worked_examples_of_fvp_01_and_fvp_07",
        "nmt/test_subsets.py::test_all_clusters_active_is_identical_to_dense",
    ],
    "FVP-08": [f"FVP-08 ({letter})" for letter in "abcd"],
    "FVP-09": [
        "FVP-09",
        "papers/test_vocab_reproduction.py::test_the_line_through_table_2",
        "papers/test_vocab_reproduction.py::test_limits_by_counting",
    ],
    "FVP-10": [
        "FVP-10",
        "nmt/test_clusters.py::test_the_largest_set_of_pooled_clusters_is_no_smaller_than_that_of_a_direction",
    ],
    "FVP-11": [f"FVP-11 ({letter})" for letter in "abd"],
    "FVP-12": ["nmt/test_clusters.py::test_the_memory_account_equals_the_allocated_bytes"],
    "FVP-13": ["FVP-13", "papers/test_vocab_reproduction.py::test_parameters_by_the_printed_shapes"],
    "FVP-14": ["papers/test_vocab_reproduction.py::test_tables_are_whole"],
    "FVP-15": ["FVP-15 (a)", "FVP-15 (b)", "papers/test_vocab_reproduction.py::test_the_ratios_and_means_of_table_2"],
    "FVP-16": ["FVP-16", "papers/test_vocab_reproduction.py::test_which_printed_averages_follow_from_their_rows"],
    "FVP-17": ["FVP-17", "papers/test_vocab_reproduction.py::test_which_printed_averages_follow_from_their_rows"],
    "FVP-18": [
        "FVP-18 (a)",
        "FVP-18 (b)",
        "papers/test_vocab_reproduction.py::test_1300_clusters_stay_below_two_percent",
    ],
    "FVP-19": ["FVP-19 (a)", "FVP-19 (b)"],
    "FVP-20": [
        *(f"FVP-20 ({letter})" for letter in "abcdefgh"),
        "papers/test_vocab_reproduction.py::test_the_share_of_the_projection_that_gains_imply",
    ],
    "FVP-21": [*(f"FVP-21 ({letter})" for letter in "abcde"), "papers/test_vocab_reproduction.py::test_tables_are_whole"],
    "STI-01": [
        "streaming/test_quantisation.py::test_a_shard_of_sti_01_has_196_608_weights_in_attention_and_in_each_feed_forward_matrix",
        "streaming/test_quantisation.py::test_the_shards_of_a_layer_summed_are_the_layer",
    ],
    "STI-02": [
        "streaming/test_elastic_encoder.py::test_every_submodel_gives_what_training_saw_of_it",
        "streaming/test_pipeline_turns.py::test_all_layers_at_32_bits_are_the_model_itself",
    ],
    "STI-03": [
        "streaming/test_quantisation.py::test_outliers_of_sti_03",
        "streaming/test_quantisation.py::test_the_rule_of_sti_03_is_not_free_of_scale",
    ],
    "STI-04": [
        "streaming/test_quantisation.py::test_centroids_of_sti_04",
        "streaming/test_quantisation.py::test_groups_are_those_of_a_stable_sort_cut_evenly",
        "streaming/test_quantisation.py::test_errors_of_gaussian_weights_in_deviations_are_those_of_sti_04",
    ],
    "STI-05": [
        "streaming/test_store.py::test_sizes_of_sti_05",
        "streaming/test_store.py::test_every_shard_comes_back_as_it_was_quantised",
    ],
    "STI-06": [
        "kernels/test_unpack.py::test_worked_example_of_sti_04",
        "kernels/test_unpack.py::test_every_weight_is_the_centroid_of_its_code_or_an_outlier",
        "streaming/test_pipeline.py::test_shards_are_divided_among_the_threads_which_unpack_at_once",
    ],
    "STI-07": [
        "calibrate/test_sti_times.py::test_a_disk_is_a_fixed_part_and_a_rate",
        "profile/test_sti_block.py::test_more_bits_never_load_faster_even_if_a_busy_disk_measured_so",
    ],
    "STI-08": ["calibrate/test_sti_times.py::test_layers_are_measured_by_width_and_length_and_judged_by_whole_submodels"],
    "STI-09": ["streaming/test_evaluation.py::test_the_planted_shard_ranks_first_and_all_others_tie_in_their_own_order"],
    "STI-10": [
        "streaming/plan/test_plan.py::test_worked_examples_of_sti_10",
        "streaming/plan/test_plan.py::test_nothing_computed_in_time_is_1_x_1_and_flagged",
    ],
    "STI-11": ["streaming/plan/test_timeline.py::test_worked_example_of_sti_11"],
    "STI-12": ["streaming/plan/test_timeline.py::test_no_budget_is_overdrawn_exactly_where_nothing_stalls"],
    "STI-13": ["streaming/plan/test_plan.py::test_worked_example_of_sti_13_with_a_buffer_and_without"],
    "STI-14": [
        "streaming/plan/test_plan.py::test_worked_example_of_sti_14",
        "streaming/plan/test_plan.py::test_no_single_further_upgrade_is_possible",
    ],
    "STI-15": ["streaming/plan/test_plan.py::test_worked_example_of_sti_15"],
    "STI-16": [
        *(f"STI-16 ({letter})" for letter in "abc"),
        "streaming/test_pipeline.py::test_worked_example_of_sti_13_stalls_as_its_timeline_says",
    ],
    "STI-17": [
        "streaming/plan/test_plan.py::test_worked_example_of_sti_17",
        "streaming/test_pipeline_turns.py::test_with_an_enlarged_buffer_the_next_turn_skips_what_is_there_and_raises_others",
    ],
    "STI-18": ["experiment/test_sti.py::test_a_change_of_deadline_or_buffer_replans_once"],
    "STI-19": ["streaming/plan/test_baselines.py::test_sti_computes_no_fewer_shards_than_any_pipeline"],
    "STI-20": ["streaming/plan/test_baselines.py::test_there_is_one_model_of_each_board"],
    "STI-21": ["streaming/plan/test_timeline.py::test_the_motivating_pipeline_of_sti_21_to_the_digits"],
    "STI-22": [f"STI-22 ({letter})" for letter in "abcdefghi"],
    "STI-23": [
        *(f"STI-23 ({letter})" for letter in "abc"),
        "papers/test_sti_claims.py::test_derived_figures_equal_those_of_the_requirements",
    ],
    "STI-24": [f"STI-24 ({letter})" for letter in "abcdefgh"],
    "STI-25": ["STI-25"],
    "STI-26": ["papers/test_sti_claims.py::test_every_table_and_figure_is_named_as_lost_and_every_slip_listed"],
    "STI-27": ["STI-27", "papers/test_sti_claims.py::test_accuracy_must_rise_with_fidelity"],
    "STI-28": ["papers/test_sti_claims.py::test_every_table_and_figure_is_named_as_lost_and_every_slip_listed"],
    "SHARP-01": [
        "kernels/test_sharp_search.py::test_a_beam_wide_enough_finds_the_best_of_all_translations",
        "nmt/test_translation.py::test_sharp_01_an_unknown_token_becomes_the_word_attended_to",
    ],
    "SHARP-02": [
        "nmt/test_candidate_lists.py::test_a_real_sentence_has_bounded_candidates_and_its_end_mark_adds_none",
        "nmt/test_candidate_lists.py::test_logits_of_listed_words_equal_the_full_ones",
    ],
    "SHARP-03": ["kernels/test_sharp_cells.py::test_sharp_03_the_search_stops_at_the_margin"],
    "SHARP-04": [
        "nmt/test_sharp_model.py::test_a_gru_step_equals_the_worked_example",
        "nmt/test_sharp_model.py::test_attention_equals_the_worked_example",
    ],
    "SHARP-05": [
        "kernels/test_products.py::test_worked_examples_of_sharp_05",
        "kernels/test_products.py::test_the_largest_allowed_sum_does_not_overflow",
    ],
    "SHARP-06": ["kernels/test_sharp_search.py::test_sharp_06_kept_products_of_source_embeddings_change_no_bit"],
    "SHARP-07": ["kernels/test_sharp_cells.py::test_sharp_07_products_with_the_source_are_made_once_a_sentence"],
    "SHARP-08": [
        "SHARP-08",
        "kernels/test_activations.py::test_worked_bounds_of_sharp_08",
        "kernels/test_activations.py::test_no_real_is_off_by_more_than_the_bound",
    ],
    "SHARP-09": ["SHARP-09", "kernels/test_sharp_cells.py::test_sharp_09_hypotheses_share_the_state_of_their_parent"],
    "SHARP-10": [
        "SHARP-10 (a)",
        "SHARP-10 (b)",
        "nmt/test_sharp_engine.py::test_identities_find_what_torch_finds",
        "nmt/test_sharp_engine.py::test_noise_changes_only_tokens_that_nearly_tie",
    ],
    "SHARP-11": [
        *(f"SHARP-11 ({letter})" for letter in "abc"),
        "papers/test_sharp.py::test_factors_and_steps_of_the_ladder_follow_from_its_speeds",
    ],
    "SHARP-12": ["kernels/test_sharp_cells.py::test_sharp_12_connected_layers_with_their_skips"],
    "SHARP-13": ["SHARP-13", "kernels/test_sharp_cells.py::test_sharp_13_a_recurrent_layer_costs_6_or_8_connected_ones"],
    "SHARP-14": [
        "nmt/test_sharp_engine.py::test_an_ensemble_of_one_model_twice_is_that_model",
        "nmt/test_sharp_engine.py::test_an_ensemble_averages_the_distributions_of_its_models",
    ],
    "SHARP-15": [
        "SHARP-15 (a)",
        "SHARP-15 (b)",
        "kernels/test_sharp_cells.py::test_sharp_15_the_counts_order_the_decoders_as_the_paper_measured_them",
    ],
    "SHARP-16": ["nmt/test_sharp_model.py::test_the_models_of_table_2_have_their_sizes"],
    "SHARP-17": [f"SHARP-17 ({letter})" for letter in "abcd"],
    "SHARP-18": ["SHARP-18"],
    "SHARP-19": ["papers/test_sharp.py::test_no_baseline_gives_all_printed_factors"],
    "XP-01": ["world/test_batch_server.py::test_a_sentence_alone_costs_the_same_with_batching_on_and_off"],
    "XP-02": ["nmt/test_subsets.py::test_columns_straight_to_the_fused_kernel_give_the_tokens_of_scatter_and_softmax"],
    "XP-03": [
        "experiment/test_decoder.py::test_the_reader_is_told_what_is_measured_and_exact",
        "papers/test_sharp.py::test_a_rung_shows_its_agreement_on_a_trained_model",
    ],
    "XP-04": ["policies/test_plan_view.py::test_a_plane_that_knows_no_states_loses_on_cold_requests"],
    "XP-05": ["cli/test_calibrate.py::test_a_measured_profile_drives_a_scenario_and_its_replay_has_the_same_bytes"],
    "XP-06": [
        "invariants/test_reproducibility.py::test_the_same_seed_repeats_and_another_does_not",
        "invariants/test_common_random_numbers.py::test_all_policies_meet_the_same_arrivals_lengths_noise_and_rtt",
    ],
    "XP-07": ["papers/test_vocab_reproduction.py::test_amdahls_prediction_is_shown_with_the_measurement"],
}
"""Tests, as file and name below this folder, and claims by their identifier."""


def test_every_requirement_has_a_line() -> None:
    assert list(SHOWN_BY) == [f"{paper}-{number:02}" for paper, count in COUNTS.items() for number in range(1, count + 1)]


@pytest.mark.parametrize("requirement", SHOWN_BY)
def test_what_shows_a_requirement_exists(requirement: str) -> None:
    proofs = SHOWN_BY[requirement]
    assert proofs
    assert [proof for proof in proofs if not (_is_test(*proof.split("::")) if "::" in proof else proof in _claims())] == []


def _is_test(file: str, name: str) -> bool:
    return name.startswith("test_") and (ROOT / file).is_file() and name in _functions(file)


@cache
def _functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@cache
def _claims() -> set[str]:
    """Return the identifiers of the claims that the frozen reproductions judge; the test of goldens compares them."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "goldens").glob("*.json")]
    return {claim.partition(", ")[0] for document in documents for claim in document.get("verdicts", ())}
