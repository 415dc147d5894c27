/*
 * loans.c - see loans.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/groups/loans.h"

#include "base/error.h"
#include "device/device.h"

#include <stdlib.h>

static void append(struct gh_loan_list *list, struct gh_loan *loan)
{
    loan->next = NULL;
    if (list->last != NULL) {
        list->last->next = loan;
    } else {
        list->first = loan;
    }
    list->last = loan;
}

static struct gh_loan *take_first(struct gh_loan_list *list)
{
    struct gh_loan *loan = list->first;

    if (loan != NULL) {
        list->first = loan->next;
        if (list->first == NULL) {
            list->last = NULL;
        }
    }
    return loan;
}

static void free_all(struct gh_loans *loans, struct gh_loan *loan)
{
    while (loan != NULL) {
        struct gh_loan *next = loan->next;

        gh_device_event_destroy(loans->dev, loan->mark);
        free(loan);
        loan = next;
    }
}

void gh_loans_free(struct gh_loans *loans)
{
    free_all(loans, loans->leaving.first);
    free_all(loans, loans->recorded.first);
    free_all(loans, loans->lost.first);
    free_all(loans, loans->ended.first);
    free_all(loans, loans->unused);
    *loans = (struct gh_loans){ .dev = loans->dev };
}

gh_status gh_loans_begin(struct gh_loans *loans, void *object, bool marked,
                         struct gh_loan **loan_p, gh_error *err)
{
    struct gh_loan *loan = loans->unused;
    gh_status status = GH_OK;

    if (loan == NULL) {
        loan = calloc(1, sizeof(*loan));
        if (loan == NULL) {
            return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a group");
        }
        loans->unused = loan;
    }
    if (marked && loan->mark == NULL) {
        status = gh_device_event_create(loans->dev, &loan->mark, err);
    }
    if (status != GH_OK) {
        return status;
    }
    loans->unused = loan->next;
    loan->next = NULL;
    loan->object = object;
    loan->instance = NULL;
    *loan_p = loan;
    return GH_OK;
}

gh_status gh_loans_record(struct gh_loans *loans, void *object,
                          const struct gh_instance *instance, uint64_t pass,
                          gh_error *err)
{
    struct gh_loan *loan = NULL;
    gh_status status = gh_loans_begin(loans, object, false, &loan, err);

    if (status == GH_OK) {
        loan->instance = instance;
        loan->pass = pass;
        append(&loans->recorded, loan);
    }
    return status;
}

void gh_loans_end(struct gh_loans *loans, struct gh_loan *loan)
{
    append(&loans->ended, loan);
}

void gh_loans_leave(struct gh_loans *loans, struct gh_loan *loan,
                    const struct gh_size_class *of)
{
    loan->of = of;
    append(&loans->leaving, loan);
}

void *gh_loans_mark_before(const struct gh_loans *loans,
                           const struct gh_size_class *of, uint32_t n)
{
    uint32_t left = 0;

    if (n == 0) {
        return NULL;
    }
    for (const struct gh_loan *l = loans->leaving.first; l != NULL;
         l = l->next) {
        left += l->of == of;
    }
    for (const struct gh_loan *l = loans->leaving.first; l != NULL;
         l = l->next) {
        if (l->of == of && left-- == n) {
            return l->mark;
        }
    }
    return NULL;
}

void gh_loans_lose(struct gh_loans *loans, struct gh_loan *loan)
{
    append(&loans->lost, loan);
}

/* Ends the recorded loans of the instance or of the pass.  NULL and 0 match
 * none. */
static void end_of(struct gh_loans *loans, const struct gh_instance *instance,
                   uint64_t pass)
{
    struct gh_loan *loan = loans->recorded.first;

    loans->recorded = (struct gh_loan_list){ NULL, NULL };
    while (loan != NULL) {
        struct gh_loan *next = loan->next;

        append(loan->instance == instance || loan->pass == pass
                   ? &loans->ended
                   : &loans->recorded,
               loan);
        loan = next;
    }
}

void gh_loans_end_pass(struct gh_loans *loans, uint64_t pass)
{
    end_of(loans, NULL, pass);
}

void gh_loans_end_instance(struct gh_loans *loans,
                           const struct gh_instance *instance)
{
    if (loans->recorded.first != NULL) {
        end_of(loans, instance, 0);
    }
}

static void end_list(struct gh_loans *loans, struct gh_loan_list *list)
{
    struct gh_loan *loan;

    while ((loan = take_first(list)) != NULL) {
        gh_loans_end(loans, loan);
    }
}

void gh_loans_end_recorded(struct gh_loans *loans)
{
    end_list(loans, &loans->recorded);
}

void gh_loans_end_all(struct gh_loans *loans)
{
    end_list(loans, &loans->leaving);
    end_list(loans, &loans->lost);
    end_list(loans, &loans->recorded);
}

/* The copies are of one stream, so none ends before the one before it. */
void gh_loans_poll(struct gh_loans *loans)
{
    struct gh_device_before before;

    if (loans->leaving.first == NULL) {
        return;
    }
    before = gh_device_enter(loans->dev);
    while (loans->leaving.first != NULL &&
           gh_device_event_has_ended(loans->dev, loans->leaving.first->mark)) {
        gh_loans_end(loans, take_first(&loans->leaving));
    }
    gh_device_leave(loans->dev, before);
}

bool gh_loans_take(struct gh_loans *loans, void **object_p)
{
    struct gh_loan *loan = take_first(&loans->ended);

    if (loan == NULL) {
        return false;
    }
    *object_p = loan->object;
    loan->next = loans->unused;
    loans->unused = loan;
    return true;
}
