# tests/torch/attach/local.mk - training by PyTorch, where there is torch.
# SPDX-License-Identifier: Apache-2.0

# Where torch sees no GPU, softtorch.py stands in for one.

dist_check_SCRIPTS += tests/torch/attach/attach.t
EXTRA_DIST += \
	tests/torch/attach/conftest.py \
	tests/torch/attach/ddp_worker.py \
	tests/torch/attach/elsewhere.py \
	tests/torch/attach/models.py \
	tests/torch/attach/ranks_worker.py \
	tests/torch/attach/sharded_worker.py \
	tests/torch/attach/silent_cases.py \
	tests/torch/attach/softclock.py \
	tests/torch/attach/softpool.py \
	tests/torch/attach/softtorch.py \
	tests/torch/attach/test_accumulation.py \
	tests/torch/attach/test_any_training.py \
	tests/torch/attach/test_arguments.py \
	tests/torch/attach/test_attributes.py \
	tests/torch/attach/test_bad_input.py \
	tests/torch/attach/test_banks.py \
	tests/torch/attach/test_between.py \
	tests/torch/attach/test_caches.py \
	tests/torch/attach/test_casts.py \
	tests/torch/attach/test_chain.py \
	tests/torch/attach/test_chained.py \
	tests/torch/attach/test_checkpoint.py \
	tests/torch/attach/test_chunk.py \
	tests/torch/attach/test_compiled.py \
	tests/torch/attach/test_comparisons.py \
	tests/torch/attach/test_contributions.py \
	tests/torch/attach/test_copies.py \
	tests/torch/attach/test_cost.py \
	tests/torch/attach/test_ddp.py \
	tests/torch/attach/test_evaluation.py \
	tests/torch/attach/test_flight.py \
	tests/torch/attach/test_gradients.py \
	tests/torch/attach/test_home.py \
	tests/torch/attach/test_hooks.py \
	tests/torch/attach/test_kept.py \
	tests/torch/attach/test_landing.py \
	tests/torch/attach/test_library.py \
	tests/torch/attach/test_measured.py \
	tests/torch/attach/test_memory.py \
	tests/torch/attach/test_modes.py \
	tests/torch/attach/test_names.py \
	tests/torch/attach/test_off.py \
	tests/torch/attach/test_offload.py \
	tests/torch/attach/test_offsets.py \
	tests/torch/attach/test_once.py \
	tests/torch/attach/overlap_worker.py \
	tests/torch/attach/test_options.py \
	tests/torch/attach/test_overlap.py \
	tests/torch/attach/test_order.py \
	tests/torch/attach/test_outside.py \
	tests/torch/attach/test_parameters.py \
	tests/torch/attach/test_own_inputs.py \
	tests/torch/attach/test_packed.py \
	tests/torch/attach/test_part.py \
	tests/torch/attach/test_pieces.py \
	tests/torch/attach/test_places.py \
	tests/torch/attach/test_precision.py \
	tests/torch/attach/test_ran.py \
	tests/torch/attach/test_random.py \
	tests/torch/attach/test_ranks.py \
	tests/torch/attach/test_reached.py \
	tests/torch/attach/test_replay.py \
	tests/torch/attach/test_regions.py \
	tests/torch/attach/test_sentences.py \
	tests/torch/attach/test_settings.py \
	tests/torch/attach/test_sharded.py \
	tests/torch/attach/test_shared_dicts.py \
	tests/torch/attach/test_snapshot.py \
	tests/torch/attach/test_softpool.py \
	tests/torch/attach/test_stack.py \
	tests/torch/attach/test_strides.py \
	tests/torch/attach/test_suspend.py \
	tests/torch/attach/test_threads.py \
	tests/torch/attach/test_trainers.py \
	tests/torch/attach/test_training.py \
	tests/torch/attach/test_tree.py \
	tests/torch/attach/test_trials.py \
	tests/torch/attach/test_unused.py \
	tests/torch/attach/test_verify.py \
	tests/torch/attach/test_versions.py \
	tests/torch/attach/test_weights.py
