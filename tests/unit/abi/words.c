/* Words of the host's memory are compared one after the other.
 * SPDX-License-Identifier: Apache-2.0 */
#include <graphhooks/words.h>

#include "tap/tap.h"

enum {
    COUNT = 5
};

int main(void)
{
    uint64_t here[COUNT], values[COUNT];
    const uint64_t *addresses[COUNT];
    uint32_t i;

    for (i = 0; i < COUNT; i++) {
        values[i] = here[i] = UINT64_C(1) << (63 - i);
        addresses[i] = &here[i];
    }
    is_int(gh_words_compare(NULL, NULL, 0), 0, "none are as expected");
    is_int(gh_words_compare(addresses, values, COUNT), COUNT,
           "all are as expected");
    for (i = 0; i < COUNT; i++) {
        here[i] ^= UINT64_C(1) << (7 * i);
        is_int(gh_words_compare(addresses, values, COUNT), i,
               "word %u is another", i);
        is_int(gh_words_compare(addresses, values, i), i,
               "and is not asked for with %u words", i);
        here[i] = values[i];
    }
    here[3] = here[1] = 0;
    is_int(gh_words_compare(addresses, values, COUNT), 1,
           "the first of two is named");
    return done_testing();
}
