# tests/gpu/local.mk - training by PyTorch, where there is torch.
# SPDX-License-Identifier: Apache-2.0

# Where torch sees no GPU, softtorch.py stands in for one.

dist_check_SCRIPTS += tests/gpu/gpu.t
EXTRA_DIST += \
	tests/gpu/conftest.py \
	tests/gpu/ddp_worker.py \
	tests/gpu/elsewhere.py \
	tests/gpu/models.py \
	tests/gpu/ranks_worker.py \
	tests/gpu/silent_cases.py \
	tests/gpu/softclock.py \
	tests/gpu/softpool.py \
	tests/gpu/softtorch.py \
	tests/gpu/test_accumulation.py \
	tests/gpu/test_any_training.py \
	tests/gpu/test_arguments.py \
	tests/gpu/test_attributes.py \
	tests/gpu/test_bad_input.py \
	tests/gpu/test_banks.py \
	tests/gpu/test_between.py \
	tests/gpu/test_casts.py \
	tests/gpu/test_chain.py \
	tests/gpu/test_chained.py \
	tests/gpu/test_checkpoint.py \
	tests/gpu/test_chunk.py \
	tests/gpu/test_compiled.py \
	tests/gpu/test_comparisons.py \
	tests/gpu/test_contributions.py \
	tests/gpu/test_copies.py \
	tests/gpu/test_ddp.py \
	tests/gpu/test_evaluation.py \
	tests/gpu/test_flight.py \
	tests/gpu/test_gradients.py \
	tests/gpu/test_home.py \
	tests/gpu/test_hooks.py \
	tests/gpu/test_kept.py \
	tests/gpu/test_landing.py \
	tests/gpu/test_library.py \
	tests/gpu/test_measured.py \
	tests/gpu/test_memory.py \
	tests/gpu/test_modes.py \
	tests/gpu/test_names.py \
	tests/gpu/test_off.py \
	tests/gpu/test_offload.py \
	tests/gpu/test_offsets.py \
	tests/gpu/test_once.py \
	tests/gpu/test_options.py \
	tests/gpu/test_order.py \
	tests/gpu/test_outside.py \
	tests/gpu/test_parameters.py \
	tests/gpu/test_packed.py \
	tests/gpu/test_part.py \
	tests/gpu/test_places.py \
	tests/gpu/test_precision.py \
	tests/gpu/test_ran.py \
	tests/gpu/test_random.py \
	tests/gpu/test_ranks.py \
	tests/gpu/test_reached.py \
	tests/gpu/test_replay.py \
	tests/gpu/test_regions.py \
	tests/gpu/test_sentences.py \
	tests/gpu/test_settings.py \
	tests/gpu/test_softpool.py \
	tests/gpu/test_stack.py \
	tests/gpu/test_strides.py \
	tests/gpu/test_threads.py \
	tests/gpu/test_trainers.py \
	tests/gpu/test_training.py \
	tests/gpu/test_tree.py \
	tests/gpu/test_trials.py \
	tests/gpu/test_unused.py \
	tests/gpu/test_verify.py \
	tests/gpu/test_versions.py \
	tests/gpu/test_weights.py
