# doc/local.mk - what a user reads.
# SPDX-License-Identifier: Apache-2.0

# What a user reads, and the family that is there to be copied.
dist_doc_DATA = \
	plugins/example.c \
	doc/abi.md \
	doc/design.md \
	doc/environment.md \
	doc/families.md \
	doc/hello-device.h \
	doc/hello-offload.c \
	doc/hello.c \
	doc/hello.cu \
	doc/hosts-c.md \
	doc/banks.md \
	doc/megatron.md \
	doc/memory.md \
	doc/numbers.md \
	doc/offload.md \
	doc/overlap.md \
	doc/pipelines.md \
	doc/hosts-frameworks.md \
	doc/hosts.md \
	doc/ranks.md \
	doc/scopes.md \
	doc/softcuda.md \
	doc/softnccl.md \
	doc/stash.md \
	doc/verify.md \
	doc/words.md
dist_man_MANS = \
	doc/gh-engine.1 \
	doc/graphhooks-conform.1 \
	doc/graphhooks.1
modelsdir = $(docdir)/models
dist_models_DATA = \
	doc/models/README.md \
	doc/models/deepseek-v3-stage.json \
	doc/models/deepseek-v3.json \
	doc/models/llama3-8b.json \
	doc/models/mamba-moe.json \
	doc/models/moonlight.json \
	doc/models/qwen3-moe.json
EXTRA_DIST += \
	doc/site/conf.py \
	doc/site/headers.sed

# The pages and the headers as a site: html/html/README.html.
html-local:
	PYTHON='$(PYTHON)' $(SHELL) $(srcdir)/build-aux/html.sh html
