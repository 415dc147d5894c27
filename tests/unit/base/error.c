/* Every status has its own name, and a failure one sentence. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "tap/tap.h"

#include <string.h>

#define NAMED(status) { status, #status }

static const struct {
    gh_status status;
    const char *name;
} names[] = {
    NAMED(GH_OK),           NAMED(GH_RERUN),         NAMED(GH_ERR_INVALID),
    NAMED(GH_ERR_STATE),    NAMED(GH_ERR_NOT_FOUND), NAMED(GH_ERR_UNSUPPORTED),
    NAMED(GH_ERR_BUSY),     NAMED(GH_ERR_NO_MEMORY), NAMED(GH_ERR_DEVICE),
    NAMED(GH_ERR_ABI),      NAMED(GH_ERR_NO_DRIVER), NAMED(GH_ERR_CONFIG),
    NAMED(GH_ERR_INTERNAL),
};

int main(void)
{
    gh_error err;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        is_str(gh_status_name(names[i].status), names[i].name,
               "%s is called so", names[i].name);
    }
    is_str(gh_status_name(-1000), "GH_ERR_?", "so is what is no status");
    is_str(gh_status_name(1000), "GH_ERR_?", "of either sign");

    memset(&err, 'x', sizeof(err));
    is_int(gh_fail(&err, GH_ERR_BUSY, "%d slots of %s", 7, "8"), GH_ERR_BUSY,
           "a failure has the status that it is given");
    is_str(err.text, "7 slots of 8", "and its sentence");
    is_int(gh_fail(&err, GH_ERR_BUSY, "%0300d", 0), GH_ERR_BUSY,
           "a sentence may be too long");
    is_int(strlen(err.text), sizeof(err.text) - 1, "and is cut short");
    gh_fail(&err, GH_ERR_STATE, "bank %s", "a\nb");
    is_str(err.text, "bank a?b", "a sentence is one line, whatever it names");
    is_int(gh_fail(NULL, GH_ERR_STATE, "%s", "unheard"), GH_ERR_STATE,
           "who wants no sentence gets the status");
    return done_testing();
}
