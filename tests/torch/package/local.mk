# tests/torch/package/local.mk - the Python package, where there is pytest.
# SPDX-License-Identifier: Apache-2.0

dist_check_SCRIPTS += tests/torch/package/package.t
EXTRA_DIST += \
	tests/torch/package/conftest.py \
	tests/torch/package/harness.py \
	tests/torch/package/softdevice.py \
	tests/torch/package/test_abi.py \
	tests/torch/package/test_bench_banks.py \
	tests/torch/package/test_bench_models.py \
	tests/torch/package/test_bench_peers.py \
	tests/torch/package/test_checkpoint.py \
	tests/torch/package/test_examples.py \
	tests/torch/package/test_harness.py \
	tests/torch/package/test_layers.py \
	tests/torch/package/test_library.py \
	tests/torch/package/test_main.py \
	tests/torch/package/test_passes.py \
	tests/torch/package/test_private.py \
	tests/torch/package/test_session.py \
	tests/torch/package/test_wheel.py
