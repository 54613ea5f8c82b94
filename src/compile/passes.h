/* The passes over a unit, in the order in which pipeline.c runs them. */
#ifndef COMPILE_PASSES_H
#define COMPILE_PASSES_H

#include "compile/unit.h"

typedef enum reason {
#define REASON(name, code, rule, words, example, remedy) REASON_##name,
#include "compile/reasons.def"
#undef REASON
    REASON_COUNT
} reason_t;

/* Code of a reason, as "may-raise". Static storage. */
const char *reason_code(reason_t reason);

/* Drops operations whose results nobody reads. */
UNCOPY_MUST_CHECK uncopy_status_t normalise_run(unit_t *unit);

/* Removes copies; those that stay get their reason. */
UNCOPY_MUST_CHECK uncopy_status_t elide_run(unit_t *unit);

/* Puts operations in the order that the options ask for. */
UNCOPY_MUST_CHECK uncopy_status_t order_run(unit_t *unit);

/* Makes the plan's instructions and tables in plan's arena. */
UNCOPY_MUST_CHECK uncopy_status_t lower_run(unit_t *unit, plan_t *plan);

#endif
