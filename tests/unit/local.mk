# tests/unit/local.mk - the modules of lib, kernels and softnccl, room by room.
# SPDX-License-Identifier: Apache-2.0

test_programs += \
	tests/unit/abi/loader.t \
	tests/unit/abi/run.t \
	tests/unit/abi/words.t \
	tests/unit/family/family.t \
	tests/unit/family/object.t \
	tests/unit/plan/borders.t \
	tests/unit/plan/model.t \
	tests/unit/plan/plan.t \
	tests/unit/plan/policy.t \
	tests/unit/plan/print.t \
	tests/unit/plan/rules.t \
	tests/unit/plan/traits.t \
	tests/unit/capture/offloads.t \
	tests/unit/capture/packed.t \
	tests/unit/capture/suspend.t \
	tests/unit/ranks/ranks.t \
	tests/unit/pass/slots.t \
	tests/unit/pipeline/pipeline.t \
	tests/unit/schedule/run.t \
	tests/unit/schedule/sequence.t \
	tests/unit/schedule/walk.t \
	tests/unit/device/spans.t \
	tests/unit/memory/numa.t \
	tests/unit/bank/banks.t \
	tests/unit/bank/blocks.t \
	tests/unit/order/order.t \
	tests/unit/comm/comm.t \
	tests/unit/comm/post.t \
	tests/unit/exchange/exchange.t \
	tests/unit/comm/thread_barrier.t \
	tests/unit/memory/arena.t \
	tests/unit/memory/held.t \
	tests/unit/memory/pinned.t \
	tests/unit/memory/pool.t \
	tests/unit/device/batch.t \
	tests/unit/device/calls.t \
	tests/unit/device/job.t \
	tests/unit/offload/exchanges.t \
	tests/unit/offload/moves.t \
	tests/unit/offload/host_owned.t \
	tests/unit/offload/scripts.t \
	tests/unit/config/env.t \
	tests/unit/trace/trace.t \
	tests/unit/base/error.t \
	tests/unit/base/json.t \
	tests/unit/base/log.t \
	tests/unit/base/size.t \
	tests/unit/kernels/gradient.t \
	tests/unit/kernels/kernels.t \
	tests/unit/kernels/stash.t \
	tests/unit/softnccl/comms.t \
	tests/unit/softnccl/stuck.t
# A suite that fakes what is below its room: its functions win over those of the
# library that a function it does not fake brings along.
fake_ldflags = $(AM_LDFLAGS) -Wl,-z,muldefs
fake_calls = tests/support/fake.c tests/support/fake.h
host_memory = tests/support/host_memory.c tests/support/host_memory.h
host_memory_ldflags = -Wl,--wrap=malloc -Wl,--wrap=calloc \
	-Wl,--wrap=realloc -Wl,--wrap=strdup -Wl,--wrap=free
fake_device_alone = tests/support/fake_device.c tests/support/fake_device.h
fake_device = $(fake_calls) $(fake_device_alone)
tests_unit_abi_loader_t_LDADD = $(core_test_libs)
tests_unit_abi_run_t_LDADD = $(core_test_libs)
tests_unit_abi_run_t_LDFLAGS = $(fake_ldflags)
tests_unit_abi_words_t_LDADD = $(core_test_libs)
tests_unit_family_family_t_LDADD = $(core_test_libs)
tests_unit_family_object_t_LDADD = $(core_test_libs)
tests_unit_plan_borders_t_LDADD = $(core_test_libs)
tests_unit_plan_model_t_LDADD = $(core_test_libs)
tests_unit_plan_plan_t_SOURCES = tests/unit/plan/plan.c $(host_memory)
tests_unit_plan_plan_t_LDFLAGS = $(AM_LDFLAGS) $(host_memory_ldflags)
tests_unit_plan_plan_t_LDADD = $(core_test_libs)
tests_unit_plan_policy_t_SOURCES = tests/unit/plan/policy.c $(host_memory)
tests_unit_plan_policy_t_LDFLAGS = $(AM_LDFLAGS) $(host_memory_ldflags)
tests_unit_plan_policy_t_LDADD = $(core_test_libs)
tests_unit_plan_print_t_LDADD = $(core_test_libs)
tests_unit_plan_rules_t_LDADD = $(core_test_libs)
tests_unit_plan_traits_t_LDADD = $(core_test_libs)
tests_unit_pipeline_pipeline_t_LDADD = libpipeline.la $(core_test_libs)
schedule_plans = tests/unit/schedule/plans.c tests/unit/schedule/plans.h
tests_unit_schedule_run_t_SOURCES = tests/unit/schedule/run.c $(fake_device) \
	$(schedule_plans) $(host_memory)
tests_unit_schedule_run_t_LDFLAGS = $(fake_ldflags) $(host_memory_ldflags)
tests_unit_schedule_run_t_LDADD = $(core_test_libs) -lm
tests_unit_schedule_sequence_t_SOURCES = tests/unit/schedule/sequence.c \
	$(schedule_plans) $(host_memory)
tests_unit_schedule_sequence_t_LDFLAGS = $(AM_LDFLAGS) $(host_memory_ldflags)
tests_unit_schedule_sequence_t_LDADD = $(core_test_libs)
tests_unit_schedule_walk_t_SOURCES = tests/unit/schedule/walk.c \
	$(schedule_plans)
tests_unit_schedule_walk_t_LDADD = $(core_test_libs)
tests_unit_capture_offloads_t_SOURCES = tests/unit/capture/offloads.c \
	$(fake_calls)
tests_unit_capture_offloads_t_LDFLAGS = $(fake_ldflags)
tests_unit_capture_offloads_t_LDADD = $(core_test_libs)
tests_unit_capture_packed_t_SOURCES = tests/unit/capture/packed.c $(fake_device)
tests_unit_capture_packed_t_LDFLAGS = $(fake_ldflags)
tests_unit_capture_packed_t_LDADD = $(core_test_libs)
tests_unit_capture_suspend_t_LDADD = libtoy.la $(core_test_libs)
tests_unit_ranks_ranks_t_SOURCES = tests/unit/ranks/ranks.c $(fake_device)
tests_unit_ranks_ranks_t_LDFLAGS = $(fake_ldflags)
tests_unit_ranks_ranks_t_LDADD = $(core_test_libs)
tests_unit_pass_slots_t_LDADD = $(core_test_libs)
tests_unit_device_spans_t_LDADD = $(core_test_libs)
tests_unit_memory_numa_t_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=syscall
tests_unit_memory_numa_t_LDADD = $(core_test_libs)
soft_memory = tests/unit/memory/soft.c tests/unit/memory/soft.h
tests_unit_memory_arena_t_SOURCES = tests/unit/memory/arena.c $(soft_memory) \
	$(host_memory)
tests_unit_memory_arena_t_LDFLAGS = $(AM_LDFLAGS) $(host_memory_ldflags)
tests_unit_memory_arena_t_LDADD = $(core_test_libs)
tests_unit_memory_held_t_SOURCES = tests/unit/memory/held.c $(soft_memory) \
	$(host_memory)
tests_unit_memory_held_t_LDFLAGS = $(AM_LDFLAGS) $(host_memory_ldflags)
tests_unit_memory_held_t_LDADD = $(core_test_libs)
tests_unit_memory_pool_t_SOURCES = tests/unit/memory/pool.c $(soft_memory)
tests_unit_memory_pool_t_LDADD = $(core_test_libs)
tests_unit_memory_pinned_t_SOURCES = tests/unit/memory/pinned.c \
	$(soft_memory) $(host_memory)
tests_unit_memory_pinned_t_LDFLAGS = $(AM_LDFLAGS) $(host_memory_ldflags) \
	-Wl,--wrap=open -Wl,--wrap=gh_device_bus_id
tests_unit_memory_pinned_t_LDADD = $(core_test_libs)
tests_unit_device_calls_t_SOURCES = tests/unit/device/calls.c $(fake_calls) \
	$(host_memory)
tests_unit_device_calls_t_LDFLAGS = $(AM_LDFLAGS) $(host_memory_ldflags)
tests_unit_device_calls_t_LDADD = $(core_test_libs)
tests_unit_device_job_t_LDADD = $(core_test_libs)
tests_unit_device_batch_t_LDADD = $(core_test_libs)
fake_offload = tests/unit/offload/fake.c tests/unit/offload/fake.h \
	$(fake_device) $(host_memory)
fake_offload_ldflags = $(fake_ldflags) $(host_memory_ldflags)
tests_unit_offload_exchanges_t_SOURCES = tests/unit/offload/exchanges.c \
	$(fake_offload)
tests_unit_offload_exchanges_t_LDFLAGS = $(fake_offload_ldflags)
tests_unit_offload_exchanges_t_LDADD = $(core_test_libs)
tests_unit_offload_moves_t_SOURCES = tests/unit/offload/moves.c $(fake_offload)
tests_unit_offload_moves_t_LDFLAGS = $(fake_offload_ldflags)
tests_unit_offload_moves_t_LDADD = $(core_test_libs)
tests_unit_offload_host_owned_t_LDADD = $(core_test_libs)
tests_unit_offload_scripts_t_SOURCES = tests/unit/offload/scripts.c \
	$(fake_offload)
tests_unit_offload_scripts_t_LDFLAGS = $(fake_offload_ldflags)
tests_unit_offload_scripts_t_LDADD = $(core_test_libs)
tests_unit_bank_banks_t_SOURCES = tests/unit/bank/banks.c \
	$(fake_device_alone) $(host_memory)
tests_unit_bank_banks_t_LDFLAGS = $(fake_ldflags) $(host_memory_ldflags)
tests_unit_bank_banks_t_LDADD = $(core_test_libs)
tests_unit_order_order_t_SOURCES = tests/unit/order/order.c $(fake_device) \
	$(host_memory)
tests_unit_order_order_t_LDFLAGS = $(fake_ldflags) $(host_memory_ldflags)
tests_unit_order_order_t_LDADD = $(core_test_libs)
tests_unit_bank_blocks_t_LDADD = $(core_test_libs)
tests_unit_exchange_exchange_t_SOURCES = tests/unit/exchange/exchange.c \
	$(fake_device)
tests_unit_exchange_exchange_t_LDFLAGS = $(fake_ldflags)
tests_unit_exchange_exchange_t_LDADD = $(core_test_libs)
tests_unit_comm_comm_t_SOURCES = tests/unit/comm/comm.c $(fake_device) \
	$(host_memory)
tests_unit_comm_comm_t_LDFLAGS = $(fake_ldflags) $(host_memory_ldflags) \
	-Wl,--wrap=clock_gettime -Wl,--wrap=nanosleep -Wl,--wrap=pthread_create
tests_unit_comm_comm_t_LDADD = $(core_test_libs)
tests_unit_comm_thread_barrier_t_LDADD = $(core_test_libs)
tests_unit_comm_post_t_LDADD = $(core_test_libs)
tests_unit_config_env_t_LDADD = $(core_test_libs)
tests_unit_trace_trace_t_LDADD = $(core_test_libs)
tests_unit_base_error_t_LDADD = $(core_test_libs)
tests_unit_base_json_t_LDADD = $(core_test_libs)
tests_unit_base_log_t_LDADD = $(core_test_libs)
tests_unit_base_size_t_LDADD = $(core_test_libs)
tests_unit_softnccl_comms_t_SOURCES = tests/unit/softnccl/comms.c \
	tests/unit/softnccl/still.c tests/unit/softnccl/still.h $(host_memory)
tests_unit_softnccl_comms_t_LDFLAGS = $(AM_LDFLAGS) $(host_memory_ldflags)
tests_unit_softnccl_comms_t_LDADD = libtap.la libsoftnccl_core.la
tests_unit_softnccl_stuck_t_SOURCES = tests/unit/softnccl/stuck.c \
	tests/unit/softnccl/still.c tests/unit/softnccl/still.h
tests_unit_softnccl_stuck_t_LDADD = libtap.la libsoftnccl_core.la
kernels_gpu = tests/unit/kernels/gpu.c tests/unit/kernels/gpu.h
tests_unit_kernels_gradient_t_SOURCES = tests/unit/kernels/gradient.c \
	$(kernels_gpu)
tests_unit_kernels_gradient_t_LDADD = $(core_test_libs)
tests_unit_kernels_kernels_t_SOURCES = tests/unit/kernels/kernels.c \
	$(kernels_gpu)
tests_unit_kernels_kernels_t_LDADD = $(core_test_libs)
tests_unit_kernels_stash_t_SOURCES = tests/unit/kernels/stash.c $(kernels_gpu)
tests_unit_kernels_stash_t_LDADD = $(core_test_libs)
