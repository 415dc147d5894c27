# tests/megatron/local.mk - Megatron-Core's models, where there is one.
# SPDX-License-Identifier: Apache-2.0

dist_check_SCRIPTS += tests/megatron/megatron.t
EXTRA_DIST += \
	tests/megatron/conftest.py \
	tests/megatron/late.py \
	tests/megatron/packing.py \
	tests/megatron/ranks.py \
	tests/megatron/softmamba.py \
	tests/megatron/softmegatron.py \
	tests/megatron/softquantization.py \
	tests/megatron/test_auto.py \
	tests/megatron/test_autocast.py \
	tests/megatron/test_example.py \
	tests/megatron/test_exchange.py \
	tests/megatron/test_gradients.py \
	tests/megatron/test_kinds.py \
	tests/megatron/test_hooks.py \
	tests/megatron/test_life.py \
	tests/megatron/test_megatron.py \
	tests/megatron/test_offload.py \
	tests/megatron/test_peers.py \
	tests/megatron/test_quantized.py \
	tests/megatron/test_random.py \
	tests/megatron/test_ranks.py \
	tests/megatron/test_schedules.py \
	tests/megatron/test_weights.py \
	tests/megatron/training.py \
	tests/megatron/worker.py
