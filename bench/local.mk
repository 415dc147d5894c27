# bench/local.mk - the benches.
# SPDX-License-Identifier: Apache-2.0

# Hosts of their own: they load the library, and link only the driver table.

noinst_PROGRAMS += bench/hook_overhead bench/open_cost bench/plan_cost \
	bench/record_cost bench/offload bench/offload_cost bench/banks \
	bench/exchange bench/overlap bench/scale bench/beside bench/stash \
	bench/stages
bench_common = bench/bench.c bench/bench.h
bench_hook_overhead_SOURCES = bench/hook_overhead.c $(bench_common)
bench_hook_overhead_LDADD = libdriver.la
bench_offload_cost_SOURCES = bench/offload_cost.c $(bench_common)
bench_offload_cost_LDADD = libdriver.la
bench_banks_SOURCES = bench/banks.c $(bench_common)
bench_banks_LDADD = libdriver.la
bench_offload_SOURCES = bench/offload.c $(bench_common)
bench_offload_CPPFLAGS = $(engine_cppflags)
bench_offload_LDADD = libengine.la
bench_layers = bench/experts.c bench/experts.h bench/layers.c bench/layers.h \
	bench/product.c bench/product.h
bench_sides = bench/ranks.c bench/ranks.h bench/side.c bench/side.h
bench_overlap_SOURCES = bench/overlap.c bench/overlap_link.c \
	bench/overlap_link.h bench/overlap_report.c bench/overlap.h \
	$(bench_sides) $(bench_layers) $(bench_common)
bench_overlap_CPPFLAGS = $(engine_cppflags)
bench_overlap_LDADD = libengine.la -lm
bench_exchange_SOURCES = bench/exchange.c bench/exchange.h \
	bench/exchange_overlap.c $(bench_sides) $(bench_layers) $(bench_common)
bench_exchange_CPPFLAGS = $(engine_cppflags)
bench_exchange_LDADD = libengine.la -lm
bench_beside_SOURCES = bench/beside.c $(bench_sides) bench/product.c \
	bench/product.h $(bench_common)
bench_beside_CPPFLAGS = $(engine_cppflags)
bench_beside_LDADD = libengine.la -lm
bench_stash_SOURCES = bench/stash.c $(bench_common)
bench_stash_CPPFLAGS = $(engine_cppflags)
bench_stash_LDADD = libengine.la -lm
bench_stages_SOURCES = bench/stages.c
bench_stages_CPPFLAGS = $(AM_CPPFLAGS)
bench_stages_LDADD = libpipeline.la libpipelinebase.la
bench_scale_SOURCES = bench/scale.c bench/costs.c bench/costs.h \
	bench/experts.c bench/experts.h $(bench_common)
bench_scale_LDADD = libdriver.la
bench_open_cost_SOURCES = bench/open_cost.c $(bench_common)
bench_open_cost_LDADD = libdriver.la
bench_plan_cost_SOURCES = bench/plan_cost.c $(bench_common)
bench_plan_cost_LDADD = libcore.la
bench_record_cost_SOURCES = bench/record_cost.c $(bench_common)
bench_record_cost_LDADD = libdriver.la
EXTRA_DIST += \
	bench/README.md \
	bench/engine.sh \
	bench/exchange.sh \
	bench/hook_instructions.sh \
	bench/models.py \
	bench/models.sh \
	bench/models/drawing.py \
	bench/models/worker.py \
	bench/models/zoo.py \
	bench/peers/brief.py \
	bench/peers/cases.py \
	bench/peers/gpt.py \
	bench/peers/measure.py \
	bench/peers/megatron_rows.py \
	bench/peers/report.py \
	bench/peers/row.py \
	bench/peers/run.py \
	bench/peers/te_rows.py \
	bench/peers/torch_rows.py \
	bench/peers/worker.py \
	bench/banks_picture.py \
	bench/banks_torch.py \
	bench/suspend_torch.py \
	bench/verify_torch.py \
	bench/offload_picture.py \
	bench/offload_trace.py \
	bench/exchange_picture.py \
	bench/overlap_picture.py \
	bench/picture.py \
	bench/megatron.sh \
	bench/pipeline.sh \
	bench/run.sh \
	bench/scale_picture.py \
	bench/stages_picture.py \
	bench/step.sh \
	bench/table.py \
	bench/timeline.py \
	bench/results/h100/README.md \
	bench/results/h100/te.svg \
	bench/results/h100/te/table.md \
	bench/results/h100x2/README.md \
	bench/results/h100x2/offload.txt \
	bench/results/h100x2/overlap.svg \
	bench/results/h100x2/policy.txt \
	bench/results/h100x2/table.txt \
	bench/results/h100x2/tokens.txt \
	bench/results/h200/README.md \
	bench/results/h200/banks.svg \
	bench/results/h200/models.svg \
	bench/results/h200/peers/table.md \
	bench/results/h200/overlap.svg \
	bench/results/h200/scale.svg \
	bench/results/h200/step.svg \
	bench/results/h200/offload.svg \
	bench/results/h200/table.txt \
	bench/results/h200x2/README.md \
	bench/results/h200x2/exchange.svg \
	bench/results/h200x2/megatron.svg \
	bench/results/h200x2/megatron.txt \
	bench/results/h200x4/megatron.txt \
	bench/results/stages.svg \
	bench/results/raw.tar.xz

# What was measured, with every turn of every row: results/ in the build
# directory, from and into the archive that comes with the sources.
results: $(srcdir)/bench/results/raw.tar.xz
	$(AM_V_GEN)python3 -m tarfile -e $(srcdir)/bench/results/raw.tar.xz $@ && \
	    touch $@
pack-results:
	$(AM_V_GEN)(cd results && XZ_OPT=-9e tar --sort=name --owner=0 --group=0 \
	    --numeric-owner --mtime=2026-01-01 --mode=go=rX,u+rw -cJf - *) \
	    > $(srcdir)/bench/results/raw.tar.xz

# The pictures.
figures: results bench/stages
	$(AM_V_GEN)./bench/stages --json results/stages.json && \
	    python3 $(srcdir)/bench/stages_picture.py results/stages.json \
	    > results/stages.new && \
	    mv results/stages.new $(srcdir)/bench/results/stages.svg
	$(AM_V_GEN)draw() { python3 $(srcdir)/bench/$$1.py \
	        results/$$2 > results/$$3.new && \
	        mv results/$$3.new $(srcdir)/bench/results/$$3.svg; } && \
	    draw banks_picture h200 h200/banks && \
	    draw offload_picture h200/offload.json h200/offload && \
	    draw overlap_picture h200/overlap.json h200/overlap && \
	    draw exchange_picture h200x2/exchange.json h200x2/exchange && \
	    draw scale_picture h200/scale.json h200/scale && \
	    draw picture h200/peers h200/step && draw picture h100/te h100/te
	$(AM_V_GEN)python3 $(srcdir)/bench/models.py --picture \
	    results/h200/models.json > results/models.new && \
	    mv results/models.new $(srcdir)/bench/results/h200/models.svg
	$(AM_V_GEN)python3 $(srcdir)/bench/timeline.py results/ranks.svg \
	    results/h200x2/megatron/trace/*.json && \
	    mv results/ranks.svg $(srcdir)/bench/results/h200x2/megatron.svg
.PHONY: figures pack-results
