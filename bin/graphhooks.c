/*
 * graphhooks.c - the command: what can be set, and what is there.
 *
 *     graphhooks env [--markdown]
 *     graphhooks info [--json]
 *     graphhooks plan FILE.json [OPTIONS]
 *
 * Exit status: 0; 1 when `env` finds a wrong value, `plan` an impossible
 * request, or stdout cannot be written; 2 for a command line, or a file, that
 * is not understood.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "config/env.h"
#include "info.h"
#include "plan.h"
#include "words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: graphhooks COMMAND\n"
    "\n"
    "  env [--markdown]  every GRAPHHOOKS_ variable, with what is set now;\n"
    "                    --markdown: the table without it\n"
    "  info [--json]     versions, families, drivers, devices\n"
    "  plan FILE         which parts of the model that FILE describes are\n"
    "                    captured, and why; - is standard input\n"
    "    --scope LIST      attn, mlp, moe, moe_router, moe_preprocess, mamba;\n"
    "                      \"\": whole layers\n"
    "    --granularity G   part, layer or chunk\n"
    "    --ep-overlap 0|1  expert communication behind another microbatch\n"
    "    --delay-wgrad 0|1 weight gradients in passes of their own\n"
    "    --offload-fraction F, --offload-buffers N, --in-flight N\n"
    "                      how much of what is offloaded goes: 0 to 1 or auto,\n"
    "                      buffers of a ring, microbatches in flight\n"
    "    --pp N            slots and idle time of a pipeline of N stages, with\n"
    "    --schedule S      1f1b, zero-bubble, dualpipev or a file\n"
    "                      (doc/pipelines.md)\n"
    "    --microbatches N, --group N, --vpp N\n"
    "                      in a step; of a chunk in a row; chunks of a stage\n"
    "    --stage-times L   what a pass takes in each stage, with commas\n"
    "    --all             every segment, also of layers that are alike\n"
    "    --json            the plan for programs\n"
    "    --why LAYER.PART  one decision in full, as in 3.attn\n"
    "  plan --table      the rules, as the tables of doc/scopes.md\n"
    "  --version         the version of the package and of the ABI\n"
    "  --help, -h        this\n";

static void write_stdout(void *user, const char *text, size_t bytes)
{
    (void)user;
    fwrite(text, 1, bytes, stdout);
}

/* Whether `option` was given; anything else is refused. */
static int take_option(int argc, char **argv, const char *option, bool *given)
{
    const char *const known[] = { option, NULL };
    char what[64];

    *given = false;
    snprintf(what, sizeof(what), "an option of %s", argv[1]);
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], option) != 0) {
            return refuse(what, argv[i], known);
        }
        *given = true;
    }
    return 0;
}

static int run_env(int argc, char **argv)
{
    static struct gh_env env;
    gh_error err;
    bool markdown;
    int status = take_option(argc, argv, "--markdown", &markdown);

    if (status != 0) {
        return status;
    }
    if (markdown) {
        gh_env_print(GH_ENV_FORMAT_MARKDOWN, NULL, write_stdout, NULL);
        return 0;
    }
    gh_env_print(GH_ENV_FORMAT_TEXT, gh_env_process(), write_stdout, NULL);
    return gh_env_load(gh_env_process(), &env, &err) == GH_OK ? 0 : 1;
}

static int run_info(int argc, char **argv)
{
    bool json;
    int status = take_option(argc, argv, "--json", &json);

    if (status == 0) {
        info_print(json);
    }
    return status;
}

static int run_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("graphhooks %s, ABI %d.%d\n", PACKAGE_VERSION, GH_ABI_MAJOR,
           GH_ABI_MINOR);
    return 0;
}

static int run_help(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    fputs(usage, stdout);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    { "env", run_env },       { "info", run_info },
    { "plan", plan_command }, { "--version", run_version },
    { "--help", run_help },   { "-h", run_help },
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    const char *names[N_COMMANDS + 1] = { NULL };
    int status;

    if (argc < 2) {
        fputs(usage, stderr);
        return 2;
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(argv[1], commands[i].name) == 0) {
            status = asks_for_help(argc, argv) ? run_help(argc, argv)
                                               : commands[i].run(argc, argv);
            if (fflush(stdout) != 0 || ferror(stdout)) {
                perror("graphhooks: stdout");
                return 1;
            }
            return status;
        }
    }
    return refuse("a command", argv[1], names);
}
