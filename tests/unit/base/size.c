/*
 * A struct of any release is read as far as both sides know it.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/size.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

struct v1 {
    uint32_t struct_size;
    uint32_t a;
};
struct v2 {
    uint32_t struct_size;
    uint32_t a;
    uint64_t b;
};
struct v3 {
    uint32_t struct_size;
    uint32_t a;
    uint64_t b;
    uint64_t c;
};

/* The library is v2, whose first release was v1. */
static gh_status check(const void *object, gh_error *err)
{
    return gh_check_size("v", object, sizeof(struct v1), sizeof(struct v2),
                         err);
}

int main(void)
{
    struct v1 old = { sizeof(old), 7 };
    struct v2 same = { sizeof(same), 7, UINT64_C(0x0800000000000008) }, copy;
    struct v3 newer = { sizeof(newer), 7, 8, 0 };
    gh_error err = { "" };

    memset(&copy, 0xff, sizeof(copy));
    is_status(check(&same, &err), GH_OK, &err, "the same size is accepted");
    is_status(check(&old, &err), GH_OK, &err, "an older one is");
    is_status(check(&newer, &err), GH_OK, &err,
              "a newer one with a zero "
              "tail is");
    gh_take_struct(&old, &copy, sizeof(copy));
    ok(copy.a == 7 && copy.b == 0, "fields an older one lacks are zero");
    gh_take_struct(&newer, &copy, sizeof(copy));
    ok(copy.a == 7 && copy.b == 8, "fields both know are taken");

    for (size_t i = sizeof(struct v2); i < sizeof(newer); i++) {
        char word[16];

        newer.c = 0;
        ((unsigned char *)&newer)[i] = 1;
        snprintf(word, sizeof(word), "byte %zu ", i);
        is_status(check(&newer, &err), GH_ERR_UNSUPPORTED, &err,
                  "a newer one that sets byte %zu is refused", i);
        ok(strstr(err.text, word) != NULL, "and the byte is named: %s",
           err.text);
    }

    old.struct_size = sizeof(old) - 1;
    is_status(check(&old, &err), GH_ERR_ABI, &err,
              "one byte less than the first release is refused");
    old.struct_size = 0;
    is_status(check(&old, &err), GH_ERR_ABI, &err, "so is a size of 0");

    old.struct_size = sizeof(old);
    gh_give_struct(&old, &same, sizeof(same));
    ok(old.struct_size == sizeof(old) && old.a == 7,
       "what is given to an older one stays inside it, and keeps its size");
    memset(&newer, 0, sizeof(newer));
    newer.struct_size = sizeof(newer);
    gh_give_struct(&newer, &same, sizeof(same));
    ok(newer.b == same.b && newer.c == 0 && newer.struct_size == sizeof(newer),
       "what is given to a newer one leaves its tail alone");
    return done_testing();
}
