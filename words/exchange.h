/*
 * exchange.h - the kinds of exchange, each a row.
 *
 * A row ROW(NAME, word) is GH_EXCHANGE_NAME of <graphhooks/exchange.h>, `word`
 * in GRAPHHOOKS_EP_EXCHANGE, and gh_exchange_word, the ops that lib/exchange
 * has for it.  Rows are in the order of the values, from 1 on.  The library and
 * gh-engine make their lists of kinds from these.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef WORDS_EXCHANGE_H
#define WORDS_EXCHANGE_H

#define EXCHANGE_KINDS(ROW) \
    ROW(NCCL, nccl) \
    ROW(COPY, copy) \
    ROW(KERNEL, kernel)

#endif
