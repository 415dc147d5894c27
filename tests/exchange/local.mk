# tests/exchange/local.mk - ranks that send each other tokens.
# SPDX-License-Identifier: Apache-2.0

# As tests/nccl: threads on softnccl, processes on NCCL.

EXTRA_LTLIBRARIES += libtrader.la
libtrader_la_SOURCES = tests/exchange/trader.c tests/exchange/trader.h
libtrader_la_LIBADD = libranks.la libgraphhooks.la

exchange_programs = \
	tests/exchange/drops.t \
	tests/exchange/exchange.t \
	tests/exchange/faults.t \
	tests/exchange/parting.t \
	tests/exchange/processes.t \
	tests/exchange/refused.t
test_programs += $(exchange_programs)

tests_exchange_exchange_t_LDADD = libtrader.la
tests_exchange_drops_t_LDADD = libtrader.la
tests_exchange_faults_t_LDADD = libtrader.la
tests_exchange_parting_t_LDADD = libtrader.la
tests_exchange_processes_t_LDADD = libtrader.la
tests_exchange_refused_t_LDADD = libtrader.la
tests_exchange_suspend_t_LDADD = libtrader.la
