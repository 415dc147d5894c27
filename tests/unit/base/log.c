/* A line is said at its level, to whom it concerns, and in one piece. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int lines;
static char last[1024];

static void count(void *user, gh_log_level level, const char *line)
{
    lines++;
    snprintf(last, sizeof(last), "%s %u %s", (const char *)user, level, line);
}

static void test_levels(void)
{
    static char user[] = "host";

    for (gh_log_level limit = 0; limit <= GH_LOG_DEBUG; limit++) {
        const struct gh_log log = { limit, count, user };

        lines = 0;
        for (gh_log_level level = GH_LOG_WARN; level <= GH_LOG_DEBUG; level++) {
            gh_log_line(&log, level, "line %u", level);
        }
        is_int(lines, limit, "a log of level %u has the levels up to it",
               limit);
    }
    is_str(last, "host 3 line 3",
           "a sink gets the host's pointer, the level and the line");
}

static void test_a_long_line(void)
{
    const struct gh_log log = { GH_LOG_WARN, count, last };

    last[0] = '\0';
    gh_log_line(&log, GH_LOG_WARN, "%0900d", 0);
    is_int(strlen(last), strlen(" 1 ") + 511, "a line that is long is cut");
}

/* A name of a host's may hold anything. */
static void test_one_line(void)
{
    const struct gh_log log = { GH_LOG_WARN, count, last };

    gh_log_line(&log, GH_LOG_WARN, "bank 1 (%s), \xc3\xa4",
                "a\nb\t\x1b[2J\x7f\xff.\xc2\x9f\xc2\xa0");
    is_str(strstr(last, "bank"), "bank 1 (a?b?\?[2J?\?.?\?\xc2\xa0), \xc3\xa4",
           "what controls a terminal is no part of a line, nor is what is no "
           "UTF-8");
    gh_log_answer(&log, "%s", "one\r\ntwo");
    is_str(strstr(last, "one"), "one?\?two", "nor of an answer");
}

/* What gh_log_stderr() writes of a line. */
static const char *written(gh_log_level level, const char *line)
{
    static char text[256];
    FILE *file = tmpfile();
    const int saved = dup(STDERR_FILENO);
    size_t n;

    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    gh_log_stderr(NULL, level, line);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    n = fread(text, 1, sizeof(text) - 1, file);
    text[n] = '\0';
    fclose(file);
    return text;
}

static void test_standard_error(void)
{
    is_str(written(GH_LOG_WARN, "slow"), "graphhooks: warning: slow\n",
           "a warning says that it is one");
    is_str(written(GH_LOG_INFO, "fast"), "graphhooks: fast\n",
           "information is a line like any other");
    is_str(written(GH_LOG_DEBUG, "why"), "graphhooks: debug: why\n",
           "and what is for debugging says so");
    is_str(written(99, "what"), "graphhooks: what\n",
           "a level of a later release is no matter");
}

int main(void)
{
    test_levels();
    test_a_long_line();
    test_one_line();
    test_standard_error();
    return done_testing();
}
