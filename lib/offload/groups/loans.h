/*
 * loans.h - objects of the host's whose memory the library still reads.
 *
 * A loan begins when a save has gone well and ends once.  What has ended waits
 * in `ended` for lib/capture, which calls the host's service.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_LOANS_H
#define GH_OFFLOAD_LOANS_H

#include <graphhooks/base.h>

#include <stdbool.h>

struct gh_device;
struct gh_instance;
struct gh_size_class;

struct gh_loan {
    void *object;
    void *mark; /* event: the host has written, later the copy has read */
    const struct gh_instance *instance; /* of a recording */
    uint64_t pass;                      /* the same */
    const struct gh_size_class *of;     /* leaving: of its group */
    struct gh_loan *next;
};

struct gh_loan_list {
    struct gh_loan *first, *last;
};

struct gh_loans {
    struct gh_device *dev;
    struct gh_loan_list leaving;  /* copies that were issued, in their order */
    struct gh_loan_list recorded; /* of passes that were recorded */
    struct gh_loan_list lost;     /* nobody can say when their copy has ended */
    struct gh_loan_list ended;
    struct gh_loan *unused;
};

/* Every copy has ended. */
void gh_loans_free(struct gh_loans *loans);

/* Begins a loan of an instance.  `marked`: with an event that its writer and
 * its copy record. */
gh_status gh_loans_begin(struct gh_loans *loans, void *object, bool marked,
                         struct gh_loan **loan_p, gh_error *err);
/* Begins a loan of a recording. */
gh_status gh_loans_record(struct gh_loans *loans, void *object,
                          const struct gh_instance *instance, uint64_t pass,
                          gh_error *err);

/* Ends the loan: the library does not read the object any more. */
void gh_loans_end(struct gh_loans *loans, struct gh_loan *loan);
/* The copy is issued: the loan ends when its mark has been reached. */
void gh_loans_leave(struct gh_loans *loans, struct gh_loan *loan,
                    const struct gh_size_class *of);
/* The mark of the n-th last copy of the class that was issued.  NULL: there are
 * fewer, or n is 0. */
void *gh_loans_mark_before(const struct gh_loans *loans,
                           const struct gh_size_class *of, uint32_t n);
/* Nobody can say when the copy has ended: the loan ends with the session. */
void gh_loans_lose(struct gh_loans *loans, struct gh_loan *loan);
/* Ends the recorded loans of that pass, of that instance, or all. */
void gh_loans_end_pass(struct gh_loans *loans, uint64_t pass);
void gh_loans_end_instance(struct gh_loans *loans,
                           const struct gh_instance *instance);
void gh_loans_end_recorded(struct gh_loans *loans);
/* Ends all loans.  The device is idle. */
void gh_loans_end_all(struct gh_loans *loans);

/* Ends the loans whose mark has been reached. */
void gh_loans_poll(struct gh_loans *loans);
/* Hands over the object of a loan that has ended, each once.  False: there is
 * none. */
bool gh_loans_take(struct gh_loans *loans, void **object_p);

#endif
