/*
 * consumer.c - a host of the installed library: C99 and C++11 at once.
 *
 * tests/abi/consumer.t builds it with pkg-config, linked, and with
 * -DBY_DLOPEN, which needs the headers only.  Prints one line; exits 0 when
 * every call did what its header says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <graphhooks.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s\n", __LINE__, #condition); \
            return 1; \
        } \
    } while (0)

#ifdef BY_DLOPEN
static const gh_api *find_api(void)
{
    void *library = dlopen("libgraphhooks.so.0", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, GH_GET_API_SYMBOL) : NULL;
    const gh_api *api = NULL;
    gh_get_api_fn *get;

    if (symbol == NULL) {
        printf("%s\n", dlerror());
        return NULL;
    }
    memcpy(&get, &symbol, sizeof(get));
    return get(GH_ABI_MAJOR, &api, NULL) == GH_OK ? api : NULL;
}
#else
static const gh_api *find_api(void)
{
    const gh_api *api = NULL;

    return gh_get_api(GH_ABI_MAJOR, &api, NULL) == GH_OK &&
                   api->session_open == gh_session_open
               ? api
               : NULL;
}
#endif

static void count_bytes(void *user, const char *text, size_t bytes)
{
    (void)text;
    *(size_t *)user += bytes;
}

static int use(const gh_api *gh, gh_session *session)
{
    uint32_t i, n = gh->plan_segment_count(session, 0);
    size_t written = 0;
    gh_stats stats;

    CHECK(n == 2);
    CHECK(gh->plan_print(session, GH_FORMAT_TEXT, count_bytes, &written,
                         NULL) == GH_OK);
    CHECK(written > 0);
    for (i = 0; i < n; i++) {
        gh_pass pass;
        gh_decision decision;

        memset(&pass, 0, sizeof(pass));
        memset(&decision, 0, sizeof(decision));
        pass.struct_size = sizeof(pass);
        pass.segment = i;
        decision.struct_size = sizeof(decision);
        CHECK(gh->layer_enter(session, &pass, &decision, NULL) == GH_OK);
        CHECK(decision.action == GH_ACTION_RUN);
        CHECK(gh->layer_exit(session, &pass, NULL) == GH_OK);
    }
    CHECK(gh->iteration_end(session, NULL) == GH_OK);
    memset(&stats, 0, sizeof(stats));
    stats.struct_size = sizeof(stats);
    CHECK(gh->session_stats(session, &stats, NULL) == GH_OK);
    CHECK(stats.eager_passes == 2 && stats.replays == 0);
    return 0;
}

int main(void)
{
    static const char *const environment[] = { "GRAPHHOOKS_ENABLE=0", NULL };
    const gh_api *gh = find_api();
    gh_session *session = NULL;
    gh_model *model = NULL;
    gh_session_desc desc;
    gh_layer_desc layer;
    gh_error err;

    CHECK(gh != NULL);
    memset(&layer, 0, sizeof(layer));
    memset(&desc, 0, sizeof(desc));
    layer.struct_size = sizeof(layer);
    desc.struct_size = sizeof(desc);
    desc.environment = environment;

    CHECK(gh->model_create(&model, &err) == GH_OK);
    CHECK(gh->model_add_layer(model, &layer, &err) == GH_OK);
    CHECK(gh->model_add_layer(model, &layer, &err) == GH_OK);
    desc.model = model;
    CHECK(gh->session_open(&desc, &session, &err) == GH_OK);
    gh->model_destroy(model);
    CHECK(use(gh, session) == 0);
    gh->session_close(session);
    printf("graphhooks %s\n", gh->version());
    return 0;
}
