/*
 * report.h - what was found, reported once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_REPORT_H
#define SOFTCUDA_REPORT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    REPORTS_SEEN = 4096
};

struct reports {
    char **texts;
    uint64_t n;
    uint64_t seen[REPORTS_SEEN]; /* hashes of what was reported already */
};

uint64_t hash_start(void);
uint64_t hash_text(uint64_t hash, const char *text);
uint64_t hash_number(uint64_t hash, uint64_t number);
/* True only for the first finding with this hash. */
bool reports_is_news(struct reports *reports, uint64_t hash);
/* Writes "softcuda: `what`: `text`" to standard error. */
void reports_add(struct reports *reports, const char *what, const char *text);
void reports_forget(struct reports *reports);
uint64_t reports_read(const struct reports *reports, uint64_t i,
                      const char **text_p);

#endif
