/*
 * session.c - opens a session from the inside out, and closes it in reverse.
 *
 * Options come first, so that a typing error is found without a GPU.  The
 * families and the plan follow, which need no GPU either.  The driver comes
 * last.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "abi/session.h"

#include "abi/options.h"
#include "abi/services.h"
#include "base/error.h"
#include "base/size.h"
#include "capture/capture.h"
#include "config/env.h"
#include "device/device.h"
#include "family/family.h"
#include "plan/model.h"
#include "schedule/schedule.h"
#include "trace/nvtx.h"
#include "trace/trace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A host whose log calls the library is refused, as in every service. */
static void tell(void *user, gh_log_level level, const char *line)
{
    struct gh_session *session = user;
    void *gate;

    if (session->telling) {
        return;
    }
    session->telling = true;
    gate = gh_gate_leave(&session->gate);
    session->told.write(session->told.user, level, line);
    gh_gate_return(&session->gate, gate);
    session->telling = false;
}

static void open_log(struct gh_session *session, const struct gh_env *env)
{
    const gh_host_services *host = &session->host;
    struct gh_log *log = &session->log;

    session->told.write = host->log != NULL ? host->log : gh_log_stderr;
    session->told.user = host->user;
    log->level = env->log;
    log->write = tell;
    log->user = session;
    for (uint32_t i = 0; i < env->notes.n; i++) {
        gh_log_line(log, GH_LOG_WARN, "%s", env->notes.line[i]);
    }
    if (env->notes.lost != 0) {
        gh_log_line(log, GH_LOG_WARN, "and %u more names like these",
                    env->notes.lost);
    }
}

/* Warns of directories that do not exist.  This is no error, because the family
 * may be in the next one; but a mistyped path should not first show up in the
 * plan. */
static void warn_of_dirs(const struct gh_env *env, const struct gh_log *log)
{
    struct gh_family_dirs dirs;

    gh_family_dirs_start(&dirs, env->plugin_path);
    while (gh_family_dirs_next(&dirs) && dirs.named) {
        if (!dirs.there && !gh_family_dirs_repeat(&dirs)) {
            gh_log_line(log, GH_LOG_WARN,
                        "GRAPHHOOKS_PLUGIN_PATH: %s is not a directory",
                        dirs.directory);
        }
    }
}

/* Logs a family before it is called, so that after a crash the last line names
 * it. */
static void say_family(void *log, const struct gh_family_where *where)
{
    gh_log_line(log, GH_LOG_INFO, "family %s: %s is loaded and asked",
                where->family, where->file);
}

static const char *name_of_needs(uint32_t needs)
{
    return (needs & GH_CAN_PARTS) != 0    ? "some parts of a layer"
           : (needs & GH_CAN_CHUNKS) != 0 ? "several layers"
                                          : "a whole layer";
}

/* Fails with the first segment that the host cannot run; later ones are not
 * listed. */
static gh_status check_capabilities(const struct gh_plan *plan, uint32_t can,
                                    const struct gh_env *env, gh_error *err)
{
    char where[120];

    for (uint32_t i = 0; i < plan->n_segments && can != 0 && env->enable;
         i++) {
        const uint32_t beyond = gh_plan_needs(plan, i) & ~can;

        if (beyond == 0) {
            continue;
        }
        gh_plan_extent(plan, &plan->segments[i], where, sizeof(where));
        return gh_fail(err, GH_ERR_CONFIG,
                       "the host cannot run %s as one segment, such as %.60s "
                       "(gh_session_desc.capabilities): change "
                       "GRAPHHOOKS_SCOPE, or GRAPHHOOKS_GRANULARITY, which is "
                       "%s; where the model cuts its layers, `graphhooks "
                       "plan` says why",
                       name_of_needs(beyond), where,
                       gh_granularity_name(
                           (enum gh_granularity)env->granularity));
    }
    return GH_OK;
}

static gh_status make_plan(struct gh_session *session,
                           const gh_session_desc *desc,
                           const struct gh_env *env, gh_error *err)
{
    const struct gh_plan_options options = {
        .scope = env->scope,
        .granularity = (enum gh_granularity)env->granularity,
        .ep_overlap = (desc->flags & GH_SESSION_EP_OVERLAP) != 0,
        .delay_wgrad = (desc->flags & GH_SESSION_DELAY_WGRAD) != 0,
        .offloads = session->offloads,
        .offload = session->offload.modules,
    };
    const struct gh_family_watch watch = { say_family, &session->log };
    struct gh_traits_set traits;
    gh_status status;
    char line[512];

    if (gh_families_named(desc->model)) {
        warn_of_dirs(env, &session->log);
    }
    status = gh_families_resolve(desc->model, env->plugin_path, &watch, &traits,
                                 err);
    if (status != GH_OK) {
        return status;
    }
    status =
        gh_plan_make_with(desc->model, &traits, &options, &session->plan, err);
    if (status != GH_OK) {
        return status;
    }
    status = check_capabilities(&session->plan, desc->capabilities, env, err);
    if (status != GH_OK) {
        return status;
    }
    for (enum gh_cause cause = 0; cause < GH_CAUSE_COUNT; cause++) {
        if (gh_plan_note_text(&session->plan, cause, line, sizeof(line))) {
            gh_log_line(&session->log, GH_LOG_WARN, "%s", line);
        }
    }
    return GH_OK;
}

/* Warns if host and session are on different drivers.  Streams of one mean
 * nothing to the other, so at best every pass would run eagerly. */
static void warn_of_drivers(const struct gh_session *session,
                            const struct gh_env *env)
{
    char path[200];

    if (gh_device_other_driver(session->dev, path, sizeof(path))) {
        gh_log_line(&session->log, GH_LOG_WARN,
                    "host and session are on different drivers: the session is "
                    "on %s, and this thread has a context of %s: set "
                    "GRAPHHOOKS_DRIVER to the host's driver",
                    env->driver, path);
    }
}

static gh_status open_device(struct gh_session *session,
                             const gh_session_desc *desc,
                             const struct gh_env *env, gh_error *err)
{
    struct gh_device_info info;
    gh_error why;
    gh_status status;

    status = gh_device_open(env->driver, desc->context, desc->device,
                            &session->dev, &why);
    if (status != GH_OK && !env->enable) {
        gh_log_line(&session->log, GH_LOG_INFO,
                    "disabled, and without a driver: %s", why.text);
        return GH_OK;
    }
    if (status != GH_OK) {
        return gh_fail(err, status, "%s", why.text);
    }
    if (env->enable) {
        warn_of_drivers(session, env);
    }
    gh_device_get_info(session->dev, &info);
    gh_log_line(&session->log, GH_LOG_INFO,
                "device %d, %s, driver %d.%d: %u segments%s", info.ordinal,
                info.name, info.driver_version / 1000,
                info.driver_version % 1000 / 10, session->plan.n_segments,
                env->enable ? "" : ", disabled");
    session->check = env->check == GH_ENV_CHECK_BITWISE;
    session->unwritten = gh_device_unwritten(session->dev);
    return GH_OK;
}

/* GRAPHHOOKS_MEMORY_LIMIT in bytes. */
static gh_status find_limit(const struct gh_session *session,
                            const struct gh_env *env, uint64_t *bytes_p,
                            gh_error *err)
{
    struct gh_device_before before;
    gh_status status;

    *bytes_p = env->memory_limit;
    if ((env->memory_limit & GH_ENV_BYTES_SHARE) == 0) {
        return GH_OK;
    }
    if (session->dev == NULL) {
        *bytes_p = 0;
        return GH_OK;
    }
    before = gh_device_enter(session->dev);
    status = gh_device_total(session->dev, bytes_p, err);
    gh_device_leave(session->dev, before);
    *bytes_p = *bytes_p / 100 * (env->memory_limit & ~GH_ENV_BYTES_SHARE);
    return status;
}

/* Whether a tool takes ranges of NVTX. */
static bool finds_tool(const struct gh_session *session,
                       const gh_session_desc *desc)
{
    const char *const *environment =
        desc->environment != NULL ? desc->environment : gh_env_process();
    const char *path = gh_env_of_others(environment, "NVTX_INJECTION64_PATH");
    const bool finds = gh_nvtx_open(path, &session->log);

    if (!finds) {
        gh_log_line(&session->log, GH_LOG_INFO,
                    "GRAPHHOOKS_NVTX: no tool takes ranges; start the program "
                    "under one, such as nsys profile --trace=cuda,nvtx");
    }
    return finds;
}

static gh_status open_capture(struct gh_session *session,
                              const gh_session_desc *desc,
                              const struct gh_env *env, gh_error *err)
{
    struct gh_capture_options options = {
        .enabled = env->enable != 0,
        .busy_fails = (desc->flags & GH_SESSION_BUSY_FAILS) != 0,
        .strict = env->strict != 0,
        .watches = env->watchdog != 0,
        .named = env->nvtx != 0 && finds_tool(session, desc),
        .legacy_threads = (desc->flags & GH_SESSION_LEGACY_THREADS) != 0,
        .suspends = (desc->flags & GH_SESSION_SUSPENDS) != 0,
        .check = (uint8_t)env->check,
        .timeout_s = env->timeout,
        .check_every = env->check_every,
        .warmup_steps = env->warmup_steps,
        .freeze = env->freeze,
        .max_slots = env->max_slots,
        .max_banks = env->max_banks,
        .last_direction = session->last_direction,
        .host = gh_session_services(session),
        .gate = &session->gate,
        .settings = session->settings,
        .n_settings = session->n_settings,
        .log = &session->log,
        .trace = session->trace,
        .offload = session->holds_groups ? &session->offload : NULL,
    };
    gh_status status;

    _Static_assert((int)GH_ENV_CHECK_BITWISE == (int)GH_CHECKS_BITS &&
                       (int)GH_ENV_CHECK_RANKS == (int)GH_CHECKS_RANKS,
                   "words of GRAPHHOOKS_CHECK");
    status = find_limit(session, env, &options.memory_limit, err);
    return status == GH_OK
               ? gh_capture_create(&session->plan, session->dev, &options,
                                   &session->capture, err)
               : status;
}

static gh_status open_schedule(struct gh_session *session,
                               const gh_session_desc *desc,
                               const struct gh_env *env, gh_error *err)
{
    const struct gh_schedule_options options = {
        .order = env->overlap,
        .warmup_steps = env->warmup_steps,
        .log = &session->log,
        .gate = &session->gate,
    };

    if ((desc->flags & GH_SESSION_EP_OVERLAP) == 0) {
        return GH_OK;
    }
    return gh_schedule_create(&session->plan, session->dev, session->capture,
                              &options, &session->schedule, err);
}

static gh_status open_session(struct gh_session *session,
                              const gh_session_desc *desc,
                              const struct gh_env *env, gh_error *err)
{
    gh_status status;

    open_log(session, env);
    session->last_direction =
        (desc->flags & GH_SESSION_DELAY_WGRAD) != 0 ? GH_WGRAD : GH_BACKWARD;
    status = make_plan(session, desc, env, err);
    if (status != GH_OK) {
        return status;
    }
    status = open_device(session, desc, env, err);
    if (status != GH_OK) {
        return status;
    }
    if (env->trace[0] != '\0') {
        status = gh_trace_open(env->trace, &session->plan, &session->log,
                               &session->trace, err);
        if (status != GH_OK) {
            return status;
        }
    }
    if (session->offloads && session->dev == NULL) {
        return gh_fail(err, GH_ERR_NO_DRIVER,
                       "GRAPHHOOKS_OFFLOAD needs a driver also where "
                       "GRAPHHOOKS_ENABLE is 0: name one in "
                       "GRAPHHOOKS_DRIVER, or offload nothing");
    }
    /* A host that saves groups has one path for its memory: also where nothing
     * is offloaded, the library says where they lie. */
    session->holds_groups =
        session->dev != NULL && (session->offloads || desc->offload != NULL);
    status = open_capture(session, desc, env, err);
    return status == GH_OK ? open_schedule(session, desc, env, err) : status;
}

/* Counts reads of memory that nobody wrote.  Comparing two runs does not find
 * them, because both read the same value.  softcuda_configure() sets the
 * device's count back to 0. */
uint64_t gh_session_unwritten(const gh_session *session)
{
    uint64_t now;

    if (session->dev == NULL || !session->check) {
        return 0;
    }
    now = gh_device_unwritten(session->dev);
    return now >= session->unwritten ? now - session->unwritten : now;
}

static void say_unwritten(const gh_session *session)
{
    const uint64_t n = gh_session_unwritten(session);

    if (n != 0) {
        gh_log_line(&session->log, GH_LOG_WARN,
                    "GRAPHHOOKS_CHECK: %llu read%s of device memory that "
                    "nothing had written, each named on standard error "
                    "(softcuda: unwritten): write a buffer before a pass "
                    "reads it",
                    (unsigned long long)n, n == 1 ? "" : "s");
    }
}

/* Services that are called here find the session closed. */
static void free_parts(gh_session *session)
{
    struct gh_capture *capture = session->capture;

    session->capture = NULL;
    session->gate.open = NULL;
    gh_capture_destroy(capture);
    gh_schedule_destroy(session->schedule);
    session->schedule = NULL;
    say_unwritten(session);
    gh_trace_close(session->trace);
    gh_device_close(session->dev);
    gh_plan_free(&session->plan);
    free(session->names);
    session->names = NULL;
    free(session->nccl);
    session->nccl = NULL;
    free(session->settings);
    session->settings = NULL;
}

static void add_number(struct gh_session *session, const char *name,
                       uint64_t value)
{
    struct gh_setting *setting = &session->settings[session->n_settings++];

    setting->name = name;
    setting->word = value;
    snprintf(setting->text, sizeof(setting->text), "%llu",
             (unsigned long long)value);
}

/* The options, and what only the host can ask for. */
static gh_status keep_settings(struct gh_session *session,
                               const struct gh_env *env,
                               const gh_session_desc *desc, gh_error *err)
{
    const gh_offload_desc *offload = desc->offload;

    session->settings =
        calloc(GH_ENV_COUNT + 2, sizeof(*session->settings));
    if (session->settings == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
    }
    session->n_settings = gh_env_settings(env, session->settings);
    add_number(session, "gh_session_desc.flags", desc->flags);
    add_number(session, "gh_offload_desc.link_mb_per_s",
               offload != NULL && GH_HAS(offload, gh_offload_desc,
                                         link_mb_per_s)
                   ? offload->link_mb_per_s
                   : 0);
    return GH_OK;
}

gh_status gh_session_open(const gh_session_desc *given, gh_session **session_p,
                          gh_error *err)
{
    struct gh_session *session;
    struct gh_env *env;
    gh_host_services host;
    gh_session_desc desc;
    gh_status status;

    if (given == NULL || session_p == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_session_open: %s is NULL",
                       given == NULL ? "desc" : "session_p");
    }
    status = gh_session_take_desc(given, &desc, err);
    if (status != GH_OK) {
        return status;
    }
    status = gh_session_take_services(desc.host, &host, err);
    if (status != GH_OK) {
        return status;
    }

    env = malloc(sizeof(*env));
    session = calloc(1, sizeof(*session));
    if (env == NULL || session == NULL) {
        status = gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
        goto err_session;
    }
    session->pid = getpid();
    session->host = host;
    status = gh_session_read_options(&desc, env, err);
    if (status != GH_OK) {
        goto err_session;
    }
    session->names = calloc(1, sizeof(*session->names));
    if (session->names == NULL) {
        status = gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
        goto err_session;
    }
    status = keep_settings(session, env, &desc, err);
    if (status != GH_OK) {
        goto err_session;
    }
    if (env->set[GH_ENV_NCCL]) {
        session->nccl = strdup(env->nccl);
        if (session->nccl == NULL) {
            status = gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
            goto err_session;
        }
    }
    status = gh_offload_read_options(desc.offload, env, session->names,
                                     &session->offload, &session->offloads,
                                     err);
    if (status != GH_OK) {
        goto err_session;
    }
    status = open_session(session, &desc, env, err);
    if (status != GH_OK) {
        goto err_session;
    }

    free(env);
    session->gate.open = session->capture;
    *session_p = session;
    return GH_OK;

err_session:
    if (session != NULL) {
        free_parts(session);
    }
    free(session);
    free(env);
    return status;
}

void gh_session_close(gh_session *session)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static gh_session *closed;

    if (session == NULL || session->capture == NULL ||
        session->pid != getpid()) {
        return;
    }
    if (session->schedule != NULL &&
        gh_schedule_is_running(session->schedule)) {
        gh_log_line(&session->log, GH_LOG_WARN,
                    "gh_session_close: called inside gh_overlap_run, so the "
                    "session stays open: close it after the run");
        return;
    }
    if (session->gate.open == NULL && !session->suspended) {
        gh_log_line(&session->log, GH_LOG_WARN,
                    "gh_session_close: called from a function of the host's, so "
                    "the session stays open: close it where the library has "
                    "returned");
        return;
    }
    free_parts(session);
    pthread_mutex_lock(&lock);
    session->closed = closed;
    closed = session;
    pthread_mutex_unlock(&lock);
}

gh_status gh_session_refuse(const gh_session *session, const char *call,
                            gh_error *err)
{
    if (session == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "%s: session is NULL", call);
    }
    if (session->capture == NULL) {
        return gh_fail(err, GH_ERR_STATE, "%s: the session is closed", call);
    }
    if (session->suspended) {
        return gh_fail(err, GH_ERR_STATE,
                       "%s: the session is suspended: call gh_session_resume "
                       "first",
                       call);
    }
    return gh_fail(err, GH_ERR_STATE,
                   "%s: called from a function of the host's: call hooks where "
                   "the library has returned",
                   call);
}
