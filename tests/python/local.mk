# tests/python/local.mk - hosts/pytorch, where there is pytest.
# SPDX-License-Identifier: Apache-2.0

dist_check_SCRIPTS += tests/python/package.t
EXTRA_DIST += \
	hosts/pytorch/tests/conftest.py \
	hosts/pytorch/tests/harness.py \
	hosts/pytorch/tests/softdevice.py \
	hosts/pytorch/tests/test_abi.py \
	hosts/pytorch/tests/test_bench_banks.py \
	hosts/pytorch/tests/test_bench_peers.py \
	hosts/pytorch/tests/test_examples.py \
	hosts/pytorch/tests/test_harness.py \
	hosts/pytorch/tests/test_layers.py \
	hosts/pytorch/tests/test_library.py \
	hosts/pytorch/tests/test_main.py \
	hosts/pytorch/tests/test_passes.py \
	hosts/pytorch/tests/test_private.py \
	hosts/pytorch/tests/test_session.py \
	hosts/pytorch/tests/test_wheel.py
